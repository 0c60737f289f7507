//! The training step: packed batches in, gradients summed, one optimizer step out.
//!
//! ```text
//! Learner::forward(batch)  -> scores  -> the caller's loss -> gradients per token
//! Learner::backward(...)   adds to the step's gradients; any number of batches
//! Learner::step()          clips, takes one AdamW step, says what happened
//! ```

pub mod adamw;
mod batch;
pub mod checkpoint;
mod learner;
mod ranks;
mod shard;

pub use adamw::{AdamW, AdamWConfig, KeptIn};
pub use batch::{BatchError, TokenPlace, TrainingBatch};
pub use learner::{
    ComputeKind, ExpertWeights, Learner, LearnerOptions, Pending, StepError, StepReport,
};
pub use ranks::{RankError, Ranks};
pub use shard::{PassKind, StartError};
