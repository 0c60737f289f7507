//! The live forecast: refits the curve after each evaluation.

use scalerl_curve::{Compute, Fit, FitOptions, HistoryEntry, fit};
use scalerl_journal::{EvaluationPoint, ForecastReport, HistoryUse};
use scalerl_recipe::Axis;
use scalerl_rollout::PolicyVersion;

/// "What would twice the compute buy?"
const FACTOR: f64 = 2.0;

/// Finished runs that a report names.
const NAMED_RUNS: usize = 3;

/// What the points so far say in the light of finished runs; `None` while there are too few of
/// them, or no compute yet.
pub(crate) fn forecast(
    points: &[EvaluationPoint],
    axis: Axis,
    history: &[HistoryEntry],
) -> Option<ForecastReport> {
    let series = EvaluationPoint::series(points, axis).ok()?;
    let found = fit(&series, &FitOptions { history, ..FitOptions::default() }).ok()?;
    let last = points.last()?;
    let compute = last.compute(axis);
    let (gain, ahead) = (found.gain(FACTOR), found.forecast(Compute(compute * FACTOR)));
    let report = ForecastReport {
        version: PolicyVersion(last.step),
        axis,
        compute,
        value: found.forecast(Compute(compute)).value,
        gain: (gain.value, gain.low, gain.high),
        at_twice: (ahead.value, ahead.low, ahead.high),
        ceiling: (found.ceiling.value, found.ceiling.low, found.ceiling.high),
        verdict: found.verdict,
        history: history_use(&found),
    };
    is_finite(&report).then_some(report)
}

fn history_use(found: &Fit) -> Option<HistoryUse> {
    (!found.history.is_empty()).then(|| HistoryUse {
        runs: found.history.len(),
        weight: found.history_weight(),
        heaviest: found.history.iter().take(NAMED_RUNS).cloned().collect(),
    })
}

/// A number that is not finite cannot be written down as JSON.
fn is_finite(report: &ForecastReport) -> bool {
    let (gain, ahead, ceiling) = (report.gain, report.at_twice, report.ceiling);
    [
        report.compute,
        report.value,
        gain.0,
        gain.1,
        gain.2,
        ahead.0,
        ahead.1,
        ahead.2,
        ceiling.0,
        ceiling.1,
        ceiling.2.unwrap_or(0.0),
    ]
    .iter()
    .all(|number| number.is_finite())
}
