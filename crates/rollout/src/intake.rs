//! What the engine believes of an answer: the one place through which completions of every generator
//! come in.
//!
//! An answer is held against its request, against what a completion can be at all
//! ([`Completion::check`]), and against the run's own tokenizer: no id outside the vocabulary, and a
//! text that the tokens really say, because the verifier reads the text and the trainer the tokens.
//! What does not pass is a broken answer, asked for again; it never becomes a group.
//!
//! Not here: who sent it (`worker::remote` checks signatures) and which versions it may have (each
//! generator's own promise).

use std::{fmt, sync::Arc};

use thiserror::Error;

use crate::{
    completion::{BrokenCompletion, Completion, LOGPROB_SLACK},
    prompt::SampleRequest,
};

/// An answer that cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum BrokenAnswer {
    #[error("{returned} completions, {asked} were asked for")]
    Count { asked: u32, returned: usize },
    #[error("completion {index}: {source}")]
    Completion { index: usize, source: BrokenCompletion },
}

/// What the run's tokenizer makes of a completion's tokens; `None` where it can make nothing of them.
pub type TextOf = Arc<dyn Fn(&Completion) -> Option<String> + Send + Sync>;

/// Checks answers. Made once for a run, from its tokenizer.
#[derive(Clone)]
pub struct Intake {
    vocabulary: u32,
    text_of: TextOf,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("vocabulary", &self.vocabulary).finish_non_exhaustive()
    }
}

impl Intake {
    /// For a model with so many token ids.
    pub fn new(vocabulary: u32, text_of: TextOf) -> Self {
        Self { vocabulary, text_of }
    }

    /// What the run's tokenizer makes of a completion's tokens.
    pub fn text_of(&self, completion: &Completion) -> Option<String> {
        (self.text_of)(completion)
    }

    /// Checks an answer against its request.
    pub fn check(
        &self,
        request: &SampleRequest,
        completions: &[Completion],
    ) -> Result<(), BrokenAnswer> {
        let (asked, returned) = (request.count, completions.len());
        if returned != asked as usize {
            return Err(BrokenAnswer::Count { asked, returned });
        }
        for (index, completion) in completions.iter().enumerate() {
            self.check_one(completion)
                .and_then(|()| check_against(request, index, completion))
                .map_err(|source| BrokenAnswer::Completion { index, source })?;
        }
        Ok(())
    }

    /// Checks one completion by itself, for whoever has kept it without its request.
    pub fn check_one(&self, completion: &Completion) -> Result<(), BrokenCompletion> {
        completion.check()?;
        let injected = (0..completion.len()).filter(|token| completion.is_injected[*token]);
        let is_weighed = |token: &usize| {
            !(-LOGPROB_SLACK..=LOGPROB_SLACK).contains(&completion.logprobs[*token])
        };
        if let Some(token) = { injected }.find(is_weighed) {
            return Err(BrokenCompletion::Logprob { token, logprob: completion.logprobs[token] });
        }
        let vocabulary = self.vocabulary;
        let outside = completion.token_ids.iter().position(|id| *id >= vocabulary);
        if let Some(token) = outside {
            let id = completion.token_ids[token];
            return Err(BrokenCompletion::Vocabulary { token, id, vocabulary });
        }
        match (self.text_of)(completion) {
            Some(text) if text == completion.text => Ok(()),
            _ => Err(BrokenCompletion::Text),
        }
    }
}

