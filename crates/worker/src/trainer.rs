//! The trainer on this process's device.
//!
//! ```text
//! step     check -> pieces -> [log-probs -> loss -> gradients]* -> one read -> clip, AdamW
//! publish  weights in the kind the network computes in -> weight store
//! save     float32 masters, both moments, step count; whole or not at all, with checksums
//! ```
//! A step that fails leaves weights and optimizer as they were: everything is checked before the
//! optimizer runs, and it refuses gradients that are not finite.
//!
//! A step draws nothing at random, so there is no random state to save. A reference model, where
//! the recipe has a KL penalty, is the model the trainer was made with: on resume it is made from
//! the run's starting model again and then restored.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use scalerl_model::error::LoadError;
use scalerl_model::folder::Model;
use scalerl_model::memory;
use scalerl_model::train::Learner;
use scalerl_model::train::checkpoint::{self, CheckpointError, Snapshot};
use scalerl_recipe::Recipe;
use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle, Writing,
};
use scalerl_torch::device;
use serde_json::json;
use tch::{TchError, Tensor};

use crate::memory::Holders;
use crate::options::learner_options;
use crate::policy::{Policy, device_error, step_error};
use crate::ranks::rank_error;
use crate::weight_store::{Lease, WeightStore};

/// Trains a model of this process.
pub struct LocalTrainer {
    policy: Policy,
    weight_store: Arc<WeightStore>,
    threads: Option<usize>,
    sharing: Sharing,
}

/// Whose the weights are that the network computes with.
enum Sharing {
    /// The trainer's alone; generators get copies.
    Copied,
    /// The generator's too, and they are those of the masters.
    Current,
    /// The generator's too, and the masters are ahead: nobody has told the generator yet.
    Behind,
    /// The generator's too, which rounds the masters into them when it may.
    Lent(Arc<Lease>),
}

impl LocalTrainer {
    /// Takes a model as `Learner::new` does, on the device to train on; version 0.
    pub fn try_new(
        recipe: &Recipe,
        model: Model,
        weight_store: Arc<WeightStore>,
    ) -> Result<Self, TrainerError> {
        let options = learner_options(recipe, model.device());
        let holders = Holders::on(model.device(), recipe, &model.config, (0, 1));
        let failed = |error: TchError| holders.name_in(device_error(PolicyVersion(0), &error));
        let learner = Learner::new(model, options).map_err(failed)?;
        let policy = Policy::try_new(recipe, learner, holders.clone()).map_err(failed)?;
        Ok(Self { policy, weight_store, threads: None, sharing: Sharing::Copied })
    }

    /// Shares the bf16 weights that the network computes with: a generator made over
    /// [`LocalTrainer::model`]'s rounds the masters into them when it adopts what was published.
    /// Whoever drives both takes no step before that.
    #[must_use]
    pub fn with_shared_weights(mut self) -> Self {
        self.policy.learner.leave_renewal();
        self.sharing = Sharing::Current;
        self
    }

    /// Refuses to compute with weights that are older than the masters.
    fn check_weights(&mut self) -> Result<(), TrainerError> {
        match &self.sharing {
            Sharing::Lent(lease) if lease.is_taken_over() => self.sharing = Sharing::Current,
            Sharing::Behind | Sharing::Lent(_) => {
                let reason = "the generator has not taken the weights of the last step yet, and \
                              shares them with the trainer";
                return Err(TrainerError::Device { reason: reason.to_owned() });
            }
            Sharing::Copied | Sharing::Current => {}
        }
        Ok(())
    }

    fn masters_moved(&mut self) {
        if !matches!(self.sharing, Sharing::Copied) {
            self.sharing = Sharing::Behind;
        }
    }

    /// Leaves the other CPU threads to the generator.
    #[must_use]
    pub fn with_threads(mut self, threads: Option<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Names these where the device has no room: a generator may be on another device, or nowhere.
    #[must_use]
    pub fn with_holders(mut self, holders: Holders) -> Self {
        self.policy.set_holders(holders);
        self
    }

    /// The policy as it is now.
    pub fn version(&self) -> PolicyVersion {
        self.policy.version()
    }

    /// The model being trained.
    pub fn model(&self) -> &Model {
        &self.policy.learner.model
    }

    /// Writes the weights it computes with, an adapter in them, as a folder.
    pub fn write_model(&mut self, folder: &Path) -> Result<(), TrainerError> {
        self.policy.write_model(folder)
    }

    /// The float32 weights that are trained.
    pub fn masters(&self) -> &[Tensor] {
        self.policy.learner.masters()
    }

    /// The step of a checked batch, up to and including the optimizer.
    fn take_step(&mut self, batch: &TrainBatch) -> Result<Outcome, TrainerError> {
        let version = self.version();
        let tally = self.policy.accumulate(batch)?.expect("a checked batch has sequences");
        let totals = tally.read().map_err(|error| device_error(version, &error))?.totals();
        self.policy.check_totals(&totals)?;
        let step = self.policy.learner.step().map_err(|error| step_error(version, &error))?;
        Ok((totals, step))
    }
}

type Outcome = (crate::loss::Totals, scalerl_model::train::StepReport);

impl Trainer for LocalTrainer {
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
        let started = Instant::now();
        self.policy.check(batch)?;
        self.check_weights()?;
        if let Some(threads) = self.threads {
            device::use_threads(threads);
        }
        let taken = self.take_step(batch);
        let (totals, step) = taken.map_err(|error| self.policy.give_up(error))?;
        self.masters_moved();
        Ok(self.policy.report(batch, &totals, &step, started.elapsed().as_secs_f64()))
    }

    fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        let version = self.version();
        let failed = |error: TchError| self.policy.with_holders(device_error(version, &error));
        if !matches!(self.sharing, Sharing::Copied) {
            let lent = self.weight_store.lend(version, self.masters());
            let (handle, lease) = lent.map_err(failed)?;
            self.sharing = Sharing::Lent(lease);
            return Ok(handle);
        }
        let published = self.weight_store.publish(version, self.model().trained());
        published.map_err(failed)
    }

    fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
        checkpoint::save(&self.policy.learner, &json!({"trainer": "local"}), folder)
            .map_err(|error| checkpoint_error(folder, error))?;
        self.policy.save_model(folder)
    }

    fn snapshot(&mut self, folder: &Path) -> Result<Writing, TrainerError> {
        let failed = |error| checkpoint_error(folder, error);
        let needed = Snapshot::bytes(&self.policy.learner).map_err(failed)?;
        if memory::free().is_some_and(|free| !memory::has_room(needed, free)) {
            // No room for a copy on this host: written tensor by tensor, and steps wait.
            return self.save(folder).map(|()| Writing::done());
        }
        let taken = Snapshot::take(&self.policy.learner);
        let state = taken.map_err(|error| checkpoint_error(folder, error))?;
        let model = self.policy.model_of(&state, folder)?;
        let folder = folder.to_path_buf();
        Ok(Writing::new(move || {
            state
                .write(&json!({"trainer": "local"}), &folder)
                .map_err(|error| checkpoint_error(&folder, error))?;
            model.finish()
        }))
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        let path = newest(folder)?;
        let restored = checkpoint::restore(&mut self.policy.learner, &path);
        restored.map_err(|error| checkpoint_error(&path, error))?;
        self.masters_moved();
        let forgotten = self.policy.learner.discard_gradients();
        forgotten.map_err(|error| device_error(self.version(), &error))?;
        Ok(self.version())
    }
}

/// The checkpoint that [`Trainer::save`] wrote into a folder.
pub(crate) fn newest(folder: &Path) -> Result<PathBuf, TrainerError> {
    let found = checkpoint::list(folder).map_err(|error| storage(folder, error.to_string()))?;
    let newest = found.into_iter().next_back().map(|(_, path)| path);
    newest.ok_or_else(|| storage(folder, "no trainer was saved in this folder".to_owned()))
}

pub(crate) fn storage(path: &Path, reason: String) -> TrainerError {
    TrainerError::Storage { path: PathBuf::from(path), reason, hint: None }
}

/// The same where it is known what to do.
fn hinted(path: &Path, reason: String, hint: &'static str) -> TrainerError {
    TrainerError::Storage { path: PathBuf::from(path), reason, hint: Some(hint) }
}

/// What fails between ranks is not the disk's fault.
pub(crate) fn checkpoint_error(path: &Path, error: CheckpointError) -> TrainerError {
    match error {
        CheckpointError::Ranks(error) => rank_error(&error),
        CheckpointError::File(error) => file_error(path, error),
        error => hinted(path, error.to_string(), error.hint()),
    }
}

/// A model folder that cannot be written.
pub(crate) fn file_error(folder: &Path, error: LoadError) -> TrainerError {
    match error {
        LoadError::DiskFull { path, source } => {
            TrainerError::DiskFull { path, reason: source.to_string() }
        }
        error => hinted(folder, error.to_string(), error.hint()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_full_disk_stays_one_on_its_way_to_the_engine() {
        let full = || LoadError::DiskFull {
            path: "weights/v1/model.safetensors".into(),
            source: ErrorKind::StorageFull.into(),
        };
        let folder = Path::new("weights/v1");
        for error in
            [file_error(folder, full()), checkpoint_error(folder, CheckpointError::File(full()))]
        {
            let said = error.to_string();
            assert!(said.starts_with("disk full: cannot write weights/v1/model.saf"), "{said}");
            assert!(matches!(error, TrainerError::DiskFull { .. }), "{error:?}");
        }
        let other = file_error(folder, LoadError::NoWeights { path: folder.into() });
        assert!(matches!(other, TrainerError::Storage { .. }), "{other:?}");
    }

    #[test]
    fn what_to_do_about_a_checkpoint_travels_with_the_error() {
        let path = Path::new("checkpoints/step-00000004");
        for error in [
            CheckpointError::OtherModel { path: path.into(), problem: "no adapter".into() },
            CheckpointError::NotShared { path: path.into() },
            CheckpointError::File(LoadError::NoWeights { path: path.into() }),
        ] {
            let expected = error.hint();
            let TrainerError::Storage { hint, .. } = checkpoint_error(path, error) else {
                panic!()
            };
            assert_eq!(hint, Some(expected));
        }
    }
}
