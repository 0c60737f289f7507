//! Weights as a folder that servers read: the way from a trainer to vLLM.
//!
//! ```text
//! FOLDER/lock            held by the run that publishes here
//! FOLDER/v00000007-3/    config, tokenizer, safetensors: version 7, the third publication
//! ```
//! Each publication is a Hugging Face folder, written under another name and renamed, so that a
//! server finds it whole or not at all. The one before stays until the next: a server that is late
//! may be reading it still. Older ones are removed.
//!
//! Servers that take an adapter by itself get PEFT's folder in place of the model's.
//!
//! [`FolderTrainer`] is a trainer with this in place of the weight store.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use scalerl_model::folder::Model;
use scalerl_model::save::{ModelToSave, SaveKind, save_model};
use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle, Writing,
};
use tch::Kind;

use crate::policy::device_error;
use crate::trainer::{LocalTrainer, file_error, storage};

/// A folder on storage that trainer and servers share.
#[derive(Debug)]
pub struct WeightFolder {
    path: PathBuf,
    published: u64,
    /// Newest last.
    kept: Vec<PathBuf>,
    /// Unlocked when dropped.
    _lock: File,
}

impl WeightFolder {
    /// Takes the folder for this run, makes it where it is missing, and removes what an earlier run
    /// has left there. Refused while another run publishes there.
    pub fn open(path: &Path) -> Result<Self, TrainerError> {
        let failed = |error: io::Error| storage(path, error.to_string());
        fs::create_dir_all(path).map_err(failed)?;
        // Servers are told this path and have another working directory.
        let path = &fs::canonicalize(path).map_err(failed)?;
        let lock = File::create(path.join("lock")).map_err(failed)?;
        if lock.try_lock().is_err() {
            return Err(storage(path, "another run publishes its weights there".to_owned()));
        }
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if is_publication(&entry.file_name().to_string_lossy()) {
                fs::remove_dir_all(entry.path()).map_err(failed)?;
            }
        }
        Ok(Self { path: path.clone(), published: 0, kept: Vec::new(), _lock: lock })
    }

    /// Writes the model's weights as they are, an adapter in them, and makes them the newest.
    pub fn publish(
        &mut self,
        version: PolicyVersion,
        model: &Model,
    ) -> Result<WeightHandle, TrainerError> {
        self.publish_by(version, |folder| {
            let kind = model.parameters.first().map(tch::Tensor::kind);
            // Servers hold whole weights: an adapter goes to them merged.
            let merged = model.merged_parameters();
            let model = ModelToSave {
                config: &model.config,
                parameters: &merged.map_err(|error| device_error(version, &error))?,
                kind: if kind == Some(Kind::BFloat16) {
                    SaveKind::BFloat16
                } else {
                    SaveKind::Float32
                },
                companions: model.folder.as_deref(),
            };
            save_model(&model, folder).map_err(|error| file_error(folder, error))
        })
    }

    /// Writes the model's adapter and makes it the newest.
    pub fn publish_adapter(
        &mut self,
        version: PolicyVersion,
        model: &Model,
    ) -> Result<WeightHandle, TrainerError> {
        assert!(
            model.adapter.is_some(),
            "an adapter by itself is published of a model that has one"
        );
        self.publish_by(version, |folder| {
            model.save(folder, SaveKind::Float32).map_err(|error| file_error(folder, error))
        })
    }

    /// Makes a folder that `write` writes the newest.
    fn publish_by(
        &mut self,
        version: PolicyVersion,
        write: impl FnOnce(&Path) -> Result<(), TrainerError>,
    ) -> Result<WeightHandle, TrainerError> {
        self.published += 1;
        let folder = self.path.join(format!("v{:08}-{}", version.0, self.published));
        write(&folder)?;
        while self.kept.len() > 1 {
            let old = self.kept.remove(0);
            fs::remove_dir_all(&old).map_err(|error| storage(&old, error.to_string()))?;
        }
        self.kept.push(folder.clone());
        Ok(WeightHandle { version, location: folder.display().to_string() })
    }
}

