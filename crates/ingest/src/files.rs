//! From paths to bytes: files, folders of event files, run folders of `scalerl train`, and what is
//! refused before it is read. What counts as a file is said in `scalerl-files`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::IngestError;
use crate::format::compressed_with;

/// Logs of evaluations are small; beyond this a wrong file was given.
const LARGEST_FILE: u64 = 2 << 30;

/// The path that stands for standard input.
const STANDARD: &str = "-";

/// Evaluations of the primary set in a run folder.
const POINTS: &str = "points.jsonl";

/// Folders nested deeper than this are not a log directory.
const DEEPEST_FOLDER: usize = 6;

/// One thing to read.
pub(crate) enum Input {
    File(PathBuf),
    /// Standard input, for the path `-`.
    Standard,
    /// The event files of one folder, in the order they were written, under the run's name.
    Events {
        name: String,
        files: Vec<PathBuf>,
    },
    /// The points of a run folder, under the folder's name.
    Run {
        name: String,
        points: PathBuf,
    },
}

/// Resolves a path given by the user.
pub(crate) fn inputs(path: &Path) -> Result<Vec<Input>, IngestError> {
    if path.as_os_str() == STANDARD {
        return Ok(vec![Input::Standard]);
    }
    let unreadable = |source| IngestError::Unreadable { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![Input::File(path.to_owned())]);
    }
    if is_run(path) && !path.join(POINTS).is_file() {
        return Err(IngestError::NoEvaluations { path: path.to_owned() });
    }
    let mut found = Vec::new();
    gather(path, &stem(path), DEEPEST_FOLDER, &mut found).map_err(unreadable)?;
    if found.is_empty() {
        return Err(IngestError::NoEvents { path: path.to_owned() });
    }
    Ok(found)
}

/// Whether `scalerl train` writes this folder.
fn is_run(folder: &Path) -> bool {
    folder.join("events.jsonl").is_file() && folder.join("recipe.toml").is_file()
}

/// As TensorBoard does: every folder with event files is a run, named by its way from the top.
fn gather(
    folder: &Path,
    name: &str,
    deeper: usize,
    found: &mut Vec<Input>,
) -> Result<(), std::io::Error> {
    if is_run(folder) {
        let points = folder.join(POINTS);
        if points.is_file() {
            found.push(Input::Run { name: name.to_owned(), points });
        }
        return Ok(());
    }
    let mut entries = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<_>>>()?;
    // The creation time is part of an event file's name, so names sort as written.
    entries.sort();
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.into_iter().partition(|path| path.is_dir());
    let files: Vec<PathBuf> = files
        .into_iter()
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().contains("tfevents")))
        .collect();
    if !files.is_empty() {
        found.push(Input::Events { name: name.to_owned(), files });
    }
    if deeper > 0 {
        for inner in folders.iter().filter(|inner| !inner.is_symlink()) {
            let last = inner.file_name().unwrap_or_default().to_string_lossy();
            gather(inner, &format!("{name}/{last}"), deeper - 1, found)?;
        }
    }
    Ok(())
}

/// Reads a whole file, or the pipe of `<(command)`, that is small enough.
pub(crate) fn load(path: &Path) -> Result<Vec<u8>, IngestError> {
    let bytes = scalerl_files::open_input(path)
        .and_then(|file| scalerl_files::read_whole(file, LARGEST_FILE));
    unpack(path, bytes.map_err(|source| refused(path, source))?)
}

/// Reads standard input to its end.
pub(crate) fn load_standard() -> Result<Vec<u8>, IngestError> {
    let path = Path::new(STANDARD);
    let bytes = scalerl_files::read_stream(std::io::stdin().lock(), LARGEST_FILE);
    unpack(path, bytes.map_err(|source| refused(path, source))?)
}

fn refused(path: &Path, source: std::io::Error) -> IngestError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::FileTooLarge => IngestError::TooLarge { path, limit: LARGEST_FILE },
        ErrorKind::InvalidInput => IngestError::NotAFile { path, source },
        _ => IngestError::Unreadable { path, source },
    }
}

/// Unpacks gzip and Zstandard, whatever the file is called; the limit is that of a plain file.
fn unpack(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>, IngestError> {
    let tool = compressed_with(&bytes).unwrap_or_default();
    let packed = &bytes[..];
    let unpacked = match tool {
        "gzip" => {
            scalerl_files::read_stream(flate2::read::MultiGzDecoder::new(packed), LARGEST_FILE)
        }
        "zstd" => ruzstd::decoding::StreamingDecoder::new(packed)
            .map_err(|error| std::io::Error::new(ErrorKind::InvalidData, error))
            .and_then(|decoder| scalerl_files::read_stream(decoder, LARGEST_FILE)),
        _ => return Ok(bytes),
    };
    unpacked.map_err(|source| {
        if source.kind() == ErrorKind::FileTooLarge {
            return refused(path, source);
        }
        let file = path.display().to_string();
        IngestError::Damaged { file, tool, problem: source.to_string() }
    })
}

/// The name of a run that has no other: the file's without its last extension.
pub(crate) fn stem(path: &Path) -> String {
    // `.` and `..` have no name of their own; their real path does.
    let real = if path.file_name().is_none() { path.canonicalize().ok() } else { None };
    let path = real.as_deref().unwrap_or(path);
    let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
    // `run.csv.gz` is the run `run`.
    let is_packed = path.extension().is_some_and(|e| e == "gz" || e == "zst" || e == "zstd");
    let stem = match stem {
        Some(stem) if is_packed && !path.is_dir() => Path::new(stem).file_stem(),
        stem => stem,
    };
    stem.map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned())
}
