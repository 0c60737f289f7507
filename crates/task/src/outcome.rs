//! What a verifier says about one answer.
//!
//! A broken verifier is not a wrong answer: an error leaves the batch and is counted, and so is an
//! answer the verifier cannot judge.

use serde::{Deserialize, Serialize};

/// The verdict on one completion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Outcome {
    /// The answer is right.
    Correct,
    /// The answer is wrong, or there is none.
    Incorrect,
    /// The verifier gives marks: the score is the reward as it is.
    Scored {
        /// The reward.
        score: f64,
        /// Whether it counts as right in pass rates.
        is_correct: bool,
    },
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

    /// The word of `scalerl grade`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Correct | Self::Scored { is_correct: true, .. } => "equal",
            Self::Incorrect | Self::Scored { is_correct: false, .. } => "different",
            Self::Undecided { .. } => "undecided",
            Self::Error { .. } => "error",
        }
    }
}
