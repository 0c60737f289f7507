//! Where prompts come from and who judges answers, as the engine sees them.
//!
//! `task.rs` connects both to `scalerl-task`, `fake.rs` to nothing. The source is a cursor: what it has handed out
//! is the engine's to keep track of, in the checkpoint and by [`Place`] in the journal, so a
//! resumed run asks for nothing twice and loses nothing.

use std::time::Duration;

use scalerl_journal::Place;
use scalerl_rollout::{Completion, Prompt, PromptId, Reward};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One prompt to sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handout {
    /// Which hand-out this is; never the same twice in a run.
    pub place: Place,
    /// The prompt.
    pub prompt: Prompt,
}

/// What a group showed about its prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassRecord {
    /// Optimizer steps taken when the group was judged.
    pub step: u64,
    /// Right completions.
    pub passed: u32,
    /// Judged completions.
    pub judged: u32,
}

/// Why a source cannot go on.
#[derive(Debug, Error)]
#[error("the prompt source cannot go on: {reason}")]
pub struct SourceError {
    /// In a sentence.
    pub reason: String,
}

/// Hands out prompts in an order that is a function of its seed and of what was recorded.
pub trait PromptSource: Send + 'static {
    /// The next prompt; `None` when every prompt is excluded for good.
    fn next(&mut self) -> Result<Option<Handout>, SourceError>;

    /// Records a judged group, before any filter decides about it.
    fn record(&mut self, prompt: &PromptId, record: PassRecord) -> Result<(), SourceError>;

    /// Cursor and history, to be saved.
    fn state(&self) -> Result<serde_json::Value, SourceError>;

    /// Takes a saved state back.
    fn restore(&mut self, state: serde_json::Value) -> Result<(), SourceError>;
}

/// Why a completion has no verdict.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct GraderError {
    /// In a sentence.
    pub reason: String,
}

/// Judges completions; many at once, off the device's path.
pub trait Grader: Send + Sync + 'static {
    /// The verdict. An error or a missed deadline is an event, and the completion leaves the batch;
    /// it is never reward −1. Dropping the future gives the verdict up.
    fn grade(
        &self,
        prompt: &Prompt,
        completion: &Completion,
    ) -> impl Future<Output = Result<Reward, GraderError>> + Send;

    /// How long a verdict on this prompt may take before it counts as failed. `usual` is
    /// `task.verifier_timeout_s`; a judge with limits of its own has a later deadline, for an answer
    /// that uses them up is wrong.
    fn deadline(&self, prompt: &Prompt, usual: Duration) -> Duration {
        let _ = prompt;
        usual
    }
}
