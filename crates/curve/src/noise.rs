//! How noisy one measured point is, before any curve is drawn through it.
//!
//! Known number of graded completions: binomial, sqrt(p(1-p)/n) with p the median of the later
//! half. Unknown: the median distance of a point from the line between its neighbours (in log
//! compute), scaled to a standard deviation, the first quarter skipped because the curve bends
//! there, and held inside [0.002, 0.03]. Where points are means over many rows, the distances are
//! those of the rows, and a mean over m of them is √m times less noisy.
//!
//! **What an evaluation resolves.** Held-out prompts are the same every time, so evaluations
//! scatter less than binomially: by 0.6 of it in the recorded runs (quartiles 0.43 and 0.96).

use serde::Serialize;

use crate::compute::Compute;
use crate::points::{Point, Series};

/// Scatter of evaluations on fixed prompts over that of fresh ones, as measured on recorded runs.
pub const FIXED_PROMPTS: f64 = 0.6;
/// Standard deviation of a normal over its median absolute deviation.
const MAD_TO_SD: f64 = 1.4826;
/// Bounds of a scale that was read off the points themselves.
const READ_OFF: (f64, f64) = (0.002, 0.03);
/// No evaluation is more exact than this: it keeps covariances well conditioned.
const LEAST: f64 = 5e-4;
/// 95 % point of the standard normal.
const Z: f64 = 1.645;

/// What one evaluation can show, for a pass rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Resolution {
    /// Graded completions behind it.
    pub samples: f64,
    /// Standard deviation by counting alone, as if prompts were drawn anew.
    pub binomial: f64,
    /// Standard deviation to expect on fixed prompts.
    pub expected: f64,
    /// Difference between two evaluations that is no chance at 90 %, on fixed prompts.
    pub difference: f64,
}

impl Resolution {
    /// Of an evaluation of `samples` completions at a pass rate.
    ///
    /// ```
    /// use scalerl_curve::Resolution;
    /// let one = Resolution::of(1024.0 * 4.0, 0.78);
    /// assert!((one.binomial - 0.0065).abs() < 1e-4);
    /// assert!((one.difference - 0.009).abs() < 1e-3);
    /// ```
    pub fn of(samples: f64, rate: f64) -> Self {
        Self::with_noise(samples, rate, FIXED_PROMPTS)
    }

    /// The same where the scatter over binomial has been measured.
    pub fn with_noise(samples: f64, rate: f64, over_binomial: f64) -> Self {
        let binomial = binomial_sd(samples, rate);
        let expected = over_binomial * binomial;
        Self { samples, binomial, expected, difference: Z * std::f64::consts::SQRT_2 * expected }
    }
}

/// Standard deviation of a pass rate by counting alone, half a success away from 0 and 1.
pub fn binomial_deviation(samples: f64, rate: f64) -> f64 {
    binomial_sd(samples, rate)
}

/// How noisy the evaluations of a run are over binomial: their scatter about the line between their
/// neighbours. `None` where the graded completions are not known, or with fewer than ten points.
///
/// ```
/// use scalerl_curve::{Compute, Point, Series, noise_over_binomial};
/// let wave = |i: u32| 0.5 + 0.005 * (2.4 * f64::from(i)).sin();
/// let points = (1..40).map(|i| Point::new(Compute(f64::from(i)), wave(i)).with_samples(4096.0));
/// let found = noise_over_binomial(&Series::try_new(points.collect()).unwrap()).unwrap();
/// assert!((0.3..1.0).contains(&found));
/// ```
pub fn noise_over_binomial(series: &Series) -> Option<f64> {
    const FEWEST: usize = 10;
    let range = series.range();
    let unit = |point: &Point| Point { value: range.to_unit(point.value), ..*point };
    let points: Vec<Point> = series.points().iter().map(unit).collect();
    if points.len() < FEWEST {
        return None;
    }
    Some(scatter(&points)? / binomial_scale(&points)?)
}

/// Sampling noise of a series.
#[derive(Debug, Clone)]
pub(crate) struct Noise {
    /// Standard deviation of a typical point.
    pub(crate) scale: f64,
    /// Standard deviation of each point over `scale`.
    pub(crate) relative: Vec<f64>,
    /// Is `scale` from known sample counts?
    pub(crate) is_binomial: bool,
}

/// Of `points`, each the mean of so many `rows`.
pub(crate) fn estimate(rows: &[Point], points: &[Point], counts: &[f64]) -> Noise {
    let samples: Option<Vec<f64>> = points.iter().map(|p| p.samples).collect();
    if let Some(samples) = samples {
        let typical = median(samples.clone());
        let relative = samples.iter().map(|n| (typical / n).sqrt().clamp(0.2, 5.0)).collect();
        return Noise { scale: binomial_of(points, typical), relative, is_binomial: true };
    }
    if rows.len() == points.len() {
        let scale = neighbour_scale(points).clamp(READ_OFF.0, READ_OFF.1);
        return Noise { scale, relative: vec![1.0; points.len()], is_binomial: false };
    }
    let typical = median(counts.to_vec());
    let scale = (neighbour_scale(rows) / typical.sqrt()).max(LEAST);
    let relative = counts.iter().map(|count| (typical / count).sqrt()).collect();
    Noise { scale, relative, is_binomial: false }
}

