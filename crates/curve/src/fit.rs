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
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::forecast::{Forecast, Predictor};
use crate::points::{Point, PointsError, Series, ValueRange};
use crate::verdict::Verdict;
use crate::window::Window;

/// How the curve is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Exact mixture of normals over a grid, which can learn from finished runs.
    #[default]
    Mixture,
    /// Posterior over a grid with a local trend, read off random draws.
    Marginal,
    /// Least squares with profile-likelihood intervals.
    Profile,
    /// The grid of arXiv 2510.13786.
    Paper,
    /// R = A - D / C^B.
    PowerLaw,
}

impl Method {
    /// Every method, default first.
    pub const ALL: [Self; 5] =
        [Self::Mixture, Self::Marginal, Self::Profile, Self::Paper, Self::PowerLaw];

    /// Is it a posterior over a grid, which keeps every point and fits its floor?
    pub(crate) fn is_posterior(self) -> bool {
        matches!(self, Self::Mixture | Self::Marginal)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mixture => "mixture",
            Self::Marginal => "marginal",
            Self::Profile => "profile",
            Self::Paper => "paper",
            Self::PowerLaw => "power-law",
        })
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|method| method.to_string() == text).ok_or_else(|| {
            format!("unknown method `{text}`: one of mixture, marginal, profile, paper, power-law")
        })
    }
}

/// Where the floor R0 comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FloorChoice {
    /// The first measured point, also when it lies before the warm-up cut.
    First,
    /// A free parameter.
    Fit,
    /// A known number.
    Given(f64),
}

impl FromStr for FloorChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "first" => Ok(Self::First),
            "fit" => Ok(Self::Fit),
            number => number
                .parse()
                .ok()
                .filter(|value: &f64| value.is_finite())
                .map(Self::Given)
                .ok_or_else(|| format!("`{number}` is not `first`, `fit` or a number")),
        }
    }
}

/// Which early points are left out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Warmup {
    /// `marginal` keeps every point and lets the data decide how far to trust the early ones;
    /// the other methods use the rule of [`crate::window`].
    #[default]
    Auto,
    /// Points before this compute are left out.
    Before(f64),
}

impl FromStr for Warmup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse()
            .ok()
            .filter(|value: &f64| value.is_finite() && *value >= 0.0)
            .map(Self::Before)
            .ok_or_else(|| format!("`{text}` is not `auto` or a compute"))
    }
}

/// What to fit and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct FitOptions {
    /// The method.
    pub method: Method,
    /// The floor; `None` is `fit` for `marginal` and `first` for the others.
    pub floor: Option<FloorChoice>,
    /// The warm-up cut.
    pub warmup: Warmup,
    /// Points after this compute are left out.
    pub until: Option<f64>,
    /// Holds the ceiling at this value (comparison at a shared ceiling).
    pub ceiling: Option<f64>,
}

impl FitOptions {
    /// The floor that will be used.
    pub fn floor_choice(&self) -> FloorChoice {
        self.floor.unwrap_or(match self.method {
            method if method.is_posterior() => FloorChoice::Fit,
            _ => FloorChoice::First,
        })
    }
}

/// A value with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The best value.
    pub value: f64,
    /// 5 % end.
    pub low: f64,
    /// 95 % end.
    pub high: f64,
}

impl Estimate {
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { value: change(self.value), low: change(self.low), high: change(self.high) }
    }

    /// Is `value` inside the interval?
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }
}

/// The ceiling A. `high` is `None` when the data do not bound it from above.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

/// A fitted curve: parameters, quality, and what is needed to forecast.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The method used.
    pub method: Method,
    /// Points that entered the fit.
    pub used: Vec<Point>,
    /// Points before the warm-up cut or after `until`.
    pub left_out: Vec<Point>,
    /// Points before this compute were left out (0: none).
    pub warmup_cut: f64,
    /// R0.
    pub floor: Floor,
    /// A.
    pub ceiling: Ceiling,
    /// B.
    pub steepness: Estimate,
    /// C_mid; for the power law, the compute where half of the way from the first used point to
    /// the ceiling is gone.
    pub midpoint: Estimate,
    /// Root mean square distance from the curve of the points after the warm-up.
    pub rmse: f64,
    /// Sampling noise of one point as assumed by the fit.
    pub noise: f64,
    /// What the fit is worth.
    pub verdict: Verdict,
    /// 95 % end of the ceiling also where it is too far off to call the ceiling bounded.
    pub(crate) ceiling_high: f64,
    pub(crate) range: ValueRange,
    pub(crate) predictor: Predictor,
}

