//! Measured points, checked once so that every fit can trust them.
//!
//! A [`Series`] is sorted by compute, has one point per compute, finite numbers only, and values
//! on the unit scale: other bounded rewards are mapped onto [0, 1] by their stated range.
//!
//! What is mended and what is refused: unsorted points are sorted; points at the same compute are
//! merged into their mean (weighted by samples where known), because repeated evaluations of one
//! checkpoint are common; a point of 0 samples measured nothing and is left out; NaN, infinite or negative compute and values outside the range are
//! refused with the index of the first offender.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::compute::Compute;

/// One evaluation: the mean pass rate measured after `compute` was spent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Compute spent until then.
    pub compute: Compute,
    /// Measured pass rate, or another bounded reward.
    pub value: f64,
    /// Graded completions behind the value (prompts × generations), where known.
    pub samples: Option<f64>,
}

impl Point {
    /// A point with an unknown number of samples.
    pub fn new(compute: Compute, value: f64) -> Self {
        Self { compute, value, samples: None }
    }

    /// The same with the graded completions behind it.
    #[must_use]
    pub fn with_samples(self, samples: f64) -> Self {
        Self { samples: Some(samples), ..self }
    }
}

/// The range that values can take; a pass rate's is [0, 1].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ValueRange {
    /// Smallest possible value.
    pub low: f64,
    /// Largest possible value.
    pub high: f64,
}

impl Default for ValueRange {
    fn default() -> Self {
        Self { low: 0.0, high: 1.0 }
    }
}

impl ValueRange {
    /// Width of the range.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// Maps a value of this range onto [0, 1].
    pub fn to_unit(&self, value: f64) -> f64 {
        (value - self.low) / self.width()
    }

    /// Maps a value on [0, 1] back onto this range.
    pub fn from_unit(&self, unit: f64) -> f64 {
        self.low + unit * self.width()
    }
}

/// Why points cannot be fitted.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PointsError {
    /// A compute that is NaN, infinite or negative.
    #[error("point {index}: compute is {compute}, it must be a finite number, zero or more")]
    BadCompute { index: usize, compute: Compute },
    /// A value that is NaN or infinite.
    #[error("point {index} (compute {compute}): value is {value}, it must be a finite number")]
    NotFinite { index: usize, compute: Compute, value: f64 },
    /// A value outside the stated range.
    #[error(
        "point {index} (compute {compute}): value {value} lies outside [{}, {}]",
        range.low,
        range.high
    )]
    OutOfRange { index: usize, compute: Compute, value: f64, range: ValueRange },
    /// A range that is empty or not finite.
    #[error("the value range [{}, {}] is empty", range.low, range.high)]
    BadRange { range: ValueRange },
    /// No point at all.
    #[error("no points")]
    Empty,
}

impl PointsError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadCompute { .. } => "check the compute column, or choose another with --x",
            Self::NotFinite { .. } => "remove the row, or choose another column with --y",
            Self::OutOfRange { .. } => {
                "a pass rate lies in [0, 1]; for another bounded reward state its range, \
                 e.g. --range=-1,1 (or --range 0,100 for percentages)"
            }
            Self::BadRange { .. } => "give the range as LOW,HIGH with LOW < HIGH",
            Self::Empty => "check --x, --y and --by; scalerl lists the columns it found",
        }
    }
}

/// Points of one run that have passed all checks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    points: Vec<Point>,
    range: ValueRange,
}

impl Series {
    /// Checks, sorts and merges points of a pass rate in [0, 1].
    pub fn try_new(points: Vec<Point>) -> Result<Self, PointsError> {
        Self::try_with_range(points, ValueRange::default())
    }

    /// Checks, sorts and merges points of a reward bounded by `range`.
    pub fn try_with_range(mut points: Vec<Point>, range: ValueRange) -> Result<Self, PointsError> {
        if !(range.low.is_finite() && range.high.is_finite() && range.low < range.high) {
            return Err(PointsError::BadRange { range });
        }
        if points.is_empty() {
            return Err(PointsError::Empty);
        }
        for (index, point) in points.iter_mut().enumerate() {
            check(index, point, range)?;
            point.samples = point.samples.filter(|samples| samples.is_finite() && *samples >= 0.0);
        }
        points.retain(|point| point.samples != Some(0.0));
        if points.is_empty() {
            return Err(PointsError::Empty);
        }
        points.sort_by(|a, b| a.compute.0.total_cmp(&b.compute.0));
        points = merge_equal_compute(&points);
        Ok(Self { points, range })
    }

    /// The points, by rising compute, on the scale they came in.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The range of the values.
    pub fn range(&self) -> ValueRange {
        self.range
    }

    /// Compute of the last point.
    pub fn last_compute(&self) -> Compute {
        self.points[self.points.len() - 1].compute
    }

    /// The points up to `compute`, inclusive; `None` when there are none.
    pub fn until(&self, compute: Compute) -> Option<Self> {
        let count = self.points.partition_point(|point| point.compute <= compute);
        (count > 0).then(|| Self { points: self.points[..count].to_vec(), range: self.range })
    }

