//! What a verifier says about one answer.
//!
//! Four words, because a broken verifier is not a wrong answer: an error leaves the batch and is
//! counted, an undecided answer is what the configuration says it is.

use serde::{Deserialize, Serialize};

/// The verdict on one completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Outcome {
    /// The answer is right.
    Correct,
    /// The answer is wrong, or there is none.
    Incorrect,
    /// The verifier works but cannot tell.
    Undecided {
        /// Why not.
        reason: String,
    },
    /// The verifier failed: it crashed, ran out of time, or its sandbox is missing.
    Error {
        /// What happened.
        reason: String,
    },
}

impl Outcome {
    /// `Undecided` with its reason.
    pub fn undecided(reason: impl Into<String>) -> Self {
        Self::Undecided { reason: reason.into() }
    }

    /// `Error` with its reason.
    pub fn error(reason: impl Into<String>) -> Self {
        Self::Error { reason: reason.into() }
    }

    /// `Correct` or `Incorrect`.
    pub fn of(is_correct: bool) -> Self {
        if is_correct { Self::Correct } else { Self::Incorrect }
    }

    /// +1 and −1 as in the paper's setup; `None` where there is no verdict to learn from.
    pub fn reward(&self) -> Option<f64> {
        match self {
            Self::Correct => Some(1.0),
            Self::Incorrect => Some(-1.0),
            Self::Undecided { .. } | Self::Error { .. } => None,
        }
    }

    /// The word of `scalerl grade`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Correct => "equal",
            Self::Incorrect => "different",
            Self::Undecided { .. } => "undecided",
            Self::Error { .. } => "error",
        }
    }
}
