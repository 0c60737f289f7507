//! A file that one tracker owns: it ends where the cursor says, and grows from there.
//!
//! What a killed process wrote beyond the cursor is cut off, so nothing is there twice; what the
//! cursor promises and the file lacks is [`TrackError::Lost`], and the file is written anew.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::error::TrackError;

#[derive(Debug)]
pub(crate) struct OwnFile {
    path: PathBuf,
    file: File,
    /// Bytes that are there for sure.
    bytes: u64,
}

impl OwnFile {
    /// Opens a file that has `bytes`, and cuts off what is beyond them.
    pub(crate) fn open(path: &Path, bytes: u64) -> Result<Self, TrackError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(TrackError::io("create the folder", folder))?;
        let options = OpenOptions::new().create(bytes == 0).append(true).open(path);
        let file = match options {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(TrackError::Lost { what: path.display().to_string() });
            }
            file => file.map_err(TrackError::io("open", path))?,
        };
        let found = file.metadata().map_err(TrackError::io("look at", path))?.len();
        if found < bytes {
            let what = format!("{} has {found} bytes of {bytes}", path.display());
            return Err(TrackError::Lost { what });
        }
        file.set_len(bytes).map_err(TrackError::io("cut", path))?;
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    /// Adds to the end and waits until the disk has it; the new length.
    pub(crate) fn append(&mut self, data: &[u8]) -> Result<u64, TrackError> {
        self.file.write_all(data).map_err(TrackError::io("append to", &self.path))?;
        self.file.sync_data().map_err(TrackError::io("sync", &self.path))?;
        self.bytes += data.len() as u64;
        Ok(self.bytes)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}
