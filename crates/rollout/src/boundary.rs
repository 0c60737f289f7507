//! The line between the engine and whatever samples and trains.
//!
//! The engine knows these two traits and no tensor. Weights cross the line as a
//! [`WeightHandle`], a name both sides can open, so a fake, an in-process model and a remote
//! server all look the same from here.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    completion::Completion,
    intake::BrokenAnswer,
    prompt::SampleRequest,
    train::{StepReport, TrainBatch},
    version::PolicyVersion,
};

/// Published weights: which version, and where both sides find them. Made by a trainer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightHandle {
    /// The policy these weights are.
    pub version: PolicyVersion,
    /// A name that trainer and generators of the run agree on: a slot in shared memory, a folder,
    /// a broadcast to join.
    pub location: String,
}

/// Why sampling failed.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum GeneratorError {
    /// The request can never be served.
    #[error("a request of {asked} tokens does not fit: the generator can hold {limit}")]
    TooLong { asked: u64, limit: u64 },
    /// The request makes no sense, to this generator or any other.
    #[error("the request cannot be served: {reason}")]
    Refused { reason: String },
    /// The generator is gone or was closed. Another may serve the request.
    #[error("the generator is gone: {reason}")]
    Gone { reason: String },
    /// It did not answer in time.
    #[error("no answer from the generator within {seconds} s")]
    Late { seconds: u64 },
    /// The weights could not be taken; the generator goes on with what it had.
    #[error("cannot take the weights of {version}: {reason}")]
    Weights { version: PolicyVersion, reason: String },
    /// It answered with something that cannot be used.
    #[error("a broken answer: {0}")]
    Broken(#[from] BrokenAnswer),
}

impl GeneratorError {
    /// Whether asking again, perhaps elsewhere, can help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Late { .. } | Self::Broken(_))
    }
}

/// Why training failed. All but the first two end the run: those are about data, and the engine goes on
/// without it.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TrainerError {
    /// The batch cannot be trained on, by this trainer or any other; nothing was changed.
    #[error("sequence {sequence} of the batch for {version} cannot be trained on: {reason}")]
    BadSequence { version: PolicyVersion, sequence: usize, reason: String },
    /// As above, for the batch as a whole.
    #[error("the batch for {version} cannot be trained on: {reason}")]
    BadBatch { version: PolicyVersion, reason: String },
    /// NaN or infinity in the loss or the gradient; the weights are those before the step.
    #[error("{quantity} is {value} in the step from {version}")]
    NotFinite { version: PolicyVersion, quantity: &'static str, value: f64 },
    /// The device has too little memory.
    #[error("out of memory in the step from {version}: {reason}")]
    OutOfMemory { version: PolicyVersion, reason: String },
    /// The device or its library failed.
    #[error("the trainer's device failed: {reason}")]
    Device { reason: String },
    /// A process that takes part in every step is gone or does not answer. With it went a part of the
    /// optimizer: the run goes on from its checkpoint.
    #[error("a trainer rank is lost: {reason}")]
    RankLost { reason: String },
    /// No room is left for weights or state; what was there before stays valid.
    #[error("disk full: cannot write {}: {reason}", path.display())]
    DiskFull { path: PathBuf, reason: String },
    /// Weights or state could not be written or read; what was there before stays valid.
    #[error("cannot use {}: {reason}", path.display())]
    Storage {
        path: PathBuf,
        reason: String,
        /// What to do about it, where more is known than that.
        hint: Option<&'static str>,
    },
}

/// Samples completions from the policy it holds at the moment.
///
/// Many tasks call `generate` at once; one calls `adopt`. Weights may change while a completion
/// is half written, which is why every token of a [`Completion`] records its own
/// [`PolicyVersion`] and log-prob.
pub trait Generator: Send + Sync + 'static {
    /// Returns exactly as many completions as were asked for, in the order of their seeds.
    ///
    /// Dropping the future gives the request up; the generator frees what it held.
    fn generate(
        &self,
        request: SampleRequest,
    ) -> impl Future<Output = Result<Vec<Completion>, GeneratorError>> + Send;

    /// Switches to published weights. Resolves once new tokens come from them.
    fn adopt(
        &self,
        weights: &WeightHandle,
    ) -> impl Future<Output = Result<(), GeneratorError>> + Send;
}

/// What of a saved trainer is still to be written.
pub struct Writing(Option<Box<dyn FnOnce() -> Result<(), TrainerError> + Send>>);

impl Writing {
    /// Nothing is left to do.
    pub fn done() -> Self {
        Self(None)
    }

    /// `write` needs nothing of the trainer any more.
    pub fn new(write: impl FnOnce() -> Result<(), TrainerError> + Send + 'static) -> Self {
        Self(Some(Box::new(write)))
    }

    /// Writes it, on the thread that calls.
    pub fn finish(self) -> Result<(), TrainerError> {
        self.0.map_or(Ok(()), |write| write())
    }
}

impl std::fmt::Debug for Writing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writing").field("is_done", &self.0.is_none()).finish()
    }
}

/// Takes one optimizer step per call.
///
/// Not async: a step owns the device for seconds, so the engine gives the trainer a thread and
/// talks to it over channels.
pub trait Trainer: Send + 'static {
    /// One optimizer step over the whole batch, in as many pieces as the device needs. A batch
    /// without sequences is the engine's mistake, not a step.
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError>;

    /// Makes the weights of the last step readable by generators. The handle before it stays
    /// valid until the next call.
    fn publish(&mut self) -> Result<WeightHandle, TrainerError>;

    /// Writes everything the next step depends on (weights, optimizer, random state) into an
    /// existing empty folder.
    fn save(&mut self, folder: &Path) -> Result<(), TrainerError>;

    /// Takes what [`Trainer::save`] would write as it is now, to be written by another thread while
    /// steps go on. A trainer that cannot writes it at once.
    fn snapshot(&mut self, folder: &Path) -> Result<Writing, TrainerError> {
        self.save(folder).map(|()| Writing::done())
    }

    /// Takes back what [`Trainer::save`] wrote; returns the version it was.
    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError>;
}
