//! Why a run ended other than it should.

use std::time::Duration;

use scalerl_journal::JournalError;
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
    /// Tokens of an evaluation that other weights have written.
    #[error("the evaluation of {version} has tokens of {found}")]
    MixedEvaluation { version: PolicyVersion, found: PolicyVersion },
    /// Training.
    #[error(transparent)]
    Training(#[from] TrainerError),
    /// A trainer that does not keep its contract.
    #[error("the step from {from} reports version {reported}")]
    WrongVersion { from: PolicyVersion, reported: PolicyVersion },
    /// Step after step meets groups that cannot be trained on.
    #[error(
        "{steps} steps in a row met groups that cannot be trained on; the last reason: {reason}"
    )]
    Untrainable { steps: usize, reason: String },
    /// Prompts.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Verdict after verdict fails.
    #[error("{groups} groups in a row had no verdict; the last reason: {reason}")]
    VerifierBroken { groups: usize, reason: String },
    /// Evaluation after evaluation has nothing to say.
    #[error(
        "{evaluations} evaluations in a row had no verdict on {set:?}; the last reason: {reason}"
    )]
    EvaluationBroken { evaluations: usize, set: String, reason: String },
    /// A wait outlasted its deadline.
    #[error("{what} took longer than {} s", limit.as_secs())]
    Late { what: &'static str, limit: Duration },
    /// A task panicked.
    #[error("{what} panicked: {reason}")]
    Panicked { what: &'static str, reason: String },
    /// None of the checkpoints can be used; what is wrong with the newest.
    #[error("none of the {checkpoints} checkpoints is whole; the newest: {source}")]
    NoSoundCheckpoint { checkpoints: usize, source: JournalError },
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
            Self::Training(TrainerError::DiskFull { .. }) => {
                "make room on that disk (or raise the quota), then go on with --resume; what was \
                 saved before is whole"
            }
            Self::Training(TrainerError::Storage { .. }) => {
                "check the path, its permissions and the disk, then go on with --resume"
            }
            Self::Training(TrainerError::Device { .. }) => {
                "see what the device's driver says (`scalerl doctor`), then go on with --resume"
            }
            Self::Untrainable { .. } => {
                "the groups are in set-aside/ of the run folder: see what is wrong with whoever \
                 wrote or judged them (generator, tokenizer, verifier), then go on with --resume"
            }
            Self::NoSoundCheckpoint { .. } => {
                "restore one from a copy; or move the checkpoints folder and events.jsonl away to \
                 begin again from the start"
            }
            Self::EvaluationBroken { .. } => {
                "see why the set's verifier or environment fails (samples/ of the run folder), then \
                 go on with --resume"
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

    /// Whether something could not be written.
    pub(crate) fn is_of_storage(&self) -> bool {
        use TrainerError::{DiskFull, Storage};
        matches!(self, Self::Journal(_) | Self::Training(DiskFull { .. } | Storage { .. }))
    }

    /// Whether the run folder, and not the run, is what cannot be used.
    pub fn is_of_folder(&self) -> bool {
        match self {
            Self::NoSoundCheckpoint { .. } | Self::BadState { .. } => true,
            Self::Journal(error) => matches!(
                error,
                JournalError::Damaged { .. }
                    | JournalError::TooNew { .. }
                    | JournalError::TooManyDamaged { .. }
            ),
            _ => false,
        }
    }
}
