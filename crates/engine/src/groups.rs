//! A group on its way through the engine, and how it is written into a checkpoint.
//!
//! ```text
//! Ticket (in flight) --judged--> Ready (arrived --examined--> pooled --cut--> in a Formed batch)
//!                                          what no step can use --taken out--> SavedGroup, set aside
//! ```
//!
//! Each keeps its slot; what drops the last of them frees the slot.

use scalerl_journal::{BatchReport, Fate, GroupReport};
use scalerl_objective::prepare::BatchCounts;
use scalerl_rollout::{Batch, DrawnPrompt, Group, GroupId, PolicyVersion, Rollout};
use serde::{Deserialize, Serialize};

use crate::{sampling::Judged, slots::Slot};

/// A group that has a slot and is being sampled, or is about to be.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: GroupId,
    pub(crate) drawn: DrawnPrompt,
    /// The generator's version when it was admitted.
    pub(crate) admitted: PolicyVersion,
    pub(crate) slot: Slot,
}

/// A group with its verdicts.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) ticket: Ticket,
    pub(crate) judged: Judged,
}

/// The groups of one step.
#[derive(Debug)]
pub(crate) struct Formed {
    pub(crate) ready: Vec<Ready>,
    /// A step holds as many slots as a full batch, however small it is.
    pub(crate) padding: Vec<Slot>,
}

/// Where a group stood when a checkpoint was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// Half written: sampled again after a resume.
    InFlight,
    /// Judged, not examined yet.
    Arrived,
    /// Examined, in no batch yet.
    Pooled,
    /// In the batch with this index of the phase.
    Queued(usize),
}

/// One line of a checkpoint's `groups.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SavedGroup {
    pub(crate) id: GroupId,
    #[serde(rename = "handout")]
    pub(crate) drawn: DrawnPrompt,
    pub(crate) admitted: PolicyVersion,
    pub(crate) stage: Stage,
    pub(crate) judged: Option<Judged>,
}

impl Ticket {
    pub(crate) fn saved(&self) -> SavedGroup {
        SavedGroup {
            id: self.id,
            drawn: self.drawn.clone(),
            admitted: self.admitted,
            stage: Stage::InFlight,
            judged: None,
        }
    }
}

impl Ready {
    pub(crate) fn saved(&self, stage: Stage) -> SavedGroup {
        SavedGroup { stage, judged: Some(self.judged.clone()), ..self.ticket.saved() }
    }

    pub(crate) fn group(&self) -> Group {
        Group {
            id: self.ticket.id,
            prompt: self.ticket.drawn.prompt.clone(),
            rollouts: self.judged.rollouts.clone(),
        }
    }

    pub(crate) fn passed(&self) -> u32 {
        self.judged.rollouts.iter().filter(|rollout| rollout.reward.is_correct).count() as u32
    }

    /// What the journal says about it.
    pub(crate) fn report(&self, fate: Fate) -> GroupReport {
        let rollouts = &self.judged.rollouts;
        let count =
            |is: fn(&Rollout) -> bool| rollouts.iter().filter(|rollout| is(rollout)).count() as u32;
        let rewards: f64 = rollouts.iter().map(|rollout| rollout.reward.value).sum();
        let versions = || {
            let completions = rollouts.iter().flat_map(Rollout::completions);
            completions.flat_map(|completion| &completion.versions)
        };
        GroupReport {
            group: self.ticket.id,
            prompt: self.ticket.drawn.prompt.id.clone(),
            draw: self.ticket.drawn.draw,
            admitted: self.ticket.admitted,
            versions: versions().min().copied().zip(versions().max().copied()),
            passed: self.passed(),
            judged: rollouts.len() as u32,
            failed: self.judged.failures.len() as u32,
            mean_reward: (!rollouts.is_empty()).then(|| rewards / rollouts.len() as f64),
            truncated: count(Rollout::is_truncated),
            interrupted: count(Rollout::is_interrupted),
            other_form: self.judged.other_form,
            previous_pass_rate: None,
            tokens: self.judged.tokens,
            generate_s: self.judged.generate_s,
            judge_s: self.judged.judge_s,
            fate,
        }
    }
}

impl Formed {
    pub(crate) fn batch(&self, version: PolicyVersion) -> Batch {
        Batch { version, groups: self.ready.iter().map(Ready::group).collect() }
    }

    pub(crate) fn into_slots(self) -> Vec<Slot> {
        self.ready.into_iter().map(|ready| ready.ticket.slot).chain(self.padding).collect()
    }

    /// Takes a group out, or all of them where it is not known which. Their slots stay: a step holds
    /// as many as a full batch.
    pub(crate) fn take_out(&mut self, group: Option<GroupId>) -> Vec<SavedGroup> {
        let place = group.and_then(|id| self.ready.iter().position(|ready| ready.ticket.id == id));
        let range = place.map_or(0..self.ready.len(), |place| place..place + 1);
        let out = self.ready.drain(range).map(|Ready { ticket, judged }| {
            let Ticket { id, drawn, admitted, slot } = ticket;
            self.padding.push(slot);
            SavedGroup { id, drawn, admitted, stage: Stage::Pooled, judged: Some(judged) }
        });
        out.collect()
    }

    /// What the journal says about it.
    pub(crate) fn report(&self, counts: &BatchCounts) -> BatchReport {
        let rollouts = || self.ready.iter().flat_map(|ready| &ready.judged.rollouts);
        let all = (counts.completions.max(1)) as f64;
        let passed = rollouts().filter(|rollout| rollout.reward.is_correct).count();
        let tokens: usize = rollouts().map(Rollout::tokens).sum();
        BatchReport {
            groups: self.ready.iter().map(|ready| ready.ticket.id).collect(),
            zero_variance: counts.zero_variance_groups.clone(),
            trained_groups: counts.trained_groups as u32,
            completions: counts.completions as u32,
            trained_completions: counts.trained_completions as u32,
            trained_tokens: counts.trained_tokens as u64,
            truncated_share: counts.truncated as f64 / all,
            interrupted_share: counts.interrupted as f64 / all,
            mean_reward: counts.mean_reward,
            pass_rate: passed as f64 / all,
            mean_tokens: tokens as f64 / all,
            advantage_deviation: counts.advantage_deviation,
        }
    }
}
