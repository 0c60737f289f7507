//! What a verifier is asked.
//!
//! A [`Question`] is owned, because a verifier may outlive the caller's patience: it moves to a
//! worker, and a worker that hangs keeps it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A prompt's side of a verdict: what the right answer is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Question {
    /// The prompt as the model saw it.
    pub prompt: String,
    /// The gold answer.
    pub answer: String,
    /// Every column of the row: what a verifier needs beyond the answer (tests, numbers, target).
    pub fields: Map<String, Value>,
}

impl Question {
    /// A question with only an answer.
    pub fn with_answer(answer: impl Into<String>) -> Self {
        Self { answer: answer.into(), ..Self::default() }
    }

    /// A field by its path, `reward_model.ground_truth.target`.
    pub fn field(&self, path: &str) -> Option<&Value> {
        lookup(&self.fields, path)
    }
}

/// A value inside nested objects, by a dotted path. A key that holds dots itself wins.
pub(crate) fn lookup<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (head, rest) = path.split_once('.')?;
    lookup(fields.get(head)?.as_object()?, rest)
}
