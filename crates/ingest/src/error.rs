//! Why a log could not be read, said so that the user can act on it.
//!
//! Every message names the file and, where there is one, the line, byte or column; lists of what
//! is there belong to the message, because they depend on the file. What to do next is the
//! `hint:` line and belongs to the kind of error.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use crate::axis::Axis;
use crate::format::Format;

/// What can go wrong between a path and the points in it.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum IngestError {
    /// Called with an empty list.
    #[error("no file was given")]
    NoFiles,
    /// The operating system refused.
    #[error("{}: cannot be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// A device, a named pipe or a socket.
    #[error("{}: {source}", path.display())]
    NotAFile { path: PathBuf, source: std::io::Error },
    /// More than is read into memory.
    #[error("{}: more than the limit of {limit} bytes", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    /// A folder in which nothing can be read.
    #[error("{}: a folder without TensorBoard event files or runs", path.display())]
    NoEvents { path: PathBuf },
    /// A run folder before its first evaluation.
    #[error("{}: the run has no evaluation yet", path.display())]
    NoEvaluations { path: PathBuf },
    /// Nothing in it.
    #[error("{file}: the file is empty")]
    Empty { file: String },
    /// Packed whole, by a tool that is not read.
    #[error("{file}: compressed with {tool}")]
    Compressed { file: String, tool: &'static str },
    /// Packed by a tool that is read, and broken.
    #[error("{file}: cannot be unpacked as {tool}: {problem}")]
    Damaged { file: String, tool: &'static str, problem: String },
    /// None of the formats fits.
    #[error("{file}: {problem}; none of the known formats ({})", Format::names())]
    Unrecognised { file: String, problem: &'static str },
    /// The format is known, the content breaks its rules.
    #[error("{file}: {place}: {problem} (read as {format})")]
    Malformed { file: String, format: Format, place: String, problem: String },
    /// A column asked for by name that is not there.
    #[error("{file}: no column `{wanted}` for {option}{}; columns: {columns}", Nearest(nearest))]
    MissingColumn {
        file: String,
        option: &'static str,
        wanted: String,
        nearest: Option<String>,
        columns: ColumnList,
    },
    /// No column looks like a validation pass rate.
    #[error("{file}: no column looks like a validation pass rate; columns: {columns}")]
    NoMetric { file: String, columns: ColumnList },
    /// More validation series than anybody wants in one call.
    #[error("{file}: {count} columns look like validation pass rates: {columns}")]
    TooManyMetrics { file: String, count: usize, columns: ColumnList },
    /// No column can serve as the compute axis.
    #[error("{file}: nothing gives {}; columns: {columns}", wanted_axis(*wanted))]
    NoAxis { file: String, wanted: Option<Axis>, columns: ColumnList },
    /// Times are there, the number of devices is not.
    #[error("{file}: the log has times ({column}) but does not say how many GPUs were used")]
    NeedsGpus { file: String, column: String },
    /// Text where a number must be.
    #[error("{file}: line {line}: `{text}` in column `{column}` is not a number")]
    NotANumber { file: String, line: u32, column: String, text: String },
    /// The columns are there and no row has both.
    #[error("{file}: no row has both a compute ({x}) and a finite value ({y})")]
    NoPoints { file: String, x: String, y: String },
    /// An option that cannot be meant.
    #[error("{option} is {value}, it must be a finite number above zero")]
    BadNumber { option: &'static str, value: f64 },
}

impl IngestError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoFiles => "give one or more log files, or a folder of TensorBoard events",
            Self::Unreadable { .. } => "check the path and its permissions",
            Self::NotAFile { .. } => "give a log file, or a pipe as in `scalerl fit <(command)`",
            Self::TooLarge { .. } => "keep the rows with evaluations only, e.g. with grep",
            Self::NoEvents { .. } => "give the log files inside it by name",
            Self::NoEvaluations { .. } => "wait for one, or set evaluation.at_start in the recipe",
            Self::Empty { .. } => "the run may not have written anything yet",
            Self::Compressed { .. } => "unpack it first (unzip, bunzip2, unxz)",
            Self::Damaged { .. } => "the file was cut off or changed; fetch it again",
            Self::Unrecognised { .. } => "name the format with --format, or export the run as CSV",
            Self::Malformed { .. } => {
                "if the format was guessed wrongly, name it with --format; else mend the file there"
            }
            Self::MissingColumn { .. } => "choose one of the columns listed",
            Self::NoMetric { .. } => "name the pass-rate column with --y",
            Self::TooManyMetrics { .. } => "name the one you want with --y",
            Self::NoAxis { .. } => {
                "name the compute column with --x; times in the log become GPU-hours with --gpus"
            }
            Self::NeedsGpus { .. } => "say it with --gpus N, or use another axis: --x steps",
            Self::NotANumber { .. } => "mend the cell, or choose another column with --x or --y",
            Self::NoPoints { .. } => "choose other columns with --x and --y",
            Self::BadNumber { .. } => "leave the option out if the number is not known",
        }
    }
}

/// The columns of a table, printed as a list that ends somewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnList(pub Vec<String>);

/// More names than this hide the one that is looked for.
const SHOWN: usize = 40;

impl fmt::Display for ColumnList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, "(none)");
        }
        write!(f, "{}", self.0[..self.0.len().min(SHOWN)].join(", "))?;
        if self.0.len() > SHOWN {
            write!(f, " … and {} more", self.0.len() - SHOWN)?;
        }
        Ok(())
    }
}

struct Nearest<'a>(&'a Option<String>);

impl fmt::Display for Nearest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, " (did you mean `{name}`?)"),
            None => Ok(()),
        }
    }
}

fn wanted_axis(wanted: Option<Axis>) -> String {
    wanted.map_or_else(|| "a compute axis".to_owned(), |axis| format!("the axis `{axis}`"))
}

/// The candidate most like `wanted`, if one is alike enough to be a slip of the pen.
pub(crate) fn nearest<'a>(
    wanted: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let wanted = wanted.to_lowercase();
    candidates
        .map(|name| (similarity(&wanted, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.to_owned())
}

/// A name that ends in what was asked (`accuracy` for `eval/accuracy`) is as near as a typo.
fn similarity(wanted: &str, name: &str) -> f64 {
    let by_letters = strsim::normalized_damerau_levenshtein(wanted, name);
    let leaf = name.rsplit(['/', '.']).next().unwrap_or(name);
    by_letters.max(0.95 * strsim::normalized_damerau_levenshtein(wanted, leaf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_finds_its_column_and_a_foreign_word_none() {
        let columns = ["run", "gpu_hours", "eval/accuracy"];
        assert_eq!(nearest("gpu_huors", columns.into_iter()).as_deref(), Some("gpu_hours"));
        assert_eq!(nearest("Accuracy", columns.into_iter()).as_deref(), Some("eval/accuracy"));
        assert_eq!(nearest("temperature", columns.into_iter()), None);
    }

    #[test]
    fn a_long_list_of_columns_says_how_many_it_hides() {
        let list = ColumnList((0..45).map(|i| format!("c{i}")).collect());
        assert!(list.to_string().ends_with("c39 … and 5 more"));
    }
}
