//! Which points enter a fit, and what is known about them before it.
//!
//! Explicit cuts are taken as given. The rule of `--warmup auto` for the least-squares methods:
//! fit the sigmoid to the points after the first quarter, walk back from there, and cut just after
//! the first point that lies more than three standard deviations off what that fit says of it. So
//! a run that follows the law from its start keeps every point, and a run with a warm-up jump
//! loses only the jump. `marginal` keeps all points: its own distrust term does that work softly.
//!
//! Very long series are averaged in equal steps of log compute down to [`MOST_POINTS`], so that
//! the cost of a fit does not grow with the cube of the evaluations.

use crate::fit::{FitError, FitOptions, FloorChoice, Method, Warmup, profile};
use crate::noise;
use crate::points::{Point, Series, ValueRange};

/// Points kept for a fit at most; more are averaged with their neighbours.
pub const MOST_POINTS: usize = 160;

/// A point this many half-widths of the 90 % interval off the later curve is warm-up: three
/// standard deviations.
const WARMUP_MISS: f64 = 3.0 / 1.645;

/// The points of one fit on the unit scale.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Points used, on their own scale.
    pub(crate) used: Vec<Point>,
    /// The same on the unit scale, neighbours averaged where there are very many.
    pub(crate) unit: Vec<Point>,
    /// Points left out, on their own scale.
    pub(crate) left_out: Vec<Point>,
    /// Points before this compute were left out.
    pub(crate) cut: f64,
    /// Points from here on follow one curve by the rule of `auto`: quality is judged on them.
    pub(crate) steady_from: f64,
    /// The floor if it is held, unit scale.
    pub(crate) floor: Option<f64>,
    /// Is the held floor the first point, and so as noisy as one?
    pub(crate) floor_is_measured: bool,
    pub(crate) range: ValueRange,
    /// Sampling noise of one point, unit scale.
    pub(crate) noise: noise::Noise,
}

impl Window {
    pub(crate) fn choose(series: &Series, options: &FitOptions) -> Result<Self, FitError> {
        let range = series.range();
        let until = options.until.unwrap_or(f64::INFINITY);
        let all = series.points();
        let floor = match options.floor_choice() {
            FloorChoice::First => Some(range.to_unit(all[0].value)),
            FloorChoice::Given(value) => {
                if value < range.low || value > range.high {
                    return Err(FitError::FloorOutOfRange { floor: value, range });
                }
                Some(range.to_unit(value))
            }
            FloorChoice::Fit if options.method == Method::Paper => {
                return Err(FitError::FloorNotHeld);
            }
            FloorChoice::Fit => None,
        };
        let steady_from = match options.warmup {
            Warmup::Before(compute) => compute,
            Warmup::Auto => auto_cut(series, options, floor),
        };
        let keeps_warmup = options.warmup == Warmup::Auto && options.method.is_posterior();
        let cut = if keeps_warmup { 0.0 } else { steady_from };
        // A power law has no value at zero compute.
        let is_usable = |p: &Point| {
            p.compute >= cut
                && p.compute <= until
                && (options.method != Method::PowerLaw || p.compute > 0.0)
        };
        let (used, left_out): (Vec<Point>, Vec<Point>) = all.iter().partition(|p| is_usable(p));
        if used.last().is_some_and(|last| last.compute <= 0.0) {
            return Err(FitError::NoCompute);
        }
        let needed = match options.method {
            method if method.is_posterior() => 3,
            _ => 4 + usize::from(floor.is_none()),
        };
        if used.len() < needed {
            return Err(FitError::TooFewPoints {
                found: used.len(),
                needed,
                from: cut,
                until,
                method: options.method,
            });
        }
        let unit: Vec<Point> = thin(&used)
            .into_iter()
            .map(|point| Point { value: range.to_unit(point.value), ..point })
            .collect();
        let noise = noise::estimate(&unit);
        let floor_is_measured = options.floor_choice() == FloorChoice::First;
        Ok(Self { used, unit, left_out, cut, steady_from, floor, floor_is_measured, range, noise })
    }

    /// The points after the warm-up.
    pub(crate) fn steady(&self) -> &[Point] {
        let start = self.unit.partition_point(|p| p.compute < self.steady_from);
        &self.unit[start..]
    }

    /// Compute of the last point used.
    pub(crate) fn last_compute(&self) -> f64 {
        self.unit[self.unit.len() - 1].compute
    }

    /// The first compute above zero.
    pub(crate) fn first_compute(&self) -> f64 {
        self.unit.iter().map(|p| p.compute).find(|c| *c > 0.0).expect("checked in `choose`")
    }

    /// Mean value of the last three points.
    pub(crate) fn last_level(&self) -> f64 {
        let tail = &self.unit[self.unit.len().saturating_sub(3)..];
        tail.iter().map(|p| p.value).sum::<f64>() / tail.len() as f64
    }
}

fn auto_cut(series: &Series, options: &FitOptions, floor: Option<f64>) -> f64 {
    let until = options.until.unwrap_or(f64::INFINITY);
    let range = series.range();
    let points: Vec<Point> = series
        .points()
        .iter()
        .filter(|p| p.compute <= until)
        .map(|p| Point { value: range.to_unit(p.value), ..*p })
        .collect();
    let skipped = points.len() / 4;
    let later = &points[skipped..];
    if skipped == 0 || later.len() < 6 {
        return 0.0;
    }
    let curve = profile::profile_of(later, floor);
    let is_off = |p: &Point| {
        let back = curve.forecast(p.compute);
        let end = if p.value < back.value { back.low } else { back.high };
        (p.value - back.value).abs() > WARMUP_MISS * (end - back.value).abs()
    };
    match points[..skipped].iter().rposition(is_off) {
        Some(last_off) => points[last_off + 1].compute,
        None => 0.0,
    }
}

/// Averages neighbours in log compute until at most [`MOST_POINTS`] are left.
fn thin(points: &[Point]) -> Vec<Point> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let positive = points.iter().map(|p| p.compute).filter(|c| *c > 0.0);
    let first = positive.fold(f64::INFINITY, f64::min).ln();
    let last = points[points.len() - 1].compute.ln();
    let bin = |p: &Point| {
        let share = (p.compute.ln() - first) / (last - first).max(f64::MIN_POSITIVE);
        if p.compute > 0.0 { 1 + (share * (MOST_POINTS - 2) as f64) as usize } else { 0 }
    };
    points.chunk_by(|a, b| bin(a) == bin(b)).map(mean_point).collect()
}

fn mean_point(points: &[Point]) -> Point {
    let count = points.len() as f64;
    Point {
        compute: points.iter().map(|p| p.compute).sum::<f64>() / count,
        value: points.iter().map(|p| p.value).sum::<f64>() / count,
        samples: points.iter().map(|p| p.samples).sum(),
    }
}
