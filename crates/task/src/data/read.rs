//! Files and folders to rows of JSON.
//!
//! The format follows from the name: `.jsonl`, `.json` (a list of objects), `.csv`, `.parquet`.
//! A folder is a Hugging Face data set: the files of a split are those whose name is or begins
//! with the split (`train-00000-of-00002.parquet`), in the folder, in `data/`, or in a folder of
//! the split's name.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use scalerl_files::{Lines, RECORD, RecordMeter, TABLE};
use serde_json::{Map, Value};
use thiserror::Error;

/// One row: column names and values.
pub type Row = Map<String, Value>;

/// Why rows cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ReadError {
    /// No such file.
    #[error("{path}: {source}")]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// A line that is no row.
    #[error("{path}, line {line}: {problem}")]
    BadLine { path: PathBuf, line: usize, problem: String },
    /// A file that is broken as a whole.
    #[error("{path}: {problem}")]
    BadFile { path: PathBuf, problem: String },
    /// A name that tells no format.
    #[error("{path}: cannot tell the format from the name")]
    UnknownFormat { path: PathBuf },
    /// A folder without files of that split.
    #[error("{path}: no files of split `{split}` (found: {found})")]
    NoSplit { path: PathBuf, split: String, found: String },
    /// Files, but no rows.
    #[error("{path}: no rows")]
    Empty { path: PathBuf },
}

impl ReadError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } => "paths are relative to the folder the command runs in",
            Self::BadLine { .. } => "one JSON object per line",
            Self::BadFile { .. } => {
                "is the file complete? A Git LFS pointer is a few lines of text"
            }
            Self::UnknownFormat { .. } => "name it .jsonl, .json, .csv or .parquet",
            Self::NoSplit { .. } => "set `split` to one of the names found",
            Self::Empty { .. } => "choose another file or split",
        }
    }
}

/// Reads every row of a file, or of a folder's split.
pub fn read_rows(path: &Path, split: &str) -> Result<Vec<Row>, ReadError> {
    let unreadable = |source| ReadError::Unreadable { path: path.to_owned(), source };
    let is_folder = fs::metadata(path).map_err(unreadable)?.is_dir();
    let files = if is_folder { split_files(path, split)? } else { vec![path.to_owned()] };
    let mut rows = Vec::new();
    for file in files {
        rows.extend(read_file(&file)?);
    }
    if rows.is_empty() { Err(ReadError::Empty { path: path.to_owned() }) } else { Ok(rows) }
}

fn read_file(path: &Path) -> Result<Vec<Row>, ReadError> {
    match extension(path).as_str() {
        "jsonl" | "ndjson" => read_jsonl(path),
        "json" => read_json(path),
        "csv" => read_csv(path),
        "parquet" => read_parquet(path, TABLE),
        _ => Err(ReadError::UnknownFormat { path: path.to_owned() }),
    }
}

fn extension(path: &Path) -> String {
    path.extension().map_or_else(String::new, |e| e.to_string_lossy().to_lowercase())
}

fn is_data(path: &Path) -> bool {
    matches!(extension(path).as_str(), "jsonl" | "ndjson" | "json" | "csv" | "parquet")
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).map(|entries| entries.filter_map(Result::ok)).into_iter();
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|p| p.is_file() && is_data(p)).collect();
    files.sort();
    files
}

fn split_files(folder: &Path, split: &str) -> Result<Vec<PathBuf>, ReadError> {
    for place in [folder.to_owned(), folder.join("data")] {
        let named: Vec<PathBuf> =
            list(&place).into_iter().filter(|file| split_of(file) == split).collect();
        if !named.is_empty() {
            return Ok(named);
        }
        let inside = list(&place.join(split));
        if !inside.is_empty() {
            return Ok(inside);
        }
    }
    let mut found: Vec<String> =
        [list(folder), list(&folder.join("data"))].concat().iter().map(|f| split_of(f)).collect();
    found.dedup();
    let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
    Err(ReadError::NoSplit { path: folder.to_owned(), split: split.to_owned(), found })
}

/// `train-00000-of-00002.parquet` → `train`.
fn split_of(file: &Path) -> String {
    let stem =
        file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    match stem.split_once('-') {
        Some((split, shard)) if shard.starts_with(|c: char| c.is_ascii_digit()) => split.to_owned(),
        _ => stem,
    }
}

fn open(path: &Path) -> Result<File, ReadError> {
    scalerl_files::open_within(path, TABLE)
        .map_err(|source| ReadError::Unreadable { path: path.to_owned(), source })
}

