//! Why a tracker did not get something. Every one of these is tried again.

use std::io;
use std::path::{Path, PathBuf};

use scalerl_journal::JournalError;
use thiserror::Error;

/// What can go wrong between a run folder and a tracker.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TrackError {
    /// The operating system refused.
    #[error("cannot {act} {}: {source}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    /// The run folder cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A line of the journal that is no event.
    #[error("{}: line {line}: {problem}", path.display())]
    BadLine { path: PathBuf, line: usize, problem: String },
    /// A file of the run folder that does not hold what it should.
    #[error("{}: {problem}", path.display())]
    BadFile { path: PathBuf, problem: String },
    /// No answer, or none in time.
    #[error("{url}: {problem}")]
    Unreachable { url: String, problem: String },
    /// The server answered and said no.
    #[error("{url} answered {status}: {answer}")]
    Refused { url: String, status: u16, answer: String },
    /// The server answered something else than it should.
    #[error("{url} answered what is not expected of this server: {problem}")]
    Garbage { url: String, problem: String },
    /// What was written or sent before is not there any more.
    #[error("what was sent before is gone: {what}")]
    Lost { what: String },
    /// No address is known.
    #[error("{tracker} needs the address of a server: set {key} or the variable {variable}")]
    NoAddress { tracker: &'static str, key: &'static str, variable: &'static str },
    /// Another process is at it.
    #[error("{} is held by another process, which sends the same", path.display())]
    Busy { path: PathBuf },
}

impl TrackError {
    pub(crate) fn io<'a>(act: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::Io { act, path: path.to_owned(), source }
    }

    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "check the path, its permissions and the free space",
            Self::Journal(error) => error.hint(),
            Self::BadLine { .. } => "the file was changed or the disk has failed; mend that line",
            Self::BadFile { .. } => "restore the file from a copy",
            Self::Unreachable { .. } => {
                "see that the server runs at this address, then export again"
            }
            Self::Refused { .. } => {
                "check the address, and the token or password in the environment"
            }
            Self::Garbage { .. } => "check that the address is that of the tracker",
            Self::Lost { .. } => "export again: everything is sent anew",
            Self::NoAddress { .. } => "--url http://HOST:PORT",
            Self::Busy { .. } => "wait for the run to end: it sends by itself",
        }
    }
}
