//! A forecast from the first half of a run, and what it is held against.
//!
//! **What was measured.** One evaluation has sampling noise of its own, often as large as the error
//! of a good forecast. So the end of a run is the mean of its last three evaluations (fewer, where
//! fewer lie in the second half), weighted by their samples, with the binomial standard error of
//! that mean. The forecast is read at the mean compute of the same evaluations, and its interval
//! is the one for a mean of so many measurements: as wide as the curve's own interval, plus the
//! sampling noise of one measurement divided by their number.

use scalerl_curve::{Fit, FitError, FitOptions, Forecast, Method, Point, Series, Verdict};
use serde::Serialize;

/// Share of the compute that is fitted.
pub const FITTED_SHARE: f64 = 0.5;
/// Evaluations that make up the measured end.
const ENDING_POINTS: usize = 3;
/// GPU-hours of the runs that the authors' grid fits.
const PAPER_COMPUTE: f64 = 50_000.0;

/// The measured end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ending {
    /// Mean compute of the evaluations.
    pub compute: f64,
    /// Their mean, weighted by samples.
    pub value: f64,
    /// Its standard error by sampling alone; `None` where the samples are not known.
    pub error: Option<f64>,
    /// Evaluations behind it.
    pub points: usize,
}

impl Ending {
    /// The end of a series; only points after `after` count.
    pub fn of(series: &Series, after: f64) -> Option<Self> {
        let later: Vec<&Point> = series.points().iter().filter(|p| p.compute > after).collect();
        let last = &later[later.len().saturating_sub(ENDING_POINTS)..];
        if last.is_empty() {
            return None;
        }
        let weight = |point: &Point| point.samples.unwrap_or(1.0);
        let total: f64 = last.iter().map(|point| weight(point)).sum();
        let value = last.iter().map(|point| weight(point) * point.value).sum::<f64>() / total;
        let unit = series.range().to_unit(value);
        let is_counted = last.iter().all(|point| point.samples.is_some());
        let error = (unit * (1.0 - unit) / total).sqrt() * series.range().width();
        Some(Self {
            compute: last.iter().map(|point| point.compute).sum::<f64>() / last.len() as f64,
            value,
            error: is_counted.then_some(error),
            points: last.len(),
        })
    }
}

/// What a fit to the first part of a run says about its end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Compute that was forecast.
    pub at: f64,
    /// Compute of the last point fitted.
    pub fitted_until: f64,
    /// Points fitted.
    pub points: usize,
    /// The forecast.
    pub value: f64,
    /// 5 % end for what is measured.
    pub low: f64,
    /// 95 % end.
    pub high: f64,
    /// What the fit said of itself.
    pub verdict: Verdict,
}

impl Prediction {
    /// Reads a fit at `at`, for the mean of `measurements` evaluations.
    pub fn read(fit: &Fit, at: f64, measurements: usize) -> Self {
        let forecast = fit.forecast(at);
        let (low, high) = interval_of_mean(&forecast, measurements);
        Self {
            at,
            fitted_until: fit.last_compute(),
            points: fit.used.len(),
            value: forecast.value,
            low,
            high,
            verdict: fit.verdict,
        }
    }

    /// Does the tool call the ceiling bounded?
    pub fn is_bounded(&self) -> bool {
        self.verdict == Verdict::Bounded
    }

