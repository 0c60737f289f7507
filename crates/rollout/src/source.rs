//! Where prompts come from and who judges answers, as the engine sees them.
//!
//! The source is a cursor: what it has handed out is the engine's to keep track of, in the
//! checkpoint and by [`Draw`] in the journal, so a resumed run asks for nothing twice and loses
//! nothing. `task` implements both traits for a recipe's data and verifiers.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    completion::Completion,
    group::Reward,
    prompt::{Prompt, PromptId},
};

/// One draw of a prompt: which position in which epoch of which data set. Made by the prompt
/// source, unique in a run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Draw {
    /// Index of the data set.
    pub dataset: u32,
    /// Epoch of that data set, from 0.
    pub epoch: u64,
    /// Position in the epoch's order.
    pub position: u64,
}

/// One prompt to sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrawnPrompt {
    /// Which draw this is; never the same twice in a run. `place` in run folders.
    #[serde(rename = "place")]
    pub draw: Draw,
    /// The prompt.
    pub prompt: Prompt,
}

/// Prompts that are never trained on. Made by `task`, measured by the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationSet {
    /// As the recipe names it; `held-out` for the prompts set apart.
    pub name: String,
    /// In the order of the report.
    pub prompts: Vec<Prompt>,
}

/// What a group showed about its prompt. Made by the engine, kept by the curriculum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRecord {
    /// Optimizer steps taken when the group was judged.
    pub step: u64,
    /// Right completions.
    pub passed: u32,
    /// Judged completions, right or wrong.
    pub judged: u32,
}

impl PassRecord {
    /// Share of right completions; `None` when none was judged.
    pub fn rate(&self) -> Option<f64> {
        (self.judged > 0).then(|| f64::from(self.passed) / f64::from(self.judged))
    }
}

/// Why a source cannot go on.
#[derive(Debug, Error)]
#[error("the prompt source cannot go on: {reason}")]
pub struct SourceError {
    /// In a sentence.
    pub reason: String,
}

impl SourceError {
    /// From whatever went wrong underneath.
    pub fn new(reason: impl std::fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// Hands out prompts in an order that is a function of its seed and of what was recorded.
pub trait PromptSource: Send + 'static {
    /// The next prompt; `None` when every prompt is excluded for good.
    fn next(&mut self) -> Result<Option<DrawnPrompt>, SourceError>;

    /// Records a judged group, before any filter decides about it; returns what the prompt's last
    /// group showed.
    fn record(
        &mut self,
        prompt: &PromptId,
        record: PassRecord,
    ) -> Result<Option<PassRecord>, SourceError>;

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

impl GraderError {
    /// From a sentence.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Judges completions; many at once, off the device's path.
pub trait Grader: Send + Sync + 'static {
    /// The verdict. An error or a missed deadline is an event, and the completion leaves the batch;
    /// it is never a wrong answer. Dropping the future gives the verdict up.
    fn grade(
        &self,
        prompt: &Prompt,
        completion: &Completion,
    ) -> impl Future<Output = Result<Reward, GraderError>> + Send;

    /// Whether an answer is written as the reference answer is (`7` and `56`, not `5 + 2`); `None`
    /// where there is nothing to compare. For the stability watch: a form that spreads among right
    /// answers may be one that the verifier pays for by mistake.
    fn has_reference_form(&self, prompt: &Prompt, completion: &Completion) -> Option<bool> {
        let _ = (prompt, completion);
        None
    }

    /// How long a verdict on this prompt may take before it counts as failed. `usual` is
    /// `task.verifier_timeout_s`; a judge with limits of its own has a later deadline, for an answer
    /// that uses them up is wrong.
    fn deadline(&self, prompt: &Prompt, usual: Duration) -> Duration {
        let _ = prompt;
        usual
    }
}
