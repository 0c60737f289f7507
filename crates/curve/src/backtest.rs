//! How far to trust the forecasts: fit a part of a run that is over, forecast the rest, look.
//!
//! For each fraction of the final compute, the run is cut there, fitted, and asked for the point
//! measured nearest to `horizon` times the cut (the last point, if that lies beyond it). The
//! forecast is also judged on every point after the cut.

use serde::Serialize;
use thiserror::Error;

use crate::compute::Compute;
use crate::fit::{Ceiling, FitError, fit};
use crate::options::FitOptions;
use crate::points::{Point, Series};
use crate::verdict::Verdict;

/// One forecast made from a part of a run, and what was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Backtest {
    /// Share of the final compute that was fitted.
    pub fraction: f64,
    /// Compute of the last point fitted.
    pub fitted_until: Compute,
    /// Points fitted.
    pub points: usize,
    /// What the fit said of itself.
    pub verdict: Verdict,
    /// The ceiling it found.
    pub ceiling: Ceiling,
    /// Compute of the point that was forecast.
    pub at: Compute,
    /// The forecast.
    pub predicted: f64,
    /// 5 % end for one measurement.
    pub low: f64,
    /// 95 % end.
    pub high: f64,
    /// What was measured there.
    pub actual: f64,
    /// predicted - actual.
    pub error: f64,
    /// Was the measurement inside [low, high]?
    pub covered: bool,
    /// Points after the cut.
    pub rest_points: usize,
    /// Mean absolute error over them.
    pub rest_error: f64,
    /// Share of them inside their intervals.
    pub rest_covered: f64,
}

/// Why a fraction could not be tested.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Skipped {
    /// The part could not be fitted.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// No measurement lies far enough after the cut.
    #[error("no point measured after it")]
    NothingAfter,
}

/// Fits the points up to `fraction` of the final compute and forecasts `horizon` times as far.
pub fn backtest(
    series: &Series,
    options: &FitOptions,
    fraction: f64,
    horizon: f64,
) -> Result<Backtest, Skipped> {
    let whole = match options.until {
        Some(until) => series.until(until).ok_or(Skipped::NothingAfter)?,
        None => series.clone(),
    };
    let cut = whole.last_compute() * fraction;
    let options = FitOptions { until: Some(cut), ..*options };
    let found = fit(&whole, &options).map_err(Skipped::Fit)?;
    let rest: Vec<&Point> = whole.points().iter().filter(|p| p.compute > cut).collect();
    let wanted = (found.last_compute() * horizon).min(whole.last_compute());
    let distance = |p: &Point| (p.compute / wanted).ln().abs();
    let target = rest
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .ok_or(Skipped::NothingAfter)?;
    let forecast = found.forecast(target.compute);
    let (mut total_error, mut covered) = (0.0, 0);
    for point in &rest {
        let forecast = found.forecast(point.compute);
        total_error += (forecast.value - point.value).abs();
        covered += usize::from(forecast.low <= point.value && point.value <= forecast.high);
    }
    Ok(Backtest {
        fraction,
        fitted_until: found.last_compute(),
        points: found.used.len(),
        verdict: found.verdict,
        ceiling: found.ceiling,
        at: target.compute,
        predicted: forecast.value,
        low: forecast.low,
        high: forecast.high,
        actual: target.value,
        error: forecast.value - target.value,
        covered: forecast.low <= target.value && target.value <= forecast.high,
        rest_points: rest.len(),
        rest_error: total_error / rest.len() as f64,
        rest_covered: covered as f64 / rest.len() as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Sigmoid;

    fn law_run() -> Series {
        let law = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.8, midpoint: Compute(50.0) };
        let points = (1..=40).map(|i| {
            let compute = Compute(f64::from(i) * 10.0);
            Point::new(compute, law.value_at(compute)).with_samples(16_000.0)
        });
        Series::try_new(points.collect()).unwrap()
    }

    #[test]
    fn the_forecast_is_made_from_the_first_part_only() {
        let test = backtest(&law_run(), &FitOptions::default(), 0.5, 2.0).unwrap();
        assert!((test.fitted_until.0 - 200.0).abs() < 1e-9);
        assert_eq!(test.points, 20);
        assert!((test.at.0 - 400.0).abs() < 1e-9);
        assert!(test.covered && test.error.abs() < 0.02, "{test:?}");
        assert_eq!(test.rest_points, 20);
    }

    #[test]
    fn the_horizon_is_a_multiple_of_what_was_fitted() {
        let test = backtest(&law_run(), &FitOptions::default(), 0.25, 2.0).unwrap();
        assert!((test.at.0 - 200.0).abs() < 1e-9);
    }

    #[test]
    fn a_fraction_with_too_few_points_says_so() {
        let skipped = backtest(&law_run(), &FitOptions::default(), 0.04, 2.0);
        assert!(matches!(skipped, Err(Skipped::Fit(FitError::TooFewPoints { .. }))));
    }

    #[test]
    fn the_whole_run_leaves_nothing_to_forecast() {
        let skipped = backtest(&law_run(), &FitOptions::default(), 1.0, 2.0);
        assert_eq!(skipped, Err(Skipped::NothingAfter));
    }
}
