//! From run records to rows of the ledger: each forecast as it could have been made at the time.
//!
//! History of a forecast are the comparable runs that had finished when its last point was measured
//! (`history.rs`).

use rayon::prelude::*;
use scalerl_curve::{Compute, FitOptions, HistoryEntry, Method, Rival, Series, Verdict};

use super::{LeftOut, Row};
use crate::{
    date,
    history::{Finished, finished, known_at},
    prediction::{Ending, FITTED_SHARE, Prediction, fit_until},
    record::RunRecord,
};

/// Shares of the compute that are fitted, and of which part the end is then forecast.
const SHARES: [(f64, f64); 3] = [(0.25, 0.5), (FITTED_SHARE, 1.0), (0.75, 1.0)];

/// One forecast to be made.
struct Question<'r> {
    record: &'r RunRecord,
    /// Share of the compute that is fitted.
    fraction: f64,
    /// The run as far as its end is asked for.
    series: Series,
    cut: Compute,
    ending: Ending,
    /// Unix time of the last point fitted.
    asked_at: Option<f64>,
}

/// Rows of many runs, fitted on all cores, and the runs that have none. Sweeps count: they are
/// runs like any other.
pub fn rows(records: &[RunRecord]) -> (Vec<Row>, Vec<LeftOut>) {
    let finished = finished(records);
    let outcomes: Vec<Result<Vec<Row>, LeftOut>> =
        records.par_iter().map(|record| rows_of(record, &finished)).collect();
    let (mut rows, mut left_out) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(found) => rows.extend(found),
            Err(reason) => left_out.push(reason),
        }
    }
    (rows, left_out)
}

/// The forecasts of one run. From half-way there must be one; short runs have none from a quarter.
fn rows_of(record: &RunRecord, finished: &[Finished<'_>]) -> Result<Vec<Row>, LeftOut> {
    let out = |reason: String| LeftOut { run: record.name(), reason };
    if !record.meta.is_finished {
        let status = &record.meta.status;
        return Err(out(format!("it has no end to hold a forecast against ({status})")));
    }
    let mut rows = Vec::new();
    for (fraction, of) in SHARES {
        let row = Question::of(record, fraction, of).and_then(|question| question.row(finished));
        match row {
            Ok(row) => rows.push(row),
            Err(reason) if (fraction - FITTED_SHARE).abs() < 1e-9 => return Err(out(reason)),
            Err(_) => {}
        }
    }
    Ok(rows)
}

impl<'r> Question<'r> {
    fn of(record: &'r RunRecord, fraction: f64, of: f64) -> Result<Self, String> {
        let axis = record.axis();
        let whole = record.series(axis).map_err(|error| error.to_string())?;
        let cut = whole.last_compute() * fraction;
        let end = whole.last_compute() * of;
        let series = whole.until(end).ok_or("nothing was measured")?;
        let ending = Ending::of(&series, cut).ok_or("nothing in its second half")?;
        let asked_at = record.measured_at(axis, cut);
        Ok(Self { record, fraction, series, cut, ending, asked_at })
    }

    fn predict(&self, options: &FitOptions<'_>) -> Result<Prediction, String> {
        let fit = fit_until(&self.series, options, self.cut).map_err(|error| error.to_string())?;
        Ok(Prediction::read(&fit, &self.ending.computes))
    }

    fn rival(&self, rival: Rival) -> Option<f64> {
        rival.forecast(&self.series, self.cut, self.ending.compute(), &[])
    }

    /// The mean of what runs of the same variant had reached.
    fn twin(&self, history: &[HistoryEntry]) -> Option<f64> {
        let own = self.record.recipe()?;
        let values: Vec<f64> = history
            .iter()
            .filter(|entry| entry.recipe.as_ref() == Some(&own))
            .filter_map(|entry| entry.value_near(self.ending.compute()))
            .collect();
        let count = values.len() as f64;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / count)
    }

    fn row(&self, finished: &[Finished<'_>]) -> Result<Row, String> {
        let history = known_at(finished, self.record, self.asked_at);
        let alone = FitOptions::default();
        let ours = self.predict(&FitOptions { history: &history, ..alone })?;
        let without = self.predict(&alone)?;
        let marginal = self.predict(&FitOptions { method: Method::Marginal, ..alone }).ok();
        let (meta, ending) = (&self.record.meta, &self.ending);
        let is_from_half = (self.fraction - FITTED_SHARE).abs() < 1e-9;
        let recorded = meta.recorded.as_ref().filter(|_| is_from_half).map(|one| one.at_twice);
        Ok(Row {
            study: meta.study.clone(),
            run: meta.run.clone(),
            started: date::minute(meta.started_at),
            commit: meta.commit.clone().unwrap_or_default(),
            device: meta.devices.join(" + "),
            axis: self.record.axis(),
            fraction: self.fraction,
            fitted_until: ours.fitted_until.0,
            points: ours.points,
            forecast_from: self.asked_at.map(date::minute).unwrap_or_default(),
            method: alone.method,
            history_runs: history.len(),
            history_weight: ours.history_weight,
            verdict: ours.verdict,
            bounded: ours.verdict == Verdict::Bounded,
            forecast: ours.value,
            low: ours.low,
            high: ours.high,
            compute: ending.compute().0,
            measured: ending.value,
            measured_error: ending.error,
            error: ours.value - ending.value,
            inside: ours.covers(ending.value),
            alone: Some(without.value),
            alone_low: Some(without.low),
            alone_high: Some(without.high),
            alone_verdict: Some(without.verdict),
            marginal: marginal.map(|one| one.value),
            marginal_low: marginal.map(|one| one.low),
            marginal_high: marginal.map(|one| one.high),
            paper: self.rival(Rival::Paper),
            power_law: self.rival(Rival::PowerLaw),
            offset_power_law: self.rival(Rival::OffsetPowerLaw),
            log_error: self.rival(Rival::LogError),
            last_value: self.rival(Rival::LastValue),
            twin: self.twin(&history),
            recorded: recorded.map(|twice| twice.0),
            recorded_low: recorded.map(|twice| twice.1),
            recorded_high: recorded.map(|twice| twice.2),
        })
    }
}
