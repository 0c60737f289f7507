//! How generation and training share the time, from `objective.off_policy`.
//!
//! | scheme | slots | a group's deadline | batches are cut | weights go over |
//! |---|---|---|---|---|
//! | pipeline-k, k ≥ 1 | (k+1) G | admitted + k | as groups arrive (`window.rs`) | after every step |
//! | pipeline-0 | G | admitted | when nothing is in flight, by group number | after every step |
//! | ppo-off-policy-k | k G | admitted + k − 1 | k at once, when nothing is in flight | after k steps |
//!
//! The last two are *phased*: sampling and training alternate, and the order of everything is a
//! function of the seed alone. With lag 0 (k = 1 phase) that makes a run deterministic.

use scalerl_recipe::{OffPolicy, Recipe};

/// The scheme of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scheme {
    /// Largest lag a group may have.
    pub(crate) steps_behind: u64,
    /// Batches sampled before training goes on, where phases alternate.
    pub(crate) batches_per_phase: Option<usize>,
    /// Groups in one step.
    pub(crate) groups_per_step: usize,
}

impl Scheme {
    pub(crate) fn of(recipe: &Recipe) -> Self {
        let groups_per_step = recipe.pipeline.groups_per_step as usize;
        let (steps_behind, batches_per_phase) = match recipe.objective.off_policy {
            OffPolicy::Pipeline { steps_behind: 0 } => (0, Some(1)),
            OffPolicy::Pipeline { steps_behind } => (u64::from(steps_behind), None),
            OffPolicy::PpoOffPolicy { steps_per_phase } => {
                (u64::from(steps_per_phase) - 1, Some(steps_per_phase as usize))
            }
        };
        Self { steps_behind, batches_per_phase, groups_per_step }
    }

    pub(crate) fn slots(&self) -> usize {
        (self.steps_behind as usize + 1) * self.groups_per_step
    }

    pub(crate) fn is_phased(&self) -> bool {
        self.batches_per_phase.is_some()
    }

    /// Groups wanted before a batch can be cut.
    pub(crate) fn groups_per_cut(&self) -> usize {
        self.batches_per_phase.unwrap_or(1) * self.groups_per_step
    }
}