/// Binomial standard deviation of a typical point; `None` where some count is not known.
pub(crate) fn binomial_scale(points: &[Point]) -> Option<f64> {
    let counts: Vec<f64> = points.iter().map(|p| p.samples).collect::<Option<_>>()?;
    Some(binomial_of(points, median(counts)))
}

fn binomial_of(points: &[Point], count: f64) -> f64 {
    let later = points[points.len() / 2..].iter().map(|p| p.value).collect();
    binomial_sd(count, median(later)).max(LEAST)
}

/// Half a success away from 0 and 1: a run at 1.0 still has noise.
fn binomial_sd(count: f64, rate: f64) -> f64 {
    let margin = 0.5 / (count + 1.0);
    let rate = rate.clamp(margin, 1.0 - margin);
    (rate * (1.0 - rate) / count).sqrt()
}

/// Noise read off the distances of points from the line between their neighbours.
pub(crate) fn neighbour_scale(points: &[Point]) -> f64 {
    let distances = neighbour_distances(points, (points.len() / 4).max(1));
    if distances.is_empty() { READ_OFF.1 / 2.0 } else { MAD_TO_SD * median(distances) }
}

/// The same with the first quarter of the distances left out; `None` below four points.
pub(crate) fn scatter(points: &[Point]) -> Option<f64> {
    let count = points.len().checked_sub(2).filter(|count| *count >= 2)?;
    Some(MAD_TO_SD * median(neighbour_distances(points, 1 + count / 4)))
}

/// |second differences| in log compute from point `start` on, as standard deviations of one point.
fn neighbour_distances(points: &[Point], start: usize) -> Vec<f64> {
    let log_compute = log_axis(points);
    let distance = |i: usize| {
        let (left, right) = (log_compute[i - 1], log_compute[i + 1]);
        let weight = (log_compute[i] - left) / (right - left).max(1e-12);
        let line = points[i - 1].value * (1.0 - weight) + points[i + 1].value * weight;
        let spread = (1.0 + weight.powi(2) + (1.0 - weight).powi(2)).sqrt();
        (points[i].value - line).abs() / spread
    };
    (start..points.len().saturating_sub(1)).map(distance).collect()
}

/// x = ln(C + c1/2) with c1 the first compute above zero, so that step 0 stays usable.
pub(crate) fn log_axis(points: &[Point]) -> Vec<f64> {
    let first = points.iter().map(|p| p.compute).find(|c| c.is_positive()).unwrap_or(Compute(1.0));
    points.iter().map(|p| (p.compute.0 + first.0 / 2.0).ln()).collect()
}

/// The middle value; the mean of the two middle ones for an even count.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    let is_odd = values.len() % 2 == 1;
    let (below, upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if is_odd {
        *upper
    } else {
        let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        f64::midpoint(lower, *upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(points: &[Point]) -> Noise {
        estimate(points, points, &vec![1.0; points.len()])
    }

    fn wavy(count: u32, amplitude: f64) -> Vec<Point> {
        let sign = |i: u32| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        (1..=count).map(|i| Point::new(Compute(f64::from(i)), 0.5 + sign(i) * amplitude)).collect()
    }

    fn counted(count: u32, value: f64, samples: f64) -> Vec<Point> {
        let point = |i: u32| Point::new(Compute(f64::from(i)), value).with_samples(samples);
        (1..=count).map(point).collect()
    }

    #[test]
    fn known_counts_give_binomial_noise() {
        let noise = noise(&counted(20, 0.5, 10_000.0));
        assert!(noise.is_binomial);
        assert!((noise.scale - 0.005).abs() < 1e-6);
    }

    #[test]
    fn a_point_with_a_quarter_of_the_samples_is_twice_as_noisy() {
        let mut points = counted(9, 0.5, 1_000.0);
        points[0].samples = Some(250.0);
        assert!((noise(&points).relative[0] - 2.0).abs() < 1e-12);
    }

    #[test]
    fn noise_is_read_off_neighbours_when_counts_are_unknown() {
        let read_off = noise(&wavy(40, 0.01));
        assert!(!read_off.is_binomial);
        assert!(read_off.scale > 0.01 && read_off.scale <= READ_OFF.1);
    }

    #[test]
    fn a_mean_over_many_rows_is_as_exact_as_they_are_many() {
        let rows = wavy(400, 0.05);
        let means: Vec<Point> = wavy(40, 0.0);
        let noise = estimate(&rows, &means, &[10.0; 40]);
        assert!((noise.scale * 10.0_f64.sqrt() - neighbour_scale(&rows)).abs() < 1e-12);
    }

    #[test]
    fn a_perfect_run_still_has_noise() {
        assert!(noise(&counted(9, 1.0, 100.0)).scale > 0.0);
    }

    #[test]
    fn the_median_is_the_middle_of_the_sorted_values() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-15);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-15);
    }
}