fn read_jsonl(path: &Path) -> Result<Vec<Row>, ReadError> {
    let mut rows = Vec::new();
    for (index, line) in Lines::new(BufReader::new(open(path)?), RECORD).enumerate() {
        let bad = |problem: String| ReadError::BadLine {
            path: path.to_owned(),
            line: index + 1,
            problem,
        };
        let line = line.map_err(|error| bad(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(Value::Object(row)) => rows.push(row),
            Ok(_) => return Err(bad("not a JSON object".to_owned())),
            Err(error) => return Err(bad(format!("not JSON: {error}"))),
        }
    }
    Ok(rows)
}

fn read_json(path: &Path) -> Result<Vec<Row>, ReadError> {
    let bad = |problem: String| ReadError::BadFile { path: path.to_owned(), problem };
    let bytes = scalerl_files::read_whole(open(path)?, TABLE);
    let value: Value = serde_json::from_slice(&bytes.map_err(|error| bad(error.to_string()))?)
        .map_err(|error| bad(format!("not JSON: {error}")))?;
    let Value::Array(items) = value else { return Err(bad("not a list of objects".to_owned())) };
    let as_row = |(index, item)| match item {
        Value::Object(row) => Ok(row),
        _ => Err(bad(format!("item {index} is not an object"))),
    };
    items.into_iter().enumerate().map(as_row).collect()
}

fn read_csv(path: &Path) -> Result<Vec<Row>, ReadError> {
    let meter = RecordMeter::new(RECORD);
    let mut reader = csv::Reader::from_reader(meter.over(open(path)?));
    let bad =
        |line: usize, problem: String| ReadError::BadLine { path: path.to_owned(), line, problem };
    let names = reader.headers().map_err(|error| bad(1, error.to_string()))?.clone();
    let (mut rows, mut last) = (Vec::new(), 1);
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(last + 1, |position| position.line() as usize);
            bad(line, error.to_string())
        })?;
        last = record.position().map_or(last, |position| position.line() as usize);
        meter.restart();
        let cells = record.iter().map(|cell| Value::String(cell.to_owned()));
        rows.push(names.iter().map(str::to_owned).zip(cells).collect());
    }
    Ok(rows)
}

/// The reader panics on some broken files, and a text that is there once may stand in every row: all
/// rows together have at most `limit` bytes.
fn read_parquet(path: &Path, limit: u64) -> Result<Vec<Row>, ReadError> {
    let bad = |problem: String| ReadError::BadFile { path: path.to_owned(), problem };
    let file = open(path)?;
    let rows = scalerl_files::caught(|| parquet_rows(file, limit));
    rows.unwrap_or_else(Err).map_err(|problem| bad(format!("not whole Parquet: {problem}")))
}

fn parquet_rows(file: File, limit: u64) -> Result<Vec<Row>, String> {
    let reader = SerializedFileReader::new(file).map_err(|error| error.to_string())?;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for row in reader.get_row_iter(None).map_err(|error| error.to_string())? {
        let row = row.map_err(|error| error.to_string())?.to_json_value();
        bytes += size_of_value(&row);
        if bytes > limit {
            return Err(format!("its rows have more than {limit} bytes"));
        }
        match row {
            Value::Object(row) => rows.push(row),
            other => return Err(format!("a row is {other}, not a record")),
        }
    }
    Ok(rows)
}

/// Bytes that a value takes in memory, about.
fn size_of_value(value: &Value) -> u64 {
    let inside = match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(size_of_value).sum(),
        Value::Object(row) => {
            row.iter().map(|(name, item)| name.len() as u64 + size_of_value(item)).sum()
        }
        _ => 0,
    };
    inside + size_of::<Value>() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn formats_are_told_by_name_and_read_alike() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let jsonl = write("a.jsonl", "{\"q\": \"1+1\", \"a\": \"2\"}\n\n");
        let json = write("a.json", "[{\"q\": \"1+1\", \"a\": \"2\"}]");
        let csv = write("a.csv", "q,a\n1+1,2\n");
        let rows = read_rows(&jsonl, "train").unwrap();
        assert_eq!(rows, read_rows(&json, "train").unwrap());
        assert_eq!(rows, read_rows(&csv, "train").unwrap());
        let text = write("a.txt", "1+1");
        assert!(matches!(read_rows(&text, "train"), Err(ReadError::UnknownFormat { .. })));
    }

    #[test]
    fn errors_name_the_file_and_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        fs::write(&path, "{\"q\": 1}\n[2]\n").unwrap();
        let error = read_rows(&path, "train").unwrap_err().to_string();
        assert!(error.contains("a.jsonl, line 2: not a JSON object"), "{error}");
        fs::write(folder.path().join("b.parquet"), "version https://git-lfs").unwrap();
        let error = read_rows(&folder.path().join("b.parquet"), "train").unwrap_err();
        assert!(matches!(error, ReadError::BadFile { .. }));
    }

    #[test]
    fn a_folder_is_read_by_split() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        for (name, value) in
            [("train-00000-of-00002", 1), ("train-00001-of-00002", 2), ("test-00000-of-00001", 3)]
        {
            let path = folder.path().join("data").join(format!("{name}.jsonl"));
            fs::write(path, format!("{{\"n\": {value}}}\n")).unwrap();
        }
        let train = read_rows(folder.path(), "train").unwrap();
        assert_eq!(train.iter().map(|row| row["n"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2]);
        let error = read_rows(folder.path(), "validation").unwrap_err().to_string();
        assert!(error.contains("test") && error.contains("train"), "{error}");
    }

    /// A column with the same text in every row, which the file holds once.
    fn repeated(path: &Path, text: &str, rows: usize) {
        use parquet::data_type::{ByteArray, ByteArrayType};
        use parquet::file::writer::SerializedFileWriter;
        let schema = "message rows { required binary q (UTF8); }";
        let schema = parquet::schema::parser::parse_message_type(schema).unwrap();
        let file = File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema.into(), Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values = vec![ByteArray::from(text); rows];
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    #[test]
    fn a_text_in_every_row_of_a_small_file_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        repeated(&path, &"x".repeat(100_000), 1_000);
        assert!(fs::metadata(&path).unwrap().len() < 1_000_000, "the text is there once");
        assert_eq!(read_parquet(&path, TABLE).unwrap().len(), 1_000);
        let error = read_parquet(&path, 10 << 20).unwrap_err().to_string();
        assert!(error.contains("a.parquet") && error.contains("more than 10485760"), "{error}");
    }
}
