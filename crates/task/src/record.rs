//! Writes state so that it appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

/// Why something could not be written, for a line.
pub(crate) fn problem(error: &io::Error) -> String {
    if scalerl_files::is_disk_full(error) {
        format!("disk full: make room there and give the command again ({error})")
    } else {
        error.to_string()
    }
}

/// Writes JSON to a file beside `path` and moves it there.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    write_whole(path, &text)
}

/// The same for any bytes.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
    }
    let mut draft = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    // The name must survive a power cut too.
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
