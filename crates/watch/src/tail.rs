//! Reading a file that grows, line by line, from where the last reading ended.
//!
//! Memory does not grow with the file: one line is held at a time, and a line longer than
//! [`LONGEST`] counts as broken. What follows the last line feed is not read yet. Broken lines at the
//! end may be the torn end that a writer will cut off, so the place stays before them until a whole
//! line follows, as the journal's own reader does it.
//!
//! Not here: what a line says (`digest.rs`).

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes of the longest line that is looked at.
const LONGEST: u64 = 64 << 20;
const BUFFER: usize = 256 << 10;

/// What a reader made of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A whole event.
    Whole,
    /// No event: torn, or damaged.
    Broken,
    /// A whole event after which the rest must not be read.
    Halt,
}

/// How a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// All that is there has been read.
    End,
    /// There is more than was asked for.
    Budget,
    /// The reader said halt.
    Halted,
    /// The file is another one, or shorter than what was read of it: begin anew.
    Replaced,
}

/// A place in a file.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    path: PathBuf,
    offset: u64,
    line: usize,
    inode: Option<u64>,
    /// Length of the file at the last reading.
    length: u64,
    /// First line that was broken with a whole one after it.
    damaged: Option<usize>,
}

impl Tail {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, line: 0, inode: None, length: 0, damaged: None }
    }

    /// Share of the file that has been read.
    pub(crate) fn progress(&self) -> f64 {
        if self.length == 0 { 1.0 } else { self.offset as f64 / self.length as f64 }
    }

    pub(crate) fn damaged(&self) -> Option<usize> {
        self.damaged
    }

    /// Reads on, about `budget` bytes at most; `look` gets each line with its index.
    pub(crate) fn read(
        &mut self,
        budget: u64,
        mut look: impl FnMut(usize, &[u8]) -> Verdict,
    ) -> io::Result<Reached> {
        let Some(file) = open_own(&self.path)? else { return Ok(Reached::End) };
        let found = file.metadata()?;
        if self.inode.is_some_and(|inode| inode != found.ino()) || found.len() < self.offset {
            return Ok(Reached::Replaced);
        }
        self.inode = Some(found.ino());
        self.length = found.len();
        let mut reader = BufReader::with_capacity(BUFFER, file);
        reader.seek(SeekFrom::Start(self.offset))?;
        let (mut offset, mut index, mut text) = (self.offset, self.line, Vec::new());
        let mut broken: Option<usize> = None;
        let end = self.offset.saturating_add(budget);
        loop {
            if offset >= end && broken.is_none() {
                return Ok(Reached::Budget);
            }
            let Some(length) = next_line(&mut reader, &mut text)? else { return Ok(Reached::End) };
            offset += length;
            let verdict = if text.is_empty() { Verdict::Broken } else { look(index, &text) };
            index += 1;
            if verdict == Verdict::Broken {
                broken.get_or_insert(index);
                continue;
            }
            self.damaged = self.damaged.or(broken.take());
            (self.offset, self.line) = (offset, index);
            if verdict == Verdict::Halt {
                return Ok(Reached::Halted);
            }
        }
    }
}

/// The next line without its end, and how many bytes it fills; `None` where there is no whole one. A
/// line that is too long comes out empty.
fn next_line(reader: &mut BufReader<File>, text: &mut Vec<u8>) -> io::Result<Option<u64>> {
    text.clear();
    let read = reader.by_ref().take(LONGEST).read_until(b'\n', text)? as u64;
    if text.last() == Some(&b'\n') {
        text.pop();
        return Ok(Some(read));
    }
    if read < LONGEST {
        return Ok(None);
    }
    text.clear();
    let mut skipped = read;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(used);
        skipped += used as u64;
        if end.is_some() {
            return Ok(Some(skipped));
        }
    }
}

/// Opens a regular file that lies in its folder itself, and is no link to somewhere else.
pub(crate) fn open_own(path: &Path) -> io::Result<Option<File>> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => File::open(path).map(Some),
        Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn lines(tail: &mut Tail) -> (Vec<String>, Reached) {
        let mut found = Vec::new();
        let reached = tail
            .read(u64::MAX, |index, line| {
                if line.starts_with(b"bad") {
                    return Verdict::Broken;
                }
                found.push(format!("{index}:{}", String::from_utf8_lossy(line)));
                Verdict::Whole
            })
            .unwrap();
        (found, reached)
    }

    #[test]
    fn a_growing_file_is_read_on_and_its_torn_end_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut tail = Tail::new(path.clone());
        assert_eq!(lines(&mut tail).1, Reached::End, "not there yet");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(lines(&mut tail).0, ["0:one", "1:two"]);
        file.write_all(b"ee\nbad\n").unwrap();
        assert_eq!(lines(&mut tail).0, ["2:three"]);
        // The writer cuts the broken end off and goes on.
        file.set_len(14).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"four\n").unwrap();
        assert_eq!(lines(&mut tail).0, ["3:four"]);
        assert_eq!(tail.damaged(), None);
        file.write_all(b"bad\nsix\n").unwrap();
        assert_eq!(lines(&mut tail).0, ["5:six"]);
        assert_eq!(tail.damaged(), Some(5));
        file.set_len(3).unwrap();
        assert_eq!(lines(&mut tail).1, Reached::Replaced);
    }

    #[test]
    fn a_budget_ends_a_reading_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(&path, "aaaa\n".repeat(100)).unwrap();
        let mut tail = Tail::new(path.clone());
        let mut count = 0;
        let mut rounds = 0;
        while tail
            .read(50, |_, _| {
                count += 1;
                Verdict::Whole
            })
            .unwrap()
            == Reached::Budget
        {
            rounds += 1;
        }
        assert_eq!((count, rounds), (100, 10));
        let link = folder.path().join("link.jsonl");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(Tail::new(link).read(50, |_, _| Verdict::Whole).is_err());
    }
}
