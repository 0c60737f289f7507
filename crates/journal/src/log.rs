//! `events.jsonl`: appending whole lines, and reading whatever whole lines are there.
//!
//! A line is written with one `write`, so a killed process leaves at most one torn line, at the
//! end. A power cut may leave more of them (or zeros) after the last sync. So: bad lines at the end
//! are torn and left out; a bad line with a whole event after it is damage and refused.

use std::{
    fs::{File, OpenOptions},
    io::{ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    error::JournalError,
    event::{Event, FORMAT, What},
};

/// The whole events of a file, and how many bytes they fill.
pub fn read_events(path: &Path) -> Result<Vec<Event>, JournalError> {
    Ok(read_whole(path)?.0)
}

fn read_whole(path: &Path) -> Result<(Vec<Event>, u64), JournalError> {
    let mut bytes = Vec::new();
    match scalerl_files::open(path) {
        Ok(mut file) => {
            file.read_to_end(&mut bytes).map_err(JournalError::io("read", path))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(JournalError::io("open", path)(error)),
    }
    parse(path, &bytes)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<Event>, u64), JournalError> {
    let (mut events, mut whole) = (Vec::new(), 0);
    let mut bad: Option<(usize, String)> = None;
    // What follows the last line feed is torn whatever it says.
    for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        match serde_json::from_slice::<Event>(text) {
            Ok(event) => {
                if let Some((line, problem)) = bad {
                    return Err(JournalError::Damaged { path: path.to_owned(), line, problem });
                }
                whole += line.len() as u64;
                events.push(event);
            }
            Err(error) => {
                check_format(path, index + 1, text)?;
                bad.get_or_insert_with(|| (index + 1, error.to_string()));
            }
        }
    }
    Ok((events, whole))
}

/// A line that cannot be read because it is from the future gets its own message.
fn check_format(path: &Path, line: usize, text: &[u8]) -> Result<(), JournalError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        v: u32,
    }
    match serde_json::from_slice(text) {
        Ok(Versioned { v }) if v > FORMAT => {
            Err(JournalError::TooNew { path: path.to_owned(), line, found: v, known: FORMAT })
        }
        _ => Ok(()),
    }
}

/// The writing end. One per run folder, held under its lock.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: File,
    count: usize,
}

impl EventLog {
    /// Opens for appending, behind the last whole event; a torn end is cut off.
    pub fn open(path: &Path) -> Result<(Self, Vec<Event>), JournalError> {
        let (events, whole) = read_whole(path)?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(JournalError::io("open", path))?;
        file.set_len(whole).map_err(JournalError::io("cut the torn end of", path))?;
        Ok((Self { path: path.to_owned(), file, count: events.len() }, events))
    }

    /// Appends one event that happened at `at` (Unix seconds).
    pub fn append(&mut self, at: f64, what: What) -> Result<Event, JournalError> {
        let event = Event { v: FORMAT, at, what };
        let mut line = serde_json::to_vec(&event).map_err(|error| JournalError::BadFile {
            path: self.path.clone(),
            problem: error.to_string(),
        })?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(JournalError::io("append to", &self.path))?;
        self.count += 1;
        if event.what.is_synced() {
            self.sync()?;
        }
        Ok(event)
    }

    /// Lines so far.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Waits until the disk has everything appended so far.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_data().map_err(JournalError::io("sync", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_rollout::PolicyVersion;

    fn adopted(version: u64) -> What {
        What::Adopted { version: PolicyVersion(version) }
    }

    fn file_with(count: u64) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let (mut log, _) = EventLog::open(&path).unwrap();
        for version in 0..count {
            log.append(version as f64 + 0.1, adopted(version)).unwrap();
        }
        (folder, path)
    }

    #[test]
    fn cutting_at_any_byte_leaves_every_whole_event_readable_and_appendable() {
        let (_folder, path) = file_with(6);
        let bytes = std::fs::read(&path).unwrap();
        for cut in 0..=bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let whole = bytes[..cut].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(read_events(&path).unwrap().len(), whole, "cut at byte {cut}");
            let (mut log, events) = EventLog::open(&path).unwrap();
            assert_eq!(events.len(), whole);
            log.append(9.0, adopted(99)).unwrap();
            let after = read_events(&path).unwrap();
            assert_eq!(after.len(), whole + 1, "cut at byte {cut}");
            assert_eq!(after[whole].what, adopted(99));
        }
    }

    #[test]
    fn zeros_after_a_power_cut_are_a_torn_end() {
        let (_folder, path) = file_with(3);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend([0; 40]);
        bytes.push(b'\n');
        bytes.extend([0; 4]);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read_events(&path).unwrap().len(), 3);
        assert_eq!(EventLog::open(&path).unwrap().0.count(), 3);
    }

    #[test]
    fn a_broken_line_among_whole_ones_is_refused_by_its_number() {
        let (_folder, path) = file_with(4);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines[1] = "{\"v\":1,\"at\":1.0,\"type\":";
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let error = read_events(&path).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { line: 2, .. }), "{error}");
    }

    #[test]
    fn a_later_format_is_named_as_such() {
        let (_folder, path) = file_with(1);
        let future = "{\"v\":7,\"at\":1.0,\"type\":\"dreamt\"}\n";
        std::fs::write(&path, future).unwrap();
        let error = read_events(&path).unwrap_err();
        assert!(matches!(error, JournalError::TooNew { found: 7, line: 1, .. }), "{error}");
    }
}
