//! The formats that are read, their names for `--format`, and how a file is recognised.
//!
//! Recognition looks at the content only, never at the file's name: logs are renamed, and
//! `metrics.txt` may be anything. Order matters, from what cannot be mistaken (magic bytes,
//! checksums) to what almost any text can be (CSV).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::error::IngestError;
use crate::{delimited, json, tfrecord, trainer_state, verl, wandb};

/// A kind of log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Values separated by commas, semicolons or tabs, with a header line.
    Csv,
    /// As [`Format::Csv`], separated by tabs whatever the header looks like.
    Tsv,
    /// One JSON object per line, or one array of objects.
    Jsonl,
    /// Apache Parquet.
    Parquet,
    /// CSV exported from a Weights & Biases chart or run history.
    WandbCsv,
    /// TensorBoard event files.
    TensorBoard,
    /// Console output of verl.
    Verl,
    /// `trainer_state.json` of Hugging Face's Trainer and of TRL.
    TrainerState,
    /// `metrics.jsonl` of prime-rl.
    PrimeRl,
}

impl Format {
    /// Every format, in the order in which help texts list them.
    pub fn all() -> &'static [Self] {
        &[
            Self::Csv,
            Self::Tsv,
            Self::Jsonl,
            Self::Parquet,
            Self::WandbCsv,
            Self::TensorBoard,
            Self::Verl,
            Self::TrainerState,
            Self::PrimeRl,
        ]
    }

    /// The names that `--format` takes, as one line.
    pub(crate) fn names() -> String {
        Self::all().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// Finds the format of a file by its content.
    pub(crate) fn detect(file: &str, bytes: &[u8]) -> Result<Self, IngestError> {
        if bytes.starts_with(b"PAR1") || bytes.starts_with(b"PARE") {
            return Ok(Self::Parquet);
        }
        if let Some(tool) = compressed_with(bytes) {
            return Err(IngestError::Compressed { file: file.to_owned(), tool });
        }
        if tfrecord::begins_with_record(bytes) {
            return Ok(Self::TensorBoard);
        }
        if bytes[..bytes.len().min(8192)].contains(&0) {
            let problem = "binary data";
            return Err(IngestError::Unrecognised { file: file.to_owned(), problem });
        }
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        if text.is_empty() {
            return Err(IngestError::Empty { file: file.to_owned() });
        }
        if text.starts_with(['{', '[']) {
            if trainer_state::looks_like(text) {
                return Ok(Self::TrainerState);
            }
            if json::looks_like(text) {
                return Ok(if json::is_prime_rl(text) { Self::PrimeRl } else { Self::Jsonl });
            }
        }
        if verl::looks_like(text) {
            return Ok(Self::Verl);
        }
        match delimited::header(text) {
            Some(header) if wandb::looks_like(&header) => Ok(Self::WandbCsv),
            Some(_) => Ok(Self::Csv),
            None => {
                let problem = "text without a header of separated columns, JSON or step lines";
                Err(IngestError::Unrecognised { file: file.to_owned(), problem })
            }
        }
    }
}

/// The packer whose magic bytes a file begins with.
pub(crate) fn compressed_with(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 5] = [
        (&[0x1f, 0x8b], "gzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        (b"PK\x03\x04", "zip"),
        (b"BZh", "bzip2"),
        (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    ];
    MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, tool)| *tool)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
            Self::WandbCsv => "wandb",
            Self::TensorBoard => "tensorboard",
            Self::Verl => "verl",
            Self::TrainerState => "trainer-state",
            Self::PrimeRl => "prime-rl",
        })
    }
}

/// A name that is none of the formats.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown format `{name}`, one of: {}", Format::names())]
pub struct UnknownFormat {
    /// What was given.
    pub name: String,
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.to_ascii_lowercase().replace('_', "-");
        Self::all()
            .iter()
            .copied()
            .find(|format| format.to_string() == name)
            .ok_or_else(|| UnknownFormat { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_printed_is_also_taken() {
        for format in Format::all() {
            assert_eq!(format.to_string().parse(), Ok(*format));
        }
        assert_eq!("trainer_state".parse(), Ok(Format::TrainerState));
        assert!("excel".parse::<Format>().unwrap_err().to_string().contains("tensorboard"));
    }

    #[test]
    fn packed_and_binary_files_are_refused_by_what_they_are() {
        let xz = Format::detect("a.xz", &[0xfd, b'7', b'z', b'X', b'Z', 0]);
        assert!(matches!(xz, Err(IngestError::Compressed { tool: "xz", .. })));
        let binary = Format::detect("a.bin", b"\x7fELF\0\0\0\0");
        assert!(matches!(binary, Err(IngestError::Unrecognised { .. })));
        let blank = Format::detect("a.txt", b" \n\n");
        assert!(matches!(blank, Err(IngestError::Empty { .. })));
        let prose = Format::detect("a.txt", b"Dear diary\nno numbers today\n");
        assert!(matches!(prose, Err(IngestError::Unrecognised { .. })));
    }
}
