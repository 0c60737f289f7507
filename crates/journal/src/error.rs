//! Why a run folder could not be written or read.

use std::{io, path::PathBuf};

use scalerl_rollout::PolicyVersion;
use thiserror::Error;

/// What can go wrong with a run folder.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The operating system refused.
    #[error("cannot {act} {}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    /// No room is left where the run writes.
    #[error("disk full: cannot {act} {}", path.display())]
    DiskFull { act: &'static str, path: PathBuf, source: io::Error },
    /// A new run would overwrite another.
    #[error("{} holds a run already", path.display())]
    Exists { path: PathBuf },
    /// There is no run to read or to resume.
    #[error("{} is not a run folder: it has no {missing}", path.display())]
    NotARun { path: PathBuf, missing: &'static str },
    /// Another process writes this folder.
    #[error("{} is being written by another process", path.display())]
    Locked { path: PathBuf },
    /// The history is gone while checkpoints are there: what the run has done cannot be known.
    #[error(
        "{} is missing or empty, and there are {checkpoints} checkpoints, the newest of step {}",
        path.display(), newest.0
    )]
    EventsLost { path: PathBuf, checkpoints: usize, newest: PolicyVersion },
    /// A line that is no event, with whole events after it.
    #[error("{}: line {line}: {problem}", path.display())]
    Damaged { path: PathBuf, line: usize, problem: String },
    /// Written by a later release.
    #[error(
        "{}: line {line} has format {found}, this program reads up to {known}",
        path.display()
    )]
    TooNew { path: PathBuf, line: usize, found: u32, known: u32 },
    /// A file of the folder that does not hold what it should.
    #[error("{}: {problem}", path.display())]
    BadFile { path: PathBuf, problem: String },
    /// A checkpoint whose files are not those that were written.
    #[error("checkpoint {}: {problem}", path.display())]
    BadCheckpoint { path: PathBuf, problem: String },
    /// So many damaged checkpoints were kept that the next would fill the disk.
    #[error("{} holds {count} damaged checkpoints already, and there are {more} more", path.display())]
    TooManyDamaged { path: PathBuf, count: usize, more: usize },
}

impl JournalError {
    pub(crate) fn io(
        act: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| {
            if scalerl_files::is_disk_full(&source) {
                Self::DiskFull { act, path, source }
            } else {
                Self::Io { act, path, source }
            }
        }
    }

    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check the path, its permissions and the free space",
            Self::DiskFull { .. } => {
                "make room on that disk (or raise the quota), then go on with --resume; what was \
                 saved before is whole"
            }
            Self::Exists { .. } => "choose another folder, or go on with --resume",
            Self::NotARun { .. } => "give the folder that `scalerl train` has made",
            Self::Locked { .. } => "wait for that run to end, or stop it first",
            Self::EventsLost { .. } => {
                "restore events.jsonl from a copy; or begin a new run from the newest checkpoint's \
                 trainer/model (model.path), whose curve begins anew"
            }
            Self::Damaged { .. } => {
                "the file was changed or the disk has failed; mend or remove that line"
            }
            Self::TooNew { .. } => "read the run with the release that wrote it, or a later one",
            Self::BadFile { .. } => "restore the file from a copy",
            Self::BadCheckpoint { .. } => {
                "restore its files from a copy, or move that folder away to go on from the \
                 checkpoint before it"
            }
            Self::TooManyDamaged { .. } => {
                "the disk may be failing: look at it, then move the damaged-… folders away and \
                 resume"
            }
        }
    }
}
