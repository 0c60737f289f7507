//! The tokens of a sample with what is known of each, for people who read completions.
//!
//! A token is shown by what it adds to the text. Tokens are decoded in a short window that moves on
//! with them, so the work is linear and the pieces join to the text wherever the tokenizer decodes
//! from left to right; a character that takes several tokens appears with its last one.
//!
//! Not here: log-probs of the trainer. A step reports what its ratios were as a whole
//! (`StepReport::ratio`), not token by token.

use scalerl_journal::{Sample, SampleToken};
use scalerl_rollout::{Completion, Intake, Prompt, Rollout};

/// Tokens of one sample that are kept.
const MOST_TOKENS: usize = 2048;
/// Tokens before a token that are decoded with it.
const WINDOW: usize = 6;

/// A sample with the first of its tokens.
pub(crate) fn sample_of(set: &str, prompt: &Prompt, rollout: &Rollout, intake: &Intake) -> Sample {
    let mut sample = Sample::new(set, prompt, rollout);
    sample.token_list = token_list(intake, rollout);
    sample
}

fn token_list(intake: &Intake, rollout: &Rollout) -> Vec<SampleToken> {
    let mut list = Vec::new();
    for completion in rollout.completions() {
        // Where the decoded window begins, and the first token that is not shown yet.
        let (mut from, mut shown) = (0, 0);
        let left = MOST_TOKENS - list.len();
        for index in 0..completion.len().min(left) {
            let before = text(intake, completion, from, shown);
            let with = text(intake, completion, from, index + 1);
            let is_whole = with.len() > before.len() && !with.ends_with('\u{fffd}');
            let is_last = index + 1 == completion.len();
            let added = if is_whole || is_last {
                with.strip_prefix(&before).unwrap_or_default().to_owned()
            } else {
                String::new()
            };
            if is_whole {
                from = shown.max((index + 1).saturating_sub(WINDOW));
                shown = index + 1;
            }
            list.push(SampleToken {
                text: added,
                logprob: completion.logprobs[index],
                version: completion.versions[index],
                is_injected: completion.is_injected[index],
            });
        }
    }
    list
}

/// What some tokens say, end tokens included.
fn text(intake: &Intake, completion: &Completion, from: usize, to: usize) -> String {
    let range = from..to;
    let alone = Completion {
        token_ids: completion.token_ids[range.clone()].to_vec(),
        logprobs: completion.logprobs[range.clone()].to_vec(),
        versions: completion.versions[range.clone()].to_vec(),
        // In name, so that an end token is shown like any other.
        is_injected: vec![true; range.len()],
        text: String::new(),
        thinking_tokens: 0,
        finish: completion.finish,
    };
    intake.text_of(&alone).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scalerl_rollout::{FinishReason, PolicyVersion, Reward};
    use std::sync::Arc;

    /// Each token is a byte; what is no UTF-8 yet reads as the replacement character.
    fn bytes() -> Intake {
        Intake::new(
            256,
            Arc::new(|one| {
                let bytes: Vec<u8> = one.token_ids.iter().map(|id| *id as u8).collect();
                Some(String::from_utf8_lossy(&bytes).into_owned())
            }),
        )
    }

    proptest! {
        #[test]
        fn the_pieces_join_to_the_text(said in "[a-zäöü漢字😀 ]{1,40}") {
            let token_ids: Vec<u32> = said.bytes().map(u32::from).collect();
            let count = token_ids.len();
            let completion = Completion {
                token_ids,
                logprobs: vec![-0.5; count],
                versions: vec![PolicyVersion(3); count],
                is_injected: vec![false; count],
                text: said.clone(),
                thinking_tokens: 0,
                finish: FinishReason::Stop,
            };
            let reward = Reward { value: 1.0, is_correct: true };
            let rollout = Rollout { completion, reward, episode: None };
            let list = token_list(&bytes(), &rollout);
            let joined: String = list.iter().map(|one| one.text.as_str()).collect();
            prop_assert_eq!(joined, said);
            prop_assert_eq!(list.len(), count);
        }
    }
}