impl Fit {
    /// Compute of the last point used.
    pub fn last_compute(&self) -> f64 {
        self.used[self.used.len() - 1].compute
    }

    /// Value at `compute`, with the interval for one new measurement and for the curve alone.
    pub fn forecast(&self, compute: f64) -> Forecast {
        let unit = self.predictor.forecast(compute);
        let restore = |value: f64| self.range.from_unit(value);
        Forecast {
            at: compute,
            value: restore(unit.value),
            low: restore(unit.low),
            high: restore(unit.high),
            curve_low: restore(unit.curve_low),
            curve_high: restore(unit.curve_high),
        }
    }

    /// What multiplying the compute of the last used point by `factor`, 1 or more, buys.
    pub fn gain(&self, factor: f64) -> Estimate {
        self.predictor.gain(factor).map(|value| value * self.range.width())
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
    TooFewPoints { found: usize, needed: usize, from: f64, until: f64, method: Method },
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
fn between(from: f64, until: f64) -> String {
    match (from > 0.0, until.is_finite()) {
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
            Self::FloorOutOfRange { .. } => "give the floor on the scale of the values",
            Self::FloorNotHeld => "use --floor first, a number, or --method profile",
            Self::NoCompute => "choose another compute column with --x",
        }
    }
}

/// Fits `series` as `options` say.
///
/// ```
/// use scalerl_curve::{fit, FitOptions, Method, Point, Series, Sigmoid};
/// let truth = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.9, midpoint: 100.0 };
/// let points = (1..60).map(|i| f64::from(i) * 10.0).map(|c| Point::new(c, truth.value_at(c)));
/// let series = Series::try_new(points.collect()).unwrap();
/// let options = FitOptions { method: Method::Profile, ..FitOptions::default() };
/// let found = fit(&series, &options).unwrap();
/// assert!((found.forecast(1200.0).value - truth.value_at(1200.0)).abs() < 0.01);
/// ```
pub fn fit(series: &Series, options: &FitOptions) -> Result<Fit, FitError> {
    let window = Window::choose(series, options)?;
    Ok(fit_window(&window, options))
}

pub(crate) fn fit_window(window: &Window, options: &FitOptions) -> Fit {
    let range = window.range;
    let solved = match options.method {
        Method::Mixture => mixture::solve(window, options),
        Method::Marginal => marginal::solve(window, options),
        Method::Profile => profile::solve(window, options, profile::Family::Sigmoid),
        Method::Paper => paper::solve(window, options),
        Method::PowerLaw => profile::solve(window, options, profile::Family::PowerLaw),
    };
    let restore = |value: f64| range.from_unit(value);
    let floor = solved.floor.map(restore);
    let verdict = Verdict::of(window, &solved);
    let rmse = {
        let steady = window.steady();
        let fitted = &solved.fitted[window.unit.len() - steady.len()..];
        let squares = steady.iter().zip(fitted).map(|(p, f)| (p.value - f).powi(2));
        (squares.sum::<f64>() / steady.len() as f64).sqrt()
    };
    Fit {
        method: options.method,
        used: window.used.clone(),
        left_out: window.left_out.clone(),
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
        ceiling: Ceiling {
            value: restore(solved.ceiling.value),
            low: restore(solved.ceiling.low),
            high: solved.is_bounded.then(|| restore(solved.ceiling.high)),
            bounded: solved.is_bounded,
        },
        steepness: solved.steepness,
        midpoint: solved.midpoint,
        rmse: rmse * range.width(),
        noise: solved.noise * range.width(),
        verdict,
        ceiling_high: restore(solved.ceiling.high),
        range,
        predictor: solved.predictor,
    }
}

/// What a method hands back, on the unit scale.
#[derive(Debug, Clone)]
pub(crate) struct Solved {
    pub(crate) floor: Estimate,
    pub(crate) ceiling: Estimate,
    pub(crate) steepness: Estimate,
    pub(crate) midpoint: Estimate,
    pub(crate) is_bounded: bool,
    /// The curve at the used points.
    pub(crate) fitted: Vec<f64>,
    /// Sampling noise (standard deviation) of one point.
    pub(crate) noise: f64,
    pub(crate) predictor: Predictor,
}
