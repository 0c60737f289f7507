//! The points as the mixture sees them: binned where they are many, with the noise of each.
//!
//! **Noise.** Binomial where samples are known, else read off second differences of all rows.
//! **Bins.** More than [`MOST_BINS`] points become means over bins of equal width in log compute;
//! the noise of a bin is known from its rows, and the scatter inside the bins is evidence on the
//! noise. **Dips.** Evaluations that fall for one to three points and come back are outliers below:
//! a point gets the variance of its depth below the second-best value before it, beyond three
//! noise scales, and no deeper than it comes back. **Distrust.** Points far below the present level may not be on the law.

use super::settings::Settings;
use crate::compute::Compute;
use crate::noise::{self, median};
use crate::points::Point;

/// Points that a fit distinguishes; more are averaged in bins.
pub(crate) const MOST_BINS: usize = 24;
/// From so many points on, the scatter counts for dips, and for read-off noise of any size.
const SCATTER_FOR_DIPS: usize = 10;
const SCATTER_TRUSTED: usize = 20;
/// Bounds of read-off noise: few points do not tell noise from shape.
const READ_OFF_LEAST: f64 = 0.002;
const READ_OFF_MOST: f64 = 0.12;
const READ_OFF_MOST_OF_FEW: f64 = 0.03;
/// Taken where not even four points are there.
const UNKNOWN_NOISE: f64 = 0.01;
/// Points below the level by less than so many noise scales are not distrusted.
const DISTRUST_NOISES: f64 = 2.0;

/// Binned points with everything that does not depend on shape or scales.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) compute: Vec<Compute>,
    pub(crate) value: Vec<f64>,
    /// ln(C + c1/2) less that of the last row.
    pub(crate) position: Vec<f64>,
    /// Noise variance of each over the squared scale of one row.
    pub(crate) relative_variance: Vec<f64>,
    /// Variance of a point that lies in a dip.
    pub(crate) dip_variance: Vec<f64>,
    /// Squared distrusted height.
    pub(crate) distrust: Vec<f64>,
    /// Noise scale of one row, before the factor.
    pub(crate) noise_scale: f64,
    /// Squares about the bins' means or lines, and their degrees of freedom.
    pub(crate) scatter: (f64, f64),
    half_first_compute: f64,
    last_x: f64,
    pub(crate) last_compute: Compute,
}

/// Bins of equal width in log compute.
struct Bins {
    compute: Vec<Compute>,
    value: Vec<f64>,
    samples: Option<Vec<f64>>,
    rows: Vec<f64>,
    scatter: (f64, f64),
}