    /// Means of as many neighbours each as leave at most `most` points.
    pub(crate) fn averaged(&self, most: usize) -> Self {
        let count = self.points.len().div_ceil(most.max(1));
        if count <= 1 {
            return self.clone();
        }
        let mean = |rows: &[Point]| {
            let size = rows.len() as f64;
            let compute = rows.iter().map(|p| p.compute.0).sum::<f64>() / size;
            let value = rows.iter().map(|p| p.value).sum::<f64>() / size;
            let samples = rows.iter().map(|p| p.samples).sum::<Option<f64>>();
            Point { compute: Compute(compute), value, samples }
        };
        Self { points: self.points.chunks(count).map(mean).collect(), range: self.range }
    }
}

fn check(index: usize, point: &Point, range: ValueRange) -> Result<(), PointsError> {
    let Point { compute, value, .. } = *point;
    if !compute.0.is_finite() || compute < Compute::ZERO {
        return Err(PointsError::BadCompute { index, compute });
    }
    if !value.is_finite() {
        return Err(PointsError::NotFinite { index, compute, value });
    }
    if value < range.low || value > range.high {
        return Err(PointsError::OutOfRange { index, compute, value, range });
    }
    Ok(())
}

fn merge_equal_compute(sorted: &[Point]) -> Vec<Point> {
    sorted
        .chunk_by(|a, b| a.compute.0.total_cmp(&b.compute.0).is_eq())
        .map(|same| {
            let weight_of = |point: &Point| point.samples.unwrap_or(1.0);
            let weight: f64 = same.iter().map(weight_of).sum();
            let value = same.iter().map(|p| p.value * weight_of(p)).sum::<f64>() / weight;
            let samples = same.iter().map(|p| p.samples).sum::<Option<f64>>();
            Point { compute: same[0].compute, value, samples }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_keep_the_mean_the_samples_and_the_order() {
        let point =
            |i: u32| Point::new(Compute(f64::from(i)), f64::from(i) / 8.0).with_samples(2.0);
        let series = Series::try_new((1..=7).map(point).collect()).unwrap();
        assert_eq!(series.averaged(7), series);
        let means = series.averaged(3);
        assert_eq!(means.points().len(), 3);
        assert_eq!(means.points()[0], Point::new(Compute(2.0), 0.25).with_samples(6.0));
        assert_eq!(means.last_compute(), Compute(7.0));
    }

    #[test]
    fn points_are_sorted_and_equal_compute_is_merged() {
        let series = Series::try_new(vec![
            Point::new(Compute(2.0), 0.4).with_samples(300.0),
            Point::new(Compute(1.0), 0.2),
            Point::new(Compute(2.0), 0.6).with_samples(100.0),
        ])
        .unwrap();
        assert_eq!(series.points().len(), 2);
        assert!((series.points()[1].value - 0.45).abs() < 1e-12);
        assert_eq!(series.points()[1].samples, Some(400.0));
    }

    #[test]
    fn a_point_of_no_samples_is_left_out() {
        let empty = |compute: f64| Point::new(Compute(compute), 0.0).with_samples(0.0);
        let series =
            Series::try_new(vec![Point::new(Compute(1.0), 0.3), empty(1.0), empty(2.0)]).unwrap();
        assert_eq!(series.points(), [Point::new(Compute(1.0), 0.3)]);
        assert_eq!(Series::try_new(vec![empty(1.0)]), Err(PointsError::Empty));
    }

    #[test]
    fn bad_numbers_are_refused_with_their_index() {
        let nan = Series::try_new(vec![
            Point::new(Compute(1.0), 0.3),
            Point::new(Compute(2.0), f64::NAN),
        ]);
        assert!(matches!(nan, Err(PointsError::NotFinite { index: 1, .. })));
        let percent = Series::try_new(vec![Point::new(Compute(1.0), 43.0)]);
        assert!(matches!(percent, Err(PointsError::OutOfRange { index: 0, .. })));
        let negative = Series::try_new(vec![Point::new(Compute(-1.0), 0.3)]);
        assert!(matches!(negative, Err(PointsError::BadCompute { index: 0, .. })));
        assert_eq!(Series::try_new(vec![]), Err(PointsError::Empty));
    }

    #[test]
    fn a_stated_range_admits_other_rewards() {
        let range = ValueRange { low: -1.0, high: 1.0 };
        let series = Series::try_with_range(vec![Point::new(Compute(1.0), -0.5)], range).unwrap();
        assert!((series.range().to_unit(series.points()[0].value) - 0.25).abs() < 1e-12);
        assert!((range.from_unit(0.25) + 0.5).abs() < 1e-12);
    }

    #[test]
    fn until_keeps_the_points_up_to_and_including_the_bound() {
        let series =
            Series::try_new((0..5).map(|i| Point::new(Compute(f64::from(i)), 0.3)).collect())
                .unwrap();
        assert_eq!(series.until(Compute(2.0)).unwrap().points().len(), 3);
        assert_eq!(series.until(Compute(-1.0)), None);
    }
}
