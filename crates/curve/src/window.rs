//! Which points enter a fit, and what is known about them before it.
//!
//! Explicit cuts are taken as given. The rule of `--warmup auto` for the least-squares methods:
//! fit the sigmoid to the points after the first quarter, walk back from there, and cut just after
//! the first point that lies more than three standard deviations off what that fit says of it. So
//! a run that follows the law from its start keeps every point, and a run with a warm-up jump
//! loses only the jump. The posteriors keep all points: their distrust term does that work softly.
//!
//! Very long series are averaged in equal steps of log compute down to [`MOST_POINTS`], so that
//! the cost of a fit does not grow with the cube of the evaluations. `mixture` bins the rows
//! themselves, and more coarsely.

use crate::compute::Compute;
use crate::fit::{FitError, profile};
use crate::noise::{self, Noise};
use crate::options::{FitOptions, FloorChoice, Method, Warmup};
use crate::points::{Point, Series, ValueRange};

/// Points kept for a fit at most; more are averaged with their neighbours.
pub const MOST_POINTS: usize = 160;

/// A point this many half-widths of the 90 % interval off the later curve is warm-up: three
/// standard deviations.
const WARMUP_MISS: f64 = 3.0 / 1.645;

/// A run whose gain is below this many noise scales has not moved, and shows no ceiling.
const LEAST_GAIN: f64 = 3.0;

/// The points of one fit on the unit scale.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Points used, on their own scale.
    pub(crate) used: Vec<Point>,
    /// The same on the unit scale.
    pub(crate) rows: Vec<Point>,
    /// The same again, neighbours averaged where there are very many.
    pub(crate) unit: Vec<Point>,
    /// Points left out, on their own scale.
    pub(crate) left_out: Vec<Point>,
    /// Points before this compute were left out.
    pub(crate) cut: Compute,
    /// Points from here on follow one curve by the rule of `auto`: quality is judged on them.
    pub(crate) steady_from: Compute,
    /// The floor if it is held, unit scale.
    pub(crate) floor: Option<f64>,
    /// Is the held floor the first point, and so as noisy as one?
    pub(crate) floor_is_measured: bool,
    pub(crate) range: ValueRange,
    /// Sampling noise of the points in `unit`.
    pub(crate) noise: Noise,
}

impl Window {
    pub(crate) fn choose(series: &Series, options: &FitOptions) -> Result<Self, FitError> {
        let range = series.range();
        let until = options.until.unwrap_or(Compute::UNLIMITED);
        let floor = held_floor(series, options)?;
        let steady_from = match options.warmup {
            Warmup::Before(compute) => compute,
            Warmup::Auto => auto_cut(series, until, floor),
        };
        let keeps_warmup = options.warmup == Warmup::Auto && options.method.is_posterior();
        let cut = if keeps_warmup { Compute::ZERO } else { steady_from };
        // A power law has no value at zero compute.
        let is_usable = |p: &Point| {
            p.compute >= cut
                && p.compute <= until
                && (options.method != Method::PowerLaw || p.compute.is_positive())
        };
        let (used, left_out): (Vec<Point>, Vec<Point>) =
            series.points().iter().partition(|p| is_usable(p));
        if used.last().is_some_and(|last| !last.compute.is_positive()) {
            return Err(FitError::NoCompute);
        }
        let needed = match options.method {
            method if method.is_posterior() => 3,
            _ => 4 + usize::from(floor.is_none()),
        };
        if used.len() < needed {
            let (found, method) = (used.len(), options.method);
            return Err(FitError::TooFewPoints { found, needed, from: cut, until, method });
        }
        let rows = on_unit_scale(&used, range);
        let (unit, counts) = thin(&rows);
        let noise = noise::estimate(&rows, &unit, &counts);
        let floor_is_measured = options.floor_choice() == FloorChoice::First;
        Ok(Self {
            used,
            rows,
            unit,
            left_out,
            cut,
            steady_from,
            floor,
            floor_is_measured,
            range,
            noise,
        })
    }

