//! What goes into a generator and what comes out: plain values, no tensors.
//!
//! Every token carries its own policy version and log-prob, because weights may change while a
//! completion is half written. Tokens that were put in by force are marked and claim no log-prob.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tch::TchError;
use thiserror::Error;

use super::end_tag::{AnswerStop, EndTag};

/// How tokens are drawn from logits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Logits are divided by this; 0 takes the most probable token.
    pub temperature: f64,
    /// Keep the most probable tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f64,
    /// Keep this many of the most probable tokens, before `top_p`; 0 keeps all.
    pub top_k: usize,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_p: 1.0, top_k: 0 }
    }
}

/// The most probable token, always.
pub const GREEDY: Sampling = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0 };

/// A forced end of thinking (ScaleRL, arXiv 2510.13786, section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interruption {
    /// After this many sampled tokens, unless the completion ended before.
    pub after: usize,
    /// Appended as if generated.
    pub tokens: Vec<i64>,
    /// Most tokens sampled afterwards.
    pub answer_tokens: usize,
}

/// A completion that thinks before it answers, each with a budget of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thinking {
    /// Tokens that end thinking where they are first written one after the other. From there on
    /// no interruption comes.
    pub end: Vec<i64>,
    /// The same as text, for a tag that other tokens can spell as well.
    pub tag: Option<Arc<EndTag>>,
    /// Most tokens sampled afterwards.
    pub answer_tokens: usize,
}

/// One prompt and how to continue it.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub prompt: Vec<i64>,
    /// Completions of this prompt; they share its pages.
    pub completions: usize,
    pub sampling: Sampling,
    /// Most tokens sampled until thinking ends or is interrupted, or at all where it never is.
    pub max_tokens: usize,
    /// `None`: all of `max_tokens` is the answer's.
    pub thinking: Option<Thinking>,
    /// Tokens that end a completion; the token is part of it.
    pub stop_tokens: Vec<i64>,
    /// Texts that end a completion; they stay part of it.
    pub stop_strings: Vec<String>,
    /// The end of the answer ends a completion; what is written while it thinks does not count.
    pub end_of_answer: Option<Arc<AnswerStop>>,
    /// Completion `i` draws from `seed + i`, whatever else is being generated.
    pub seed: u64,
    /// One per completion, or empty.
    pub interruptions: Vec<Interruption>,
}

impl Request {
    /// One completion at temperature 1.
    pub fn new(prompt: Vec<i64>, max_tokens: usize) -> Self {
        Self {
            prompt,
            completions: 1,
            sampling: Sampling::default(),
            max_tokens,
            thinking: None,
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            end_of_answer: None,
            seed: 0,
            interruptions: Vec::new(),
        }
    }

    /// The most tokens that one of its sequences can hold, prompt included.
    pub fn longest(&self) -> usize {
        let answer = self.thinking.as_ref().map_or(0, |thinking| thinking.answer_tokens);
        let forced = self.interruptions.iter().map(|i| i.after + i.tokens.len() + i.answer_tokens);
        self.prompt.len() + forced.max().unwrap_or(0).max(self.max_tokens + answer)
    }

