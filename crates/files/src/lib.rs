//! Opening the files that a user names: regular files only, and never more of them than fits.
//!
//! A device such as /dev/zero never ends and a named pipe waits for a writer that may never come,
//! so both are refused before they are opened. What is read whole has a limit; what is read line
//! by line has one for the line ([`Lines`]), what is read record by record one for the record
//! ([`RecordMeter`]).
//!
//! Commands that read an input once also take a pipe that their process holds already: standard
//! input, or the `/dev/fd/63` that a shell makes of `<(command)` ([`open_input`]). Its writer is
//! there and its end comes.
//!
//! A parser that was not written for strangers' bytes may panic on them; [`caught`] makes that an
//! error.
//!
//! Errors are `std::io::Error` and do not name the path: every caller has an error of its own that
//! does, and asks [`is_disk_full`] what to say of a write that failed. Not here: formats.

#![deny(missing_docs)]

mod bounded;
mod caught;

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::Path;

pub use bounded::{Lines, RecordMeter};
pub use caught::caught;

/// Room for a file that describes something: a recipe, a config.json, a study. Written by hand or
/// by a tool, it has kilobytes.
pub const DOCUMENT: u64 = 64 << 20;

/// Room for one line or record of data. A long conversation has a megabyte.
pub const RECORD: u64 = 64 << 20;

/// Room for a table that is read whole.
pub const TABLE: u64 = 8 << 30;

/// Opens a regular file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    checked(path, |_| false)
}

/// Opens a regular file that is no link to somewhere else; `None` where there is nothing. For readers
/// that must not be led out of a folder by what lies in it.
pub fn open_own(path: &Path) -> io::Result<Option<File>> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => File::open(path).map(Some),
        Ok(found) => {
            let problem = format!("this is {}, not a regular file", name_of(found.file_type()));
            Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a regular file of at most `limit` bytes.
pub fn open_within(path: &Path, limit: u64) -> io::Result<File> {
    let file = open(path)?;
    if file.metadata()?.len() > limit { Err(too_large("file", limit)) } else { Ok(file) }
}

/// Opens a regular file, or a pipe that this process holds already.
pub fn open_input(path: &Path) -> io::Result<File> {
    checked(path, |kind| is_pipe(kind) && is_held(path))
}

/// Looks before opening: to open a named pipe is to wait for its writer.
fn checked(path: &Path, also: impl Fn(FileType) -> bool) -> io::Result<File> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_file() || also(kind) {
        return File::open(path);
    }
    let is_named_pipe = is_pipe(kind) && !is_held(path);
    let name = if is_named_pipe { "a named pipe" } else { name_of(kind) };
    let problem = format!("this is {name}, not a regular file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
}

/// Reads a regular file of at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_whole(open(path)?, limit)
}

/// Reads a regular file of at most `limit` bytes as text.
pub fn read_to_string(path: &Path, limit: u64) -> io::Result<String> {
    text(read(path, limit)?)
}

/// Reads a regular file, or a pipe that this process holds, as text of at most `limit` bytes.
pub fn read_input_to_string(path: &Path, limit: u64) -> io::Result<String> {
    text(read_whole(open_input(path)?, limit)?)
}

/// Reads what is open to its end, or refuses it when there are more than `limit` bytes.
pub fn read_whole(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    if size > limit {
        return Err(too_large("file", limit));
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX))?;
    // A pipe has no size, and a file may grow.
    read_onto(bytes, file, limit)
}

/// Reads a stream that has no size, such as standard input or what a decoder unpacks, to its end,
/// or refuses it when there are more than `limit` bytes.
pub fn read_stream(reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    read_onto(Vec::new(), reader, limit)
}

fn read_onto(mut bytes: Vec<u8>, reader: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit { Err(too_large("file", limit)) } else { Ok(bytes) }
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let problem = format!("not text: byte {at} is not UTF-8");
        io::Error::new(io::ErrorKind::InvalidData, problem)
    })
}

fn too_large(what: &str, limit: u64) -> io::Error {
    let problem = format!("this {what} is larger than {}, the most that is read", size(limit));
    io::Error::new(io::ErrorKind::FileTooLarge, TooLarge(problem))
}

/// More than is read: the reader's limit, not the disk's.
#[derive(Debug)]
struct TooLarge(String);

impl std::fmt::Display for TooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooLarge {}

/// Whether something could not be written for want of room: a full disk, a quota, a limit on the
/// size of files.
pub fn is_disk_full(error: &io::Error) -> bool {
    let is_own = matches!(error.get_ref(), Some(inner) if inner.is::<TooLarge>());
    let full =
        [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
    full.contains(&error.kind()) && !is_own
}

/// `64 MiB`, in the largest unit that gives a whole number.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes} bytes"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// Whether a pipe is one of this process' descriptors: those lead nowhere in the file system. A
/// named pipe leads to itself.
fn is_held(path: &Path) -> bool {
    fs::canonicalize(path).is_err() || path.starts_with("/dev/fd")
}

#[cfg(unix)]
fn is_pipe(kind: FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&kind)
}

#[cfg(not(unix))]
fn is_pipe(_kind: FileType) -> bool {
    false
}

#[cfg(unix)]
fn name_of(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() { "a folder" } else { "a device" }
}

#[cfg(all(test, unix))]
mod tests;
