//! Reading `events.jsonl` as it grows, and rows out of the lines that count.
//!
//! Which lines count is known from the `resumed` events: one in line L that keeps k takes back the
//! lines k..L. All of them are looked for when the file is opened; one that comes later makes the
//! reader begin again ([`Read::Undone`]).

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use scalerl_files::RECORD;
use scalerl_journal::{Event, RunFolder, What, read_samples};

use crate::cursor::Position;
use crate::error::TrackError;
use crate::rows::{Row, RowMaker};
use crate::tracker::Ending;

/// Part of the line of every `resumed` event; what has it is looked at.
const RESUMED: &[u8] = b"\"resumed\"";

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
pub(crate) struct Tail {
    folder: RunFolder,
    path: PathBuf,
    position: Position,
    crc: crc32fast::Hasher,
    maker: RowMaker,
    /// Line of each known `resumed`, and the lines it keeps.
    resumes: Vec<(usize, usize)>,
    ending: Ending,
    /// Unix time of the last line read.
    at: f64,
}

impl Tail {
    /// At the beginning, with every `resumed` event known that is there now.
    pub(crate) fn open(run: &Path) -> Result<Self, TrackError> {
        let folder = RunFolder::open(run)?;
        let path = folder.events();
        let (mut line, mut resumes) = (0, Vec::new());
        each_line(&path, 0, |bytes| {
            if has(bytes, RESUMED)
                && let Ok(Event { what: What::Resumed { kept, .. }, .. }) =
                    serde_json::from_slice(bytes)
            {
                resumes.push((line, kept));
            }
            line += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self {
            folder,
            path,
            position: Position::default(),
            crc: crc32fast::Hasher::new(),
            maker: RowMaker::default(),
            resumes,
            ending: Ending::Open,
            at: 0.0,
        })
    }

    /// Where it is.
    pub(crate) fn position(&self) -> Position {
        self.position
    }

    /// How the run stands, by the last line read, and since when.
    pub(crate) fn ending(&self) -> (&Ending, f64) {
        (&self.ending, self.at)
    }

    /// Whether a `resumed` event in line `from` or later takes this line back.
    pub(crate) fn is_undone_since(&self, from: usize, line: usize) -> bool {
        self.resumes.iter().any(|(resumed, kept)| *resumed >= from && *kept <= line)
    }

    /// Whether a process has begun to write at this line or later: a new run, or one that goes on.
    pub(crate) fn has_session_since(&self, line: usize) -> bool {
        line == 0 || self.resumes.iter().any(|(resumed, _)| *resumed >= line)
    }

    /// Goes over lines that were sent before. Whether the file still has them as they were.
    pub(crate) fn skip_to(&mut self, position: Position) -> Result<bool, TrackError> {
        while self.position.lines < position.lines {
            let left = position.lines - self.position.lines;
            match self.read(usize::MAX, left)? {
                Read::Rows { is_at_end: true, .. } if self.position.lines < position.lines => {
                    return Ok(false);
                }
                Read::Rows { .. } => {}
                Read::Undone => return Ok(false),
            }
        }
        Ok(self.position == position)
    }

    /// The rows of the next lines, at most so many of each.
    pub(crate) fn read(&mut self, most_rows: usize, most_lines: usize) -> Result<Read, TrackError> {
        let (mut rows, mut undone, mut is_at_end, mut lines) = (Vec::new(), false, true, 0);
        let (path, from) = (self.path.clone(), self.position.bytes);
        let is_there = each_line(&path, from, |bytes| {
            if rows.len() >= most_rows || lines >= most_lines {
                is_at_end = false;
                return Ok(ControlFlow::Break(()));
            }
            let line = self.position.lines;
            let event: Event =
                serde_json::from_slice(bytes).map_err(|error| TrackError::BadLine {
                    path: path.clone(),
                    line: line + 1,
                    problem: error.to_string(),
                })?;
            if matches!(event.what, What::Resumed { .. })
                && !self.resumes.iter().any(|(resumed, _)| *resumed == line)
            {
                undone = true;
                return Ok(ControlFlow::Break(()));
            }
            lines += 1;
            rows.extend(self.take(line, &event)?);
            self.crc.update(bytes);
            self.position = Position {
                lines: line + 1,
                bytes: self.position.bytes + bytes.len() as u64,
                crc: self.crc.clone().finalize(),
            };
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(if undone || !is_there { Read::Undone } else { Read::Rows { rows, is_at_end } })
    }

    fn take(&mut self, line: usize, event: &Event) -> Result<Option<Row>, TrackError> {
        self.at = event.at;
        match &event.what {
            What::Stopped { reason, .. } => self.ending = Ending::Stopped(*reason),
            What::Failed { .. } => self.ending = Ending::Failed,
            _ => self.ending = Ending::Open,
        }
        if self.is_undone_since(line + 1, line) {
            return Ok(None);
        }
        let Some(mut row) = self.maker.row(line, event) else { return Ok(None) };
        if let What::Evaluation { version, .. } = &event.what {
            let path = self.folder.samples(*version);
            // Runs may keep none.
            if path.exists() {
                row.samples = read_samples(&path)?;
            }
        }
        Ok(Some(row))
    }
}

/// All rows of a run that count: what every tracker must show in the end.
pub fn counted_rows(run: &Path) -> Result<Vec<Row>, TrackError> {
    let mut tail = Tail::open(run)?;
    match tail.read(usize::MAX, usize::MAX)? {
        Read::Rows { rows, .. } => Ok(rows),
        Read::Undone => Ok(Vec::new()),
    }
}

/// Calls with each whole line, its line feed included, from a byte on. Whether the file reaches that
/// byte; one that is not there yet has no bytes.
fn each_line(
    path: &Path,
    from: u64,
    mut take: impl FnMut(&[u8]) -> Result<ControlFlow<()>, TrackError>,
) -> Result<bool, TrackError> {
    let file = match scalerl_files::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(from == 0),
        Err(error) => return Err(TrackError::io("open", path)(error)),
    };
    let length = file.metadata().map_err(TrackError::io("look at", path))?.len();
    if length < from {
        return Ok(false);
    }
    let mut reader = BufReader::with_capacity(1 << 16, file);
    reader.seek(SeekFrom::Start(from)).map_err(TrackError::io("read", path))?;
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = reader.by_ref().take(RECORD);
        limited.read_until(b'\n', &mut line).map_err(TrackError::io("read", path))?;
        // What has no line feed is not written out yet, or torn.
        if !line.ends_with(b"\n") || take(&line)?.is_break() {
            return Ok(true);
        }
    }
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