    /// The points after the warm-up.
    pub(crate) fn steady(&self) -> &[Point] {
        let start = self.unit.partition_point(|p| p.compute < self.steady_from);
        &self.unit[start..]
    }

    /// Compute of the last point used.
    pub(crate) fn last_compute(&self) -> Compute {
        self.unit[self.unit.len() - 1].compute
    }

    /// The first compute above zero.
    pub(crate) fn first_compute(&self) -> Compute {
        let computes = self.unit.iter().map(|p| p.compute);
        computes.into_iter().find(|c| c.is_positive()).expect("checked in `choose`")
    }

    /// Is the gain so far more than noise?
    pub(crate) fn has_moved(&self) -> bool {
        (self.last_level() - self.unit[0].value).abs() > LEAST_GAIN * self.noise.scale
    }

    /// Mean value of the last three points.
    pub(crate) fn last_level(&self) -> f64 {
        let tail = &self.unit[self.unit.len().saturating_sub(3)..];
        tail.iter().map(|p| p.value).sum::<f64>() / tail.len() as f64
    }
}

/// The floor on the unit scale, where it is not fitted.
fn held_floor(series: &Series, options: &FitOptions) -> Result<Option<f64>, FitError> {
    let range = series.range();
    match options.floor_choice() {
        FloorChoice::First => Ok(Some(range.to_unit(series.points()[0].value))),
        FloorChoice::Given(floor) if floor < range.low || floor > range.high => {
            Err(FitError::FloorOutOfRange { floor, range })
        }
        FloorChoice::Given(floor) => Ok(Some(range.to_unit(floor))),
        FloorChoice::Fit if options.method == Method::Paper => Err(FitError::FloorNotHeld),
        FloorChoice::Fit => Ok(None),
    }
}

fn on_unit_scale(points: &[Point], range: ValueRange) -> Vec<Point> {
    points.iter().map(|p| Point { value: range.to_unit(p.value), ..*p }).collect()
}

fn auto_cut(series: &Series, until: Compute, floor: Option<f64>) -> Compute {
    let end = series.points().partition_point(|p| p.compute <= until);
    let (points, counts) = thin(&on_unit_scale(&series.points()[..end], series.range()));
    let skipped = points.len() / 4;
    let later = &points[skipped..];
    if skipped == 0 || later.len() < 6 {
        return Compute::ZERO;
    }
    let noise = noise::estimate(later, later, &counts[skipped..]);
    let curve = profile::profile_of(later, floor, &noise);
    let is_off = |p: &Point| {
        let back = curve.forecast(p.compute);
        let end = if p.value < back.value { back.low } else { back.high };
        (p.value - back.value).abs() > WARMUP_MISS * (end - back.value).abs()
    };
    match points[..skipped].iter().rposition(is_off) {
        Some(last_off) => points[last_off + 1].compute,
        None => Compute::ZERO,
    }
}

/// Averages neighbours in log compute until at most [`MOST_POINTS`] are left; with the rows behind
/// each.
fn thin(points: &[Point]) -> (Vec<Point>, Vec<f64>) {
    if points.len() <= MOST_POINTS {
        return (points.to_vec(), vec![1.0; points.len()]);
    }
    let positive = points.iter().map(|p| p.compute.0).filter(|c| *c > 0.0);
    let first = positive.fold(f64::INFINITY, f64::min).ln();
    let last = points[points.len() - 1].compute.ln();
    let bin = |p: &Point| {
        let share = (p.compute.ln() - first) / (last - first).max(f64::MIN_POSITIVE);
        if p.compute.is_positive() { 1 + (share * (MOST_POINTS - 2) as f64) as usize } else { 0 }
    };
    let bins = points.chunk_by(|a, b| bin(a) == bin(b));
    bins.map(|rows| (mean_point(rows), rows.len() as f64)).unzip()
}

fn mean_point(points: &[Point]) -> Point {
    let count = points.len() as f64;
    Point {
        compute: Compute(points.iter().map(|p| p.compute.0).sum::<f64>() / count),
        value: points.iter().map(|p| p.value).sum::<f64>() / count,
        samples: points.iter().map(|p| p.samples).sum(),
    }
}
