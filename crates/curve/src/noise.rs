//! How noisy one measured point is, before any curve is drawn through it.
//!
//! Known number of graded completions: binomial, sqrt(p(1-p)/n) with p the median of the later
//! half. Unknown: the median distance of a point from the line between its neighbours (in log
//! compute), scaled to a standard deviation, the first quarter skipped because the curve bends
//! there, and held inside [0.002, 0.03].

use crate::points::Point;

/// Standard deviation of a normal over its median absolute deviation.
const MAD_TO_SD: f64 = 1.4826;
/// Bounds of a scale that was read off the points themselves.
const READ_OFF: (f64, f64) = (0.002, 0.03);
/// No evaluation is more exact than this: it keeps covariances well conditioned.
const LEAST: f64 = 5e-4;

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

pub(crate) fn estimate(points: &[Point]) -> Noise {
    let counts: Option<Vec<f64>> = points.iter().map(|p| p.samples).collect();
    match counts {
        Some(counts) => binomial(points, &counts),
        None => Noise {
            scale: neighbour_scale(points).clamp(READ_OFF.0, READ_OFF.1),
            relative: vec![1.0; points.len()],
            is_binomial: false,
        },
    }
}

fn binomial(points: &[Point], counts: &[f64]) -> Noise {
    let typical = median(counts.to_vec());
    let scale = binomial_of(points, typical);
    let relative = counts.iter().map(|n| (typical / n).sqrt().clamp(0.2, 5.0)).collect();
    Noise { scale, relative, is_binomial: true }
}

/// Binomial standard deviation of a typical point; `None` where some count is not known.
pub(crate) fn binomial_scale(points: &[Point]) -> Option<f64> {
    let counts: Vec<f64> = points.iter().map(|p| p.samples).collect::<Option<_>>()?;
    Some(binomial_of(points, median(counts)))
}

fn binomial_of(points: &[Point], count: f64) -> f64 {
    let later = points[points.len() / 2..].iter().map(|p| p.value).collect();
    // Half a success away from 0 and 1: a run at 1.0 still has noise.
    let margin = 0.5 / (count + 1.0);
    let rate = median(later).clamp(margin, 1.0 - margin);
    (rate * (1.0 - rate) / count).sqrt().max(LEAST)
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
    let first = points.iter().map(|p| p.compute).find(|c| *c > 0.0).unwrap_or(1.0);
    points.iter().map(|p| (p.compute + first / 2.0).ln()).collect()
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

    fn wavy(count: u32, amplitude: f64) -> Vec<Point> {
        (1..=count)
            .map(|i| {
                let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
                Point::new(f64::from(i), 0.5 + sign * amplitude)
            })
            .collect()
    }

    #[test]
    fn known_counts_give_binomial_noise() {
        let points: Vec<Point> = (1..=20)
            .map(|i| Point { compute: f64::from(i), value: 0.5, samples: Some(10_000.0) })
            .collect();
        let noise = estimate(&points);
        assert!(noise.is_binomial);
        assert!((noise.scale - 0.005).abs() < 1e-6);
    }

    #[test]
    fn a_point_with_a_quarter_of_the_samples_is_twice_as_noisy() {
        let mut points: Vec<Point> = (1..=9)
            .map(|i| Point { compute: f64::from(i), value: 0.5, samples: Some(1_000.0) })
            .collect();
        points[0].samples = Some(250.0);
        assert!((estimate(&points).relative[0] - 2.0).abs() < 1e-12);
    }

    #[test]
    fn noise_is_read_off_neighbours_when_counts_are_unknown() {
        let read_off = estimate(&wavy(40, 0.01));
        assert!(!read_off.is_binomial);
        assert!(read_off.scale > 0.01 && read_off.scale <= READ_OFF.1);
    }

    #[test]
    fn a_perfect_run_still_has_noise() {
        let points: Vec<Point> = (1..=9)
            .map(|i| Point { compute: f64::from(i), value: 1.0, samples: Some(100.0) })
            .collect();
        assert!(estimate(&points).scale > 0.0);
    }
}
