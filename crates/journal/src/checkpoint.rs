//! Checkpoints: whole or not there.
//!
//! ```text
//! begin: .writing-step-000042/ --files--> sums --> sync --> rename to step-000042/ --> sync parent
//! ```
//!
//! The rename is the only moment at which a checkpoint appears, and by then every file in it is on
//! the disk and has its SHA-256 in `manifest.json`. Folders whose names begin with `.writing-`
//! are what a killed writer left; readers pass over them, the next writer removes them. Removal
//! goes the same way backwards: rename out of sight, then delete. A checkpoint whose files are not
//! those that were written is never deleted: it is renamed to `damaged-step-000042`. The
//! newest one that a run has gone back from is kept as `undone-step-000042`.
//!
//! Not here: what is in a checkpoint (`engine`, and the trainer's own files).

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use scalerl_rollout::PolicyVersion;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    durable::{ASIDE, create_folder, remove_unfinished, sync_folder, write_synced},
    error::JournalError,
    points::EvaluationPoint,
};

const MANIFEST: &str = "manifest.json";
const PREFIX: &str = "step-";
const DAMAGED: &str = "damaged-";
const UNDONE: &str = "undone-";

/// Damaged checkpoints that are kept; with more the disk is at fault and somebody must look.
const MOST_DAMAGED: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: PolicyVersion,
    files: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    path: PathBuf,
    bytes: u64,
    sha256: String,
}

/// The checkpoints of one run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
}

/// One whole checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Steps taken when it was saved.
    pub version: PolicyVersion,
    /// Its folder.
    pub path: PathBuf,
}

/// A checkpoint that was passed over because its files are not what was written.
#[derive(Debug)]
pub struct Damaged {
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// What is wrong.
    pub error: JournalError,
}

impl Damaged {
    /// What is wrong, without the name of the checkpoint.
    pub fn problem(&self) -> String {
        match &self.error {
            JournalError::BadCheckpoint { problem, .. } => problem.clone(),
            error => error.to_string(),
        }
    }
}

