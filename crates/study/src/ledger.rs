//! The ledger of predictions: forecasts made from the first part of each run, and what came.
//!
//! One row a run and fitted share (a quarter asked for twice as much, half and three quarters asked
//! for the end), kept in a CSV file beside the page that people read. Rows are keyed by study, run,
//! time of start and share, so that reading more folders later adds to the ledger, reading the
//! same again changes nothing, and a study that was run twice has both.
//!
//! Not here: how a row is made (`rows.rs`).

mod rows;

use std::path::Path;

use scalerl_curve::{Method, Verdict};
use scalerl_recipe::Axis;
use serde::{Deserialize, Serialize};

pub use rows::rows;

use crate::{StudyError, plan::is_of_sweep, prediction::FITTED_SHARE};

/// A forecast this close is right whatever its interval.
pub const CLOSE: f64 = 0.02;
/// An interval narrower than this says something when it covers.
pub const NARROW: f64 = 0.08;

/// One forecast of a run and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The study; empty for a run of its own.
    pub study: String,
    /// The run.
    pub run: String,
    /// When it started, UTC.
    pub started: String,
    /// Commit of the program that made it.
    pub commit: String,
    /// What it ran on.
    pub device: String,
    /// The compute axis.
    pub axis: Axis,
    /// Share of its compute that was fitted.
    #[serde(default = "half")]
    pub fraction: f64,
    /// Compute of the last point fitted.
    pub fitted_until: f64,
    /// Points fitted.
    pub points: usize,
    /// When the last point fitted was measured, UTC: from then on the forecast could be made.
    pub forecast_from: String,
    /// The method behind the forecast. Rows of runs whose points were not kept have that of their
    /// day.
    #[serde(default = "first_method")]
    pub method: Method,
    /// Finished runs of the same model and evaluation that it could learn from.
    #[serde(default)]
    pub history_runs: usize,
    /// Share of it that rests on them.
    #[serde(default)]
    pub history_weight: f64,
    /// What the fit said of itself.
    pub verdict: Verdict,
    /// Is that "bounded"?
    pub bounded: bool,
    /// The forecast.
    pub forecast: f64,
    /// 5 % end.
    pub low: f64,
    /// 95 % end.
    pub high: f64,
    /// Mean compute of the evaluations it is held against.
    pub compute: f64,
    /// Their mean.
    pub measured: f64,
    /// Its standard error by sampling.
    pub measured_error: Option<f64>,
    /// Forecast less measured.
    pub error: f64,
    /// Was it inside the interval?
    pub inside: bool,
    /// The same method without any history.
    #[serde(default)]
    pub alone: Option<f64>,
    /// 5 % end of that.
    #[serde(default)]
    pub alone_low: Option<f64>,
    /// 95 % end.
    #[serde(default)]
    pub alone_high: Option<f64>,
    /// What that fit said of itself.
    #[serde(default)]
    pub alone_verdict: Option<Verdict>,
    /// `marginal` on the same points.
    #[serde(default)]
    pub marginal: Option<f64>,
    /// 5 % end of that.
    #[serde(default)]
    pub marginal_low: Option<f64>,
    /// 95 % end.
    #[serde(default)]
    pub marginal_high: Option<f64>,
    /// The authors' grid fit on the same points.
    pub paper: Option<f64>,
    /// The power law on the same points.
    pub power_law: Option<f64>,
    /// The power law with an offset in compute.
    #[serde(default)]
    pub offset_power_law: Option<f64>,
    /// ln(1 - R) as a line in ln C.
    #[serde(default)]
    pub log_error: Option<f64>,
    /// The end of the part that was fitted, as if nothing changed.
    pub last_value: Option<f64>,
    /// The mean of runs of the same variant with other seeds that had got so far by then.
    #[serde(default)]
    pub twin: Option<f64>,
    /// What the run itself had forecast for twice its compute, at its last evaluation of the first
    /// half.
    pub recorded: Option<f64>,
    /// 5 % end of that.
    pub recorded_low: Option<f64>,
    /// 95 % end.
    pub recorded_high: Option<f64>,
}

fn half() -> f64 {
    FITTED_SHARE
}

fn first_method() -> Method {
    Method::Marginal
}

/// Why a run has no row.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftOut {
    /// The run.
    pub run: String,
    /// Why.
    pub reason: String,
}

impl Row {
    /// Study and run.
    pub fn name(&self) -> String {
        if self.study.is_empty() {
            self.run.clone()
        } else {
            format!("{}/{}", self.study, self.run)
        }
    }

    /// A run of a sweep: half of it is before most of the rise.
    pub fn is_of_sweep(&self) -> bool {
        is_of_sweep(&self.run)
    }

