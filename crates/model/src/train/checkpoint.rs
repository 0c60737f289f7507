//! Checkpoints of a learner: float32 masters, both moments in the numbers they are kept in, step counts, and the
//! caller's notes.
//!
//! ```text
//! FOLDER/step-00000040/  learner.safetensors                 one process: masters, moments, step counts
//!                        learner-00001-of-00003.safetensors  ranks: what each of them has of it
//!                        notes.json                          whatever the caller needs to go on
//!                        checkpoint.json                     step, and size and SHA-256 of each file
//! ```
//! A checkpoint appears by a rename, so it is there whole or not at all; its sums catch what
//! happens to a disk afterwards. A learner restored from one goes on bit for bit on the CPU.
//!
//! What any number of ranks wrote, in either scheme, any number of either reads (`checkpoint/saved.rs`),
//! and so does one process. Saving is three steps that know nothing of each other: a copy of what a
//! rank has, its file, and the rename (`checkpoint/ranks.rs`).
//!
//! The journal leaves the sums of data files to `checkpoint.json` (`scalerl_journal`, checkpoint.rs): a
//! resume compares each once, here.

mod rank_part;
mod ranks;
mod saved;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use scalerl_files::{DOCUMENT, TABLE};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tch::{Device, TchError, Tensor};
use tempfile::TempDir;
use thiserror::Error;

use super::learner::Learner;
use super::ranks::RankError;
use crate::error::LoadError;
use crate::save::replace_folder;
use crate::tensor_file::write_tensors;
use crate::tensor_writer::FileSum;
pub use ranks::{OwnFile, RestorePlan, SaverState, begin_together, each_master, restore_together};
use saved::Saved;

const MANIFEST: &str = "checkpoint.json";
const NOTES: &str = "notes.json";
const TENSORS: &str = "learner.safetensors";
/// Of one file with everything, and of a file a rank.
const FORMATS: [u32; 2] = [1, 2];
/// What a learner keeps for each number that it trains, by the name it has in the files.
const SECTIONS: [&str; 3] = ["master", "first", "second"];
/// What it keeps for each parameter.
const STEPS: &str = "steps";

/// Why a checkpoint cannot be written or used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CheckpointError {
    #[error("checkpoint {} is damaged: {file}: {problem}", path.display())]
    Damaged { path: PathBuf, file: String, problem: String },
    #[error("checkpoint {} belongs to another model: {problem}", path.display())]
    OtherModel { path: PathBuf, problem: String },
    /// Ranks that write what they have need one place for it.
    #[error("this rank does not find {}", path.display())]
    NotShared { path: PathBuf },
    #[error("the checkpoint before is still being written")]
    StillWriting,
    /// Rank 0 tells what happened elsewhere.
    #[error("trainer rank {rank}: {problem}")]
    OtherRank { rank: usize, problem: String },
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
            Self::NotShared { .. } | Self::OtherRank { .. } => {
                "put the run's folder on storage with room that all trainer ranks share, under one path"
            }
            Self::StillWriting => "save less often, or to a faster disk",
            Self::File(error) => error.hint(),
            Self::Ranks(RankError::Collective(error)) => error.hint(),
            Self::Torch(_) | Self::Ranks(_) => "check the free memory",
        }
    }
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
        let about = About { step: self.step, format: FORMATS[0], base: self.base.clone(), notes };
        let work = draft(folder)?;
        let path = work.path().join(TENSORS);
        write_tensors(&path, &self.tensors)?;
        let files = BTreeMap::from([(TENSORS.to_owned(), sum(&path)?)]);
        commit(work, &about, files, folder)
    }
}

/// What a checkpoint says beside its tensors.
struct About<'a> {
    step: u64,
    format: u32,
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

/// A folder under another name, removed where it does not become a checkpoint.
fn draft(folder: &Path) -> Result<TempDir, LoadError> {
    std::fs::create_dir_all(folder).map_err(LoadError::io(folder))?;
    // As readable as any other folder; the default of a temporary one is private.
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let work =
        tempfile::Builder::new().prefix(".saving-").permissions(permissions).tempdir_in(folder);
    work.map_err(LoadError::io(folder))
}

/// Makes a checkpoint of a draft that has its files of tensors.
fn commit(
    work: TempDir,
    about: &About,
    mut files: BTreeMap<String, FileSum>,
    folder: &Path,
) -> Result<PathBuf, CheckpointError> {
    write(&work.path().join(NOTES), &format!("{:#}\n", about.notes))?;
    files.insert(NOTES.to_owned(), sum(&work.path().join(NOTES))?);
    let (format, step, base) = (about.format, about.step, about.base.clone());
    let manifest = Manifest { format, step, base, files };
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
    Ok(FileSum::of(bytes, hash))
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
    // First: a checkpoint of other weights has other tensors too.
    check_base(learner, &read_manifest(path)?, path)?;
    let saved = Saved::open(path, learner.model.trained_layout())?;
    (0..saved.manifest.files.len()).try_for_each(|file| saved.check_sum(file))?;
    let notes = read_notes(path)?;
    let _guard = tch::no_grad_guard();
    for (section, list) in SECTIONS.into_iter().zip(learner.sections()) {
        for (known, target) in learner.model.trained_layout().iter().zip(list) {
            let flat = target.f_detach()?.f_view(-1)?;
            saved.read((section, &known.name), 0, &flat)?;
        }
    }
    for steps in &learner.optimizer.steps {
        let _ = steps.shallow_clone().f_fill_(f64::from(saved.counted))?;
    }
    learner.renew_computed()?;
    learner.steps_taken = saved.manifest.step;
    Ok(notes)
}

impl Learner {
    /// What [`SECTIONS`] names, one tensor a parameter or a row's own part.
    fn sections(&self) -> [&[Tensor]; 3] {
        [&self.masters, &self.optimizer.first, &self.optimizer.second]
    }
}

fn read_notes(path: &Path) -> Result<Value, CheckpointError> {
    let notes = path.join(NOTES);
    let text = scalerl_files::read(&notes, TABLE).map_err(LoadError::io(&notes))?;
    let notes =
        serde_json::from_slice(&text).map_err(|source| LoadError::Json { path: notes, source });
    Ok(notes?)
}

/// Reads the manifest; its files are not looked at.
fn read_manifest(path: &Path) -> Result<Manifest, CheckpointError> {
    let damaged = |problem: String| damaged(path, MANIFEST, problem);
    let text = scalerl_files::read_to_string(&path.join(MANIFEST), DOCUMENT)
        .map_err(|error| damaged(error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
    if !FORMATS.contains(&manifest.format) {
        return Err(damaged(format!("format {} is not known", manifest.format)));
    }
    Ok(manifest)
}

fn damaged(path: &Path, file: &str, problem: String) -> CheckpointError {
    CheckpointError::Damaged { path: path.to_path_buf(), file: file.to_owned(), problem }
}
