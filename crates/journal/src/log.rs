//! `events.jsonl`: appending whole lines, and reading whatever whole lines are there.
//!
//! A line is written with one `write`, so a killed process leaves at most one torn line, at the
//! end. A power cut may leave more of them (or zeros) after the last sync. So: bad lines at the end
//! are torn and left out; a bad line with a whole event after it is damage and refused. A write that
//! fails half-way (a full disk) is taken back, so that the next line does not join its beginning.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    durable::json_lines,
    error::JournalError,
    event::{Event, FORMAT, What},
};

/// The whole events of a file, and how many bytes they fill.
pub fn read_events(path: &Path) -> Result<Vec<Event>, JournalError> {
    Ok(read_whole(path)?.0)
}

/// Whether a file begins with a whole event.
pub(crate) fn has_events(path: &Path) -> Result<bool, JournalError> {
    let file = match scalerl_files::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(JournalError::io("open", path)(error)),
    };
    let mut line = Vec::new();
    let read = BufReader::new(file).read_until(b'\n', &mut line);
    read.map_err(JournalError::io("read", path))?;
    Ok(line.ends_with(b"\n") && !parse(path, &line)?.0.is_empty())
}

fn read_whole(path: &Path) -> Result<(Vec<Event>, u64), JournalError> {
    parse(path, &read_bytes(path)?)
}

/// The bytes of a file; none where there is no file.
fn read_bytes(path: &Path) -> Result<Vec<u8>, JournalError> {
    match scalerl_files::read(path, u64::MAX) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(JournalError::io("read", path)(error)),
    }
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
    /// Bytes of these lines.
    whole: u64,
    /// The end is torn and could not be cut off: nothing may follow it.
    is_torn: bool,
    /// Where broken lines were found at the end, and what they were kept under.
    damaged: Option<(String, PathBuf)>,
}

impl EventLog {
    /// Opens for appending, behind the last whole event; a torn end is cut off. More than one torn
    /// line is more than a kill leaves: it is kept beside the file ([`EventLog::damaged`]).
    pub fn open(path: &Path) -> Result<(Self, Vec<Event>), JournalError> {
        let bytes = read_bytes(path)?;
        let (events, whole) = parse(path, &bytes)?;
        let damaged = keep_tail(path, bytes.get(whole as usize..).unwrap_or_default())?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(JournalError::io("open", path))?;
        file.set_len(whole).map_err(JournalError::io("cut the torn end of", path))?;
        let (count, is_torn) = (events.len(), false);
        Ok((Self { path: path.to_owned(), file, count, whole, is_torn, damaged }, events))
    }

    /// Appends one event that happened at `at` (Unix seconds).
    pub fn append(&mut self, at: f64, what: What) -> Result<Event, JournalError> {
        let event = Event { v: FORMAT, at, what };
        let line = json_lines(&self.path, [&event])?;
        if self.is_torn {
            let problem = "its last line is torn".into();
            return Err(JournalError::BadFile { path: self.path.clone(), problem });
        }
        if let Err(error) = self.file.write_all(&line) {
            self.is_torn = self.file.set_len(self.whole).is_err();
            return Err(JournalError::io("append to", &self.path)(error));
        }
        self.count += 1;
        self.whole += line.len() as u64;
        if event.what.is_synced() {
            self.sync()?;
        }
        Ok(event)
    }

    /// Broken lines that were found at the end: which, and the file they are kept in.
    pub fn damaged(&self) -> Option<(&str, &Path)> {
        self.damaged.as_ref().map(|(reason, kept)| (reason.as_str(), kept.as_path()))
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

/// Copies what follows the whole events to a file of its own, if that is more than one torn line.
fn keep_tail(path: &Path, tail: &[u8]) -> Result<Option<(String, PathBuf)>, JournalError> {
    let lines =
        tail.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")).count();
    if lines == 0 {
        return Ok(None);
    }
    let named = |number: u32| path.with_file_name(format!("events.damaged-{number}.jsonl"));
    let kept = (1..=u32::MAX).map(named).find(|kept| !kept.exists());
    let kept = kept.unwrap_or_else(|| named(u32::MAX));
    crate::durable::write_whole(&kept, tail)?;
    Ok(Some((format!("its last {lines} lines are no events"), kept)))
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
        let (log, _) = EventLog::open(&path).unwrap();
        assert_eq!(log.count(), 3);
        // More than a torn line is kept where somebody can look at it.
        let (reason, kept) = log.damaged().unwrap();
        assert_eq!(reason, "its last 1 lines are no events");
        assert_eq!(std::fs::read(kept).unwrap(), bytes[bytes.len() - 45..]);
        assert!(EventLog::open(&path).unwrap().0.damaged().is_none(), "once");
    }

    /// Names the file in the environment of the process that finds no room.
    const FILE: &str = "SCALERL_TEST_LITTLE_ROOM";

    #[test]
    fn the_writer_that_finds_no_room() {
        let Some(path) = std::env::var_os(FILE) else { return };
        let (mut log, _) = EventLog::open(Path::new(&path)).unwrap();
        let error = (0..).find_map(|version| log.append(1.0, adopted(version)).err()).unwrap();
        assert!(matches!(error, JournalError::DiskFull { .. }), "{error:?}");
        assert!(error.to_string().starts_with("disk full: cannot append to "), "{error}");
    }

    #[test]
    fn a_line_that_finds_no_room_is_taken_back() {
        let (_folder, path) = file_with(3);
        let mut shell = std::process::Command::new("sh");
        // Files may have some kilobytes here, and too large a one is an error, not a signal.
        let script = "trap '' XFSZ; ulimit -f 4; exec \"$0\" --exact \"$1\"";
        shell.args(["-c", script]).arg(std::env::current_exe().unwrap());
        shell.arg("log::tests::the_writer_that_finds_no_room").env(FILE, &path);
        let said = shell.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        let length = std::fs::metadata(&path).unwrap().len();
        let (events, whole) = read_whole(&path).unwrap();
        assert!(length > 1500, "{length} bytes: the limit was met");
        assert_eq!(length, whole, "half a line was left");
        let (mut log, _) = EventLog::open(&path).unwrap();
        log.append(8.0, adopted(8)).unwrap();
        assert_eq!(read_events(&path).unwrap().len(), events.len() + 1);
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