    /// Is it the forecast from half of the compute?
    pub fn is_from_half(&self) -> bool {
        (self.fraction - FITTED_SHARE).abs() < 1e-9
    }

    /// Close, or inside an interval that says something.
    pub fn is_good(&self) -> bool {
        self.error.abs() <= CLOSE || (self.inside && self.high - self.low < NARROW)
    }

    fn key(&self) -> (&str, &str, &str, u64) {
        (&self.study, &self.run, &self.started, (self.fraction * 1e6).round() as u64)
    }
}

/// Lays new rows over old ones, by study, run, start and share; in order of their start.
pub fn merge(mut old: Vec<Row>, new: Vec<Row>) -> Vec<Row> {
    for row in new {
        match old.iter_mut().find(|known| known.key() == row.key()) {
            Some(known) => *known = row,
            None => old.push(row),
        }
    }
    old.sort_by(|a, b| {
        let order = (&a.started, &a.study, &a.run).cmp(&(&b.started, &b.study, &b.run));
        order.then(a.fraction.total_cmp(&b.fraction))
    });
    old
}

/// Reads a ledger; one that does not exist is empty.
pub fn read(path: &Path) -> Result<Vec<Row>, StudyError> {
    let bytes = match scalerl_files::read(path, scalerl_files::TABLE) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StudyError::io("read", path)(error)),
    };
    let rows: Result<Vec<Row>, csv::Error> =
        csv::Reader::from_reader(&bytes[..]).deserialize().collect();
    rows.map_err(|error| StudyError::BadFile { path: path.to_owned(), problem: error.to_string() })
}

/// Writes a ledger.
pub fn write(path: &Path, rows: &[Row]) -> Result<(), StudyError> {
    let bad = |error: csv::Error| StudyError::BadFile {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).map_err(bad)?;
    }
    let text = writer.into_inner().map_err(|error| bad(error.into_error().into()))?;
    crate::export::replace(path, &text)
}

/// How good one way of forecasting was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Score {
    /// Runs that it could forecast.
    pub runs: usize,
    /// Mean absolute error.
    pub mean_error: f64,
    /// Median absolute error.
    pub median_error: f64,
    /// Forecasts at most [`CLOSE`] off.
    pub close: usize,
}

impl Score {
    /// Of the errors of one method; `None` without any.
    pub fn of(errors: impl Iterator<Item = f64>) -> Option<Self> {
        let mut errors: Vec<f64> = errors.map(f64::abs).collect();
        errors.sort_by(f64::total_cmp);
        let runs = errors.len();
        let middle = [errors.get(runs.checked_sub(1)? / 2)?, errors.get(runs / 2)?];
        Some(Self {
            runs,
            mean_error: errors.iter().sum::<f64>() / runs as f64,
            median_error: f64::midpoint(*middle[0], *middle[1]),
            close: errors.iter().filter(|error| **error <= CLOSE).count(),
        })
    }
}

/// How much larger one number is than another of the same runs: the mean of the differences, and
/// its standard error. Errors of two methods on one run go up and down together, so their
/// differences tell more than their means do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Paired {
    /// Mean difference.
    pub mean: f64,
    /// Its standard error; `None` for one run.
    pub error: Option<f64>,
}

impl Paired {
    /// Of the differences; `None` without any.
    pub fn of(differences: &[f64]) -> Option<Self> {
        let count = differences.len() as f64;
        let mean = differences.iter().sum::<f64>() / count;
        let squares: f64 = differences.iter().map(|one| (one - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let error = (differences.len() > 1).then_some(error);
        (!differences.is_empty()).then_some(Self { mean, error })
    }
}

impl std::fmt::Display for Paired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:+.4}", self.mean)?;
        self.error.map_or(Ok(()), |error| write!(f, " ± {error:.4}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paired_difference_has_the_error_of_its_mean() {
        let found = Paired::of(&[0.01, 0.03, 0.02, -0.02]).unwrap();
        assert!((found.mean - 0.01).abs() < 1e-12);
        // Squares 0, 4, 1 and 9 times 1e-4; over three degrees of freedom and four runs.
        assert!((found.error.unwrap() - (14e-4_f64 / 12.0).sqrt()).abs() < 1e-12);
        assert_eq!(found.to_string(), "+0.0100 ± 0.0108");
    }

    #[test]
    fn one_run_has_a_difference_without_an_error() {
        assert_eq!(Paired::of(&[-0.5]), Some(Paired { mean: -0.5, error: None }));
        assert_eq!(Paired::of(&[]), None);
    }
}
