//! The verifier interface, and the choice of one in a recipe.
//!
//! A verifier is a value of [`VerifierConfig`] (`type = "math"`, …) built once and shared by all
//! workers. It may block; whoever must not wait puts it behind a [`crate::worker::VerifierPool`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::outcome::Outcome;
use crate::question::Question;
use crate::second_opinion::{SecondOpinion, SecondOpinionOptions};
use crate::verify::code::{CodeOptions, CodeVerifier};
use crate::verify::countdown::{CountdownOptions, CountdownVerifier};
use crate::verify::exact::{ExactOptions, ExactVerifier};
use crate::verify::math::{MathOptions, MathVerifier};
use crate::verify::program::{ProgramOptions, ProgramVerifier};
use crate::verify::regex::{RegexOptions, RegexVerifier};

/// Seconds beyond which no limit of a verifier can be meant.
pub(crate) const LONGEST_S: f64 = 86_400.0;

/// Judges one completion.
pub trait Verifier: Send + Sync {
    /// The verdict. Never panics on hostile input; a failure of the verifier is
    /// [`Outcome::Error`].
    fn verify(&self, question: &Question, completion: &str) -> Outcome;

    /// The most time a verdict takes by the verifier's own limits, where it has some. Whoever waits
    /// for it waits longer: an answer that uses up its limits is wrong, and only a verifier that
    /// outlives them has failed.
    fn longest(&self) -> Option<Duration> {
        None
    }
}

/// The choice of a verifier, as in a recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum VerifierConfig {
    /// Mathematical equality, native.
    Math(MathOptions),
    /// Mathematical equality, with Math-Verify asked where the native grader cannot tell.
    #[serde(rename = "math-with-second-opinion")]
    MathWithSecondOpinion(MathWithSecondOpinion),
    /// The same text.
    Exact(ExactOptions),
    /// A pattern whose group is the answer.
    Regex(RegexOptions),
    /// An expression over given numbers that reaches a target.
    Countdown(CountdownOptions),
    /// An executable or HTTP service that scores.
    Program(ProgramOptions),
    /// A Python program against tests, in a sandbox.
    Code(CodeOptions),
}

/// Options of the two mathematical graders together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MathWithSecondOpinion {
    /// The native grader.
    pub math: MathOptions,
    /// The pool of Python processes.
    pub second_opinion: SecondOpinionOptions,
}

/// Why a verifier cannot be built.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum VerifierError {
    /// The pattern of a `regex` verifier is not a regular expression.
    #[error("verifier.pattern: {problem}")]
    BadPattern { problem: String },
    /// `program` names neither a command nor a URL, or both.
    #[error("verifier of type \"program\" needs either `command` or `url`, it has {found}")]
    NoProgram { found: &'static str },
    /// `program` names an executable that is not there.
    #[error("verifier.command: {name} {problem}")]
    MissingProgram { name: String, problem: &'static str },
    /// No sandbox, and running without one was not allowed.
    #[error("no sandbox for programs written by a model: {problem}")]
    NoSandbox { problem: String },
    /// Python or Math-Verify is missing.
    #[error("no second opinion: {problem}")]
    NoSecondOpinion { problem: String },
    /// A number that makes no sense.
    #[error("verifier.{key}: {problem}")]
    BadOption { key: &'static str, problem: String },
}

impl VerifierError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadPattern { .. } => {
                "the syntax is that of Rust's regex crate: no look-around, no back-references"
            }
            Self::NoProgram { .. } => {
                "command = [\"./score.py\"] or url = \"http://127.0.0.1:8000/score\""
            }
            Self::MissingProgram { .. } => {
                "give the path of the program, or a name on PATH, and make it executable (chmod +x)"
            }
            Self::NoSandbox { .. } => {
                "install bubblewrap (apt-get install bubblewrap) and a python3 that other users \
                 can read, such as /usr/bin/python3; what containers and Ubuntu 24.04 need besides \
                 is in docs/tasks.md, \"The sandbox\""
            }
            Self::NoSecondOpinion { .. } => {
                "pip install math-verify, and name that interpreter in `python` (--python)"
            }
            Self::BadOption { .. } => "see docs/tasks.md for the meaning of every option",
        }
    }
}

impl VerifierConfig {
    /// Builds the verifier; what it needs from the machine is checked here, not at the first
    /// answer.
    pub fn build(&self) -> Result<Box<dyn Verifier>, VerifierError> {
        Ok(match self {
            Self::Math(options) => Box::new(MathVerifier::new(options.clone())),
            Self::MathWithSecondOpinion(options) => Box::new(MathThenPython {
                native: MathVerifier::new(options.math.clone()),
                python: SecondOpinion::try_new(options.second_opinion.clone())?,
                options: options.math.clone(),
            }),
            Self::Exact(options) => Box::new(ExactVerifier::new(options.clone())),
            Self::Regex(options) => Box::new(RegexVerifier::try_new(options)?),
            Self::Countdown(options) => Box::new(CountdownVerifier::new(options.clone())),
            Self::Program(options) => Box::new(ProgramVerifier::try_new(options.clone())?),
            Self::Code(options) => Box::new(CodeVerifier::try_new(options.clone())?),
        })
    }
}

impl Verifier for MathVerifier {
    fn verify(&self, question: &Question, completion: &str) -> Outcome {
        self.compare(&question.answer, completion)
    }
}

struct MathThenPython {
    native: MathVerifier,
    python: SecondOpinion,
    options: MathOptions,
}

impl Verifier for MathThenPython {
    fn verify(&self, question: &Question, completion: &str) -> Outcome {
        match self.native.compare(&question.answer, completion) {
            Outcome::Undecided { .. } => {
                self.python.compare(&question.answer, completion, &self.options)
            }
            decided => decided,
        }
    }
}