/// A name that only [`WeightFolder::publish`] gives, or the draft of one.
fn is_publication(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = name.strip_prefix('v').and_then(|rest| rest.split_once('-'));
    name.starts_with(".saving-")
        || parts.is_some_and(|(version, count)| {
            version.len() >= 8 && is_number(version) && is_number(count)
        })
}

/// A trainer of this process's model.
pub trait HoldsModel: Trainer {
    fn version(&self) -> PolicyVersion;
    /// Its weights may be elsewhere.
    fn model(&self) -> &Model;
    /// Writes the weights it computes with, an adapter in them, as a folder.
    fn write_model(&mut self, folder: &Path) -> Result<(), TrainerError>;
}

impl HoldsModel for LocalTrainer {
    fn version(&self) -> PolicyVersion {
        Self::version(self)
    }

    fn model(&self) -> &Model {
        Self::model(self)
    }

    fn write_model(&mut self, folder: &Path) -> Result<(), TrainerError> {
        Self::write_model(self, folder)
    }
}

/// A trainer, for generators that read weights from a folder.
pub struct FolderTrainer<T> {
    inner: T,
    folder: WeightFolder,
    is_adapter_alone: bool,
}

impl<T: HoldsModel> FolderTrainer<T> {
    pub fn new(inner: T, folder: WeightFolder) -> Self {
        Self { inner, folder, is_adapter_alone: false }
    }

    /// For servers that have the base and take the adapter by itself.
    #[must_use]
    pub fn with_adapter_alone(mut self) -> Self {
        self.is_adapter_alone = true;
        self
    }
}

impl<T: HoldsModel> Trainer for FolderTrainer<T> {
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
        self.inner.step(batch)
    }

    fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        let version = self.inner.version();
        if self.is_adapter_alone {
            return self.folder.publish_adapter(version, self.inner.model());
        }
        self.folder.publish_by(version, |folder| self.inner.write_model(folder))
    }

    fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
        self.inner.save(folder)
    }

    fn snapshot(&mut self, folder: &Path) -> Result<Writing, TrainerError> {
        self.inner.snapshot(folder)
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        self.inner.restore(folder)
    }
}

#[cfg(test)]
mod tests {
    use scalerl_model::config::ModelConfig;
    use tch::Device;

    use super::*;

    fn model(seed: i64) -> Model {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
        let config = ModelConfig::load(&folder.join("config.json")).unwrap();
        Model::random(config, seed, Kind::Float, Device::Cpu).unwrap()
    }

    #[test]
    fn the_last_two_publications_can_be_loaded_and_older_ones_are_gone() {
        let place = tempfile::tempdir().unwrap();
        let mut folder = WeightFolder::open(&place.path().join("weights")).unwrap();
        let handles: Vec<WeightHandle> = (0..4)
            .map(|version| folder.publish(PolicyVersion(version), &model(version as i64)).unwrap())
            .collect();
        for (handle, is_there) in handles.iter().zip([false, false, true, true]) {
            assert_eq!(Path::new(&handle.location).is_dir(), is_there, "{handle:?}");
        }
        let read = Model::load(handles[3].location.as_ref(), Kind::Float, Device::Cpu).unwrap();
        let same = read.parameters.iter().zip(&model(3).parameters).all(|(a, b)| a.equal(b));
        assert!(same, "what was published is what is read");
    }

    #[test]
    fn a_folder_belongs_to_one_run_and_what_another_left_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let mut first = WeightFolder::open(place.path()).unwrap();
        let left = first.publish(PolicyVersion(5), &model(1)).unwrap();
        let said = WeightFolder::open(place.path()).unwrap_err().to_string();
        assert!(said.contains("another run publishes"), "{said}");
        drop(first);
        fs::create_dir(place.path().join("v2-of-mine")).unwrap();
        fs::create_dir(place.path().join(".saving-x")).unwrap();
        let _second = WeightFolder::open(place.path()).unwrap();
        assert!(!Path::new(&left.location).exists());
        assert!(!place.path().join(".saving-x").exists());
        assert!(place.path().join("v2-of-mine").exists(), "what is not ours stays");
    }
}