    /// Whether any generator of a model with that vocabulary could serve it.
    pub fn check(&self, vocabulary: i64) -> Result<(), RequestError> {
        let refuse = |what: &'static str, found: String| Err(RequestError::Bad { what, found });
        let Sampling { temperature, top_p, .. } = self.sampling;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return refuse("temperature must be 0 or above", temperature.to_string());
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return refuse("top_p must be above 0 and at most 1", top_p.to_string());
        }
        if self.completions == 0 {
            return refuse("completions must be at least 1", "0".to_owned());
        }
        if self.max_tokens == 0 {
            return refuse("max_tokens must be at least 1", "0".to_owned());
        }
        if !self.interruptions.is_empty() && self.interruptions.len() != self.completions {
            let found = format!("{} for {}", self.interruptions.len(), self.completions);
            return refuse("interruptions must be one per completion, or none", found);
        }
        for interruption in &self.interruptions {
            if interruption.after == 0 || interruption.after > self.max_tokens {
                let found = interruption.after.to_string();
                return refuse("an interruption must come after 1 to max_tokens tokens", found);
            }
            if interruption.tokens.is_empty() || interruption.answer_tokens == 0 {
                return refuse("an interruption needs tokens and an answer", "none".to_owned());
            }
        }
        if self.thinking.as_ref().is_some_and(|t| t.end.is_empty() || t.answer_tokens == 0) {
            return refuse("thinking needs tokens that end it and an answer", "none".to_owned());
        }
        if self.stop_strings.iter().any(String::is_empty) {
            return refuse("a stop string must not be empty", "\"\"".to_owned());
        }
        if self.end_of_answer.as_ref().is_some_and(|stop| stop.end().closing.is_empty()) {
            return refuse("the end of the answer must not be empty", "\"\"".to_owned());
        }
        if self.prompt.is_empty() {
            return Err(RequestError::EmptyPrompt);
        }
        let forced = self.interruptions.iter().flat_map(|interruption| &interruption.tokens);
        match self.prompt.iter().chain(forced).find(|id| !(0..vocabulary).contains(*id)) {
            Some(&token) => Err(RequestError::UnknownToken { token, vocabulary }),
            None => Ok(()),
        }
    }
}

/// Names a request inside its generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// One token of a completion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    pub id: i64,
    /// Log-prob under the distribution it was drawn from, after temperature, top-k and top-p.
    /// Greedy tokens carry that of temperature 1. `None` for injected tokens.
    pub logprob: Option<f32>,
    /// The weights that computed its distribution; for injected ones those in force.
    pub version: u64,
    /// Put in by an interruption: not the policy's choice.
    pub is_injected: bool,
}

/// Why a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop token, a stop string or the end of the answer.
    Stop,
    /// `max_tokens`, or `answer_tokens` after thinking: cut off.
    Length,
    /// Cancelled from outside.
    Cancelled,
}

/// One finished completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    pub request: RequestId,
    /// Which of the request's completions.
    pub index: usize,
    pub tokens: Vec<Token>,
    pub finish: Finish,
    /// Whether thinking was interrupted.
    pub is_interrupted: bool,
    /// Tokens up to the end of thinking, that included; `None` where it did not end.
    pub thinking_tokens: Option<usize>,
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RequestError {
    #[error("the prompt has no tokens")]
    EmptyPrompt,
    #[error("{what}, found {found}")]
    Bad { what: &'static str, found: String },
    #[error("token {token} is outside the model's vocabulary of {vocabulary}")]
    UnknownToken { token: i64, vocabulary: i64 },
    #[error(
        "the request can grow to {tokens} tokens (prompt {prompt}), the whole cache holds {room}"
    )]
    LongerThanTheCache { tokens: usize, prompt: usize, room: usize },
    #[error("the request can grow to {tokens} tokens, the model knows {positions} positions")]
    LongerThanTheModel { tokens: usize, positions: i64 },
    #[error("stop strings need a tokenizer, and this generator has none")]
    NoTokenizer,
}

impl RequestError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::LongerThanTheCache { .. } => "lower max_tokens or give the cache more tokens",
            Self::LongerThanTheModel { .. } => "lower max_tokens or shorten the prompt",
            Self::NoTokenizer => "use stop tokens, or load the model's tokenizer.json",
            Self::EmptyPrompt => "give at least one token, such as the start token",
            _ => "correct the request",
        }
    }
}

/// Why a generator stopped working.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum GenerateError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("{given} tensors were given for a model of {expected}")]
    WrongWeights { given: usize, expected: usize },
    #[error("tensor {name} has shape {given:?}, the model has {expected:?}")]
    WrongShape { name: String, given: Vec<i64>, expected: Vec<i64> },
    #[error("the logits of request {request} are not numbers; the weights are broken")]
    NotNumbers { request: u64 },
    #[error(transparent)]
    Load(#[from] scalerl_model::error::LoadError),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl GenerateError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Request(error) => error.hint(),
            Self::Load(error) => error.hint(),
            Self::WrongWeights { .. } | Self::WrongShape { .. } => {
                "exchange weights of the same model only"
            }
            Self::NotNumbers { .. } => "check the training run for a loss that is not a number",
            _ => "lower the number of running sequences or the size of the cache",
        }
    }
}
