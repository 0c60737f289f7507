//! Where a variant may end: a distribution on a grid of pass rates.
//!
//! Ends are independent given their forecasts, so the best of several lies below x with the product
//! of their chances, and E[best] = ∫ (1 − Π F(x)) dx over [0, 1]: a sum, no random draws.

use scalerl_curve::{Compute, Fit};

/// Cells of the grid. Forecasts are wider than a few of them, where the sum is exact to 1e-6.
const CELLS: usize = 1000;

/// The end of a variant as it is forecast: P(end < x) at every x of the grid.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    below: Vec<f64>,
}

impl Outlook {
    /// The curve of a fitted run at its end.
    pub fn of(fit: &Fit, end: Compute) -> Self {
        let places: Vec<f64> = (0..=CELLS).map(|k| k as f64 / CELLS as f64).collect();
        Self::from_chances(fit.chances_below(&[end], &places))
    }

    /// An end that was measured.
    pub fn measured(value: f64) -> Self {
        // A step that is one cell wide, about the value.
        let below = |k: usize| (k as f64 - value * CELLS as f64 + 0.5).clamp(0.0, 1.0);
        Self::from_chances((0..=CELLS).map(below).collect())
    }

    /// What lies beyond [0, 1] is at its ends.
    fn from_chances(mut below: Vec<f64>) -> Self {
        below[0] = 0.0;
        below[CELLS] = 1.0;
        Self { below }
    }

    /// The mean of the ends of several independent runs of one variant; there must be one.
    pub fn mean_of(runs: &[Self]) -> Self {
        let (first, others) = runs.split_first().expect("a variant has a run");
        if others.is_empty() {
            return first.clone();
        }
        let sum = others.iter().fold(first.masses(), |sum, run| convolved(&sum, &run.masses()));
        // Cell s of the sum of n runs holds ends about (s + n/2) / n cells.
        let (mut below, mut total) = (vec![0.0; CELLS + 1], 0.0);
        let count = runs.len() as f64;
        let mut cells = sum.iter().enumerate().peekable();
        for (k, below) in below.iter_mut().enumerate() {
            while let Some((_, mass)) =
                cells.next_if(|(s, _)| (*s as f64 + count / 2.0) / count < k as f64)
            {
                total += mass;
            }
            *below = total;
        }
        Self::from_chances(below)
    }

    fn masses(&self) -> Vec<f64> {
        self.below.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// The mean end.
    pub fn mean(&self) -> f64 {
        best(&[self].into_iter())
    }

    /// The end below which a share of the chance lies.
    pub fn quantile(&self, share: f64) -> f64 {
        let k = self.below.partition_point(|below| *below < share).max(1);
        let (left, right) = (self.below[k - 1], self.below[k]);
        let inside = if right > left { (share - left) / (right - left) } else { 0.5 };
        ((k - 1) as f64 + inside) / CELLS as f64
    }

    /// An outlook that is one normal, for tests and examples.
    #[cfg(test)]
    pub(crate) fn normal(mean: f64, sd: f64) -> Self {
        // The logistic approximation of the normal is not exact; the error function is not in std.
        let cdf = |x: f64| {
            let z = (x - mean) / sd;
            1.0 / (1.0 + (-1.5976 * z - 0.070_56 * z.powi(3)).exp())
        };
        Self::from_chances((0..=CELLS).map(|k| cdf(k as f64 / CELLS as f64)).collect())
    }
}

/// The mean of the best of several ends.
pub(super) fn best<'a>(ends: &(impl Iterator<Item = &'a Outlook> + Clone)) -> f64 {
    let any_above = |k: usize| 1.0 - ends.clone().map(|end| end.below[k]).product::<f64>();
    let sum: f64 = (1..CELLS).map(any_above).sum();
    // Trapezoids: 1 at x = 0 and 0 at x = 1.
    (sum + 0.5) / CELLS as f64
}

fn convolved(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; a.len() + b.len() - 1];
    for (i, left) in a.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
        for (cell, right) in sum[i..].iter_mut().zip(b) {
            *cell += left * right;
        }
    }
    sum
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Draws at even steps of chance, in an order that a counter mixes: the plain way.
    pub(crate) fn draws(outlook: &Outlook, count: usize, mix: u64) -> Vec<f64> {
        let mut places: Vec<usize> = (0..count).collect();
        let mut state = mix;
        for i in (1..count).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            places.swap(i, (state >> 33) as usize % (i + 1));
        }
        places.iter().map(|i| outlook.quantile((*i as f64 + 0.5) / count as f64)).collect()
    }

    proptest! {
        #[test]
        fn the_best_of_several_ends_is_that_of_many_draws(
            means in prop::collection::vec((0.3..0.8_f64, 0.004..0.05_f64), 1..6),
        ) {
            let ends: Vec<Outlook> = means.iter().map(|(m, s)| Outlook::normal(*m, *s)).collect();
            let drawn: Vec<Vec<f64>> =
                ends.iter().enumerate().map(|(i, end)| draws(end, 4000, 77 + i as u64)).collect();
            let top = |i: usize| drawn.iter().map(|one| one[i]).fold(f64::MIN, f64::max);
            let mean = (0..4000).map(top).sum::<f64>() / 4000.0;
            prop_assert!((best(&ends.iter()) - mean).abs() < 0.0012);
        }

        #[test]
        fn the_mean_of_runs_has_their_mean_and_less_spread(
            a in 0.35..0.75_f64, b in 0.35..0.75_f64, sd in 0.008..0.04_f64,
        ) {
            let runs = [Outlook::normal(a, sd), Outlook::normal(b, sd)];
            let both = Outlook::mean_of(&runs);
            prop_assert!((both.mean() - f64::midpoint(runs[0].mean(), runs[1].mean())).abs() < 1e-3);
            let width = |one: &Outlook| one.quantile(0.95) - one.quantile(0.05);
            prop_assert!((width(&both) * 2.0_f64.sqrt() - width(&runs[0])).abs() < 0.1 * sd + 1e-3);
        }

        #[test]
        fn a_quantile_has_its_share_below_it(mean in 0.2..0.8_f64, share in 0.02..0.98_f64) {
            let one = Outlook::normal(mean, 0.03);
            let x = one.quantile(share) * CELLS as f64;
            let (left, right) = (one.below[x as usize], one.below[x as usize + 1]);
            prop_assert!((left + (right - left) * x.fract() - share).abs() < 1e-6);
        }
    }
}
