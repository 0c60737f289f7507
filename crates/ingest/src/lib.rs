//! Evaluation points out of other people's training logs.
//!
//! ```text
//! paths --files--> bytes --format--> one reader --> table --compute, metric--> runs --merge--> runs
//! ```
//!
//! Every reader makes the same thing, a sparse table of named columns; what the compute
//! axis and the pass rate are is decided once, for all formats, in `compute` and `metric`. What
//! was derived, assumed or left out is said in [`Run::notes`]. The guide is `docs/logs.md`.
//!
//! Not here: checking and fitting the points (`scalerl-curve`).

#![deny(missing_docs)]

mod axis;
mod compute;
mod delimited;
mod error;
mod files;
mod format;
mod json;
mod metric;
mod parquet;
mod protobuf;
mod runs;
mod table;
mod tensorboard;
mod tfrecord;
mod trainer_state;
mod verl;
mod wandb;

use std::path::{Path, PathBuf};

use scalerl_curve::{Compute, Point};
use serde::Serialize;

pub use axis::Axis;
pub use error::{ColumnList, IngestError};
pub use format::{Format, UnknownFormat};
pub use table::Cell;
pub use tfrecord::{frame, masked_crc32c};

use files::Input;
use runs::Part;
use table::{Log, Table};
use tensorboard::Events;
use verl::VerlLog;

/// What to look for; everything left out is found by looking.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// The format of all files.
    pub format: Option<Format>,
    /// The compute column, or an axis: `gpu_hours`, `tokens`, `flops`, `steps`.
    pub x: Option<String>,
    /// The pass-rate column.
    pub y: Option<String>,
    /// The column that tells runs apart.
    pub by: Option<String>,
    /// GPUs used, to turn times into GPU-hours.
    pub gpus: Option<f64>,
    /// Graded completions behind each value, where the log does not say.
    pub samples: Option<f64>,
}

/// The evaluations of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// From the log where it has names, else from the file.
    pub name: String,
    /// What the compute means.
    pub axis: Axis,
    /// The column the compute came from, or the axis' name where it was derived.
    pub x: String,
    /// The column the values came from.
    pub metric: String,
    /// In the order of the log.
    pub points: Vec<Point>,
    /// Entropy of the policy along the run, where the log has it.
    pub entropy: Vec<(Compute, f64)>,
    /// What was derived, assumed or left out, in plain sentences.
    pub notes: Vec<String>,
}

/// Reads the runs of all files (`-` is standard input); parts of one run in several files are
/// joined in order.
pub fn read(paths: &[PathBuf], request: &Request) -> Result<Vec<Run>, IngestError> {
    if paths.is_empty() {
        return Err(IngestError::NoFiles);
    }
    check(request)?;
    let mut reading = Reading::default();
    for path in paths {
        for input in files::inputs(path)? {
            match input {
                Input::File(path) => {
                    let (name, file) = (files::stem(&path), path.display().to_string());
                    reading.add(&name, &file, &files::load(&path)?, request.format)?;
                }
                Input::Standard => {
                    let bytes = files::load_standard()?;
                    reading.add("standard input", "-", &bytes, request.format)?;
                }
                Input::Events { name, files } => reading.add_events(name, &files)?,
                Input::Run { name, points } => reading.add_run(name, &points)?,
            }
        }
    }
    reading.finish(request)
}

/// Reads one file that is already in memory; `name` is for messages and for a run without name.
pub fn read_bytes(name: &str, bytes: &[u8], request: &Request) -> Result<Vec<Run>, IngestError> {
    check(request)?;
    let mut reading = Reading::default();
    reading.add(name, name, bytes, request.format)?;
    reading.finish(request)
}

/// Reads columns that are in memory already, a data frame for example: each a name and its cells from
/// the first row on. `name` is for messages and for a run without name.
pub fn read_columns(
    name: &str,
    columns: Vec<(String, Vec<Option<Cell>>)>,
    request: &Request,
) -> Result<Vec<Run>, IngestError> {
    check(request)?;
    let mut table = Table::default();
    let rows = columns.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
    (0..rows).for_each(|row| table.push_row(row + 1));
    for (column, cells) in columns {
        let filled = (0..).zip(cells).filter_map(|(row, cell)| Some((row, cell?)));
        table.fill(&column, filled.collect());
    }
    let log = Log { name: name.to_owned(), file: name.to_owned(), table, ..Log::default() };
    Reading { logs: vec![log], verl: Vec::new() }.finish(request)
}

fn check(request: &Request) -> Result<(), IngestError> {
    for (option, value) in [("--gpus", request.gpus), ("--samples", request.samples)] {
        if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
            return Err(IngestError::BadNumber { option, value });
        }
    }
    Ok(())
}

/// Logs gathered so far. Those of verl wait for the file after them, which may continue them.
#[derive(Default)]
struct Reading {
    logs: Vec<Log>,
    verl: Vec<VerlLog>,
}

impl Reading {
    fn add(
        &mut self,
        name: &str,
        file: &str,
        bytes: &[u8],
        format: Option<Format>,
    ) -> Result<(), IngestError> {
        if bytes.is_empty() {
            return Err(IngestError::Empty { file: file.to_owned() });
        }
        let format = format.map_or_else(|| Format::detect(file, bytes), Ok)?;
        if format == Format::Verl {
            self.verl.push(VerlLog::parse(name, file, bytes)?);
            return Ok(());
        }
        self.join_verl();
        let (table, notes) = match format {
            Format::Csv | Format::Verl => delimited::read(file, bytes, None, format)?,
            Format::Tsv => delimited::read(file, bytes, Some(b'\t'), format)?,
            Format::WandbCsv => wandb::read(file, bytes)?,
            Format::Jsonl | Format::PrimeRl => json::read(file, bytes, format)?,
            Format::TrainerState => trainer_state::read(file, bytes)?,
            Format::Parquet => parquet::read(file, bytes)?,
            Format::TensorBoard => {
                let mut events = Events::default();
                events.add(file, bytes)?;
                events.into_table()
            }
        };
        let (name, file) = (name.to_owned(), file.to_owned());
        self.logs.push(Log { name, file, table, notes, ..Log::default() });
        Ok(())
    }

    fn add_run(&mut self, name: String, points: &Path) -> Result<(), IngestError> {
        let file = points.display().to_string();
        self.add(&name, &file, &files::load(points)?, Some(Format::Jsonl))?;
        // Two folders of one name are two runs, told apart by their paths.
        let folder = points.parent().unwrap_or(points).display().to_string();
        let is_taken = self.logs.iter().any(|log| log.is_named && log.name == name);
        if let Some(log) = self.logs.last_mut() {
            log.is_named = true;
            log.name = if is_taken { folder } else { name };
        }
        Ok(())
    }

    fn add_events(&mut self, name: String, files: &[PathBuf]) -> Result<(), IngestError> {
        self.join_verl();
        let mut events = Events::default();
        for path in files {
            events.add(&path.display().to_string(), &files::load(path)?)?;
        }
        let (table, notes) = events.into_table();
        self.logs.push(Log { file: name.clone(), name, table, notes, ..Log::default() });
        Ok(())
    }

    fn join_verl(&mut self) {
        self.logs.extend(verl::join(std::mem::take(&mut self.verl)));
    }

    fn finish(mut self, request: &Request) -> Result<Vec<Run>, IngestError> {
        self.join_verl();
        let mut parts: Vec<Part> = Vec::new();
        for log in &self.logs {
            parts.extend(runs::parts(log, request)?);
        }
        Ok(runs::merge(parts))
    }
}
