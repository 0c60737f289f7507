//! How much the ceiling depends on where the fit starts.

use serde::Serialize;

use crate::compute::Compute;
use crate::fit::{Ceiling, fit};
use crate::options::{FitOptions, Warmup};
use crate::points::Series;

/// Points that the fits with other cuts are made from; a longer series is averaged.
const MOST_POINTS: usize = 5000;

/// The ceiling with another warm-up cut.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CutRow {
    /// Points before this compute were left out.
    pub cut: Compute,
    /// Points used.
    pub points: usize,
    /// The ceiling then.
    pub ceiling: Ceiling,
}

/// Fits again with no cut and with the first point, two points, a tenth and a quarter left out;
/// cuts that leave too few points are skipped.
pub fn other_cuts(series: &Series, options: &FitOptions) -> Vec<CutRow> {
    let (points, averaged) = (series.points(), series.averaged(MOST_POINTS));
    let until = options.until.unwrap_or(Compute::UNLIMITED);
    let count = points.partition_point(|p| p.compute <= until);
    let one = points.len().div_ceil(MOST_POINTS);
    let mut dropped = vec![0, one, 2 * one, count / 10, count / 4];
    dropped.sort_unstable();
    dropped.dedup();
    dropped
        .into_iter()
        .filter(|dropped| *dropped < count)
        .filter_map(|dropped| {
            let cut = if dropped == 0 { Compute::ZERO } else { points[dropped].compute };
            let options = FitOptions { warmup: Warmup::Before(cut), ..*options };
            let found = fit(&averaged, &options).ok()?;
            let points = if one == 1 { found.used.len() } else { count - dropped };
            Some(CutRow { cut, points, ceiling: found.ceiling })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Sigmoid;
    use crate::points::Point;

    #[test]
    fn a_long_series_is_averaged_and_its_own_points_are_counted() {
        let law = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.8, midpoint: Compute(500.0) };
        let computes = (1..=12_000).map(|i| Compute(f64::from(i)));
        let points = computes.map(|c| Point::new(c, law.value_at(c)));
        let series = Series::try_new(points.collect()).unwrap();
        let rows = other_cuts(&series, &FitOptions::default());
        let used: Vec<usize> = rows.iter().map(|row| row.points).collect();
        assert_eq!(used, [12_000, 11_997, 11_994, 10_800, 9_000]);
        assert!(rows.iter().all(|row| (row.ceiling.value - 0.6).abs() < 0.02), "{rows:?}");
    }

    #[test]
    fn cuts_move_the_window_and_keep_the_end() {
        let law = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.8, midpoint: Compute(50.0) };
        let computes = (1..=40).map(|i| Compute(f64::from(i) * 10.0));
        let points = computes.map(|c| Point::new(c, law.value_at(c)));
        let series = Series::try_new(points.collect()).unwrap();
        let rows = other_cuts(&series, &FitOptions::default());
        let used: Vec<usize> = rows.iter().map(|row| row.points).collect();
        assert_eq!(used, [40, 39, 38, 36, 30]);
        assert!(rows.iter().all(|row| (row.ceiling.value - 0.6).abs() < 0.02));
    }
}
