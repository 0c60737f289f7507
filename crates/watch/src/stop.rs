//! Asking a run to stop in order, exactly as SIGTERM from a shell does.
//!
//! The folder says which process last took the right to write. Numbers of processes are used again, so
//! before a signal is sent the process is held fast (a pidfd) and looked at: it must have the lock file
//! of this very run open. A process on another machine is not found here and not signalled.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use scalerl_journal::RunFolder;
use thiserror::Error;

/// Why a run was not asked to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StopError {
    #[error("no process holds this run: there is nothing to stop")]
    NotAlive,
    #[error("the run does not say which process holds it: it was begun by an earlier release")]
    NoHolder,
    #[error("process {pid} of this machine does not hold this run: it may run on another machine")]
    Elsewhere { pid: u32 },
    #[error("cannot ask process {pid}: {source}")]
    Signal { pid: u32, source: io::Error },
}

/// Asks the process that holds a run to stop; its number.
pub(crate) fn ask(folder: &RunFolder) -> Result<u32, StopError> {
    if !folder.is_held().unwrap_or(false) {
        return Err(StopError::NotAlive);
    }
    let pid = folder.holder().ok_or(StopError::NoHolder)?;
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let number = number.ok_or(StopError::Elsewhere { pid })?;
    let process =
        pidfd_open(number, PidfdFlags::empty()).map_err(|_| StopError::Elsewhere { pid })?;
    if !has_open(pid, &folder.lock_file()) {
        return Err(StopError::Elsewhere { pid });
    }
    pidfd_send_signal(&process, Signal::TERM)
        .map_err(|error| StopError::Signal { pid, source: error.into() })?;
    Ok(pid)
}

/// Whether a process has a file open.
fn has_open(pid: u32, file: &Path) -> bool {
    let Ok(wanted) = fs::metadata(file) else { return false };
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| {
        fs::metadata(entry.path())
            .is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_journal::Environment;

    #[test]
    fn only_the_process_that_has_the_lock_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let writer = RunFolder::create(&path, "", &Environment::default()).unwrap();
        // Another's number in the file: the process is there, but does not have the run.
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        fs::write(writer.lock_file(), child.id().to_string()).unwrap();
        let reader = RunFolder::open(&path).unwrap();
        assert!(matches!(ask(&reader), Err(StopError::Elsewhere { .. })));
        assert!(child.try_wait().unwrap().is_none(), "it was left alone");
        fs::write(writer.lock_file(), "").unwrap();
        assert!(matches!(ask(&reader), Err(StopError::NoHolder)));
        child.kill().unwrap();
        child.wait().unwrap();
        drop(writer);
        assert!(matches!(ask(&reader), Err(StopError::NotAlive)));
    }
}
