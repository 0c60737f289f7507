//! Other ways to forecast a run, for comparison: what a forecast must beat to be worth anything.
//!
//! | rival | law | fitted by |
//! |---|---|---|
//! | last value | nothing changes | mean of the last three points |
//! | least squares | the sigmoid, first point as floor | `profile` |
//! | authors' grid | the sigmoid on the grid of arXiv 2510.13786 | `paper`, axis stretched to its length |
//! | power law | R = A - D C^-B | `power-law` |
//! | offset power law | R = A - D (C + C0)^-B | grid of (B, C0), levels by least squares |
//! | log error | ln(1 - R) = a + b ln C | a line |
//! | entropy | R = b - a e^H, H a line in ln C | two lines |
//!
//! The relation of reward and policy entropy says nothing of compute by itself: the entropy is
//! carried on as a line in log compute, not below zero, and read at the target.

use std::fmt;

use serde::Serialize;

use crate::compute::Compute;
use crate::fit::fit;
use crate::options::{FitOptions, Method, Warmup};
use crate::points::{Point, Series};

/// Points that stand for "where it is now".
const LAST_POINTS: usize = 3;
/// GPU-hours of the runs that the authors' grid was made for.
const PAPER_COMPUTE: f64 = 50_000.0;
const EXPONENTS: usize = 40;
const OFFSETS: usize = 40;
/// Of B, and of C0 in units of the last compute.
const EXPONENT_RANGE: (f64, f64) = (0.05, 8.0);
const OFFSET_RANGE: (f64, f64) = (1e-3, 3.0);
/// An error rate of zero has no logarithm.
const LEAST_ERROR: f64 = 1e-4;

/// A way to forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rival {
    /// Nothing changes.
    LastValue,
    /// The sigmoid by least squares.
    LeastSquares,
    /// The authors' grid.
    Paper,
    /// R = A - D C^-B.
    PowerLaw,
    /// R = A - D (C + C0)^-B.
    OffsetPowerLaw,
    /// ln(1 - R) linear in ln C.
    LogError,
    /// R = b - a e^H.
    Entropy,
}

impl Rival {
    /// Every rival.
    pub const ALL: [Self; 7] = [
        Self::LastValue,
        Self::LeastSquares,
        Self::Paper,
        Self::PowerLaw,
        Self::OffsetPowerLaw,
        Self::LogError,
        Self::Entropy,
    ];

    /// What it says of `at` from the points up to `until`; `None` where it cannot be fitted.
    /// `entropy` is the policy's, where the log has it; only one rival uses it.
    pub fn forecast(
        self,
        series: &Series,
        until: Compute,
        at: Compute,
        entropy: &[(Compute, f64)],
    ) -> Option<f64> {
        let range = series.range();
        let part = series.until(until)?;
        let points: Vec<(f64, f64)> =
            part.points().iter().map(|p| (p.compute.0, range.to_unit(p.value))).collect();
        let unit = |value: f64| range.from_unit(value.clamp(0.0, 1.0));
        match self {
            Self::LastValue => Some(unit(last_value(&points))),
            Self::LeastSquares => by_method(&part, Method::Profile, at),
            Self::PowerLaw => by_method(&part, Method::PowerLaw, at),
            Self::Paper => by_paper(&part, until, at),
            Self::OffsetPowerLaw => offset_power_law(&points, at.0).map(unit),
            Self::LogError => log_error(&points, at).map(unit),
            Self::Entropy => by_entropy(&points, entropy, until, at).map(unit),
        }
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LastValue => "last value",
            Self::LeastSquares => "least squares",
            Self::Paper => "authors' grid",
            Self::PowerLaw => "power law",
            Self::OffsetPowerLaw => "offset power law",
            Self::LogError => "log error",
            Self::Entropy => "entropy",
        })
    }
}

fn last_value(points: &[(f64, f64)]) -> f64 {
    let last = &points[points.len().saturating_sub(LAST_POINTS)..];
    last.iter().map(|(_, value)| value).sum::<f64>() / last.len() as f64
}