    /// Is what was measured inside the interval?
    pub fn covers(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// Fits the points up to `until` with one of the methods, its own usual settings.
pub fn fit_until(series: &Series, method: Method, until: f64) -> Result<Fit, FitError> {
    let options = FitOptions { method, until: Some(until), ..FitOptions::default() };
    scalerl_curve::fit(series, &options)
}

/// What another method, fitted to the points up to `until`, says of `at`.
///
/// The authors' grid of midpoints is made for runs of about 50,000 GPU-hours, so for it the axis is
/// stretched until the whole run, of which `until` is [`FITTED_SHARE`], is as long.
pub fn rival(series: &Series, method: Method, until: f64, at: f64) -> Option<f64> {
    let stretch = if method == Method::Paper { PAPER_COMPUTE * FITTED_SHARE / until } else { 1.0 };
    let stretched = |point: &Point| Point { compute: point.compute * stretch, ..*point };
    let points = series.points().iter().map(stretched).collect();
    let series = Series::try_with_range(points, series.range()).ok()?;
    let fit = fit_until(&series, method, until * stretch * (1.0 + 1e-12)).ok()?;
    Some(fit.forecast(at * stretch).value)
}

/// The interval of a mean of `count` measurements: noise shrinks, doubt about the curve does not.
fn interval_of_mean(forecast: &Forecast, count: usize) -> (f64, f64) {
    let half_width = |one: f64, curve: f64| {
        let (one, curve) = ((one - forecast.value).abs(), (curve - forecast.value).abs());
        let noise = (one.powi(2) - curve.powi(2)).max(0.0);
        (curve.powi(2) + noise / count.max(1) as f64).sqrt()
    };
    (
        forecast.value - half_width(forecast.low, forecast.curve_low),
        forecast.value + half_width(forecast.high, forecast.curve_high),
    )
}

#[cfg(test)]
mod tests {
    use scalerl_curve::Sigmoid;

    use super::*;

    fn series(values: &[(f64, f64, f64)]) -> Series {
        let point = |(compute, value, samples): &(f64, f64, f64)| Point {
            compute: *compute,
            value: *value,
            samples: Some(*samples),
        };
        Series::try_new(values.iter().map(point).collect()).unwrap()
    }

    #[test]
    fn the_end_is_the_mean_of_the_last_three_with_its_error() {
        let all = [(1.0, 0.1, 100.0), (8.0, 0.4, 100.0), (9.0, 0.5, 100.0), (10.0, 0.6, 200.0)];
        let ending = Ending::of(&series(&all), 5.0).unwrap();
        assert_eq!(ending.points, 3);
        assert!((ending.value - 0.525).abs() < 1e-12, "{ending:?}");
        assert!((ending.compute - 9.0).abs() < 1e-12);
        assert!((ending.error.unwrap() - (0.525_f64 * 0.475 / 400.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn points_of_the_fitted_half_are_no_end() {
        let all = [(1.0, 0.1, 100.0), (4.0, 0.4, 100.0), (10.0, 0.6, 200.0)];
        assert_eq!(Ending::of(&series(&all), 5.0).unwrap().points, 1);
        assert_eq!(Ending::of(&series(&all), 10.0), None);
    }

    #[test]
    fn the_authors_grid_fits_runs_of_any_length() {
        let law = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 2.0, midpoint: 0.3 };
        for unit in [1e-3, 1.0, 1e7] {
            let point = |i: u32| {
                let compute = f64::from(i) / 20.0;
                (compute * unit, law.value_at(compute), 4096.0)
            };
            let series = series(&(0..=20).map(point).collect::<Vec<_>>());
            let found = rival(&series, Method::Paper, 0.5 * unit, unit).unwrap();
            assert!((found - law.value_at(1.0)).abs() < 0.004, "{unit}: {found}");
        }
    }

    #[test]
    fn more_measurements_shrink_the_noise_and_not_the_doubt() {
        let forecast = Forecast {
            at: 1.0,
            value: 0.5,
            low: 0.45,
            high: 0.55,
            curve_low: 0.47,
            curve_high: 0.53,
        };
        let (low, high) = interval_of_mean(&forecast, 1);
        assert!((low - 0.45).abs() < 1e-12 && (high - 0.55).abs() < 1e-12);
        let (low, high) = interval_of_mean(&forecast, 1_000_000);
        assert!((low - 0.47).abs() < 1e-6 && (high - 0.53).abs() < 1e-6);
    }
}
