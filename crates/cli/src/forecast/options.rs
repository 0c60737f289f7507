//! The options that the forecasting commands share.

use std::path::{Path, PathBuf};

use clap::Args;
use scalerl_curve::{
    Compute, FitOptions, FloorChoice, HistoryEntry, Method, Provenance, ValueRange, Warmup,
};
use scalerl_ingest::{Format, Request};

use crate::failure::BadInput;

/// How logs are read.
#[derive(Debug, Args)]
pub(crate) struct ReadingOptions {
    /// Format of the files, where looking gets it wrong.
    #[arg(long, value_name = "F", help_heading = "Reading")]
    pub(crate) format: Option<Format>,
    /// Compute column, or an axis: gpu_hours, tokens, flops, steps.
    #[arg(long, value_name = "COL", help_heading = "Reading")]
    pub(crate) x: Option<String>,
    /// Pass-rate column.
    #[arg(long, value_name = "COL", help_heading = "Reading")]
    pub(crate) y: Option<String>,
    /// Column that tells runs apart.
    #[arg(long, value_name = "COL", help_heading = "Reading")]
    pub(crate) by: Option<String>,
    /// GPUs used, to turn step times into GPU-hours.
    #[arg(long, value_name = "N", help_heading = "Reading")]
    pub(crate) gpus: Option<f64>,
    /// Graded completions behind each point (prompts × generations), for sampling noise.
    #[arg(long, value_name = "N", help_heading = "Reading")]
    pub(crate) samples: Option<f64>,
    /// Range of the values, for rewards that are not pass rates in [0, 1].
    #[arg(long, value_name = "LOW,HIGH", value_parser = range, allow_hyphen_values = true, help_heading = "Reading")]
    pub(crate) range: Option<ValueRange>,
}

impl ReadingOptions {
    pub(crate) fn request(&self) -> Request {
        Request {
            format: self.format,
            x: self.x.clone(),
            y: self.y.clone(),
            by: self.by.clone(),
            gpus: self.gpus,
            samples: self.samples,
        }
    }
}

/// What runs started from and were measured on, where their logs do not say.
#[derive(Debug, Args)]
pub(crate) struct ProvenanceOptions {
    /// The model that the runs started from, by any name; finished runs of another are left out of
    /// the history.
    #[arg(long, value_name = "NAME", help_heading = "History")]
    pub(crate) model: Option<String>,
    /// The evaluation that the runs were measured on; finished runs of another are left out.
    #[arg(long, value_name = "NAME", help_heading = "History")]
    pub(crate) evaluation: Option<String>,
}

impl ProvenanceOptions {
    pub(crate) fn provenance(&self) -> Provenance {
        Provenance { model: self.model.clone(), evaluation: self.evaluation.clone() }
    }
}

/// Where the points come from and how they are fitted.
#[derive(Debug, Args)]
pub(crate) struct CurveOptions {
    /// Logs: CSV, TSV, JSONL, Parquet, W&B exports, TensorBoard files or folders, verl console
    /// logs, trainer_state.json, metrics.jsonl, also packed with gzip; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
    /// How to fit: mixture (default), marginal, profile, paper, power-law.
    #[arg(long, value_name = "M", default_value_t = Method::default(), help_heading = "Fitting")]
    pub(crate) method: Method,
    /// Leave out points before this compute; `auto` lets the method decide.
    #[arg(long, value_name = "C|auto", default_value = "auto", help_heading = "Fitting")]
    pub(crate) warmup: Warmup,
    /// Leave out points after this compute.
    #[arg(long, value_name = "C", value_parser = compute, help_heading = "Fitting")]
    pub(crate) until: Option<Compute>,
    /// Finished runs of the same model and evaluation to learn from: logs, run folders, studies, or
    /// a file of `scalerl history`; may be repeated.
    #[arg(long, value_name = "RUN|FILE|FOLDER", num_args = 1.., help_heading = "History")]
    pub(crate) history: Vec<PathBuf>,
    /// Forecast from a run's own points alone, whatever --history says.
    #[arg(long, help_heading = "History")]
    pub(crate) no_history: bool,
    #[command(flatten)]
    pub(crate) provenance: ProvenanceOptions,
    /// Pass rate before training: the first point, a free parameter, or a number. Default: fit for
    /// mixture and marginal, first for the others.
    #[arg(long, value_name = "first|fit|NUMBER", help_heading = "Fitting")]
    pub(crate) floor: Option<FloorChoice>,
    /// Machine-readable output.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Write a figure.
    #[arg(long, value_name = "OUT.svg|OUT.png", help_heading = "Output")]
    pub(crate) plot: Option<PathBuf>,
    /// Write a report: one HTML file that works offline.
    #[arg(long, value_name = "OUT.html", help_heading = "Output")]
    pub(crate) report: Option<PathBuf>,
}

impl CurveOptions {
    pub(crate) fn fit_options<'h>(&self, history: &'h [HistoryEntry]) -> FitOptions<'h> {
        FitOptions {
            method: self.method,
            floor: self.floor,
            warmup: self.warmup,
            until: self.until,
            ceiling: None,
            history,
        }
    }

    /// Refuses outputs that cannot be written before any work is done, and inputs as outputs.
    pub(crate) fn check(&self) -> Result<(), BadInput> {
        if let Some(path) = &self.plot {
            let format = scalerl_board::Format::of(path);
            format.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
        }
        for path in [&self.plot, &self.report].into_iter().flatten() {
            if self.files.iter().any(|file| is_same(file, path)) {
                let message = format!("{}: is an input, it would be overwritten", path.display());
                return Err(BadInput::new(message).hint("choose another name for the output"));
            }
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
                let message = format!("{}: no such folder", folder.display());
                return Err(BadInput::new(message).hint("make it first, or choose another place"));
            }
        }
        Ok(())
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn range(text: &str) -> Result<ValueRange, String> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    match numbers.as_deref() {
        Some([low, high]) if low < high => Ok(ValueRange { low: *low, high: *high }),
        _ => Err("give LOW,HIGH with LOW < HIGH, e.g. -1,1".to_owned()),
    }
}

/// A compute above zero.
pub(crate) fn compute(text: &str) -> Result<Compute, String> {
    positive(text).map(Compute)
}

/// A number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| value.is_finite() && *value > 0.0)
        .ok_or_else(|| format!("`{text}` is not a number above zero"))
}