/// Naively: every point, the method's usual floor.
fn by_method(part: &Series, method: Method, at: Compute) -> Option<f64> {
    let warmup = Warmup::Before(Compute::ZERO);
    let found = fit(part, &FitOptions { method, warmup, ..FitOptions::default() }).ok()?;
    Some(found.forecast(at).value)
}

/// The grid's midpoints are GPU-hours of runs of about 50,000, so the axis is stretched until
/// twice the part that is fitted is as long.
fn by_paper(part: &Series, until: Compute, at: Compute) -> Option<f64> {
    let stretch = PAPER_COMPUTE / (2.0 * until.0);
    let stretched = |p: &Point| Point { compute: p.compute * stretch, ..*p };
    let points = part.points().iter().map(stretched).collect();
    let series = Series::try_with_range(points, part.range()).ok()?;
    let found = fit(&series, &FitOptions { method: Method::Paper, ..FitOptions::default() });
    Some(found.ok()?.forecast(at * stretch).value)
}

/// Least squares over a grid of exponents and offsets; zero is one of the offsets.
fn offset_power_law(points: &[(f64, f64)], at: f64) -> Option<f64> {
    if points.len() < 5 {
        return None;
    }
    let last = points[points.len() - 1].0;
    let between = |range: (f64, f64), i: usize, count: usize| {
        range.0 * (range.1 / range.0).powf(i as f64 / (count - 1) as f64)
    };
    let offsets = (0..OFFSETS).map(|i| last * between(OFFSET_RANGE, i, OFFSETS));
    let mut best: Option<(f64, f64)> = None;
    for offset in std::iter::once(0.0).chain(offsets) {
        let usable = || points.iter().filter(|(compute, _)| compute + offset > 0.0);
        for i in 0..EXPONENTS {
            let exponent = between(EXPONENT_RANGE, i, EXPONENTS);
            let term = |compute: f64| ((compute + offset) / last).powf(-exponent);
            let line = Line::through(usable().map(|(compute, value)| (term(*compute), *value)));
            // A law that falls with compute is none of this kind.
            let Some(line) = line.filter(|line| line.slope <= 0.0) else { continue };
            if best.is_none_or(|(squares, _)| line.squares < squares) {
                best = Some((line.squares, line.at(term(at))));
            }
        }
    }
    best.map(|(_, value)| value)
}

fn log_error(points: &[(f64, f64)], at: Compute) -> Option<f64> {
    let usable = points.iter().filter(|(compute, _)| *compute > 0.0);
    let pairs = usable.map(|(compute, value)| (compute.ln(), (1.0 - value).max(LEAST_ERROR).ln()));
    let line = Line::through(pairs)?;
    Some(1.0 - line.at(at.ln()).exp())
}

fn by_entropy(
    points: &[(f64, f64)],
    entropy: &[(Compute, f64)],
    until: Compute,
    at: Compute,
) -> Option<f64> {
    let known: Vec<(f64, f64)> = entropy
        .iter()
        .filter(|(compute, value)| compute.is_positive() && *compute <= until && value.is_finite())
        .map(|(compute, value)| (compute.ln(), *value))
        .collect();
    let later = Line::through(known.iter().copied())?;
    let pairs = points
        .iter()
        .filter(|(compute, _)| *compute > 0.0)
        .filter_map(|(compute, value)| Some((nearest(&known, compute.ln())?.exp(), *value)));
    let line = Line::through(pairs)?;
    Some(line.at(later.at(at.ln()).max(0.0).exp()))
}

/// The entropy logged nearest to a point.
fn nearest(known: &[(f64, f64)], log_compute: f64) -> Option<f64> {
    let distance = |pair: &&(f64, f64)| (pair.0 - log_compute).abs();
    let nearest = known.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    Some(nearest.1)
}

/// A least-squares line and what it leaves.
#[derive(Debug, Clone, Copy)]
struct Line {
    intercept: f64,
    slope: f64,
    squares: f64,
}

