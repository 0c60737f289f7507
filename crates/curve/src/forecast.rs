//! What a fitted curve says about compute not spent yet.

use serde::{Deserialize, Serialize};

use crate::compute::Compute;
use crate::fit::profile::Profile;
use crate::fit::{Estimate, Fit, marginal, mixture};
use crate::normal::{self, Mixture, Normal};
use crate::points::ValueRange;

/// Targets are looked for up to this many times the compute of the last point.
const HORIZON: f64 = 1000.0;
/// A gain this likely will come, and one this unlikely will not.
const SURE: f64 = 0.9;
/// 95 % point of the standard normal.
const Z: f64 = 1.645;
/// Parts of a posterior that are enough for what is drawn or walked along: intervals move by about
/// 0.0005.
const ENOUGH_PARTS: usize = 2000;

/// Value at some compute with 90 % intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Forecast {
    /// The compute.
    pub at: Compute,
    /// The most likely value of the curve.
    pub value: f64,
    /// 5 % end for one new measurement.
    pub low: f64,
    /// 95 % end for one new measurement.
    pub high: f64,
    /// 5 % end for the curve itself.
    pub curve_low: f64,
    /// 95 % end for the curve itself.
    pub curve_high: f64,
}

impl Forecast {
    /// The same on another scale, which rises with this one.
    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            at: self.at,
            value: change(self.value),
            low: change(self.low),
            high: change(self.high),
            curve_low: change(self.curve_low),
            curve_high: change(self.curve_high),
        }
    }

    /// For the mean of `count` measurements: their noise shrinks, doubt about the curve does not.
    fn of_mean(self, count: usize) -> Self {
        let half_width = |one: f64, curve: f64| {
            let (one, curve) = ((one - self.value).abs(), (curve - self.value).abs());
            let noise = (one.powi(2) - curve.powi(2)).max(0.0);
            (curve.powi(2) + noise / count.max(1) as f64).sqrt()
        };
        Self {
            low: self.value - half_width(self.low, self.curve_low),
            high: self.value + half_width(self.high, self.curve_high),
            ..self
        }
    }
}

/// The compute needed for a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Target {
    /// The wanted value.
    pub target: f64,
    /// Compute at which the forecast reaches it.
    pub compute: Option<Compute>,
    /// The compute could be as small as this (5 %).
    pub low: Option<Compute>,
    /// Or as large as this (95 %); `None`: perhaps never.
    pub high: Option<Compute>,
    /// In one word.
    pub outlook: Outlook,
}

/// Whether a target can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outlook {
    /// The curve is there already.
    Reached,
    /// The forecast reaches it within the horizon.
    Reachable,
    /// The forecast stays below, the interval does not.
    Possible,
    /// Even the upper end of the interval stays below, up to a thousand times the compute.
    Unlikely,
}

/// Whether more compute buys more than some gain.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct MoreCompute {
    /// Times the compute of the last point.
    pub factor: f64,
    /// The gain asked for.
    pub more_than: f64,
    /// The chance of it.
    pub chance: f64,
    /// In one word.
    pub promise: Promise,
}

/// What can be said of a gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// At least nine in ten.
    Will,
    /// Neither.
    May,
    /// At most one in ten.
    WillNot,
}

/// What each method needs to forecast, on the unit scale.
#[derive(Debug, Clone)]
pub(crate) enum Predictor {
    Mixture(Box<mixture::Posterior>),
    Posterior(marginal::Posterior),
    Profile(Profile),
}

impl Predictor {
    /// The mean of one measurement at each of `at`.
    pub(crate) fn forecast(&self, at: &[Compute]) -> Forecast {
        let middle = Compute(at.iter().map(|c| c.0).sum::<f64>() / at.len() as f64);
        match self {
            Self::Mixture(posterior) => Forecast { at: middle, ..posterior.forecast(at) },
            Self::Posterior(posterior) => posterior.forecast(middle).of_mean(at.len()),
            Self::Profile(profile) => profile.forecast(middle).of_mean(at.len()),
        }
    }

