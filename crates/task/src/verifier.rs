//! The verifier interface, and the verifier a recipe chooses.
//!
//! A verifier is built once and shared by all workers. It may block; whoever must not wait puts it
//! behind a [`crate::worker::VerifierPool`].

use std::time::Duration;

use scalerl_recipe::Verifier as Choice;
use thiserror::Error;

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::process_pool::VerifierLog;
use crate::second_opinion::SecondOpinionOptions;
use crate::verifier_files::VerifierFiles;
use crate::verify::code::{CodeOptions, CodeVerifier, UNSANDBOXED_CONSENT};
use crate::verify::countdown::CountdownVerifier;
use crate::verify::exact::ExactVerifier;
use crate::verify::math::{MathOptions, MathVerifier, MathWithSecondOpinion};
use crate::verify::program::{Kept, ProgramOptions, ProgramVerifier};
use crate::verify::python::{PythonOptions, PythonVerifier};
use crate::verify::regex::RegexVerifier;
use crate::verify::scores::Scores;

/// Seconds beyond which no limit of a verifier can be meant.
pub(crate) const LONGEST_S: f64 = 1e6;

/// Judges one completion.
pub trait Verifier: Send + Sync {
    /// The verdict. Never panics on hostile input; a failure of the verifier is
    /// [`Outcome::Error`].
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome;

    /// The most time a verdict takes by the verifier's own limits, where it has some. Whoever waits
    /// for it waits longer: an answer that uses up its limits is wrong, and only a verifier that
    /// outlives them has failed.
    fn longest(&self) -> Option<Duration> {
        None
    }

    /// How many verdicts it can work on at once, where other things than threads of ours limit that.
    fn at_once(&self) -> Option<usize> {
        None
    }

    /// Refuses a problem that it could not judge, whatever the answer.
    fn check(&self, _problem: &Problem) -> Result<(), VerifierError> {
        Ok(())
    }

    /// Whether it wants to see completions without an answer too; the others are wrong without it.
    fn reads_all(&self) -> bool {
        false
    }
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
    /// The file of a `python` verifier, its function or its interpreter cannot be used.
    #[error("verifier.{key}: {problem}")]
    BadReward { key: &'static str, problem: String },
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
            Self::BadReward { key: "python", .. } => {
                "name an interpreter on PATH, or that of a virtual environment: \
                 python = \"venv/bin/python\""
            }
            Self::BadReward { key: "file", .. } => {
                "the path counts from where scalerl is started; packages that the file imports must \
                 be installed for the interpreter in `python`"
            }
            Self::BadReward { .. } => {
                "function = \"name\" chooses one; what a reward function looks like is in \
                 docs/rewards.md"
            }
            Self::BadOption { .. } => "docs/recipe-reference.md has every option",
        }
    }
}

/// What verifiers share, and what they need from the run.
#[derive(Debug, Clone)]
pub struct Resources {
    /// How long a verdict may take.
    pub deadline: Duration,
    /// Processes of a verifier that keeps some, where the recipe does not say.
    pub workers: usize,
    /// The texts of files that verifiers run.
    pub files: VerifierFiles,
    /// Where what they print goes.
    pub log: VerifierLog,
}

impl Resources {
    /// Of one verifier with one worker, outside of a run.
    pub fn of_one(choice: &Choice, deadline: Duration) -> Result<Self, VerifierError> {
        let mut files = VerifierFiles::default();
        files.add(choice)?;
        Ok(Self { deadline, workers: 1, files, log: VerifierLog::default() })
    }

    fn processes(&self, wanted: Option<u32>) -> usize {
        wanted.map_or(self.workers, |workers| workers as usize)
    }
}

/// Builds the verifier a recipe chooses; what it needs from the machine is checked here, not at the
/// first answer.
pub fn build(choice: &Choice, resources: &Resources) -> Result<Box<dyn Verifier>, VerifierError> {
    let timeout_s = resources.deadline.as_secs_f64();
    Ok(match choice {
        Choice::Math { precision, strict, evaluated, second_opinion } => {
            let mut options = MathOptions::default();
            options.precision = *precision;
            options.strict = *strict;
            options.evaluated = *evaluated;
            // The format has cut the answer out already.
            options.answer_after = String::new();
            if *second_opinion {
                let python = SecondOpinionOptions { timeout_s, ..Default::default() };
                Box::new(MathWithSecondOpinion::try_new(options, python)?)
            } else {
                Box::new(MathVerifier::try_new(options)?)
            }
        }
        Choice::Exact { ignore_case, ignore_blanks } => {
            Box::new(ExactVerifier { ignore_case: *ignore_case, ignore_blanks: *ignore_blanks })
        }
        Choice::Regex { pattern } => Box::new(RegexVerifier::try_new(pattern)?),
        Choice::Countdown { numbers, target, use_all } => Box::new(CountdownVerifier {
            numbers: numbers.clone(),
            target: target.clone(),
            use_all: *use_all,
        }),
        Choice::Program { command, keep_alive, workers, url, min_score, max_score, pass_score } => {
            Box::new(ProgramVerifier::try_new(ProgramOptions {
                command: command.clone(),
                kept: keep_alive.then(|| Kept {
                    processes: resources.processes(*workers),
                    log: resources.log.clone(),
                }),
                url: url.clone().unwrap_or_default(),
                timeout_s,
                scores: Scores { range: (*min_score, *max_score), pass: *pass_score },
            })?)
        }
        Choice::Python {
            file,
            function,
            python,
            workers,
            batch_size,
            time_s,
            start_s,
            min_score,
            max_score,
            pass_score,
        } => Box::new(PythonVerifier::try_new(PythonOptions {
            file: resources.files.get(file)?,
            function: function.clone(),
            python: python.clone(),
            processes: resources.processes(*workers),
            batch_size: *batch_size as usize,
            time: Duration::from_secs_f64(time_s.unwrap_or(timeout_s)),
            start: Duration::from_secs_f64(*start_s),
            scores: Scores { range: (*min_score, *max_score), pass: *pass_score },
            log: resources.log.clone(),
        })?),
        Choice::Code {
            tests,
            allow_without_sandbox,
            memory_mib,
            time_per_test_s,
            time_s,
            partial_credit,
        } => {
            let mut options =
                CodeOptions { partial_credit: *partial_credit, ..CodeOptions::default() };
            options.tests.clone_from(tests);
            options.limits.memory_mib = u64::from(*memory_mib);
            options.limits.time_per_test_s = *time_per_test_s;
            options.limits.time_s = time_s.unwrap_or(timeout_s);
            if *allow_without_sandbox {
                UNSANDBOXED_CONSENT.clone_into(&mut options.allow_unsandboxed);
            }
            Box::new(CodeVerifier::try_new(options)?)
        }
    })
}
