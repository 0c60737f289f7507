//! The policy as one sees it who asks for turns: an environment, an agent, a client of the server.
//!
//! A [`Generator`](crate::Generator) belongs to the engine, which asks for whole groups. A [`Policy`]
//! is handed to others: behind it stands a generator alone (`scalerl serve`) or an episode of a run,
//! which decides how is sampled and keeps every token that was drawn.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::{
    boundary::GeneratorError, completion::Completion, prompt::SampleRequest, version::PolicyVersion,
};

/// A boxed future, for traits that are used as objects.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A token of a completion that is still being written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LiveToken {
    /// Which of the request's completions.
    pub completion: u32,
    /// The token.
    pub token_id: u32,
    /// Its log-prob; 0 where it is injected.
    pub logprob: f32,
    /// The policy that chose or read it.
    pub version: PolicyVersion,
    /// Whether it was forced.
    pub is_injected: bool,
}

/// Is told of every token as it is drawn, from the thread that draws: it must not block.
pub type Live = Arc<dyn Fn(LiveToken) + Send + Sync>;

/// How likely a token of a given text was, at temperature 1.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenScore {
    /// Its log-prob; `None` for the first token, which follows nothing.
    pub logprob: Option<f32>,
    /// The most likely tokens in its place with their log-probs, most likely first.
    pub top: Vec<(u32, f32)>,
}

/// Answers requests, one conversation's or everybody's.
pub trait Policy: Send + Sync + 'static {
    /// As many completions as were asked for. `live` hears of their tokens where the policy can
    /// tell them early; the answer has them all in any case. Dropping the future gives it up.
    fn generate(
        &self,
        request: SampleRequest,
        live: Option<Live>,
    ) -> Pending<'_, Result<Vec<Completion>, GeneratorError>>;

    /// Scores given tokens, with the `top` most likely ones at every place; one list per sequence,
    /// one entry per token.
    fn score(
        &self,
        sequences: Vec<Vec<u32>>,
        top: usize,
    ) -> Pending<'_, Result<Vec<Vec<TokenScore>>, GeneratorError>> {
        let _ = (sequences, top);
        let reason = "this policy writes and does not score given text".to_owned();
        Box::pin(std::future::ready(Err(GeneratorError::Refused { reason })))
    }
}