/// Lengths, and tokens that nobody chose.
fn check_against(
    request: &SampleRequest,
    index: usize,
    completion: &Completion,
) -> Result<(), BrokenCompletion> {
    let most = u64::from(request.max_thinking_tokens) + u64::from(request.max_answer_tokens);
    let sampled = completion.sampled_tokens();
    if sampled as u64 > most {
        return Err(BrokenCompletion::TooLong { sampled, most });
    }
    let Some(first) = completion.is_injected.iter().position(|is_injected| *is_injected) else {
        return Ok(());
    };
    let phrase = request.interruptions.get(index).filter(|one| one.at_token as usize == first);
    let injected = completion.len() - sampled;
    let is_phrase = phrase.is_some_and(|phrase| {
        let range = first..first + injected;
        // In one piece, so the flags that are set are those of the phrase.
        phrase.token_ids.len() == injected
            && completion
                .is_injected
                .get(range.clone())
                .is_some_and(|flags| !flags.contains(&false))
            && completion.token_ids[range] == phrase.token_ids
    });
    if is_phrase { Ok(()) } else { Err(BrokenCompletion::Injected) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FinishReason, GroupId, Interruption, PolicyVersion, Sampling};
    use proptest::prelude::*;

    const VOCABULARY: u32 = 26;

    /// Letters of the alphabet.
    fn text_of(completion: &Completion) -> Option<String> {
        completion.token_ids.iter().map(|id| char::from_u32(u32::from('a') + id)).collect()
    }

    fn intake() -> Intake {
        Intake::new(VOCABULARY, Arc::new(text_of))
    }

    fn request() -> SampleRequest {
        SampleRequest {
            group: GroupId(3),
            prompt_token_ids: vec![1, 2],
            count: 1,
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
            max_thinking_tokens: 2,
            max_answer_tokens: 2,
            end_of_thinking: vec![9],
            interruptions: vec![Interruption { at_token: 2, token_ids: vec![9, 8] }],
            stop: vec![],
            stop_token_ids: vec![],
            end_of_answer: None,
            seed: 1,
        }
    }

    fn completion() -> Completion {
        Completion {
            token_ids: vec![5, 6, 9, 8, 7],
            logprobs: vec![-0.5, -1.0, 0.0, 0.0, -0.1],
            versions: [4, 4, 5, 5, 5].map(PolicyVersion).to_vec(),
            is_injected: vec![false, false, true, true, false],
            text: "fgjih".into(),
            thinking_tokens: 4,
            finish: FinishReason::Stop,
        }
    }

    type Change = fn(&mut Completion);

    fn extend(one: &mut Completion) {
        for _ in 0..2 {
            one.token_ids.push(7);
            one.logprobs.push(-0.1);
            one.versions.push(PolicyVersion(5));
            one.is_injected.push(false);
        }
        one.text.push_str("hh");
    }

    #[test]
    fn an_answer_is_held_against_its_request_and_the_tokenizer() {
        assert_eq!(intake().check(&request(), &[completion()]), Ok(()));
        let cases: [(Change, &str); 9] = [
            (|one| one.token_ids[0] = 4_000_000, "id 4000000, outside the vocabulary of 26"),
            (|one| one.token_ids[0] = VOCABULARY, "id 26, outside"),
            (|one| one.logprobs[4] = -1e30, "completion 0: token 4 has a log-prob"),
            (|one| one.text = "the right answer".into(), "its text is not what"),
            (|one| one.text.clear(), "its text is not what"),
            (extend, "5 sampled tokens, at most 4"),
            (|one| one.is_injected[3] = false, "injected tokens are not the interruption"),
            (|one| one.is_injected.swap(2, 4), "token 4 has a log-prob"),
            (|one| (one.token_ids[3], one.text) = (7, "fgjhh".into()), "injected tokens are not"),
        ];
        for (change, expected) in cases {
            let mut one = completion();
            change(&mut one);
            let said = intake().check(&request(), &[one]).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        let none = intake().check(&request(), &[]).unwrap_err();
        assert_eq!(none, BrokenAnswer::Count { asked: 1, returned: 0 });
        let uninterrupted = SampleRequest { interruptions: vec![], ..request() };
        let said = intake().check(&uninterrupted, &[completion()]).unwrap_err().to_string();
        assert!(said.contains("injected tokens"), "{said}");
    }

    proptest! {
        /// Whatever passes can be trained on: ids of the vocabulary, log-probs whose ratios are finite.
        #[test]
        fn nothing_that_would_break_a_step_gets_through(
            id in any::<u32>(),
            logprob in prop::num::f32::ANY,
            token in 0_usize..5,
            flag in any::<bool>(),
            cut in 0_usize..3,
        ) {
            let mut one = completion();
            (one.token_ids[token], one.logprobs[token]) = (id, logprob);
            one.is_injected[token] = flag;
            one.token_ids.truncate(5 - cut);
            one.text = text_of(&one).unwrap_or_default();
            if intake().check(&request(), std::slice::from_ref(&one)).is_ok() {
                prop_assert!(one.token_ids.iter().all(|id| *id < VOCABULARY));
                let ratios = one.logprobs.iter().map(|found| (-2.0 * f64::from(*found)).exp());
                prop_assert!(ratios.sum::<f64>().is_finite());
                prop_assert!(one.sampled_tokens() <= 4);
            }
        }
    }
}
