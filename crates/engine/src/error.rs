//! Why a run ended other than it should.

use std::time::Duration;

use scalerl_journal::JournalError;
use scalerl_objective::plan::PlanError;
use scalerl_rollout::{GeneratorError, GroupId, PolicyVersion, SourceError, TrainerError};
use thiserror::Error;

/// Ends a run. What could be saved is saved before it is returned.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The run folder.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Sampling a group, after all attempts.
    #[error("group {}: sampling failed: {source}", group.0)]
    Sampling { group: GroupId, source: GeneratorError },
    /// Sampling for an evaluation.
    #[error("evaluation of {version}: sampling failed: {source}")]
    Evaluating { version: PolicyVersion, source: GeneratorError },
    /// Handing weights over.
    #[error("handing {version} over: {source}")]
    Adopting { version: PolicyVersion, source: GeneratorError },
    /// A generator that does not keep its contract.
    #[error("the generator was asked for {asked} completions and returned {returned}")]
    WrongCount { asked: u32, returned: usize },
    /// Tokens of an evaluation that other weights have written.
    #[error("the evaluation of {version} has tokens of {found}")]
    MixedEvaluation { version: PolicyVersion, found: PolicyVersion },
    /// Training.
    #[error(transparent)]
    Training(#[from] TrainerError),
    /// A trainer that does not keep its contract.
    #[error("the step from {from} reports version {reported}")]
    WrongVersion { from: PolicyVersion, reported: PolicyVersion },
    /// A batch that cannot be trained on.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Prompts.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Verdict after verdict fails.
    #[error("{groups} groups in a row had no verdict; the last reason: {reason}")]
    VerifierBroken { groups: usize, reason: String },
    /// A wait outlasted its deadline.
    #[error("{what} took longer than {} s", limit.as_secs())]
    Late { what: &'static str, limit: Duration },
    /// A task panicked.
    #[error("{what} panicked: {reason}")]
    Panicked { what: &'static str, reason: String },
    /// A saved state that does not fit.
    #[error("the checkpoint of {version} cannot be resumed: {reason}")]
    BadState { version: PolicyVersion, reason: String },
}

impl EngineError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Journal(error) => error.hint(),
            Self::Sampling { .. } | Self::Evaluating { .. } | Self::Adopting { .. } => {
                "see to the generator, then go on with --resume"
            }
            Self::Training(TrainerError::OutOfMemory { .. }) => {
                "lower pipeline.micro_batch_tokens, then go on with --resume"
            }
            Self::Training(TrainerError::NotFinite { .. }) => {
                "lower the learning rate or go on from an older checkpoint"
            }
            Self::Training(TrainerError::RankLost { .. }) => {
                "see why that process ended, then go on with --resume; any number of ranks will do"
            }
            Self::VerifierBroken { .. } => "try the verifier by hand with `scalerl grade`",
            Self::Late { .. } => {
                "see whether the device or a server hangs, then go on with --resume"
            }
            Self::BadState { .. } => {
                "resume with the recipe, data and files the run was started with, or remove that \
                 checkpoint folder to go on from the one before it"
            }
            Self::Source(_) => "check the data sets of the recipe",
            _ => "this is a bug in a generator, a trainer or the engine: please report it",
        }
    }
}
