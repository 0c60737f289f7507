//! From graded groups to what a trainer needs: an advantage per completion, a weight per token.
//!
//! Everything that looks at the whole batch happens here, once: length penalty, filter, advantages,
//! masks, denominators. Order matters and is this: rewards are shaped, the filter drops groups,
//! advantages are taken over what is left, truncated completions and injected tokens are masked,
//! and denominators count what still carries loss.
//!
//! Truncated completions count for their group's mean even when they are masked: they are what the
//! policy did. An episode is one completion here: one advantage, one share of the loss, spread over the
//! sampled tokens of all its sequences. Not here: the surrogate, which needs the trainer's log-probs.

use scalerl_recipe::{Objective, Truncated};
use scalerl_rollout::{
    Batch, BrokenCompletion, Completion, Group, GroupId, Rollout, TrainBatch, TrainSequence,
};
use thiserror::Error;

use crate::{
    advantage::{advantages, deviation},
    aggregate::token_weights,
    filter::keeps,
    length::shaped_rewards,
};

/// The work of one step, and what was left out of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedBatch {
    /// For the trainer. Empty when nothing carries loss: then there is no step to take.
    pub train: TrainBatch,
    /// The group of each of its sequences.
    pub groups: Vec<GroupId>,
    /// For the journal.
    pub counts: BatchCounts,
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchCounts {
    /// Groups that came in.
    pub groups: usize,
    /// Groups the filter dropped because their rewards were all equal.
    pub zero_variance_groups: Vec<GroupId>,
    /// Groups with at least one token that carries loss: the effective batch.
    pub trained_groups: usize,
    /// Completions that came in.
    pub completions: usize,
    /// Completions that ran out of their budget, dropped groups included.
    pub truncated: usize,
    /// Completions whose thinking was cut by an interruption, dropped groups included.
    pub interrupted: usize,
    /// Completions that carry loss.
    pub trained_completions: usize,
    /// Tokens that carry loss.
    pub trained_tokens: usize,
    /// Mean reward as graded, over all completions that came in; 0 when there are none.
    pub mean_reward: f64,
    /// Standard deviation of the advantages of the groups that the filter kept.
    pub advantage_deviation: f64,
}

/// Why a batch cannot be prepared: something upstream is broken.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PrepareError {
    /// A completion that no generator can have sampled.
    #[error("group {}, completion {index}: {source}", group.0)]
    Broken { group: GroupId, index: usize, source: BrokenCompletion },
    /// A reward that is NaN or infinite.
    #[error("group {}, completion {index}: the reward is {reward}, it must be finite", group.0)]
    BadReward { group: GroupId, index: usize, reward: f64 },
}

impl PrepareError {
    /// The group at fault.
    pub fn group(&self) -> GroupId {
        match self {
            Self::Broken { group, .. } | Self::BadReward { group, .. } => *group,
        }
    }
}

/// Prepares one optimizer step over `batch`, whose tokens were drawn at `temperature`.
pub fn prepare(
    objective: &Objective,
    temperature: f64,
    batch: &Batch,
) -> Result<PreparedBatch, PrepareError> {
    batch.groups.iter().try_for_each(check)?;
    let (kept, dropped): (Vec<&Group>, Vec<&Group>) =
        batch.groups.iter().partition(|group| keeps(objective, group));
    let rewards: Vec<Vec<f64>> =
        kept.iter().map(|group| shaped_rewards(&objective.length_control, group)).collect();
    let advantages = advantages(&objective.advantage, &rewards);
    let counts: Vec<Vec<usize>> =
        kept.iter().map(|group| trained_tokens(objective, group)).collect();
    let weights = token_weights(&objective.aggregation, &counts);

    let (mut sequences, mut groups) = (Vec::new(), Vec::new());
    for (g, group) in kept.iter().enumerate() {
        for (i, rollout) in group.rollouts.iter().enumerate().filter(|(i, _)| counts[g][*i] > 0) {
            for (context, completion) in rollout.sequences(&group.prompt) {
                sequences.push(sequence(context, completion, advantages[g][i], weights[g][i]));
                groups.push(group.id);
            }
        }
    }
    let counts = BatchCounts {
        zero_variance_groups: dropped.iter().map(|group| group.id).collect(),
        trained_groups: counts.iter().filter(|group| group.iter().any(|count| *count > 0)).count(),
        trained_completions: counts.iter().flatten().filter(|count| **count > 0).count(),
        trained_tokens: counts.iter().flatten().sum(),
        advantage_deviation: deviation(&advantages.concat()),
        ..census(&batch.groups)
    };
    Ok(PreparedBatch {
        train: TrainBatch { temperature: temperature as f32, sequences },
        groups,
        counts,
    })
}

/// Tokens that carry loss, per completion.
fn trained_tokens(objective: &Objective, group: &Group) -> Vec<usize> {
    let count = |rollout: &Rollout| {
        let is_masked = objective.truncated == Truncated::Masked && rollout.is_truncated();
        if is_masked { 0 } else { rollout.sampled_tokens() }
    };
    group.rollouts.iter().map(count).collect()
}

fn sequence(
    context: &[u32],
    completion: &Completion,
    advantage: f64,
    weight: f64,
) -> TrainSequence {
    let weight_of = |is_injected: &bool| if *is_injected { 0.0 } else { weight };
    TrainSequence {
        prompt_token_ids: context.to_vec(),
        completion_token_ids: completion.token_ids.clone(),
        generator_logprobs: completion.logprobs.clone(),
        weights: completion.is_injected.iter().map(weight_of).collect(),
        advantage,
    }
}

/// Counts over everything that came in.
fn census(groups: &[Group]) -> BatchCounts {
    let rollouts = || groups.iter().flat_map(|group| &group.rollouts);
    let count = |is: fn(&Rollout) -> bool| rollouts().filter(|rollout| is(rollout)).count();
    let completions = rollouts().count();
    let rewards: f64 = rollouts().map(|rollout| rollout.reward.value).sum();
    BatchCounts {
        groups: groups.len(),
        completions,
        truncated: count(Rollout::is_truncated),
        interrupted: count(Rollout::is_interrupted),
        mean_reward: rewards / completions.max(1) as f64,
        ..BatchCounts::default()
    }
}

fn check(group: &Group) -> Result<(), PrepareError> {
    for (index, rollout) in group.rollouts.iter().enumerate() {
        let (group, reward) = (group.id, rollout.reward.value);
        let mut completions = rollout.completions();
        let checked = completions.try_for_each(Completion::check);
        checked.map_err(|source| PrepareError::Broken { group, index, source })?;
        if !reward.is_finite() {
            return Err(PrepareError::BadReward { group, index, reward });
        }
    }
    Ok(())
}