impl Observed {
    /// `points` by rising compute, on the unit scale, at least one with compute above zero.
    pub(crate) fn new(points: &[Point], settings: &Settings) -> Self {
        let first = points.iter().map(|p| p.compute).find(|c| c.is_positive());
        let half_first_compute = first.expect("a window has compute").0 / 2.0;
        let x = noise::log_axis(points);
        let last_x = x[x.len() - 1];
        let noise_scale = noise_scale(points);
        let dip_scale = if points.len() >= SCATTER_FOR_DIPS {
            noise_scale.max(noise::scatter(points).unwrap_or(0.0))
        } else {
            noise_scale
        };
        let Bins { compute, value, samples, rows, scatter } = bins(&x, points);
        let relative_variance = relative_variance(samples.as_deref(), &rows);
        let mut depths = dips(&value, &rows, settings.dip_noises * dip_scale);
        if settings.dips_come_back {
            limit_to_return(&mut depths, &value);
        }
        let dip_variance = depths.into_iter().map(|depth| depth * depth).collect();
        Self {
            position: compute.iter().map(|c| (c.0 + half_first_compute).ln() - last_x).collect(),
            distrust: distrust(&value, &rows, noise_scale),
            compute,
            value,
            relative_variance,
            dip_variance,
            noise_scale,
            scatter,
            half_first_compute,
            last_x,
            last_compute: points[points.len() - 1].compute,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.value.len()
    }

    /// Distance in log compute from the last row.
    pub(crate) fn position_of(&self, compute: Compute) -> f64 {
        (compute.0 + self.half_first_compute).ln() - self.last_x
    }
}

/// Drift covariance between two positions for tau = 1: a walk to both sides of the last row.
pub(crate) fn walk(a: f64, b: f64) -> f64 {
    if a * b > 0.0 { a.abs().min(b.abs()) } else { 0.0 }
}

/// Standard deviation of one row.
fn noise_scale(points: &[Point]) -> f64 {
    if let Some(scale) = noise::binomial_scale(points) {
        return scale;
    }
    let most = if points.len() >= SCATTER_TRUSTED { READ_OFF_MOST } else { READ_OFF_MOST_OF_FEW };
    noise::scatter(points).map_or(UNKNOWN_NOISE, |scale| scale.clamp(READ_OFF_LEAST, most))
}

fn bins(x: &[f64], points: &[Point]) -> Bins {
    let counts: Option<Vec<f64>> = points.iter().map(|p| p.samples).collect();
    if points.len() <= MOST_BINS {
        return Bins {
            compute: points.iter().map(|p| p.compute).collect(),
            value: points.iter().map(|p| p.value).collect(),
            samples: counts,
            rows: vec![1.0; points.len()],
            scatter: (0.0, 0.0),
        };
    }
    let (first, last) = (x[0], x[x.len() - 1]);
    let width = (last - first) / MOST_BINS as f64;
    let bin = |x: f64| (((last - x) / width + 1e-9) as usize).min(MOST_BINS - 1);
    let indices: Vec<usize> = (0..points.len()).collect();
    let mut bins = Bins {
        compute: Vec::new(),
        value: Vec::new(),
        samples: counts.is_some().then(Vec::new),
        rows: Vec::new(),
        scatter: (0.0, 0.0),
    };
    for rows in indices.chunk_by(|a, b| bin(x[*a]) == bin(x[*b])) {
        let (start, count) = (rows[0], rows.len() as f64);
        let inside = &points[start..start + rows.len()];
        let mean = |of: &dyn Fn(&Point) -> f64| inside.iter().map(of).sum::<f64>() / count;
        bins.compute.push(Compute(mean(&|p| p.compute.0)));
        bins.value.push(mean(&|p| p.value));
        if let Some(samples) = &mut bins.samples {
            samples.push(mean(&|p| p.samples.unwrap_or(1.0)));
        }
        bins.rows.push(count);
        let (squares, freedom) = scatter_inside(inside, mean(&|p| p.value));
        bins.scatter.0 += squares;
        bins.scatter.1 += freedom;
    }
    bins
}

/// Squares about the mean, about a line from four rows on, and what they are worth.
fn scatter_inside(rows: &[Point], mean: f64) -> (f64, f64) {
    let count = rows.len();
    if count < 2 {
        return (0.0, 0.0);
    }
    let middle = (count as f64 - 1.0) / 2.0;
    let (mut products, mut lengths) = (0.0, 0.0);
    for (i, row) in rows.iter().enumerate() {
        let t = i as f64 - middle;
        products += t * row.value;
        lengths += t * t;
    }
    let slope = if count > 3 { products / lengths } else { 0.0 };
    let residual = |(i, row): (usize, &Point)| row.value - mean - slope * (i as f64 - middle);
    let squares = rows.iter().enumerate().map(residual).map(|r| r * r).sum();
    (squares, count as f64 - 1.0 - f64::from(u8::from(count > 3)))
}

fn relative_variance(samples: Option<&[f64]>, rows: &[f64]) -> Vec<f64> {
    let by_samples = |i: usize| match samples {
        Some(samples) => (median(samples.to_vec()) / samples[i]).clamp(0.04, 25.0),
        None => 1.0,
    };
    rows.iter().enumerate().map(|(i, rows)| by_samples(i) / rows).collect()
}

/// How far each point lies below the second-best value before it, beyond `scale`.
fn dips(value: &[f64], rows: &[f64], scale: f64) -> Vec<f64> {
    let depth = |i: usize| {
        if i < 3 {
            return 0.0;
        }
        let mut order: Vec<usize> = (0..i).collect();
        order.sort_by(|a, b| value[*a].total_cmp(&value[*b]));
        let second = order[i - 2];
        let noise = scale * (0.5 / rows[i] + 0.5 / rows[second]).sqrt();
        (value[second] - value[i] - noise).max(0.0)
    };
    (0..value.len()).map(depth).collect()
}

/// Makes each dip no deeper than the run comes back from it: else a fall is one long dip. Of the
/// last point nobody knows yet.
fn limit_to_return(depths: &mut [f64], value: &[f64]) {
    let mut highest_after = value[value.len() - 1];
    for i in (0..value.len() - 1).rev() {
        depths[i] = depths[i].min((highest_after - value[i]).max(0.0));
        highest_after = highest_after.max(value[i]);
    }
}

fn distrust(value: &[f64], rows: &[f64], scale: f64) -> Vec<f64> {
    let tail = &value[value.len().saturating_sub(3)..];
    let mean = tail.iter().sum::<f64>() / tail.len() as f64;
    let level = mean.max(median(tail.to_vec()));
    let mut gap: Vec<f64> = value.iter().map(|v| (level - v).max(0.0)).collect();
    for i in (0..gap.len() - 1).rev() {
        gap[i] = gap[i].max(gap[i + 1]);
    }
    for (gap, rows) in gap.iter_mut().zip(rows) {
        *gap = (*gap - DISTRUST_NOISES * scale / rows.sqrt()).max(0.0);
    }
    let largest = gap.iter().copied().fold(1e-9, f64::max);
    gap.into_iter().map(|gap| (gap * gap / largest).powi(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dip variances of a run of exact evaluations.
    fn dips_of(values: &[f64]) -> Vec<f64> {
        let point = |(i, value): (usize, &f64)| {
            Point::new(Compute(i as f64 + 1.0), *value).with_samples(1e6)
        };
        let points: Vec<Point> = values.iter().enumerate().map(point).collect();
        Observed::new(&points, &Settings::SHIPPED).dip_variance
    }

    #[test]
    fn a_point_that_the_run_comes_back_from_is_a_dip() {
        let found = dips_of(&[0.3, 0.4, 0.5, 0.55, 0.4, 0.58, 0.6, 0.61]);
        assert!(found[4] > 0.09_f64.powi(2), "{found:?}");
        assert!(found.iter().enumerate().all(|(i, variance)| i == 4 || *variance < 1e-15));
    }

    #[test]
    fn a_fall_is_no_dip_but_for_its_last_point() {
        let found = dips_of(&[0.3, 0.4, 0.5, 0.6, 0.61, 0.55, 0.5, 0.45]);
        assert!(found[..7].iter().all(|variance| *variance < 1e-15), "{found:?}");
        assert!(found[7] > 0.0, "nobody knows yet whether it comes back");
    }

    #[test]
    fn a_dip_is_as_deep_as_the_run_comes_back() {
        let found = dips_of(&[0.3, 0.4, 0.5, 0.6, 0.61, 0.4, 0.45, 0.45]);
        assert!((found[5].sqrt() - 0.05).abs() < 1e-12, "{found:?}");
    }
}
