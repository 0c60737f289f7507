//! One run to one tracker: reads the journal, sends rows in batches, moves the cursor.
//!
//! ```text
//! reader at the cursor --read--> rows --send--> state --save--> cursor     and again
//! ```
//!
//! Whatever fails, the tracker is closed and opened again from the last cursor that was saved. Nothing
//! here waits; when to try again is `follow.rs`'s.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};

use crate::cursor::Cursor;
use crate::error::TrackError;
use crate::reader::{Read, RowReader};
use crate::tracker::{Ending, Opening, Run, Target, Tracker};

/// Rows of one batch: about as many as one request to MLflow may have.
const MOST_ROWS: usize = 20;

/// Lines read at once: bounds what one pass takes.
const MOST_LINES: usize = 20_000;

/// What one pass did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There may be more.
    Sent,
    /// Everything that the journal has is there.
    UpToDate,
}

/// One run on its way to one tracker.
pub struct Delivery {
    target: Target,
    run: PathBuf,
    /// Saved on disk as it is here, but for the processor time.
    cursor: Cursor,
    path: PathBuf,
    /// Held while it lives, so that nobody else sends the same.
    _lock: File,
    at: Option<At>,
    /// Nothing is sent before a process has begun to write at this line or later: a run that is about
    /// to go on takes lines back.
    hold: usize,
    finished: Option<Ending>,
    cpu_s: f64,
}

/// The reader and the open tracker.
struct At {
    reader: RowReader,
    tracker: Option<Box<dyn Tracker>>,
}

impl Delivery {
    /// Takes the right to send a run to a tracker.
    pub fn new(run: &Path, target: Target) -> Result<Self, TrackError> {
        let folder = run.join("track");
        fs::create_dir_all(&folder).map_err(TrackError::io("create the folder", &folder))?;
        let lock_path = folder.join(format!("{}.lock", target.key()));
        let lock = File::create(&lock_path).map_err(TrackError::io("create", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(TrackError::Busy { path: lock_path }),
            Err(TryLockError::Error(error)) => {
                return Err(TrackError::io("lock", &lock_path)(error));
            }
        }
        let path = folder.join(format!("{}.json", target.key()));
        let cursor = Cursor::load(&path, &target.key())?;
        let run = run.to_owned();
        let (hold, cpu_s) = (0, cpu_seconds());
        Ok(Self { target, run, cursor, path, _lock: lock, at: None, hold, finished: None, cpu_s })
    }

    /// Sends nothing before a process has begun to write behind the first `lines` lines.
    pub(crate) fn hold(&mut self, lines: usize) {
        self.hold = lines;
        self.at = None;
    }

    /// The tracker.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Rows that the tracker has.
    pub fn rows(&self) -> u64 {
        self.cursor.rows
    }

    /// Sends one batch. After an error the same is tried again by the next call.
    pub fn pass(&mut self) -> Result<Outcome, TrackError> {
        let done = self.try_pass();
        match &done {
            Err(TrackError::Lost { .. }) => {
                self.at = None;
                self.reload()?;
                self.cursor.restart();
            }
            Err(_) => {
                self.at = None;
                self.reload()?;
            }
            Ok(_) => {}
        }
        done
    }

    /// Says how the run has ended, once everything was sent.
    pub fn finish(&mut self) -> Result<(), TrackError> {
        let Some(at) = self.at.as_ref().filter(|_| self.cursor.rows > 0) else { return Ok(()) };
        let (ending, at) = at.reader.ending();
        let ending = ending.clone();
        if self.finished.as_ref() == Some(&ending) {
            return Ok(());
        }
        let finished = self.tracker().and_then(|tracker| tracker.finish(&ending, at));
        if let Err(error) = finished {
            self.at = None;
            return Err(error);
        }
        self.finished = Some(ending);
        self.save()
    }

    fn try_pass(&mut self) -> Result<Outcome, TrackError> {
        if self.at.is_none() {
            self.at = Some(self.begin()?);
        }
        let Some(at) = &mut self.at else { return Ok(Outcome::Sent) };
        if !at.reader.has_session_since(self.hold) {
            // The process that goes on has not written yet: look again with fresh eyes.
            self.at = None;
            return Ok(Outcome::UpToDate);
        }
        let (rows, is_at_end) = match at.reader.read(MOST_ROWS, MOST_LINES)? {
            Read::Rows { rows, is_at_end } => (rows, is_at_end),
            Read::Undone => {
                self.at = None;
                return Ok(Outcome::Sent);
            }
        };
        let (position, last) = (at.reader.position(), rows.last().map(|row| row.line));
        if !rows.is_empty() {
            self.finished = None;
            if self.target.is_server() {
                // A kill after the server took them must not hide that it has them.
                self.tracker()?;
                self.cursor.attempted = last;
                self.save()?;
            }
            let state = self.tracker()?.send(&rows)?;
            self.cursor.state = state;
            self.cursor.rows += rows.len() as u64;
            self.cursor.last_row = last;
            self.cursor.position = position;
            self.save()?;
        }
        Ok(if is_at_end { Outcome::UpToDate } else { Outcome::Sent })
    }

    /// Reads up to the cursor, and decides whether what was sent still counts.
    fn begin(&mut self) -> Result<At, TrackError> {
        let run = Run::load(&self.run)?;
        let mut reader = RowReader::open(&self.run)?;
        let recipe = crc32fast::hash(run.recipe.as_bytes());
        let (position, last_row) = (self.cursor.position, self.cursor.last_row);
        let is_undone = last_row.is_some_and(|row| reader.is_undone_since(position.lines, row));
        let may_have = self.cursor.attempted;
        let is_undone =
            is_undone || may_have.is_some_and(|row| reader.is_undone_since(row + 1, row));
        let is_other = recipe != self.cursor.recipe && !self.target.is_server();
        if is_undone || is_other || !reader.skip_to(position)? {
            self.cursor.restart();
            reader = RowReader::open(&self.run)?;
        }
        self.cursor.recipe = recipe;
        Ok(At { reader, tracker: None })
    }

    fn tracker(&mut self) -> Result<&mut dyn Tracker, TrackError> {
        if self.at.is_none() {
            self.at = Some(self.begin()?);
        }
        let Some(at) = &mut self.at else { unreachable!("it was just made") };
        if at.tracker.is_none() {
            // Only now: the id of a run is known once it has a line.
            let run = Run::load(&self.run)?;
            at.tracker = Some(self.target.open(&Opening {
                run: &run,
                generation: self.cursor.generation,
                state: &self.cursor.state,
                superseded: &self.cursor.superseded,
            })?);
        }
        match &mut at.tracker {
            Some(tracker) => Ok(tracker.as_mut()),
            None => unreachable!("it was just opened"),
        }
    }

    fn save(&mut self) -> Result<(), TrackError> {
        let now = cpu_seconds();
        self.cursor.cpu_s += (now - self.cpu_s).max(0.0);
        self.cpu_s = now;
        self.cursor.save(&self.path)
    }

    fn reload(&mut self) -> Result<(), TrackError> {
        let cpu_s = self.cursor.cpu_s;
        self.cursor = Cursor { cpu_s, ..Cursor::load(&self.path, &self.target.key())? };
        Ok(())
    }
}

/// Processor time of this thread: what tracking costs a machine.
fn cpu_seconds() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}