    /// 5 % end of the curve at a compute.
    pub(crate) fn curve_low(&self, at: Compute) -> f64 {
        match self {
            Self::Mixture(posterior) => posterior.at(&[at], 0.0).quantile(0.05).clamp(0.0, 1.0),
            other => other.forecast(&[at]).curve_low,
        }
    }

    /// A lighter one for many forecasts.
    fn light(&self) -> Self {
        match self {
            Self::Mixture(posterior) => Self::Mixture(Box::new(posterior.thinned(ENOUGH_PARTS))),
            other => other.clone(),
        }
    }

    fn gain(&self, factor: f64) -> Estimate {
        match self {
            Self::Mixture(posterior) => posterior.gain(factor).estimate(),
            Self::Posterior(posterior) => posterior.gain(factor),
            Self::Profile(profile) => profile.gain(factor),
        }
    }

    /// The curve at a compute, alone.
    fn curve_at(&self, at: Compute) -> Mixture {
        if let Self::Mixture(posterior) = self {
            return posterior.at(&[at], 0.0);
        }
        let Forecast { value, curve_low, curve_high, .. } = self.forecast(&[at]);
        one_normal(Estimate { value, low: curve_low, high: curve_high })
    }

    /// P(gain > more_than); for the methods without a mixture, of a normal with their interval.
    fn chance_of_gain(&self, factor: f64, more_than: f64) -> f64 {
        if let Self::Mixture(posterior) = self {
            return 1.0 - posterior.gain(factor).cdf(more_than);
        }
        let Estimate { value, low, high } = self.gain(factor);
        let half_width = if more_than > value { high - value } else { value - low };
        1.0 - normal::cdf(Z * (more_than - value) / half_width.max(f64::MIN_POSITIVE))
    }
}

/// The normal that has this interval.
fn one_normal(estimate: Estimate) -> Mixture {
    let sd = (estimate.high - estimate.low) / (2.0 * Z);
    Mixture::new(vec![Normal { weight: 1.0, mean: estimate.value, sd }])
}

impl Fit {
    /// The curve's distribution at a compute, on the scale of the values.
    pub(crate) fn curve_at(&self, at: Compute) -> Mixture {
        self.predictor.curve_at(at).rescaled(self.range.low, self.range.width())
    }

    /// The ceiling's distribution, on the scale of the values.
    pub(crate) fn ceiling_distribution(&self) -> Mixture {
        if let Predictor::Mixture(posterior) = &self.predictor {
            posterior.ceiling().rescaled(self.range.low, self.range.width())
        } else {
            let high = self.ceiling_high.max(self.ceiling.value);
            one_normal(Estimate { value: self.ceiling.value, low: self.ceiling.low, high })
        }
    }

    /// Value at `compute`, with the interval for one new measurement and for the curve alone.
    pub fn forecast(&self, compute: Compute) -> Forecast {
        self.forecast_mean(&[compute])
    }

    /// The mean of one measurement at each of `computes`, of which there must be one.
    pub fn forecast_mean(&self, computes: &[Compute]) -> Forecast {
        self.predictor.forecast(computes).map(|value| self.range.from_unit(value))
    }

    /// The chance that the curve's mean over `computes`, of which there must be one, lies below each
    /// of `values`: to about 0.001, for many values.
    ///
    /// ```
    /// use scalerl_curve::{Compute, FitOptions, Point, Series, fit};
    /// let value = |i: u32| 0.7 - 0.4 / (1.0 + f64::from(i) / 8.0);
    /// let points = (1..=30).map(|i| Point::new(Compute(f64::from(i)), value(i)));
    /// let run = fit(&Series::try_new(points.collect()).unwrap(), &FitOptions::default()).unwrap();
    /// let chances = run.chances_below(&[Compute(40.0)], &[0.5, 0.9]);
    /// assert!(chances[0] < 0.01 && chances[1] > 0.99);
    /// ```
    pub fn chances_below(&self, computes: &[Compute], values: &[f64]) -> Vec<f64> {
        let curve = match &self.predictor {
            Predictor::Mixture(posterior) => posterior.at(computes, 0.0),
            other => other.curve_at(other.forecast(computes).at),
        }
        .light();
        values.iter().map(|value| curve.cdf(self.range.to_unit(*value))).collect()
    }

