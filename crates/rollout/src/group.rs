//! Completions with their rewards, gathered by prompt.

use serde::{Deserialize, Serialize};

use crate::{completion::Completion, prompt::Prompt, version::PolicyVersion};

/// Names one group of a run. Made by the engine, in the order prompts are admitted.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct GroupId(pub u64);

/// A verifier's verdict as numbers. Made by `task`, used by `objective`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reward {
    /// The reward before any length penalty.
    pub value: f64,
    /// Whether the answer was right: what pass rates count and length penalties look at.
    pub is_correct: bool,
}

/// One completion and what it earned. Made by the engine once the verifier has spoken; a
/// completion whose verifier failed never becomes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// What was written.
    pub completion: Completion,
    /// What it earned.
    pub reward: Reward,
}

/// All rollouts of one prompt. Made by the engine, used by `objective` and the curriculum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Stable name.
    pub id: GroupId,
    /// The prompt all completions answer.
    pub prompt: Prompt,
    /// Graded completions; fewer than were sampled when a verifier failed on some.
    pub rollouts: Vec<Rollout>,
}

impl Group {
    /// Share of right answers; `None` without rollouts.
    pub fn pass_rate(&self) -> Option<f64> {
        let correct = self.rollouts.iter().filter(|rollout| rollout.reward.is_correct).count();
        (!self.rollouts.is_empty()).then(|| correct as f64 / self.rollouts.len() as f64)
    }

    /// The oldest policy that chose a token of this group.
    pub fn oldest_version(&self) -> Option<PolicyVersion> {
        self.rollouts.iter().filter_map(|rollout| rollout.completion.oldest_version()).min()
    }
}

/// What one optimizer step uses, before `objective` has looked at it. Made by the engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// The version the step starts from.
    pub version: PolicyVersion,
    /// Groups in order of arrival.
    pub groups: Vec<Group>,
}

impl Batch {
    /// Steps between the policy about to be trained and the oldest token of the batch.
    pub fn lag(&self) -> u64 {
        let oldest = self.groups.iter().filter_map(Group::oldest_version).min();
        oldest.map_or(0, |oldest| self.version.steps_since(oldest))
    }
}
