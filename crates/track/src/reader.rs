//! Rows out of the lines of a journal that count, as it grows.
//!
//! Which lines count is known from the `resumed` events. All of them are looked for when the journal is
//! opened; one that comes later makes the reader begin again ([`Read::Undone`]).
//!
//! Not here: following the file (`scalerl_journal`'s `Tail`), what a row holds (`rows.rs`).

use std::path::Path;

use scalerl_journal::{Event, Reached, Resumes, RunFolder, Tail, Verdict, What, read_samples};

use crate::cursor::Position;
use crate::error::TrackError;
use crate::rows::{Row, RowMaker};
use crate::tracker::Ending;

/// What one look at the file gave.
#[derive(Debug)]
pub(crate) enum Read {
    /// Rows, in order; none and `is_at_end` where nothing is new.
    Rows { rows: Vec<Row>, is_at_end: bool },
    /// Lines that were read do not count any more.
    Undone,
}

/// A reader of one run's journal.
#[derive(Debug)]
pub(crate) struct RowReader {
    folder: RunFolder,
    tail: Tail,
    crc: crc32fast::Hasher,
    maker: RowMaker,
    resumes: Resumes,
    ending: Ending,
    /// Unix time of the last line read.
    at: f64,
}

impl RowReader {
    /// At the beginning, with every `resumed` event known that is there now.
    pub(crate) fn open(run: &Path) -> Result<Self, TrackError> {
        let folder = RunFolder::open(run)?;
        let path = folder.events();
        let mut resumes = Resumes::default();
        Tail::new(path.clone())
            .read(u64::MAX, |index, line| resumes.look(index, line))
            .map_err(TrackError::io("read", &path))?;
        Ok(Self {
            folder,
            tail: Tail::new(path),
            crc: crc32fast::Hasher::new(),
            maker: RowMaker::default(),
            resumes,
            ending: Ending::Open,
            at: 0.0,
        })
    }

    /// Where it is.
    pub(crate) fn position(&self) -> Position {
        Position {
            lines: self.tail.line(),
            bytes: self.tail.offset(),
            crc: self.crc.clone().finalize(),
        }
    }

    /// How the run stands, by the last line read, and since when.
    pub(crate) fn ending(&self) -> (&Ending, f64) {
        (&self.ending, self.at)
    }

    /// Whether a `resumed` event in line `from` or later takes this line back.
    pub(crate) fn is_undone_since(&self, from: usize, line: usize) -> bool {
        self.resumes.take_back_since(from, line)
    }

    /// Whether a process has begun to write at this line or later: a new run, or one that goes on.
    pub(crate) fn has_session_since(&self, line: usize) -> bool {
        line == 0 || self.resumes.has_since(line)
    }

    /// Goes over lines that were sent before. Whether the file still has them as they were.
    pub(crate) fn skip_to(&mut self, position: Position) -> Result<bool, TrackError> {
        while self.tail.line() < position.lines {
            let left = position.lines - self.tail.line();
            match self.read(usize::MAX, left)? {
                Read::Rows { is_at_end: true, .. } if self.tail.line() < position.lines => {
                    return Ok(false);
                }
                Read::Rows { .. } => {}
                Read::Undone => return Ok(false),
            }
        }
        Ok(self.position() == position)
    }

    /// The rows of the next lines, at most so many of each.
    pub(crate) fn read(&mut self, most_rows: usize, most_lines: usize) -> Result<Read, TrackError> {
        let (mut rows, mut lines, mut is_undone) = (Vec::new(), 0, false);
        // Broken lines at the end may be cut off yet; one that an event follows is damage.
        let (mut broken, mut failed) = (None, None);
        let path = self.folder.events();
        let Self { folder, tail, crc, maker, resumes, ending, at } = self;
        let reached = tail.read(u64::MAX, |line, bytes| {
            if rows.len() >= most_rows || lines >= most_lines {
                return Verdict::Halt;
            }
            let event: Event = match serde_json::from_slice(bytes) {
                Ok(event) => event,
                Err(error) => {
                    broken.get_or_insert((line + 1, error.to_string()));
                    return Verdict::Broken;
                }
            };
            if let Some((line, problem)) = broken.take() {
                failed = Some(TrackError::BadLine { path: path.clone(), line, problem });
                return Verdict::Halt;
            }
            if matches!(event.what, What::Resumed { .. }) && !resumes.is_known(line) {
                is_undone = true;
                return Verdict::Halt;
            }
            if !resumes.take_back(line)
                && let Some(row) = maker.row(line, &event)
            {
                match with_samples(folder, row, &event) {
                    Ok(row) => rows.push(row),
                    Err(error) => {
                        failed = Some(error);
                        return Verdict::Halt;
                    }
                }
            }
            lines += 1;
            *at = event.at;
            *ending = match &event.what {
                What::Stopped { reason, .. } => Ending::Stopped(*reason),
                What::Failed { .. } => Ending::Failed,
                _ => Ending::Open,
            };
            crc.update(bytes);
            crc.update(b"\n");
            Verdict::Whole
        });
        let reached = reached.map_err(TrackError::io("read", &path))?;
        // What was read before the trouble is sent first; the next reading meets it again.
        match failed {
            Some(error) if rows.is_empty() => Err(error),
            _ if is_undone || reached == Reached::Replaced => Ok(Read::Undone),
            _ => Ok(Read::Rows { rows, is_at_end: reached == Reached::End }),
        }
    }
}

/// Runs may keep no samples.
fn with_samples(folder: &RunFolder, mut row: Row, event: &Event) -> Result<Row, TrackError> {
    if let What::Evaluation { version, .. } = &event.what {
        let path = folder.samples(*version);
        if path.exists() {
            row.samples = read_samples(&path)?;
        }
    }
    Ok(row)
}

/// All rows of a run that count: what every tracker must show in the end.
pub fn counted_rows(run: &Path) -> Result<Vec<Row>, TrackError> {
    let mut reader = RowReader::open(run)?;
    match reader.read(usize::MAX, usize::MAX)? {
        Read::Rows { rows, .. } => Ok(rows),
        Read::Undone => Ok(Vec::new()),
    }
}
