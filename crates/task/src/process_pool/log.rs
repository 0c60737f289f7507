//! What kept-alive processes print, kept in the run's folder.
//!
//! Verifiers are started before a run has its folder, so what they print first waits in memory until
//! [`VerifierLog::keep_at`] says where it belongs. The file is made with its first line. What cannot be
//! written is lost: a full disk must not stop a judge.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that wait for a folder.
const MOST_WAITING: usize = 1 << 20;
/// Bytes that one session writes.
const MOST_WRITTEN: usize = 64 << 20;

/// Shared by all processes of all verifiers of a run.
#[derive(Debug, Clone, Default)]
pub struct VerifierLog(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    path: Option<PathBuf>,
    file: Option<File>,
    waiting: Vec<u8>,
    written: usize,
}

impl VerifierLog {
    /// Appends to this file from now on, what waits first.
    pub fn keep_at(&self, path: &Path) {
        let mut state = self.state();
        state.path = Some(path.to_owned());
        let waiting = std::mem::take(&mut state.waiting);
        state.write(&waiting);
    }

    /// Adds one line that `who` printed.
    pub(crate) fn line(&self, who: &str, line: &[u8]) {
        let mut text = format!("[{who}] ").into_bytes();
        text.extend_from_slice(line);
        text.push(b'\n');
        let mut state = self.state();
        if state.path.is_some() {
            state.write(&text);
        } else if state.waiting.len() + text.len() <= MOST_WAITING {
            state.waiting.extend_from_slice(&text);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn write(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.written > MOST_WRITTEN {
            return;
        }
        if self.file.is_none() {
            let path = self.path.as_deref().unwrap_or(Path::new(""));
            self.file = File::options().create(true).append(true).open(path).ok();
        }
        let Some(file) = &mut self.file else { return };
        let _ = file.write_all(bytes);
        self.written += bytes.len();
        if self.written > MOST_WRITTEN {
            let _ = writeln!(file, "[scalerl] what is printed from here on is not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wait_for_the_folder_and_a_flood_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("verifier.log");
        let log = VerifierLog::default();
        log.keep_at(&path);
        assert!(!path.exists(), "nothing was printed");
        let log = VerifierLog::default();
        log.line("reward.py 1", b"early");
        log.keep_at(&path);
        log.line("reward.py 2", b"late");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "[reward.py 1] early\n[reward.py 2] late\n");
        let long = vec![b'x'; 1 << 20];
        for _ in 0..80 {
            log.line("reward.py 1", &long);
        }
        let kept = std::fs::metadata(&path).unwrap().len() as usize;
        assert!(kept < MOST_WRITTEN + (2 << 20), "{kept}");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("is not kept\n"));
    }
}
