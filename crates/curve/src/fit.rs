//! Fitting: from a checked series to a curve with intervals and a verdict.
//!
//! ```text
//! Series --window--> points used --method--> Predictor --> Fit (parameters, forecasts, verdict)
//! ```
//!
//! Five methods share one result type:
//!
//! | method | what it is | when |
//! |---|---|---|
//! | `mixture` | exact mixture of normals over a grid, can learn from finished runs | default |
//! | `marginal` | posterior over a grid with a local trend, by random draws | comparison |
//! | `profile` | least squares, profile-likelihood intervals | fast, classical |
//! | `paper` | the authors' grid, to check published numbers | reproduction |
//! | `power-law` | R = A - D / C^B | the rival |
//!
//! All numbers of a [`Fit`] are on the scale of the series' own range.
//!
//! Not here: the methods themselves (one file each under `fit/`).

pub(crate) mod cholesky;
pub(crate) mod levels;
pub(crate) mod marginal;
pub(crate) mod mixture;
pub(crate) mod paper;
pub(crate) mod profile;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::compute::Compute;
use crate::forecast::Predictor;
use crate::options::{FitOptions, FloorChoice, Method};
use crate::points::{Point, PointsError, Series, ValueRange};
use crate::verdict::Verdict;
use crate::window::Window;

/// The ceiling's interval may be this wide at most to count as bounded. Narrower rules were right
/// less often in simulation (`docs/results/calibration.md`).
const WIDEST_BOUNDED: f64 = 0.10;

/// A value with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate<T = f64> {
    /// The best value.
    pub value: T,
    /// 5 % end.
    pub low: T,
    /// 95 % end.
    pub high: T,
}

impl<T: Copy + PartialOrd> Estimate<T> {
    /// The same numbers in other terms; `change` must rise.
    pub fn map<U>(self, change: impl Fn(T) -> U) -> Estimate<U> {
        Estimate { value: change(self.value), low: change(self.low), high: change(self.high) }
    }

    /// Is `value` inside the interval?
    pub fn contains(&self, value: T) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The ceiling A. `high` is `None` when the data do not bound it from above. Of a run that does not
/// fall, `low` is no lower than what the curve has reached.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Ceiling {
    /// The best value; not to be shown alone when `bounded` is false.
    pub value: f64,
    /// 5 % end.
    pub low: f64,
    /// 95 % end, where there is one.
    pub high: Option<f64>,
    /// Do the data bound the ceiling from above?
    pub bounded: bool,
}

/// The floor R0 and where it came from, because it moves the ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Floor {
    /// R0.
    pub value: f64,
    /// 5 % end; equal to the value when the floor was not fitted.
    pub low: f64,
    /// 95 % end.
    pub high: f64,
    /// Where it came from.
    pub source: FloorSource,
}

/// Where a floor came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FloorSource {
    /// The first measured point.
    First,
    /// A free parameter of the fit.
    Fit,
    /// A number from the user.
    Given,
}

impl fmt::Display for FloorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "first point",
            Self::Fit => "fitted",
            Self::Given => "given",
        })
    }
}

/// How much of a forecast rests on one finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryShare {
    /// The run's name.
    pub name: String,
    /// Posterior weight of "like this run", in [0, 1].
    pub weight: f64,
}

/// A fitted curve: parameters, quality, and what is needed to forecast.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fit {
    /// The method used.
    pub method: Method,
    /// Points that entered the fit.
    pub used: Vec<Point>,
    /// Points before the warm-up cut or after `until`.
    pub left_out: Vec<Point>,
    /// Points before this compute were left out (0: none).
    pub warmup_cut: Compute,
    /// R0.
    pub floor: Floor,
    /// A.
    pub ceiling: Ceiling,
    /// B.
    pub steepness: Estimate,
    /// C_mid; for the power law, the compute where half of the way from the first used point to
    /// the ceiling is gone.
    pub midpoint: Estimate<Compute>,
    /// Root mean square distance from the curve of the points after the warm-up.
    pub rmse: f64,
    /// Sampling noise of one point as assumed by the fit.
    pub noise: f64,
    /// What the fit is worth.
    pub verdict: Verdict,
    /// The finished runs it learned from, heaviest first.
    pub history: Vec<HistoryShare>,
    /// 95 % end of the ceiling also where it is too far off to call the ceiling bounded.
    pub(crate) ceiling_high: f64,
    pub(crate) range: ValueRange,
    pub(crate) predictor: Predictor,
}

impl Fit {
    /// Compute of the last point used.
    pub fn last_compute(&self) -> Compute {
        self.used[self.used.len() - 1].compute
    }

    /// Share of the forecast that rests on finished runs, 0 without any.
    pub fn history_weight(&self) -> f64 {
        // Not `sum`: that of nothing is -0.
        self.history.iter().fold(0.0, |sum, share| sum + share.weight)
    }
}

/// Why a series cannot be fitted; a bug panics instead.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum FitError {
    /// The points themselves are bad.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// Fewer points than free parameters can use.
    #[error("{found} usable points{}, the {method} fit needs {needed}", between(*from, *until))]
    TooFewPoints { found: usize, needed: usize, from: Compute, until: Compute, method: Method },
    /// A finished run too short to teach anything.
    #[error("{found} points, a finished run needs {needed} to serve as history")]
    ShortHistory { found: usize, needed: usize },
    /// The floor is not a possible value.
    #[error("floor {floor} lies outside the range [{}, {}]", range.low, range.high)]
    FloorOutOfRange { floor: f64, range: ValueRange },
    /// The paper's grid has no free floor.
    #[error("the paper's procedure holds the floor, it cannot fit it")]
    FloorNotHeld,
    /// No compute above zero.
    #[error("every point has compute 0, so there is no compute axis to fit")]
    NoCompute,
}

