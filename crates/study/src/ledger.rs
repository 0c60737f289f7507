//! The ledger of predictions: every forecast made at half of a run's compute, and what came.
//!
//! One row a run, kept in a CSV file beside the page that people read. Rows are keyed by study,
//! run and time of start, so that reading more folders later adds to the ledger, reading the same
//! again changes nothing, and a study that was run twice has both.
//!
//! The rivals on the same points: the authors' grid fit, the power law, and "nothing changes", the
//! mean of the last three evaluations of the first half.

use std::path::Path;

use rayon::prelude::*;
use scalerl_curve::Method;
use scalerl_journal::Axis;
use serde::{Deserialize, Serialize};

use crate::{
    StudyError, date,
    plan::is_of_sweep,
    prediction::{Ending, FITTED_SHARE, Prediction, fit_until, rival},
    record::RunRecord,
};

/// A forecast this close is right whatever its interval.
pub const CLOSE: f64 = 0.02;
/// An interval narrower than this says something when it covers.
pub const NARROW: f64 = 0.08;

/// One run's forecast and what came of it.
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
    /// Compute of the last point fitted.
    pub fitted_until: f64,
    /// Points fitted.
    pub points: usize,
    /// When the last point fitted was measured, UTC: from then on the forecast could be made.
    pub forecast_from: String,
    /// What the fit said of itself.
    pub verdict: String,
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
    /// The authors' grid fit on the same points.
    pub paper: Option<f64>,
    /// The power law on the same points.
    pub power_law: Option<f64>,
    /// The end of the first half, as if nothing changed.
    pub last_value: Option<f64>,
    /// What the run itself had forecast for twice its compute, at its last evaluation of the first
    /// half.
    pub recorded: Option<f64>,
    /// 5 % end of that.
    pub recorded_low: Option<f64>,
    /// 95 % end.
    pub recorded_high: Option<f64>,
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
    /// The forecast of one finished run.
    pub fn of(record: &RunRecord) -> Result<Self, LeftOut> {
        let meta = &record.meta;
        let out = |reason: String| LeftOut { run: name(&meta.study, &meta.run), reason };
        if !meta.is_finished {
            return Err(out(format!("it has no end to hold a forecast against ({})", meta.status)));
        }
        let axis = record.axis();
        let series = record.series(axis).map_err(|error| out(error.to_string()))?;
        let cut = series.last_compute() * FITTED_SHARE;
        let ending =
            Ending::of(&series, cut).ok_or_else(|| out("nothing in its second half".into()))?;
        let fit = fit_until(&series, Method::Marginal, cut);
        let fit = fit.map_err(|error| out(error.to_string()))?;
        let ours = Prediction::read(&fit, ending.compute, ending.points);
        let rival = |method| rival(&series, method, cut, ending.compute);
        let first_half = series.until(cut);
        let fitted = record.points.iter().rfind(|point| point.compute(axis) <= cut);
        let recorded = meta.recorded.as_ref().map(|report| report.at_twice);
        Ok(Self {
            study: meta.study.clone(),
            run: meta.run.clone(),
            started: date::minute(meta.started_at),
            commit: meta.commit.clone().unwrap_or_default(),
            device: meta.devices.join(" + "),
            axis,
            fitted_until: ours.fitted_until,
            points: ours.points,
            forecast_from: fitted.map(|point| date::minute(point.at)).unwrap_or_default(),
            verdict: ours.verdict.to_string(),
            bounded: ours.is_bounded(),
            forecast: ours.value,
            low: ours.low,
            high: ours.high,
            compute: ending.compute,
            measured: ending.value,
            measured_error: ending.error,
            error: ours.value - ending.value,
            inside: ours.covers(ending.value),
            paper: rival(Method::Paper),
            power_law: rival(Method::PowerLaw),
            last_value: first_half
                .and_then(|half| Ending::of(&half, f64::NEG_INFINITY))
                .map(|ending| ending.value),
            recorded: recorded.map(|twice| twice.0),
            recorded_low: recorded.map(|twice| twice.1),
            recorded_high: recorded.map(|twice| twice.2),
        })
    }

    /// Study and run.
    pub fn name(&self) -> String {
        name(&self.study, &self.run)
    }

    /// A run of a sweep: half of it is before most of the rise.
    pub fn is_of_sweep(&self) -> bool {
        is_of_sweep(&self.run)
    }

    /// Close, or inside an interval that says something.
    pub fn is_good(&self) -> bool {
        self.error.abs() <= CLOSE || (self.inside && self.high - self.low < NARROW)
    }

    fn key(&self) -> (&str, &str, &str) {
        (&self.study, &self.run, &self.started)
    }
}

fn name(study: &str, run: &str) -> String {
    if study.is_empty() { run.into() } else { format!("{study}/{run}") }
}

/// Rows of many runs, fitted on all cores, and the runs that have none. Sweeps count: they are
/// runs like any other.
pub fn rows(records: &[RunRecord]) -> (Vec<Row>, Vec<LeftOut>) {
    let outcomes: Vec<Result<Row, LeftOut>> = records.par_iter().map(Row::of).collect();
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(row) => rows.push(row),
            Err(reason) => left_out.push(reason),
        }
    }
    (rows, left_out)
}

/// Lays new rows over old ones, by study, run and start; in order of their start.
pub fn merge(mut old: Vec<Row>, new: Vec<Row>) -> Vec<Row> {
    for row in new {
        match old.iter_mut().find(|known| known.key() == row.key()) {
            Some(known) => *known = row,
            None => old.push(row),
        }
    }
    old.sort_by(|a, b| (&a.started, &a.study, &a.run).cmp(&(&b.started, &b.study, &b.run)));
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