impl Checkpoints {
    /// For reading.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// For the one writer: removes what a killed writer left.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let checkpoints = Self::at(folder);
        create_folder(&checkpoints.folder)?;
        remove_unfinished(&checkpoints.folder)?;
        Ok(checkpoints)
    }

    /// The whole ones, oldest first.
    pub fn list(&self) -> Result<Vec<Checkpoint>, JournalError> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(JournalError::io("read the folder", &self.folder)(error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(JournalError::io("read the folder", &self.folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix(PREFIX).and_then(|digits| digits.parse().ok());
            if let Some(version) = version {
                found.push(Checkpoint { version: PolicyVersion(version), path: entry.path() });
            }
        }
        found.sort_by_key(|checkpoint| checkpoint.version);
        Ok(found)
    }

    /// The newest one that has everything in `parts` and whose files are all as they were written,
    /// and the newer ones that are not like that.
    pub fn newest_sound(
        &self,
        parts: &[&str],
    ) -> Result<(Option<Checkpoint>, Vec<Damaged>), JournalError> {
        let mut damaged = Vec::new();
        for checkpoint in self.list()?.into_iter().rev() {
            match checkpoint.verify_parts(parts) {
                Ok(()) => return Ok((Some(checkpoint), damaged)),
                Err(error) => damaged.push(Damaged { checkpoint, error }),
            }
        }
        Ok((None, damaged))
    }

    /// Starts a checkpoint out of sight.
    pub fn begin(&self, version: PolicyVersion) -> Result<Draft, JournalError> {
        let name = format!("{PREFIX}{:06}", version.0);
        let (path, aside) = (self.folder.join(&name), self.folder.join(format!("{ASIDE}{name}")));
        if path.exists() {
            let problem = "there is one of this step already".into();
            return Err(JournalError::BadCheckpoint { path, problem });
        }
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(JournalError::io("remove", &aside))?;
        }
        create_folder(&aside)?;
        Ok(Draft { version, aside, path, parent: self.folder.clone() })
    }

    /// Refuses to keep so many more damaged checkpoints where there are enough already.
    pub fn may_keep_damaged(&self, more: usize) -> Result<(), JournalError> {
        if more == 0 {
            return Ok(());
        }
        let entries = fs::read_dir(&self.folder)
            .map_err(JournalError::io("read the folder", &self.folder))?;
        let is_damaged =
            |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(DAMAGED);
        let count = entries.flatten().filter(is_damaged).count();
        if count + more > MOST_DAMAGED {
            return Err(JournalError::TooManyDamaged { path: self.folder.clone(), count, more });
        }
        Ok(())
    }

    /// The name that a damaged checkpoint can be kept under, out of the way of a new one.
    pub fn name_for_damaged(&self, checkpoint: &Checkpoint) -> String {
        self.free_name(DAMAGED, checkpoint)
    }

    fn free_name(&self, prefix: &str, checkpoint: &Checkpoint) -> String {
        let first = format!("{prefix}{}", checkpoint.name());
        let others = (2..=u32::MAX).map(|number| format!("{first}.{number}"));
        let mut names = std::iter::once(first.clone()).chain(others);
        names.find(|name| !self.folder.join(name).exists()).unwrap_or(first)
    }

    /// Keeps a damaged checkpoint under another name.
    pub fn keep_damaged(&self, checkpoint: &Checkpoint, name: &str) -> Result<(), JournalError> {
        let kept = self.folder.join(name);
        fs::rename(&checkpoint.path, &kept).map_err(JournalError::io("rename to", &kept))?;
        sync_folder(&self.folder)
    }

    /// The one with the best primary pass rate: measured at its own version, or else at the last
    /// evaluation before it.
    pub fn best(&self, points: &[EvaluationPoint]) -> Result<Option<Checkpoint>, JournalError> {
        let rate = |version: PolicyVersion| {
            let before = points.iter().rev().find(|point| point.step <= version.0);
            before.map(|point| point.pass_rate)
        };
        let rated = self.list()?.into_iter().filter_map(|one| Some((rate(one.version)?, one)));
        let best = rated.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.version.cmp(&a.1.version)));
        Ok(best.map(|(_, checkpoint)| checkpoint))
    }

    /// Makes `checkpoint` the newest. Of those after it the newest is kept under another name, which is
    /// returned; the others are removed, newest first.
    pub fn undo_after(&self, checkpoint: &Checkpoint) -> Result<Option<PathBuf>, JournalError> {
        let mut later = self.list()?;
        later.retain(|one| one.version > checkpoint.version);
        let Some(newest) = later.pop() else { return Ok(None) };
        let kept = self.folder.join(self.free_name(UNDONE, &newest));
        fs::rename(&newest.path, &kept).map_err(JournalError::io("rename to", &kept))?;
        for one in later.iter().rev() {
            one.remove()?;
        }
        sync_folder(&self.folder)?;
        Ok(Some(kept))
    }

    /// Removes all but the newest `keep_latest` and `best`.
    pub fn prune(
        &self,
        keep_latest: usize,
        best: Option<PolicyVersion>,
    ) -> Result<(), JournalError> {
        let all = self.list()?;
        let old = all.len().saturating_sub(keep_latest);
        for checkpoint in all.iter().take(old).filter(|one| Some(one.version) != best) {
            checkpoint.remove()?;
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Its folder's name.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Checks every file against the manifest, which must list some.
    pub fn verify(&self) -> Result<(), JournalError> {
        self.verify_parts(&[])
    }

    /// As [`Checkpoint::verify`]; the manifest must list each of `parts`, a file or a folder with
    /// something in it.
    fn verify_parts(&self, parts: &[&str]) -> Result<(), JournalError> {
        let bad =
            |problem: String| JournalError::BadCheckpoint { path: self.path.clone(), problem };
        let text = scalerl_files::read(&self.path.join(MANIFEST), scalerl_files::TABLE)
            .map_err(|error| bad(format!("{MANIFEST} cannot be read: {error}")))?;
        let manifest: Manifest =
            serde_json::from_slice(&text).map_err(|error| bad(format!("{MANIFEST}: {error}")))?;
        if manifest.version != self.version {
            return Err(bad(format!("{MANIFEST} is of {}", manifest.version)));
        }
        if manifest.files.is_empty() {
            return Err(bad(format!("{MANIFEST} lists no files")));
        }
        let is_listed = |part: &&str| manifest.files.iter().any(|one| one.path.starts_with(part));
        if let Some(missing) = parts.iter().find(|part| !is_listed(part)) {
            return Err(bad(format!("{MANIFEST} does not list {missing}")));
        }
        for entry in &manifest.files {
            let (bytes, sha256) = digest(&self.path.join(&entry.path))
                .map_err(|error| bad(format!("{}: {error}", entry.path.display())))?;
            if bytes != entry.bytes || sha256 != entry.sha256 {
                let name = entry.path.display();
                return Err(bad(format!("{name} is not the file that was written")));
            }
        }
        Ok(())
    }

    /// A file of this checkpoint.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, JournalError> {
        let path = self.path.join(name);
        fs::read(&path).map_err(JournalError::io("read", path))
    }

    fn remove(&self) -> Result<(), JournalError> {
        let aside = self.path.with_file_name(format!("{ASIDE}{}", self.name()));
        fs::rename(&self.path, &aside).map_err(JournalError::io("remove", &self.path))?;
        fs::remove_dir_all(&aside).map_err(JournalError::io("remove", aside))
    }
}