impl Line {
    /// `None` below three points, or where they all have the same x.
    fn through(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = pairs.collect();
        let count = pairs.len() as f64;
        if pairs.len() < 3 {
            return None;
        }
        let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let along: f64 = pairs.iter().map(|p| (p.0 - x).powi(2)).sum();
        let both: f64 = pairs.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
        let slope = both / along;
        let line = Self { intercept: y - slope * x, slope, squares: 0.0 };
        let squares = pairs.iter().map(|p| (p.1 - line.at(p.0)).powi(2)).sum();
        slope.is_finite().then_some(Self { squares, ..line })
    }

    fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn series(value: impl Fn(f64) -> f64) -> Series {
        let point = |i: u32| Point::new(Compute(f64::from(i)), value(f64::from(i)));
        Series::try_new((1..=40).map(point).collect()).unwrap()
    }

    /// Forecast of the end from the first half.
    fn half(rival: Rival, series: &Series, entropy: &[(Compute, f64)]) -> f64 {
        rival.forecast(series, Compute(20.0), Compute(40.0), entropy).unwrap()
    }

    proptest! {
        #[test]
        fn an_offset_power_law_is_found_again(
            ceiling in 0.6..0.9_f64, gain in 0.1..0.4_f64, exponent in 0.3..3.0_f64,
            offset in 1.0..20.0_f64,
        ) {
            let law = |c: f64| ceiling - gain * ((c + offset) / (1.0 + offset)).powf(-exponent);
            let found = half(Rival::OffsetPowerLaw, &series(law), &[]);
            prop_assert!((found - law(40.0)).abs() < 0.01, "{found} {}", law(40.0));
        }

        #[test]
        fn an_error_that_is_a_power_of_compute_is_found_again(
            error in 0.3..0.9_f64, exponent in 0.05..0.6_f64,
        ) {
            let law = |c: f64| 1.0 - error * c.powf(-exponent);
            let found = half(Rival::LogError, &series(law), &[]);
            prop_assert!((found - law(40.0)).abs() < 1e-9);
        }

        #[test]
        fn reward_bought_with_entropy_is_found_again(
            a in 0.05..0.3_f64, b in 0.6..0.95_f64, start in 0.6..1.2_f64,
        ) {
            let entropy_at = |c: f64| start - 0.1 * c.ln();
            let law = |c: f64| (b - a * entropy_at(c).exp()).max(0.0);
            prop_assume!(law(1.0) > 0.0);
            let entropy: Vec<(Compute, f64)> =
                (1..=20).map(|i| (Compute(f64::from(i)), entropy_at(f64::from(i)))).collect();
            let found = half(Rival::Entropy, &series(law), &entropy);
            prop_assert!((found - law(40.0)).abs() < 1e-9);
        }
    }

    #[test]
    fn without_entropy_in_the_log_that_rival_is_silent() {
        let all = series(|c| 0.2 + 0.01 * c);
        assert_eq!(Rival::Entropy.forecast(&all, Compute(20.0), Compute(40.0), &[]), None);
        assert!((half(Rival::LastValue, &all, &[]) - 0.39).abs() < 1e-12);
    }

    #[test]
    fn the_authors_grid_fits_runs_of_any_length() {
        let law = |c: f64| 0.4 + 0.2 / (1.0 + (12.0 / c).powi(2));
        for unit in [1e-3, 1.0, 1e7] {
            let points = (1..=40).map(|i| {
                let compute = f64::from(i);
                Point::new(Compute(compute * unit), law(compute)).with_samples(4096.0)
            });
            let series = Series::try_new(points.collect()).unwrap();
            let (until, at) = (Compute(20.0 * unit), Compute(40.0 * unit));
            let found = Rival::Paper.forecast(&series, until, at, &[]).unwrap();
            assert!((found - law(40.0)).abs() < 0.004, "{unit}: {found}");
        }
    }
}
