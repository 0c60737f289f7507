//! Between the engine's words and the model's: requests going in, completions coming out.
//!
//! Budgets: thinking may take `max_thinking_tokens`; what follows its end, or an interruption, may
//! take `max_answer_tokens`. A completion that neither ends its thinking nor is interrupted is cut
//! at `max_thinking_tokens`. Where the format has no thinking, both together are the answer's.
//!
//! Text: every token is shown, special ones included, because `</think>` often is one and verifiers
//! look for it. Only the end token that the model chose last is left out.

use std::sync::{Arc, Mutex};

use scalerl_generate::{self as model, AnswerStop, EndTag, Finish, RequestError};
use scalerl_model::error::LoadError;
use scalerl_model::tokenizer::Tokenizer;
use scalerl_rollout::{
    Completion, FinishReason, GeneratorError, Intake, PolicyVersion, SampleRequest, Sampling,
};

pub(crate) struct RequestAdapter {
    tokenizer: Arc<Tokenizer>,
    stop_tokens: Vec<i64>,
    end_of_thinking: Last<EndTag>,
    end_of_answer: Last<AnswerStop>,
}

/// As the last request had it; a run has one, and making it takes a look at every token.
struct Last<T>(Mutex<Option<Arc<T>>>);

impl<T> Last<T> {
    fn none() -> Self {
        Self(Mutex::new(None))
    }

    fn get(
        &self,
        is_same: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, LoadError>,
    ) -> Result<Arc<T>, LoadError> {
        let mut last = self.0.lock().expect("nothing panics while it holds the tag");
        if let Some(known) = last.as_ref().filter(|known| is_same(known)) {
            return Ok(known.clone());
        }
        let made = Arc::new(make()?);
        *last = Some(made.clone());
        Ok(made)
    }
}

impl std::fmt::Debug for RequestAdapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestAdapter")
            .field("stop_tokens", &self.stop_tokens)
            .finish_non_exhaustive()
    }
}

impl RequestAdapter {
    pub(crate) fn new(tokenizer: Arc<Tokenizer>, stop_tokens: &[u32]) -> Self {
        Self {
            tokenizer,
            stop_tokens: ids(stop_tokens),
            end_of_thinking: Last::none(),
            end_of_answer: Last::none(),
        }
    }

    pub(crate) fn request(&self, asked: &SampleRequest) -> Result<model::Request, GeneratorError> {
        let answer_tokens = asked.max_answer_tokens as usize;
        let thinks = thinks(asked);
        let thinking_tokens = asked.max_thinking_tokens as usize;
        let interruptions = asked.interruptions.iter().map(|one| model::Interruption {
            after: one.at_token as usize,
            tokens: ids(&one.token_ids),
            answer_tokens,
        });
        let end_of_answer = asked.end_of_answer.as_ref().map(|end| {
            let make = || AnswerStop::new(end.clone(), self.tokenizer.clone());
            self.end_of_answer.get(|known| known.end() == end, make)
        });
        let Sampling { temperature, top_p, top_k } = asked.sampling;
        Ok(model::Request {
            prompt: ids(&asked.prompt_token_ids),
            completions: asked.count as usize,
            sampling: model::Sampling {
                temperature: f64::from(temperature),
                top_p: f64::from(top_p),
                top_k: top_k as usize,
            },
            max_tokens: thinking_tokens + if thinks { 0 } else { answer_tokens },
            thinking: thinks.then(|| model::Thinking {
                end: ids(&asked.end_of_thinking),
                tag: self.tag(&asked.end_of_thinking),
                answer_tokens,
            }),
            stop_tokens: [&self.stop_tokens[..], &ids(&asked.stop_token_ids)].concat(),
            stop_strings: asked.stop.clone(),
            end_of_answer: end_of_answer.transpose().map_err(unreadable)?,
            seed: asked.seed,
            interruptions: interruptions.collect(),
        })
    }

    /// The end of thinking as text, where it takes several tokens.
    fn tag(&self, end: &[u32]) -> Option<Arc<EndTag>> {
        if end.len() < 2 {
            return None;
        }
        // A tag that cannot be read is still found by its tokens.
        let text = self.tokenizer.decode_all(&ids(end)).ok().filter(|text| !text.is_empty())?;
        let make = || EndTag::new(&text, self.tokenizer.clone());
        self.end_of_thinking.get(|known| known.text() == text, make).ok()
    }

    pub(crate) fn completion(
        &self,
        written: &model::Completion,
        asked: &SampleRequest,
    ) -> Result<Completion, GeneratorError> {
        let tokens = &written.tokens;
        let all: Vec<i64> = tokens.iter().map(|token| token.id).collect();
        let is_chosen = tokens.last().is_some_and(|last| !last.is_injected);
        let text = text(&self.tokenizer, &self.stop_tokens, &all, is_chosen).map_err(unreadable)?;
        let unended = if thinks(asked) { tokens.len() } else { 0 };
        Ok(Completion {
            token_ids: all.iter().map(|id| *id as u32).collect(),
            logprobs: tokens.iter().map(|token| token.logprob.unwrap_or(0.0)).collect(),
            versions: tokens.iter().map(|token| PolicyVersion(token.version)).collect(),
            is_injected: tokens.iter().map(|token| token.is_injected).collect(),
            text,
            thinking_tokens: written.thinking_tokens.unwrap_or(unended) as u32,
            finish: match written.finish {
                Finish::Stop => FinishReason::Stop,
                Finish::Length | Finish::Cancelled => FinishReason::Length,
            },
        })
    }
}

/// All tokens as text, but for an end token that the model chose last.
fn text(
    tokenizer: &Tokenizer,
    stop_tokens: &[i64],
    tokens: &[i64],
    is_last_chosen: bool,
) -> Result<String, LoadError> {
    match tokens.split_last() {
        Some((last, rest)) if is_last_chosen && stop_tokens.contains(last) => {
            tokenizer.decode_all(rest)
        }
        _ => tokenizer.decode_all(tokens),
    }
}

/// Judges answers of every generator by the run's own tokenizer, for the engine.
pub fn intake(tokenizer: Arc<Tokenizer>, stop_tokens: &[u32], vocabulary: u32) -> Intake {
    let stop_tokens = ids(stop_tokens);
    let text_of = move |completion: &Completion| {
        let is_chosen = completion.is_injected.last() == Some(&false);
        text(&tokenizer, &stop_tokens, &ids(&completion.token_ids), is_chosen).ok()
    };
    Intake::new(vocabulary, Arc::new(text_of))
}

/// Whether the format has thinking; without it all tokens are the answer's.
fn thinks(asked: &SampleRequest) -> bool {
    asked.max_thinking_tokens > 0 && !asked.end_of_thinking.is_empty()
}

/// Why the model does not take a request.
pub(crate) fn refusal(error: &RequestError) -> GeneratorError {
    match error {
        RequestError::LongerThanTheCache { tokens, room, .. } => {
            GeneratorError::TooLong { asked: *tokens as u64, limit: *room as u64 }
        }
        RequestError::LongerThanTheModel { tokens, positions } => {
            GeneratorError::TooLong { asked: *tokens as u64, limit: *positions as u64 }
        }
        other => GeneratorError::Refused { reason: other.to_string() },
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: LoadError) -> GeneratorError {
    GeneratorError::Refused { reason: error.to_string() }
}

fn ids(tokens: &[u32]) -> Vec<i64> {
    tokens.iter().copied().map(i64::from).collect()
}
