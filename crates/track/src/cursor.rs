//! `track/NAME.json`: what a tracker has for sure. Written aside and renamed.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::TrackError;

/// A place in `events.jsonl` that can be recognised: after so many lines, with that checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Whole lines before it.
    pub(crate) lines: usize,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// CRC-32 of those bytes: a power cut can take lines back that were sent already.
    pub(crate) crc: u32,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Cursor {
    /// Where the tracker is.
    pub(crate) target: String,
    /// Times that everything was sent anew.
    pub(crate) generation: u32,
    /// Everything before this has been sent.
    pub(crate) position: Position,
    /// Line of the last row sent.
    pub(crate) last_row: Option<usize>,
    /// Line of the last row that a server may have: saved before it is sent.
    pub(crate) attempted: Option<usize>,
    /// Rows sent in this generation.
    pub(crate) rows: u64,
    /// CRC-32 of the recipe that was sent as config.
    pub(crate) recipe: u32,
    /// The tracker's own.
    pub(crate) state: Value,
    /// Its state of the generation before.
    pub(crate) superseded: Value,
    /// Processor time that the tracker's threads have used, over all sessions.
    pub(crate) cpu_s: f64,
}

impl Cursor {
    /// The last one written; a new one where there is none.
    pub(crate) fn load(path: &Path, target: &str) -> Result<Self, TrackError> {
        let bytes = match scalerl_files::read(path, scalerl_files::DOCUMENT) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self { target: target.to_owned(), ..Self::default() });
            }
            Err(error) => return Err(TrackError::io("read", path)(error)),
        };
        serde_json::from_slice(&bytes).map_err(|error| TrackError::BadFile {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// Replaces the one before: a reader sees one or the other.
    pub(crate) fn save(&self, path: &Path) -> Result<(), TrackError> {
        let aside = path.with_extension("json.writing");
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| TrackError::BadFile {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        text.push(b'\n');
        let mut file = File::create(&aside).map_err(TrackError::io("create", &aside))?;
        file.write_all(&text).map_err(TrackError::io("write", &aside))?;
        file.sync_all().map_err(TrackError::io("sync", &aside))?;
        fs::rename(&aside, path).map_err(TrackError::io("rename to", path))
    }

    /// Everything is to be sent anew.
    pub(crate) fn restart(&mut self) {
        if self.state.is_null() && self.rows == 0 && self.attempted.is_none() {
            return;
        }
        self.generation += 1;
        (self.position, self.last_row, self.rows) = (Position::default(), None, 0);
        self.attempted = None;
        let state = std::mem::take(&mut self.state);
        if !state.is_null() {
            self.superseded = state;
        }
    }
}
