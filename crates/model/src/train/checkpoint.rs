//! Checkpoints of a learner: float32 masters, both moments in the numbers they are kept in, step counts, and the
//! caller's notes.
//!
//! ```text
//! FOLDER/step-00000040/  learner.safetensors   masters, moments, step counts
//!                        notes.json            whatever the caller needs to go on
//!                        checkpoint.json       step, and size and SHA-256 of each file
//! ```
//! A checkpoint appears by a rename, so it is there whole or not at all; its sums catch what
//! happens to a disk afterwards. A learner restored from one goes on bit for bit on the CPU.
//!
//! Any number of ranks writes and reads the same files (`checkpoint/ranks.rs`).

mod ranks;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use scalerl_files::{DOCUMENT, TABLE};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tch::{Device, Kind, TchError, Tensor};
use thiserror::Error;

use super::learner::Learner;
use super::shard::RankError;
use crate::error::LoadError;
use crate::save::replace_folder;
use crate::tensor_file::{read_tensors, write_tensors};

const MANIFEST: &str = "checkpoint.json";
const NOTES: &str = "notes.json";
const TENSORS: &str = "learner.safetensors";

/// Why a checkpoint cannot be written or used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CheckpointError {
    #[error("checkpoint {} is damaged: {file}: {problem}", path.display())]
    Damaged { path: PathBuf, file: String, problem: String },
    #[error("checkpoint {} belongs to another model: {problem}", path.display())]
    OtherModel { path: PathBuf, problem: String },
    #[error(transparent)]
    File(#[from] LoadError),
    #[error(transparent)]
    Ranks(#[from] RankError),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl CheckpointError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => "remove that folder: the run then goes on from the one before",
            Self::OtherModel { .. } => "resume with the model the run was started with",
            Self::File(error) => error.hint(),
            Self::Ranks(RankError::Collective(error)) => error.hint(),
            Self::Torch(_) | Self::Ranks(_) => "check the free memory",
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct FileSum {
    bytes: u64,
    sha256: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    step: u64,
    /// Of the frozen weights that an adapter is on; they are not in the checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<String>,
    files: BTreeMap<String, FileSum>,
}

/// Name of the checkpoint after `step` steps.
pub fn folder_name(step: u64) -> String {
    format!("step-{step:08}")
}

pub use ranks::{RestorePlan, restore_together, save_together};

/// Writes a checkpoint of the learner into `folder` and returns its path.
pub fn save(learner: &Learner, notes: &Value, folder: &Path) -> Result<PathBuf, CheckpointError> {
    Snapshot { step: learner.steps_taken, base: base(learner)?, tensors: named(learner)? }
        .write(notes, folder)
}

/// A learner's state at one moment, to be written while the learner goes on.
pub struct Snapshot {
    step: u64,
    base: Option<String>,
    tensors: Vec<(String, Tensor)>,
}

impl Snapshot {
    /// Copies the state into the memory of the host.
    pub fn take(learner: &Learner) -> Result<Self, CheckpointError> {
        let copied = |(name, tensor): (String, Tensor)| {
            let is_here = tensor.device() == Device::Cpu;
            let copy =
                if is_here { tensor.f_detach_copy() } else { tensor.f_to_device(Device::Cpu) };
            copy.map(|copy| (name, copy))
        };
        let tensors = named(learner)?.into_iter().map(copied).collect::<Result<_, _>>()?;
        Ok(Self { step: learner.steps_taken, base: base(learner)?, tensors })
    }

    /// Bytes that a copy takes.
    pub fn bytes(learner: &Learner) -> Result<u64, CheckpointError> {
        let size = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        Ok(named(learner)?.iter().map(|(_, tensor)| size(tensor) as u64).sum())
    }

    /// The float32 weights that are trained, in the order of their layout.
    pub fn masters(&self) -> Vec<Tensor> {
        let masters = self.tensors.iter().filter(|(name, _)| name.starts_with("master."));
        masters.map(|(_, tensor)| tensor.shallow_clone()).collect()
    }

    /// Writes a checkpoint into `folder` and returns its path.
    pub fn write(&self, notes: &Value, folder: &Path) -> Result<PathBuf, CheckpointError> {
        let about = About { step: self.step, base: self.base.clone(), notes };
        write_folder(&about, folder, |path| Ok(write_tensors(path, &self.tensors)?))
    }
}

/// What a checkpoint says beside its tensors.
struct About<'a> {
    step: u64,
    base: Option<String>,
    notes: &'a Value,
}

/// The fingerprint of the learner's frozen weights, where it has any.
fn base(learner: &Learner) -> Result<Option<String>, TchError> {
    let model = &learner.model;
    model.adapter.as_ref().map(|adapter| adapter.fingerprint_of(model)).transpose()
}

/// Refuses a checkpoint of an adapter on other weights than these, or of no adapter.
fn check_base(learner: &Learner, manifest: &Manifest, path: &Path) -> Result<(), CheckpointError> {
    let ours = base(learner)?;
    if manifest.base == ours {
        return Ok(());
    }
    let said = |base: &Option<String>| match base {
        Some(letters) => format!("an adapter on a base of fingerprint {letters}"),
        None => "all weights".to_owned(),
    };
    let problem = format!("it holds {}, this run trains {}", said(&manifest.base), said(&ours));
    Err(CheckpointError::OtherModel { path: path.to_path_buf(), problem })
}

/// Writes the folder around the file of tensors, which `write_state` writes.
fn write_folder(
    about: &About,
    folder: &Path,
    write_state: impl FnOnce(&Path) -> Result<(), CheckpointError>,
) -> Result<PathBuf, CheckpointError> {
    std::fs::create_dir_all(folder).map_err(LoadError::io(folder))?;
    let work = tempfile::Builder::new().prefix(".saving-").tempdir_in(folder);
    let work = work.map_err(LoadError::io(folder))?;
    write_state(&work.path().join(TENSORS))?;
    write(&work.path().join(NOTES), &format!("{:#}\n", about.notes))?;
    let mut files = BTreeMap::new();
    for name in [TENSORS, NOTES] {
        files.insert(name.to_owned(), sum(&work.path().join(name))?);
    }
    let (step, base) = (about.step, about.base.clone());
    let manifest = Manifest { format: 1, step, base, files };
    let text = serde_json::to_string_pretty(&manifest).expect("plain data becomes JSON");
    write(&work.path().join(MANIFEST), &text)?;
    let target = folder.join(folder_name(step));
    replace_folder(&work.keep(), &target)?;
    Ok(target)
}

fn named(learner: &Learner) -> Result<Vec<(String, Tensor)>, TchError> {
    let mut tensors = Vec::new();
    let optimizer = &learner.optimizer;
    for (index, parameter) in learner.model.trained_layout().iter().enumerate() {
        for (what, list) in [
            ("master", &learner.masters),
            ("first", &optimizer.first),
            ("second", &optimizer.second),
            ("steps", &optimizer.steps),
        ] {
            tensors.push((format!("{what}.{}", parameter.name), list[index].f_detach()?));
        }
    }
    Ok(tensors)
}

fn write(path: &Path, text: &str) -> Result<(), LoadError> {
    std::fs::write(path, text).map_err(LoadError::io(path))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(LoadError::io(path))
}

fn sum(path: &Path) -> Result<FileSum, LoadError> {
    let mut file = scalerl_files::open(path).map_err(LoadError::io(path))?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut buffer).map_err(LoadError::io(path))?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
    }
    let mut sha256 = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(sha256, "{byte:02x}");
    }
    Ok(FileSum { bytes, sha256 })
}

