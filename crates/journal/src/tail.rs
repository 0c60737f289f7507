//! Reading a file that grows, line by line, from where the last reading ended: how the trackers and
//! the live page follow a journal.
//!
//! Memory does not grow with the file: one line is held at a time, and a line longer than a record may
//! be counts as broken. What follows the last line feed is not read yet. Broken lines at the end may be
//! the torn end that a writer will cut off, so the place stays before them until a whole line follows,
//! as [`crate::read_events`] does it.
//!
//! A `resumed` event takes back lines before it. [`Resumes`] finds them in a first reading, so that a
//! second one knows which lines count; one that comes later makes that reading begin again.
//!
//! ```text
//! Resumes::look over all lines --end--> what the reader wants --more lines--> …
//!   ^                                     '-- a resume that is not known, another file --.
//!   '-----------------------------------------------------------------------------------'
//! ```
//!
//! Not here: what a reader makes of a line.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use scalerl_files::{RECORD, open_own};

use crate::event::{Event, What};

const BUFFER: usize = 256 << 10;

/// What a reader made of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A whole event.
    Whole,
    /// No event: torn, or damaged.
    Broken,
    /// Not taken: the reading ends before this line.
    Halt,
}

/// How a reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
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
pub struct Tail {
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
    /// At the beginning.
    pub fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, line: 0, inode: None, length: 0, damaged: None }
    }

    /// Share of the file that has been read.
    pub fn progress(&self) -> f64 {
        if self.length == 0 { 1.0 } else { self.offset as f64 / self.length as f64 }
    }

    /// Whole lines so far.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Bytes that they fill.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// First line that was broken though a whole one follows it.
    pub fn damaged(&self) -> Option<usize> {
        self.damaged
    }

    /// Reads on, about `budget` bytes at most; `look` gets each line with its index.
    pub fn read(
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
            if verdict == Verdict::Halt {
                return Ok(Reached::Halted);
            }
            index += 1;
            if verdict == Verdict::Broken {
                broken.get_or_insert(index);
                continue;
            }
            self.damaged = self.damaged.or(broken.take());
            (self.offset, self.line) = (offset, index);
        }
    }
}

/// The next line without its end, and how many bytes it fills; `None` where there is no whole one. A
/// line that is too long comes out empty.
fn next_line(reader: &mut BufReader<File>, text: &mut Vec<u8>) -> io::Result<Option<u64>> {
    text.clear();
    let read = reader.by_ref().take(RECORD).read_until(b'\n', text)? as u64;
    if text.last() == Some(&b'\n') {
        text.pop();
        return Ok(Some(read));
    }
    if read < RECORD {
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

/// The resumes of a journal, and which lines they have taken back.
#[derive(Debug, Clone, Default)]
pub struct Resumes {
    /// Line of each, and the lines it keeps.
    found: Vec<(usize, usize)>,
}

impl Resumes {
    /// Looks at a line of the first reading.
    pub fn look(&mut self, index: usize, line: &[u8]) -> Verdict {
        let is_object = line.first() == Some(&b'{') && line.last() == Some(&b'}');
        if kind_of(line) != Some(b"resumed") {
            return if is_object { Verdict::Whole } else { Verdict::Broken };
        }
        let Ok(Event { what: What::Resumed { kept, .. }, .. }) = serde_json::from_slice(line)
        else {
            return Verdict::Broken;
        };
        self.found.push((index, kept));
        Verdict::Whole
    }

    /// Whether the `resumed` event of this line was there at the first reading.
    pub fn is_known(&self, line: usize) -> bool {
        self.found.iter().any(|(resumed, _)| *resumed == line)
    }

    /// Whether this line does not count any more.
    pub fn take_back(&self, line: usize) -> bool {
        self.take_back_since(line + 1, line)
    }

    /// Whether a resume in line `from` or later takes this line back.
    pub fn take_back_since(&self, from: usize, line: usize) -> bool {
        self.found.iter().any(|(resumed, kept)| *resumed >= from && *kept <= line)
    }

    /// Whether a process has gone on at this line or later.
    pub fn has_since(&self, line: usize) -> bool {
        self.found.iter().any(|(resumed, _)| *resumed >= line)
    }
}

/// The type of an event, which its writer puts third: known without reading the whole line.
pub fn kind_of(line: &[u8]) -> Option<&[u8]> {
    const KEY: &[u8] = b",\"type\":\"";
    let head = &line[..line.len().min(80)];
    let from = head.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let length = line[from..].iter().position(|byte| *byte == b'"')?;
    Some(&line[from..from + length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;

    use crate::log::EventLog;
    use crate::{Ledger, read_events};
    use proptest::prelude::*;
    use scalerl_rollout::PolicyVersion;

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

    #[test]
    fn a_halt_leaves_the_line_for_the_next_reading() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let mut tail = Tail::new(path);
        let until = |tail: &mut Tail, stop: usize| {
            tail.read(
                u64::MAX,
                |index, _| {
                    if index == stop { Verdict::Halt } else { Verdict::Whole }
                },
            )
            .unwrap()
        };
        assert_eq!(until(&mut tail, 1), Reached::Halted);
        assert_eq!((tail.line(), tail.offset()), (1, 4));
        assert_eq!(lines(&mut tail), (vec!["1:two".into(), "2:three".into()], Reached::End));
    }

    proptest! {
        /// The lines that count are those of the reader that holds the whole run.
        #[test]
        fn what_counts_is_what_a_whole_reading_keeps(steps in prop::collection::vec(0_usize..6, 1..40)) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("events.jsonl");
            let (mut log, _) = EventLog::open(&path).unwrap();
            for (at, step) in steps.iter().enumerate() {
                let version = PolicyVersion(at as u64);
                let what = match step {
                    // A resume keeps some of what is there.
                    0 => What::Resumed {
                        version, kept: at / 2, lost: Ledger::default(), buffered_groups: 0
                    },
                    _ => What::Adopted { version },
                };
                log.append(at as f64, what).unwrap();
            }
            let (mut resumes, mut counted) = (Resumes::default(), Vec::new());
            Tail::new(path.clone()).read(u64::MAX, |index, line| resumes.look(index, line)).unwrap();
            Tail::new(path.clone()).read(u64::MAX, |index, line| {
                if !resumes.take_back(index) {
                    counted.push(serde_json::from_slice::<Event>(line).unwrap());
                }
                Verdict::Whole
            }).unwrap();
            prop_assert_eq!(counted, crate::History::of(read_events(&path).unwrap()).events);
        }
    }
}
