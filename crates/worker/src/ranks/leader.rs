//! Rank 0: the trainer that the engine sees.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use scalerl_model::folder::Model;
use scalerl_model::train::checkpoint::{CheckpointError, RestorePlan, restore_together};
use scalerl_model::train::{RankError, StartError};
use scalerl_model::unloaded::UnloadedModel;
use scalerl_recipe::Recipe;
use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle, Writing,
};

use super::command::Order;
use super::pulse::{Pulse, Watched};
use super::roll::Roll;
use super::saving::Saver;
use super::share::split;
use super::start::learner;
use super::step::{rank_error, step_together};
use super::team::Team;
use crate::memory::Holders;
use crate::policy::{Policy, device_error};
use crate::trainer::{checkpoint_error, file_error, newest};
use crate::weight_store::WeightStore;

/// Trains on all ranks of a team. Dropping it ends the run for all of them.
///
/// Once a rank is lost, every call fails with the reason: parts of the optimizer are gone with it,
/// and the run goes on from its checkpoint.
pub struct RankedTrainer {
    policy: Policy,
    pulse: Pulse,
    roll: Arc<Roll>,
    saver: Saver,
    weight_store: Arc<WeightStore>,
}

impl RankedTrainer {
    /// Takes a model for the device to train on; version 0. The other ranks are in [`super::follow`]
    /// meanwhile.
    pub fn lead(
        recipe: &Recipe,
        model: impl Into<UnloadedModel>,
        mut team: Team,
        weight_store: Arc<WeightStore>,
    ) -> Result<Self, TrainerError> {
        assert_eq!(team.rank(), 0, "rank 0 leads");
        let model = model.into();
        let holders = Holders::on(model.device, recipe, &model.config, (0, team.size()));
        let learner = learner(recipe, model, team.take_data());
        let learner = learner.map_err(|error| holders.name_in(start_error(error)))?;
        let policy = Policy::try_new(recipe, learner, holders.clone());
        let failed = |error| holders.name_in(device_error(PolicyVersion(0), &error));
        let policy = policy.map_err(failed)?;
        let (roll, saver) = (team.roll.clone(), Saver::of(&team));
        Ok(Self { policy, pulse: Pulse::start(team), roll, saver, weight_store })
    }

    /// The policy as it is now.
    pub fn version(&self) -> PolicyVersion {
        self.policy.version()
    }

    /// The model being trained; with `cluster.sharding = "full"` its weights are elsewhere.
    pub fn model(&self) -> &Model {
        &self.policy.learner.model
    }

    /// Bytes in this rank's parts, and the most of what units brought beside them
    /// (`Learner::bytes_in_parts`).
    pub fn bytes_in_parts(&self) -> Option<(usize, usize)> {
        self.policy.learner.bytes_in_parts()
    }

    /// Writes the weights, an adapter in them, as a folder that transformers and vLLM load.
    pub fn write_model(&mut self, folder: &Path) -> Result<(), TrainerError> {
        let Self { policy, pulse, .. } = self;
        if !policy.learner.is_fully_sharded() {
            return policy.write_model(folder);
        }
        together(pulse, Order::ShowWeights, |_| policy.write_model(folder))
    }

    /// Who the ranks are and how it stands with them.
    pub fn roll(&self) -> Arc<Roll> {
        self.roll.clone()
    }

    /// Why the team can do nothing more, where it cannot.
    pub fn lost(&self) -> Option<String> {
        self.pulse.team().lost.clone()
    }
}

/// Gives an order and does rank 0's part of it.
///
/// A failure between ranks leaves them in different places: nothing further is tried with them.
fn together<T>(
    pulse: &Pulse,
    order: Order<'_>,
    part: impl FnOnce(&mut Watched) -> Result<T, TrainerError>,
) -> Result<T, TrainerError> {
    let mut watched = pulse.team();
    if let Some(reason) = &watched.lost {
        return Err(TrainerError::RankLost { reason: format!("earlier: {reason}") });
    }
    let told = watched.give(order);
    told.map_err(|error| TrainerError::RankLost { reason: error.to_string() })?;
    let done = part(&mut watched);
    // What one rank cannot judge alone has ended the others as well.
    let is_shared = matches!(done, Ok(_) | Err(TrainerError::NotFinite { .. }))
        || matches!(done, Err(TrainerError::Storage { .. } | TrainerError::DiskFull { .. }));
    if let (false, Err(error)) = (is_shared, &done) {
        let has_agreed = !matches!(error, TrainerError::RankLost { .. });
        watched.lose(error.to_string(), has_agreed);
    }
    done
}

impl Trainer for RankedTrainer {
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
        let started = Instant::now();
        let Self { policy, pulse, .. } = self;
        policy.check(batch)?;
        let version = policy.version();
        let shares = split(batch, pulse.team().team.size());
        let (totals, step) =
            together(pulse, Order::Step { version, shares: &shares }, |watched| {
                step_together(policy, &watched.team.ranks, version, &shares[0])
            })?;
        self.roll.reach(self.policy.version());
        Ok(self.policy.report(batch, &totals, &step, started.elapsed().as_secs_f64()))
    }

    fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        let version = self.version();
        if self.policy.is_in_parts() {
            let Self { policy, pulse, weight_store, .. } = self;
            return together(pulse, Order::ShowWeights, |_| policy.publish_units(weight_store));
        }
        let published = self.weight_store.publish(version, self.model().trained());
        published.map_err(|error| self.policy.with_holders(device_error(version, &error)))
    }

    fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
        self.snapshot(folder)?.finish()
    }

    fn snapshot(&mut self, folder: &Path) -> Result<Writing, TrainerError> {
        let Self { policy, pulse, saver, .. } = self;
        let begun = together(pulse, Order::Save, |watched| {
            saver.begin(&policy.learner, &watched.team, folder)
        })?;
        let is_adapter = policy.learner.model.adapter.is_some();
        if is_adapter {
            // Small, whole on every rank, and not in the checkpoint's own form.
            policy.save_model(folder)?;
        }
        Ok(begun.writing(&policy.learner, folder))
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        let Self { policy, pulse, .. } = self;
        let path = newest(folder)?;
        let failed = |error: CheckpointError| checkpoint_error(&path, error);
        // Opened and checked before anybody is told: a damaged one changes nothing.
        let plan = RestorePlan::open(&policy.learner, &path).map_err(failed)?;
        together(pulse, Order::Restore, |watched| {
            let restored = restore_together(&mut policy.learner, &watched.team.ranks, Some(plan));
            restored.map_err(|error| rank_error(&error))?.map_err(failed)
        })?;
        self.roll.reach(self.policy.version());
        Ok(self.policy.version())
    }
}

impl Drop for RankedTrainer {
    fn drop(&mut self) {
        let mut watched = self.pulse.team();
        if watched.lost.is_none() {
            // Whoever cannot be told notices the closed connection.
            let _ = watched.give(Order::End);
        }
    }
}

fn start_error(error: StartError) -> TrainerError {
    match error {
        StartError::Ranks(RankError::Torch(error)) => device_error(PolicyVersion(0), &error),
        StartError::Ranks(error) => rank_error(&error),
        StartError::Load(error) => file_error(Path::new("the starting model"), error),
        error => TrainerError::Device { reason: error.to_string() },
    }
}
