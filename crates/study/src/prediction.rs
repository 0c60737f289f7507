//! A forecast from the first part of a run, and what it is held against.
//!
//! **What was measured.** One evaluation has sampling noise of its own, often as large as the error
//! of a good forecast. So the end of a run is the mean of its last three evaluations (fewer, where
//! fewer lie in the part that is forecast), weighted by their samples, with the binomial standard
//! error of that mean. The forecast is of the mean at the same computes, and its interval is the
//! one for a mean of so many measurements.

use scalerl_curve::{Compute, Fit, FitError, FitOptions, Point, Series, Verdict};
use serde::Serialize;

/// Share of the compute that is fitted.
pub const FITTED_SHARE: f64 = 0.5;
/// Evaluations that make up the measured end.
const ENDING_POINTS: usize = 3;

/// The measured end of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ending {
    /// Computes of the evaluations.
    pub computes: Vec<Compute>,
    /// Their mean, weighted by samples.
    pub value: f64,
    /// Its standard error by sampling alone; `None` where the samples are not known.
    pub error: Option<f64>,
}

impl Ending {
    /// The end of a series; only points after `after` count.
    pub fn of(series: &Series, after: Compute) -> Option<Self> {
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
        let computes = last.iter().map(|point| point.compute).collect();
        Some(Self { computes, value, error: is_counted.then_some(error) })
    }

    /// The middle of its computes.
    pub fn compute(&self) -> Compute {
        let sum: f64 = self.computes.iter().map(|compute| compute.0).sum();
        Compute(sum / self.computes.len() as f64)
    }
}

/// What a fit to the first part of a run says about its end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Compute that was forecast.
    pub at: Compute,
    /// Compute of the last point fitted.
    pub fitted_until: Compute,
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
    /// Share of it that rests on finished runs.
    pub history_weight: f64,
}

impl Prediction {
    /// Reads a fit for the mean of one evaluation at each of `computes`.
    pub fn read(fit: &Fit, computes: &[Compute]) -> Self {
        let forecast = fit.forecast_mean(computes);
        Self {
            at: forecast.at,
            fitted_until: fit.last_compute(),
            points: fit.used.len(),
            value: forecast.value,
            low: forecast.low,
            high: forecast.high,
            verdict: fit.verdict,
            history_weight: fit.history_weight(),
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

/// Fits the points up to `until`.
pub fn fit_until(
    series: &Series,
    options: &FitOptions<'_>,
    until: Compute,
) -> Result<Fit, FitError> {
    scalerl_curve::fit(series, &FitOptions { until: Some(until), ..*options })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(f64, f64, f64)]) -> Series {
        let point = |(compute, value, samples): &(f64, f64, f64)| {
            Point::new(Compute(*compute), *value).with_samples(*samples)
        };
        Series::try_new(values.iter().map(point).collect()).unwrap()
    }

    #[test]
    fn the_end_is_the_mean_of_the_last_three_with_its_error() {
        let all = [(1.0, 0.1, 100.0), (8.0, 0.4, 100.0), (9.0, 0.5, 100.0), (10.0, 0.6, 200.0)];
        let ending = Ending::of(&series(&all), Compute(5.0)).unwrap();
        assert_eq!(ending.computes.len(), 3);
        assert!((ending.value - 0.525).abs() < 1e-12, "{ending:?}");
        assert!((ending.compute().0 - 9.0).abs() < 1e-12);
        assert!((ending.error.unwrap() - (0.525_f64 * 0.475 / 400.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn points_of_the_fitted_half_are_no_end() {
        let all = [(1.0, 0.1, 100.0), (4.0, 0.4, 100.0), (10.0, 0.6, 200.0)];
        assert_eq!(Ending::of(&series(&all), Compute(5.0)).unwrap().computes.len(), 1);
        assert_eq!(Ending::of(&series(&all), Compute(10.0)), None);
    }
}
