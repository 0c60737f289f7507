//! How much runs that differ only in their seed differ: the margin that every difference between
//! variants must exceed.
//!
//! Spreads of several variants are pooled (sum of squares over degrees of freedom), because two or
//! three runs each say little. A margin for a difference of two means is t · s · √(1/n + 1/m) with
//! the 95 % quantile of Student's t, so that few runs give a wide margin.

use serde::Serialize;

/// 95 % quantiles of Student's t for 1 to 10 degrees of freedom (any statistical table).
const STUDENT_95: [f64; 10] =
    [6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812];
/// From 11 on: within 0.01 of the quantile, and exact for ever more.
const NORMAL_95: f64 = 1.645;
const TAIL: f64 = 1.56;

/// Spread between runs of one variant, pooled over variants.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Standard deviation between runs.
    pub deviation: f64,
    /// Largest distance of a run from its variant's mean.
    pub largest: f64,
    /// Degrees of freedom: runs less variants, over those with two runs or more.
    pub freedom: usize,
}

impl Spread {
    /// Pools groups of values; `None` where no group has two.
    pub fn pooled(groups: &[Vec<f64>]) -> Option<Self> {
        let (mut squares, mut largest, mut freedom) = (0.0, 0.0_f64, 0);
        for group in groups.iter().filter(|group| group.len() > 1) {
            let mean = group.iter().sum::<f64>() / group.len() as f64;
            for value in group {
                squares += (value - mean).powi(2);
                largest = largest.max((value - mean).abs());
            }
            freedom += group.len() - 1;
        }
        let deviation = || (squares / freedom as f64).sqrt();
        (freedom > 0).then(|| Self { deviation: deviation(), largest, freedom })
    }

    /// What the difference between means of `n` and `m` runs must exceed.
    pub fn margin(&self, n: usize, m: usize) -> f64 {
        let runs = 1.0 / n.max(1) as f64 + 1.0 / m.max(1) as f64;
        student_95(self.freedom) * self.deviation * runs.sqrt()
    }
}

fn student_95(freedom: usize) -> f64 {
    match STUDENT_95.get(freedom.saturating_sub(1)) {
        Some(quantile) => *quantile,
        None => NORMAL_95 + TAIL / freedom as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_are_pooled_over_variants() {
        let spread = Spread::pooled(&[vec![1.0, 3.0], vec![10.0, 12.0, 14.0], vec![7.0]]).unwrap();
        // (1 + 1 + 4 + 0 + 4) over (1 + 2) degrees of freedom.
        assert!((spread.deviation - (10.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!((spread.freedom, spread.largest), (3, 2.0));
        assert_eq!(Spread::pooled(&[vec![1.0], vec![2.0]]), None);
    }

    #[test]
    fn more_runs_make_a_smaller_margin() {
        let spread = Spread { deviation: 0.01, largest: 0.012, freedom: 2 };
        assert!((spread.margin(1, 3) - 2.920 * 0.01 * (4.0_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert!(spread.margin(3, 3) < spread.margin(1, 3));
    }

    /// Percentage points of Student's t, as in any statistical table.
    #[test]
    fn quantiles_beyond_the_table_are_close() {
        for (freedom, quantile) in [(11, 1.7959), (20, 1.7247), (100, 1.6602)] {
            assert!((student_95(freedom) - quantile).abs() < 0.01, "{freedom}");
        }
    }
}