    /// Values at many computes, as a figure needs them: to about 0.0005.
    pub fn curve(&self, computes: impl IntoIterator<Item = Compute>) -> Vec<Forecast> {
        let light = self.predictor.light();
        let at = |compute| light.forecast(&[compute]).map(|value| self.range.from_unit(value));
        computes.into_iter().map(at).collect()
    }

    /// What multiplying the compute of the last used point by `factor`, 1 or more, buys.
    pub fn gain(&self, factor: f64) -> Estimate {
        self.predictor.gain(factor).map(|value| value * self.range.width())
    }

    /// Does `factor` times the compute buy more than `more_than`? About the curve, not about one
    /// noisy measurement of it.
    pub fn more_compute(&self, factor: f64, more_than: f64) -> MoreCompute {
        let chance = self.predictor.chance_of_gain(factor, more_than / self.range.width());
        let promise = if chance >= SURE {
            Promise::Will
        } else if chance <= 1.0 - SURE {
            Promise::WillNot
        } else {
            Promise::May
        };
        MoreCompute { factor, more_than, chance, promise }
    }

    /// Compute needed until the curve reaches `target`, looked for up to a thousand times the
    /// compute spent.
    pub fn compute_for(&self, target: f64) -> Target {
        let first = self.used.iter().map(|p| p.compute).find(|c| c.is_positive());
        let (first, last) = (first.unwrap_or(Compute(1.0)), self.last_compute());
        let walk = Walk::new(self, first, last * HORIZON);
        let compute = walk.first_reach(target, |f| f.value);
        let low = walk.first_reach(target, |f| f.curve_high);
        let high = walk.first_reach(target, |f| f.curve_low);
        let outlook = match (compute, low) {
            (Some(compute), _) if compute <= last => Outlook::Reached,
            (Some(_), _) => Outlook::Reachable,
            (None, Some(_)) => Outlook::Possible,
            (None, None) => Outlook::Unlikely,
        };
        Target { target, compute, low, high, outlook }
    }
}

/// Forecasts along the axis, to find where something is reached.
struct Walk {
    predictor: Predictor,
    range: ValueRange,
    steps: Vec<Forecast>,
}

impl Walk {
    const STEPS: i32 = 48;

    fn new(fit: &Fit, from: Compute, to: Compute) -> Self {
        let ratio = (to / from).powf(1.0 / f64::from(Self::STEPS));
        let mut walk =
            Self { predictor: fit.predictor.light(), range: fit.range, steps: Vec::new() };
        walk.steps = (0..=Self::STEPS).map(|step| walk.at(from * ratio.powi(step))).collect();
        walk
    }

    fn at(&self, compute: Compute) -> Forecast {
        self.predictor.forecast(&[compute]).map(|value| self.range.from_unit(value))
    }

    /// First compute at which `of` a forecast reaches `target`: between two steps by bisection.
    fn first_reach(&self, target: f64, of: fn(&Forecast) -> f64) -> Option<Compute> {
        let reached = self.steps.iter().position(|step| of(step) >= target)?;
        let Some(before) = reached.checked_sub(1) else { return Some(self.steps[0].at) };
        let (mut left, mut right) = (self.steps[before].at.ln(), self.steps[reached].at.ln());
        while right - left > 1e-4 {
            let middle = f64::midpoint(left, right);
            if of(&self.at(Compute(middle.exp()))) >= target {
                right = middle;
            } else {
                left = middle;
            }
        }
        Some(Compute(f64::midpoint(left, right).exp()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_measurements_shrink_the_noise_and_not_the_doubt() {
        let forecast = Forecast {
            at: Compute(1.0),
            value: 0.5,
            low: 0.45,
            high: 0.55,
            curve_low: 0.47,
            curve_high: 0.53,
        };
        let one = forecast.of_mean(1);
        assert!((one.low - 0.45).abs() < 1e-12 && (one.high - 0.55).abs() < 1e-12);
        let many = forecast.of_mean(1_000_000);
        assert!((many.low - 0.47).abs() < 1e-6 && (many.high - 0.53).abs() < 1e-6);
    }
}
