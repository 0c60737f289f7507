//! What a fitted curve says about compute not spent yet.

use serde::Serialize;

use crate::fit::{marginal, mixture};
use crate::fit::profile::Profile;
use crate::fit::{Estimate, Fit};

/// Targets are looked for up to this many times the compute of the last point.
const HORIZON: f64 = 1000.0;

/// Value at some compute with 90 % intervals.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Forecast {
    /// The compute.
    pub at: f64,
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

/// The compute needed for a value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Target {
    /// The wanted value.
    pub target: f64,
    /// Compute at which the forecast reaches it.
    pub compute: Option<f64>,
    /// The compute could be as small as this (5 %).
    pub low: Option<f64>,
    /// Or as large as this (95 %); `None`: perhaps never.
    pub high: Option<f64>,
    /// In one word.
    pub outlook: Outlook,
}

/// Whether a target can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// The curve is there already.
    Reached,
    /// The forecast reaches it within the horizon.
    Reachable,
    /// The forecast stays below, the interval does not.
    Possible,
    /// Even the upper end of the interval stays below.
    AboveCeiling,
}

/// What each method needs to forecast, on the unit scale.
#[derive(Debug, Clone)]
pub(crate) enum Predictor {
    Mixture(Box<mixture::Posterior>),
    Posterior(marginal::Posterior),
    Profile(Profile),
}

impl Predictor {
    pub(crate) fn forecast(&self, compute: f64) -> Forecast {
        match self {
            Self::Mixture(posterior) => posterior.forecast(&[compute]),
            Self::Posterior(posterior) => posterior.forecast(compute),
            Self::Profile(profile) => profile.forecast(compute),
        }
    }

    pub(crate) fn gain(&self, factor: f64) -> Estimate {
        match self {
            Self::Mixture(posterior) => posterior.gain(factor).estimate(),
            Self::Posterior(posterior) => posterior.gain(factor),
            Self::Profile(profile) => profile.gain(factor),
        }
    }
}

impl Fit {
    /// Compute needed until the curve reaches `target`, looked for up to a thousand times the
    /// compute spent.
    pub fn compute_for(&self, target: f64) -> Target {
        let first = self.used.iter().map(|p| p.compute).find(|c| *c > 0.0).unwrap_or(1.0);
        let last = self.last_compute();
        let reach = |of: fn(&Forecast) -> f64| self.first_reach(target, first, last * HORIZON, of);
        let compute = reach(|f| f.value);
        let low = reach(|f| f.curve_high);
        let high = reach(|f| f.curve_low);
        let outlook = match (compute, low) {
            (Some(compute), _) if compute <= last => Outlook::Reached,
            (Some(_), _) => Outlook::Reachable,
            (None, Some(_)) => Outlook::Possible,
            (None, None) => Outlook::AboveCeiling,
        };
        Target { target, compute, low, high, outlook }
    }

    /// First compute in [from, to] at which `of` a forecast reaches `target`: a coarse walk, then
    /// bisection.
    fn first_reach(
        &self,
        target: f64,
        from: f64,
        to: f64,
        of: fn(&Forecast) -> f64,
    ) -> Option<f64> {
        const STEPS: u32 = 48;
        let at = |compute: f64| of(&self.forecast(compute));
        if at(from) >= target {
            return Some(from);
        }
        let ratio = (to / from).powf(1.0 / f64::from(STEPS));
        let mut left = from;
        for _ in 0..STEPS {
            let right = left * ratio;
            if at(right) >= target {
                return Some(self.bisect(target, left, right, of));
            }
            left = right;
        }
        None
    }

    fn bisect(&self, target: f64, left: f64, right: f64, of: fn(&Forecast) -> f64) -> f64 {
        let (mut left, mut right) = (left.ln(), right.ln());
        while right - left > 1e-4 {
            let middle = f64::midpoint(left, right);
            if of(&self.forecast(middle.exp())) >= target {
                right = middle;
            } else {
                left = middle;
            }
        }
        f64::midpoint(left, right).exp()
    }
}
