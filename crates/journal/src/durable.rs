//! Files that appear whole or not at all: written aside, synced, renamed, folder synced.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::error::JournalError;

/// Begins the names of things that are not finished; readers pass over them.
pub(crate) const ASIDE: &str = ".writing-";

/// Writes `bytes` to `path` so that a reader sees the old file or the new one, never a part.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = parent(path).join(format!("{ASIDE}{name}"));
    write_synced(&aside, bytes)?;
    fs::rename(&aside, path).map_err(JournalError::io("rename a file to", path))?;
    sync_folder(&parent(path))
}

/// The same for one JSON document, indented for human readers.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), JournalError> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|error| JournalError::BadFile {
        path: path.to_owned(),
        problem: error.to_string(),
    })?;
    text.push(b'\n');
    write_whole(path, &text)
}

/// Values as lines of JSON; `path` is the file they are for.
pub(crate) fn json_lines<T: Serialize>(
    path: &Path,
    values: impl IntoIterator<Item = T>,
) -> Result<Vec<u8>, JournalError> {
    let mut text = Vec::new();
    for value in values {
        serde_json::to_writer(&mut text, &value).map_err(|error| JournalError::BadFile {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Writes a file and waits until the disk has it.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let mut file = File::create(path).map_err(JournalError::io("create", path))?;
    file.write_all(bytes).map_err(JournalError::io("write", path))?;
    file.sync_all().map_err(JournalError::io("sync", path))
}

/// Makes the names in a folder survive a power cut.
pub(crate) fn sync_folder(path: &Path) -> Result<(), JournalError> {
    let folder = File::open(path).map_err(JournalError::io("open", path))?;
    folder.sync_all().map_err(JournalError::io("sync", path))
}

pub(crate) fn create_folder(path: &Path) -> Result<(), JournalError> {
    fs::create_dir_all(path).map_err(JournalError::io("create the folder", path))
}

/// The folder a file is in; `.` for a bare name.
pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Removes what a killed writer left in `folder`.
pub(crate) fn remove_unfinished(folder: &Path) -> Result<(), JournalError> {
    for entry in fs::read_dir(folder).map_err(JournalError::io("read the folder", folder))? {
        let entry = entry.map_err(JournalError::io("read the folder", folder))?;
        if !entry.file_name().to_string_lossy().starts_with(ASIDE) {
            continue;
        }
        let path = entry.path();
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(JournalError::io("remove", path))?;
    }
    Ok(())
}