/// A checkpoint that nobody can see yet. Dropping it leaves the folder to the next writer.
#[derive(Debug)]
pub struct Draft {
    version: PolicyVersion,
    aside: PathBuf,
    path: PathBuf,
    parent: PathBuf,
}

impl Draft {
    /// Where its files belong.
    pub fn folder(&self) -> &Path {
        &self.aside
    }

    /// Makes an empty folder inside, for a trainer to save itself in.
    pub fn subfolder(&self, name: &str) -> Result<PathBuf, JournalError> {
        let path = self.aside.join(name);
        create_folder(&path)?;
        Ok(path)
    }

    /// Writes one file.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), JournalError> {
        write_synced(&self.aside.join(name), bytes)
    }

    /// Sums and syncs everything and makes it appear. Takes as long as reading the files. Where that
    /// fails nothing of it is left: on a full disk the room is needed.
    pub fn commit(self) -> Result<Checkpoint, JournalError> {
        let aside = self.aside.clone();
        self.commit_watched(|_| Ok(())).inspect_err(|_| discard(&aside))
    }

    /// Gives up what was written so far.
    pub fn discard(self) {
        discard(&self.aside);
    }

    /// `watch` is told before each act on the disk; its error ends the writing there, as a kill
    /// would.
    fn commit_watched(
        self,
        mut watch: impl FnMut(&str) -> Result<(), JournalError>,
    ) -> Result<Checkpoint, JournalError> {
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        walk(&self.aside, &mut files, &mut folders)?;
        let mut manifest = Manifest { version: self.version, files: Vec::new() };
        for path in &files {
            watch("sync a file")?;
            let file = File::open(path).map_err(JournalError::io("open", path))?;
            file.sync_all().map_err(JournalError::io("sync", path))?;
            let (bytes, sha256) = digest(path).map_err(JournalError::io("read", path))?;
            let path = path.strip_prefix(&self.aside).unwrap_or(path).to_owned();
            manifest.files.push(Entry { path, bytes, sha256 });
        }
        let text = serde_json::to_vec_pretty(&manifest).map_err(|error| {
            JournalError::BadCheckpoint { path: self.path.clone(), problem: error.to_string() }
        })?;
        watch("write the manifest")?;
        self.write(MANIFEST, &text)?;
        for folder in folders.iter().rev() {
            watch("sync a folder")?;
            sync_folder(folder)?;
        }
        watch("rename")?;
        fs::rename(&self.aside, &self.path).map_err(JournalError::io("rename to", &self.path))?;
        watch("sync the parent")?;
        sync_folder(&self.parent)?;
        Ok(Checkpoint { version: self.version, path: self.path })
    }
}

/// Removes a draft. What is left, the next writer removes.
fn discard(aside: &Path) {
    let _ = fs::remove_dir_all(aside);
}

fn walk(
    folder: &Path,
    files: &mut Vec<PathBuf>,
    folders: &mut Vec<PathBuf>,
) -> Result<(), JournalError> {
    folders.push(folder.to_owned());
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(JournalError::io("read the folder", folder))?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            walk(&path, files, folders)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn digest(path: &Path) -> Result<(u64, String), std::io::Error> {
    let mut file = scalerl_files::open(path)?;
    let (mut hasher, mut bytes) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        bytes += count as u64;
        hasher.update(&buffer[..count]);
    }
    let mut sum = String::new();
    for byte in hasher.finalize() {
        // Writing to a text cannot fail.
        let _ = write!(sum, "{byte:02x}");
    }
    Ok((bytes, sum))
}

#[cfg(test)]
mod tests;