/// Checkpoints in a folder, oldest first. What is half written has another name.
pub fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, LoadError> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(LoadError::io(folder))? {
        let path = entry.map_err(LoadError::io(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let step = name.strip_prefix("step-").and_then(|step| step.parse().ok());
        if let Some(step) = step.filter(|step| name == folder_name(*step)) {
            found.push((step, path));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes all but the newest `keep` checkpoints.
pub fn prune(folder: &Path, keep: usize) -> Result<(), LoadError> {
    let all = list(folder)?;
    for (_, path) in all.iter().rev().skip(keep.max(1)) {
        std::fs::remove_dir_all(path).map_err(LoadError::io(path))?;
    }
    Ok(())
}

/// Puts a learner into the state of a checkpoint and returns the caller's notes.
pub fn restore(learner: &mut Learner, path: &Path) -> Result<Value, CheckpointError> {
    let manifest = checked(path)?;
    check_base(learner, &manifest, path)?;
    let tensors = read_tensors(&path.join(TENSORS))?;
    let targets = named(learner)?;
    let other = |problem: String| CheckpointError::OtherModel { path: path.to_path_buf(), problem };
    if tensors.len() != targets.len() {
        let problem = format!("{} tensors, {} expected", tensors.len(), targets.len());
        return Err(other(problem));
    }
    let by_name: BTreeMap<&str, &Tensor> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    for (name, target) in &targets {
        let source = by_name.get(name.as_str());
        let source = source.ok_or_else(|| other(format!("`{name}` is missing")))?;
        // Moments may be kept in other numbers than before.
        let is_kind = matches!(source.kind(), Kind::Float | Kind::BFloat16);
        if source.size() != target.size() || !is_kind {
            return Err(other(format!("`{name}` has shape {:?}", source.size())));
        }
    }
    for (name, target) in targets {
        let mut target = target;
        tch::no_grad(|| target.f_copy_(by_name[name.as_str()]))?;
    }
    learner.renew_computed()?;
    learner.steps_taken = manifest.step;
    read_notes(path)
}

fn read_notes(path: &Path) -> Result<Value, CheckpointError> {
    let notes = path.join(NOTES);
    let text = scalerl_files::read(&notes, TABLE).map_err(LoadError::io(&notes))?;
    let notes =
        serde_json::from_slice(&text).map_err(|source| LoadError::Json { path: notes, source });
    Ok(notes?)
}

/// Reads the manifest and compares every file with its sum.
fn checked(path: &Path) -> Result<Manifest, CheckpointError> {
    let damaged = |file: &str, problem: String| CheckpointError::Damaged {
        path: path.to_path_buf(),
        file: file.to_owned(),
        problem,
    };
    let text = scalerl_files::read_to_string(&path.join(MANIFEST), DOCUMENT)
        .map_err(|error| damaged(MANIFEST, error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| damaged(MANIFEST, error.to_string()))?;
    if manifest.format != 1 {
        return Err(damaged(MANIFEST, format!("format {} is not known", manifest.format)));
    }
    for (name, expected) in &manifest.files {
        let found = sum(&path.join(name)).map_err(|error| damaged(name, error.to_string()))?;
        if found.bytes != expected.bytes {
            let problem = format!("{} bytes, {} were written", found.bytes, expected.bytes);
            return Err(damaged(name, problem));
        }
        if found.sha256 != expected.sha256 {
            return Err(damaged(name, "its SHA-256 has changed".to_owned()));
        }
    }
    Ok(manifest)
}
