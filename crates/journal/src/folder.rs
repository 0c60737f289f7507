//! A run's folder: where things are, who may write, and the files written once.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use scalerl_curve::{HistoryEntry, Provenance};
use scalerl_rollout::{GroupId, PolicyVersion};
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::Checkpoints,
    durable::{create_folder, json_lines, remove_unfinished, write_json, write_whole},
    error::JournalError,
    library::Library,
    log::has_events,
    points::{EvaluationPoint, append_point, write_points},
    samples::{Sample, write_samples},
};

/// What is written before the first event, by whoever: a start that fails leaves nothing else.
const BEFORE_THE_FIRST_EVENT: [&str; 13] = [
    "environment.json",
    "recipe.toml",
    "held_out.json",
    "problems.fingerprints",
    "verifier_files.json",
    "verifier.log",
    HISTORY,
    "policy.json",
    "fleet.json",
    "session.token",
    "events.jsonl",
    "points.jsonl",
    "run.lock",
];

/// Groups that were set aside and are kept to be looked at; later ones are only recorded.
const MOST_SET_ASIDE: usize = 100;

/// What a run ran on. Made by the CLI.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Release of scalerl.
    pub scalerl: String,
    /// Commit it was built from.
    pub commit: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// Unix time of the start, in seconds.
    pub started_at: f64,
    /// Devices held, one name each.
    pub devices: Vec<String>,
    /// Operating system and processor.
    pub machine: String,
    /// Versions of libraries that numbers depend on.
    pub libraries: BTreeMap<String, String>,
    /// Hashes of the starting weights and of the evaluation: runs that share both can learn from
    /// each other.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// What is trained, where it is not the whole model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterSize>,
}

/// How much of a model an adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterSize {
    /// Of its matrices.
    pub rank: u64,
    /// Numbers that are trained.
    pub trained: u64,
    /// Numbers of the frozen model.
    pub parameters: u64,
}

impl std::fmt::Display for AdapterSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.trained as f64 / self.parameters.max(1) as f64;
        write!(f, "LoRA rank {}, {} trained parameters ({share:.2} %)", self.rank, self.trained)
    }
}

/// How often, and how long apart, a lock is asked for before it is another's.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

const HISTORY: &str = "history.jsonl";

/// The folder of one run. Holding one made by [`RunFolder::create`] or [`RunFolder::claim`] is
/// the right to write.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    _lock: Option<WriteLock>,
}

/// The right to write. The operating system frees it with the process, however that ends; one that
/// ends in order leaves the file empty, as if it had never been there.
#[derive(Debug)]
struct WriteLock(File);

impl Drop for WriteLock {
    fn drop(&mut self) {
        // The number of a process that is gone misleads nobody: the lock itself says who is alive.
        self.0.set_len(0).ok();
    }
}

impl RunFolder {
    /// Makes the folder of a new run.
    pub fn create(
        path: &Path,
        recipe: &str,
        environment: &Environment,
    ) -> Result<Self, JournalError> {
        let folder = Self { path: path.to_owned(), _lock: None };
        if folder.has_begun()? || folder.recipe().exists() {
            return Err(JournalError::Exists { path: path.to_owned() });
        }
        create_folder(path)?;
        let folder = folder.locked()?;
        create_folder(&folder.samples_folder())?;
        write_json(&folder.environment(), environment)?;
        write_whole(&folder.recipe(), recipe.as_bytes())?;
        Ok(folder)
    }