/// The part of the axis that was looked at, where it is not all of it.
fn between(from: Compute, until: Compute) -> String {
    match (from.is_positive(), until.0.is_finite()) {
        (false, false) => String::new(),
        (true, false) => format!(" from {from} on"),
        (_, true) => format!(" between {from} and {until}"),
    }
}

impl FitError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Points(error) => error.hint(),
            Self::TooFewPoints { method: Method::Mixture, .. } => {
                "evaluate more often, lower --warmup, or raise --until"
            }
            Self::TooFewPoints { .. } => {
                "evaluate more often, lower --warmup, raise --until, or use --method mixture, \
                 which needs the fewest points"
            }
            Self::ShortHistory { .. } => "leave it out, or give the run with all its evaluations",
            Self::FloorOutOfRange { .. } => "give the floor on the scale of the values",
            Self::FloorNotHeld => "use --floor first, a number, or --method profile",
            Self::NoCompute => "choose another compute column with --x",
        }
    }
}

/// Fits `series` as `options` say.
///
/// ```
/// use scalerl_curve::{Compute, FitOptions, Point, Series, Sigmoid, Verdict, fit};
/// let truth = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.9, midpoint: Compute(100.0) };
/// let points = (1..60)
///     .map(|i| Compute(f64::from(i) * 10.0))
///     .map(|compute| Point::new(compute, truth.value_at(compute)).with_samples(16_000.0));
/// let series = Series::try_new(points.collect()).unwrap();
/// let found = fit(&series, &FitOptions::default()).unwrap();
/// assert_eq!(found.verdict, Verdict::Bounded);
/// let twice = Compute(1200.0);
/// assert!((found.forecast(twice).value - truth.value_at(twice)).abs() < 0.01);
/// ```
pub fn fit(series: &Series, options: &FitOptions) -> Result<Fit, FitError> {
    let window = Window::choose(series, options)?;
    let solved = match options.method {
        Method::Mixture => mixture::solve(&window, options),
        Method::Marginal => marginal::solve(&window, options),
        Method::Profile => profile::solve(&window, options, profile::Family::Sigmoid),
        Method::Paper => paper::solve(&window, options),
        Method::PowerLaw => profile::solve(&window, options, profile::Family::PowerLaw),
    };
    Ok(solved.into_fit(window, options))
}

/// What a method hands back, on the unit scale.
#[derive(Debug, Clone)]
pub(crate) struct Solved {
    pub(crate) floor: Estimate,
    pub(crate) ceiling: Estimate,
    pub(crate) steepness: Estimate,
    pub(crate) midpoint: Estimate<Compute>,
    /// May the ceiling be called bounded, if its interval is narrow enough?
    pub(crate) can_be_bounded: bool,
    /// The curve at the points of `Window::unit`.
    pub(crate) fitted: Vec<f64>,
    /// Sampling noise (standard deviation) of one point.
    pub(crate) noise: f64,
    pub(crate) history: Vec<HistoryShare>,
    pub(crate) predictor: Predictor,
}

impl Solved {
    fn into_fit(self, window: Window, options: &FitOptions) -> Fit {
        let range = window.range;
        let restore = |value: f64| range.from_unit(value);
        let reached = self.reached(&window);
        let is_narrow = self.can_be_bounded
            && self.ceiling.high - self.ceiling.low.max(reached) <= WIDEST_BOUNDED;
        let verdict = Verdict::of(&window, &self, is_narrow);
        let floor = self.floor.map(restore);
        Fit {
            method: options.method,
            rmse: self.rmse(&window) * range.width(),
            warmup_cut: window.cut,
            floor: Floor {
                value: floor.value,
                low: floor.low,
                high: floor.high,
                source: match options.floor_choice() {
                    FloorChoice::First => FloorSource::First,
                    FloorChoice::Given(_) => FloorSource::Given,
                    FloorChoice::Fit => FloorSource::Fit,
                },
            },
            ceiling: self.stated_ceiling(verdict, reached).map_levels(restore),
            steepness: self.steepness,
            midpoint: self.midpoint,
            noise: self.noise * range.width(),
            verdict,
            ceiling_high: restore(self.ceiling.high),
            history: self.history,
            used: window.used,
            left_out: window.left_out,
            range,
            predictor: self.predictor,
        }
    }

    /// What the curve has reached already, at its 5 % end: a run that does not fall has a ceiling
    /// no lower.
    fn reached(&self, window: &Window) -> f64 {
        self.predictor.curve_low(window.used[window.used.len() - 1].compute)
    }

    fn stated_ceiling(&self, verdict: Verdict, reached: f64) -> Ceiling {
        let Estimate { value, low, high } = self.ceiling;
        let bounded = verdict == Verdict::Bounded;
        let low = match verdict {
            Verdict::Falling => low,
            // A run that has not moved is where it is.
            Verdict::Flat => low.max(self.fitted.last().copied().unwrap_or(reached)),
            _ => low.max(reached),
        };
        Ceiling { value: value.max(low), low, high: bounded.then_some(high), bounded }
    }

    fn rmse(&self, window: &Window) -> f64 {
        let steady = window.steady();
        let fitted = &self.fitted[window.unit.len() - steady.len()..];
        let squares = steady.iter().zip(fitted).map(|(p, f)| (p.value - f).powi(2));
        (squares.sum::<f64>() / steady.len() as f64).sqrt()
    }
}

impl Ceiling {
    fn map_levels(self, change: impl Fn(f64) -> f64) -> Self {
        Self {
            value: change(self.value),
            low: change(self.low),
            high: self.high.map(&change),
            bounded: self.bounded,
        }
    }
}
