//! Completions with their rewards, gathered by prompt.

use serde::{Deserialize, Serialize};

use crate::{completion::Completion, episode::Episode, prompt::Prompt, version::PolicyVersion};

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

/// One completion or episode and what it earned. Made by the engine once the verifier or the
/// environment has spoken; what has no verdict never becomes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// What was written; of an episode, its first sequence.
    pub completion: Completion,
    /// What it earned.
    pub reward: Reward,
    /// The rest of an episode; `None` for a single completion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episode: Option<Episode>,
}

impl Rollout {
    /// Every sequence as context and what followed it; `prompt` is the group's.
    pub fn sequences<'a>(
        &'a self,
        prompt: &'a Prompt,
    ) -> impl Iterator<Item = (&'a [u32], &'a Completion)> {
        let episode = self.episode.as_ref();
        let context = episode.map_or(&prompt.token_ids, |episode| &episode.context);
        std::iter::once((&context[..], &self.completion)).chain(self.further())
    }

    fn further(&self) -> impl Iterator<Item = (&[u32], &Completion)> {
        let further = self.episode.iter().flat_map(|episode| &episode.further);
        further.map(|one| (&one.context[..], &one.completion))
    }

    /// What was written, sequence by sequence.
    pub fn completions(&self) -> impl Iterator<Item = &Completion> {
        std::iter::once(&self.completion).chain(self.further().map(|(_, one)| one))
    }

    /// Tokens after the contexts, injected ones included.
    pub fn tokens(&self) -> usize {
        self.completions().map(Completion::len).sum()
    }

    /// Tokens the policy chose.
    pub fn sampled_tokens(&self) -> usize {
        self.completions().map(Completion::sampled_tokens).sum()
    }

    /// True when a budget ran out before the policy, or the episode, had ended.
    pub fn is_truncated(&self) -> bool {
        self.episode.as_ref().map_or(self.completion.is_truncated(), |one| one.is_truncated)
    }

    /// True when thinking was cut by an interruption.
    pub fn is_interrupted(&self) -> bool {
        self.episode.as_ref().map_or(self.completion.is_interrupted(), |one| one.is_interrupted)
    }
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
        let completions = self.rollouts.iter().flat_map(Rollout::completions);
        completions.filter_map(Completion::oldest_version).min()
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