    /// Whether anything has happened in this folder that a new run would overwrite.
    fn has_begun(&self) -> Result<bool, JournalError> {
        let has_events = fs::metadata(self.events()).is_ok_and(|found| found.len() > 0);
        let checkpoints = self.path.join("checkpoints");
        let is_empty = |folder: &Path| match fs::read_dir(folder) {
            Ok(mut entries) => Ok(entries.next().is_none()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
            Err(error) => Err(JournalError::io("read the folder", folder)(error)),
        };
        Ok(has_events || !is_empty(&checkpoints)? || !is_empty(&self.samples_folder())?)
    }

    /// Removes what a start has left that failed, or was killed, before its first event, and the
    /// folder where nothing else is in it. A run that has begun, or is just beginning in another
    /// process, is left as it is: whether there is one.
    pub fn undo_start(path: &Path) -> Result<bool, JournalError> {
        let folder = Self { path: path.to_owned(), _lock: None };
        if folder.has_begun()? {
            return Ok(true);
        }
        if !folder.recipe().exists() && !folder.path.join("run.lock").exists() {
            return Ok(false);
        }
        let folder = match folder.locked() {
            Err(JournalError::Locked { .. }) => return Ok(true),
            locked => locked?,
        };
        remove_unfinished(path)?;
        for name in BEFORE_THE_FIRST_EVENT {
            let path = path.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(JournalError::io("remove", path)(error));
                }
                _ => {}
            }
        }
        for empty in [folder.samples_folder(), path.join("checkpoints"), path.to_owned()] {
            // Not there, or it has something of somebody else's in it.
            let _ = fs::remove_dir(empty);
        }
        Ok(false)
    }

    /// Takes an existing run to go on with, and removes what a killed writer left half done. Refuses
    /// one whose history is lost.
    pub fn claim(path: &Path) -> Result<Self, JournalError> {
        let folder = Self::open(path)?.locked()?;
        let (events, checkpoints) = (folder.events(), folder.checkpoints().list()?);
        if let Some(newest) = checkpoints.last()
            && !has_events(&events)?
        {
            let (checkpoints, newest) = (checkpoints.len(), newest.version);
            return Err(JournalError::EventsLost { path: events, checkpoints, newest });
        }
        create_folder(&folder.samples_folder())?;
        remove_unfinished(&folder.path)?;
        remove_unfinished(&folder.samples_folder())?;
        Ok(folder)
    }

    /// Replaces the recipe of a run that goes on with other budgets; the one before stays beside it
    /// as `recipe.before-N.toml`.
    pub fn amend_recipe(&self, recipe: &str) -> Result<(), JournalError> {
        let path = self.recipe();
        let before = scalerl_files::read_to_string(&path, scalerl_files::DOCUMENT)
            .map_err(JournalError::io("read", &path))?;
        if before == recipe {
            return Ok(());
        }
        let kept = (1_u32..=u32::MAX)
            .map(|number| self.path.join(format!("recipe.before-{number}.toml")))
            .find(|path| !path.exists());
        if let Some(kept) = kept {
            write_whole(&kept, before.as_bytes())?;
        }
        write_whole(&path, recipe.as_bytes())
    }

    /// Keeps the finished runs that forecasts learn from, so that a resumed run makes the same.
    pub fn write_history(&self, entries: &[HistoryEntry]) -> Result<(), JournalError> {
        let path = self.path.join(HISTORY);
        write_whole(&path, &json_lines(&path, entries)?)
    }

    /// The finished runs that its forecasts learn from.
    pub fn history(&self) -> Result<Vec<HistoryEntry>, JournalError> {
        Library::new(self.path.join(HISTORY)).entries()
    }

    /// An existing run, for reading.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let folder = Self { path: path.to_owned(), _lock: None };
        if !folder.recipe().exists() {
            return Err(JournalError::NotARun { path: path.to_owned(), missing: "recipe.toml" });
        }
        Ok(folder)
    }

    fn locked(self) -> Result<Self, JournalError> {
        let path = self.path.join("run.lock");
        // What is in it is another's until it is locked.
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let mut lock = opened.map_err(JournalError::io("create", &path))?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            match lock.try_lock() {
                Ok(()) => break,
                // A reader that asks whether the run is alive has it for a moment.
                Err(TryLockError::WouldBlock) if attempts < LOCK_ATTEMPTS => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(JournalError::Locked { path: self.path });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(JournalError::io("lock", path)(error));
                }
            }
        }
        let written = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.map_err(JournalError::io("write", &path))?;
        Ok(Self { _lock: Some(WriteLock(lock)), ..self })
    }

    /// The file that says who writes.
    pub fn lock_file(&self) -> PathBuf {
        self.path.join("run.lock")
    }

    /// The process that last took the right to write, by its own number on its own machine; `None`
    /// where it has ended in order. Whether it still has it, [`RunFolder::is_held`] says.
    pub fn holder(&self) -> Option<u32> {
        let text = scalerl_files::read_to_string(&self.lock_file(), 64).ok()?;
        text.trim().parse().ok()
    }

    /// Whether a process holds the right to write now: tells a run that is alive from one that
    /// was killed. The question takes the lock for a moment, shared, so readers do not see each
    /// other.
    pub fn is_held(&self) -> Result<bool, JournalError> {
        let path = self.path.join("run.lock");
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            // A copied folder may lack it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(JournalError::io("open", path)(error)),
        };
        match lock.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(JournalError::io("lock", path)(error)),
        }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run's name: the folder's.
    pub fn name(&self) -> String {
        let named = self.path.file_name().map(ToOwned::to_owned).or_else(|| {
            self.path.canonicalize().ok().and_then(|path| path.file_name().map(ToOwned::to_owned))
        });
        named.map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
    }

    /// The resolved recipe.
    pub fn recipe(&self) -> PathBuf {
        self.path.join("recipe.toml")
    }

    /// Program, commit, devices.
    pub fn environment(&self) -> PathBuf {
        self.path.join("environment.json")
    }

    /// Everything that happened.
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// The points of the primary set, or of another.
    pub fn points(&self, other_set: Option<&str>) -> PathBuf {
        match other_set {
            None => self.path.join("points.jsonl"),
            Some(set) => self.path.join(format!("points.{}.jsonl", file_name(set))),
        }
    }

    /// Completions of all evaluations.
    pub fn samples_folder(&self) -> PathBuf {
        self.path.join("samples")
    }

    /// Completions of one evaluation.
    pub fn samples(&self, version: PolicyVersion) -> PathBuf {
        self.samples_folder().join(format!("step-{:06}.jsonl", version.0))
    }

    /// The checkpoints, for reading.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::at(self.path.join("checkpoints"))
    }

    /// The checkpoints, for the process that writes.
    pub fn own_checkpoints(&self) -> Result<Checkpoints, JournalError> {
        Checkpoints::open(self.path.join("checkpoints"))
    }

    /// Adds a point of the primary set, or of another.
    pub fn add_point(
        &self,
        other_set: Option<&str>,
        point: &EvaluationPoint,
    ) -> Result<(), JournalError> {
        append_point(&self.points(other_set), point)
    }

    /// Writes the points of a set anew, after a resume.
    pub fn rewrite_points(
        &self,
        other_set: Option<&str>,
        points: &[EvaluationPoint],
    ) -> Result<(), JournalError> {
        write_points(&self.points(other_set), points)
    }

    /// Keeps a group that no step could use, for somebody to look at; the file's name inside this
    /// folder, or `None` where enough are kept already.
    pub fn write_set_aside(
        &self,
        group: GroupId,
        what: &impl Serialize,
    ) -> Result<Option<String>, JournalError> {
        let folder = self.path.join("set-aside");
        create_folder(&folder)?;
        let name = format!("set-aside/group-{:06}.json", group.0);
        let path = self.path.join(&name);
        let kept = fs::read_dir(&folder).map_err(JournalError::io("read the folder", &folder))?;
        if kept.count() >= MOST_SET_ASIDE && !path.exists() {
            return Ok(None);
        }
        write_json(&path, what)?;
        Ok(Some(name))
    }

    /// Keeps some of what a step was trained on.
    pub fn write_training_samples(
        &self,
        version: PolicyVersion,
        samples: &[Sample],
    ) -> Result<(), JournalError> {
        let path = self.samples_folder().join(format!("train-{:06}.jsonl", version.0));
        write_samples(&path, samples)
    }

    /// Keeps completions of one evaluation.
    pub fn write_samples(
        &self,
        version: PolicyVersion,
        samples: &[Sample],
    ) -> Result<(), JournalError> {
        write_samples(&self.samples(version), samples)
    }
}

/// A set's name as a part of a file's name.
fn file_name(set: &str) -> String {
    let is_safe = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    set.chars().map(|letter| if is_safe(letter) { letter } else { '_' }).collect()
}

#[cfg(test)]
mod tests;
