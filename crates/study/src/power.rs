//! How many seeds and graded completions it takes to tell two recipes apart.
//!
//! ```text
//! end of a run     = recipe + seed + noise       mean of its last three evaluations
//! Var(end)         = s² + f² p(1−p) / (3 N)      s between seeds, f noise over binomial, N completions
//! seen             = difference > max(1.645 √2 e, t(.95, 2r−2) ŝ √(2/r))     r seeds of each recipe
//! ```
//!
//! That is the margin of a study (`analysis.rs`) with two variants: ŝ pooled over both, e the binomial
//! error of a mean end. The chance of it is a sum over the distribution of ŝ: given ŝ = u σ, the
//! difference exceeds the margin with a normal chance, and u² (2r−2) is chi-squared.
//!
//! **Prompts or generations?** Held-out prompts are the same for both recipes and every evaluation, so
//! only their product N makes noise; but the value on all prompts of the kind is known no better than
//! the prompts are many. So with a given N: more prompts, fewer generations.
//!
//! Not here: where s, f and p come from (`pilot.rs`).

use scalerl_curve::{binomial_deviation, normal_cdf};
use serde::Serialize;

use crate::margin::Spread;

/// Evaluations in the mean that an end is.
const ENDING: f64 = 3.0;
/// One-sided 95 % of the normal distribution.
const NORMAL_95: f64 = 1.645;
/// Steps of the sum over ŝ, and the largest u in it.
const STEPS: u32 = 400;
const LARGEST: f64 = 5.0;
/// More seeds of a recipe than this are no plan.
pub const MOST_SEEDS: u32 = 64;
/// More completions in an evaluation than this are no plan.
const MOST_COMPLETIONS: f64 = 1e7;
/// Fewer than this do not give a pass rate.
const LEAST_COMPLETIONS: f64 = 64.0;

/// What is known of the noise of a task.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Noise {
    /// Pass rate at the end.
    pub rate: f64,
    /// Standard deviation between seeds, the noise of evaluations taken out.
    pub between_seeds: f64,
    /// Noise of an evaluation over binomial.
    pub over_binomial: f64,
}

impl Noise {
    /// Standard deviation of one evaluation.
    pub fn of_evaluation(&self, completions: f64) -> f64 {
        self.over_binomial * binomial_deviation(completions, self.rate)
    }

    /// Standard deviation of the end of one run.
    pub fn of_end(&self, completions: f64) -> f64 {
        self.between_seeds.hypot(self.of_evaluation(completions) / ENDING.sqrt())
    }

    /// The chance that a study of so many seeds of each of two recipes sees a difference between
    /// their ends; at least two seeds.
    pub fn power(&self, difference: f64, seeds: u32, completions: f64) -> f64 {
        let seeds = seeds.max(2);
        let sd = self.of_end(completions);
        let runs = (2.0 / f64::from(seeds)).sqrt();
        let sampling =
            NORMAL_95 * binomial_deviation(completions, self.rate) / ENDING.sqrt() * runs;
        let seen = |u: f64| {
            let pooled =
                Spread { deviation: sd * u, largest: 0.0, freedom: 2 * seeds as usize - 2 };
            let margin = pooled.margin(seeds as usize, seeds as usize).max(sampling);
            normal_cdf((difference - margin) / (sd * runs))
        };
        // Simpson's rule over the density of u = ŝ/σ.
        let step = LARGEST / f64::from(STEPS);
        let weight = |k: u32| match k {
            0 | STEPS => 1.0,
            k if k % 2 == 1 => 4.0,
            _ => 2.0,
        };
        let part = |k: u32| {
            let u = f64::from(k) * step;
            weight(k) * spread_density(u, seeds) * seen(u)
        };
        (0..=STEPS).map(part).sum::<f64>() * step / 3.0
    }

    /// The smallest difference that is seen with a chance of `power`.
    pub fn resolves(&self, power: f64, seeds: u32, completions: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        while high - low > 1e-5 {
            let middle = f64::midpoint(low, high);
            if self.power(middle, seeds, completions) < power {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// The fewest completions of an evaluation with which so many seeds see a difference with a
    /// chance of `power`; `None` where none are enough, because seeds differ too much.
    pub fn completions_for(&self, difference: f64, power: f64, seeds: u32) -> Option<f64> {
        let is_enough = |count: f64| self.power(difference, seeds, count) >= power;
        if !is_enough(MOST_COMPLETIONS) {
            return None;
        }
        let (mut low, mut high) = (LEAST_COMPLETIONS.ln(), MOST_COMPLETIONS.ln());
        if is_enough(LEAST_COMPLETIONS) {
            return Some(LEAST_COMPLETIONS);
        }
        while high - low > 1e-4 {
            let middle = f64::midpoint(low, high);
            if is_enough(middle.exp()) {
                high = middle;
            } else {
                low = middle;
            }
        }
        Some(high.exp().ceil())
    }

    /// The fewest seeds that see a difference with a chance of `power` at a size of evaluation.
    pub fn seeds_for(&self, difference: f64, power: f64, completions: f64) -> Option<u32> {
        (2..=MOST_SEEDS).find(|seeds| self.power(difference, *seeds, completions) >= power)
    }
}

/// Density of u = √(χ²/ν) with ν = 2r − 2 degrees of freedom: 2 n^n / (n−1)! u^(2n−1) e^(−n u²) with
/// n = r − 1.
fn spread_density(u: f64, seeds: u32) -> f64 {
    let n = f64::from(seeds - 1);
    let log_factorial: f64 = (2..seeds - 1).map(|k| f64::from(k).ln()).sum();
    if u <= 0.0 {
        return 0.0;
    }
    (2.0_f64.ln() + n * n.ln() - log_factorial + (2.0 * n - 1.0) * u.ln() - n * u * u).exp()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng as _;
    use rand_distr::{Distribution as _, StandardNormal};

    use super::*;

    /// The study made many times, read off its sentence: runs, three evaluations each, pooled spread,
    /// margin. The share that sees the difference.
    fn simulated(noise: &Noise, difference: f64, seeds: usize, completions: f64) -> f64 {
        const STUDIES: u32 = 4000;
        let mut dice = ChaCha8Rng::seed_from_u64(11);
        let mut draw = || -> f64 { StandardNormal.sample(&mut dice) };
        let evaluation = noise.of_evaluation(completions);
        let mut seen = 0;
        for _ in 0..STUDIES {
            let mut recipe = |mean: f64| -> Vec<f64> {
                let mut end = || {
                    let run = mean + noise.between_seeds * draw();
                    run + (0..3).map(|_| evaluation * draw()).sum::<f64>() / 3.0
                };
                (0..seeds).map(|_| end()).collect()
            };
            let (a, b) = (recipe(difference), recipe(0.0));
            let mean = |ends: &[f64]| ends.iter().sum::<f64>() / ends.len() as f64;
            let found = mean(&a) - mean(&b);
            let spread = Spread::pooled(&[a, b]).unwrap();
            let binomial = (noise.rate * (1.0 - noise.rate) / completions / 3.0).sqrt();
            let error = binomial / (seeds as f64).sqrt();
            let margin = spread.margin(seeds, seeds).max(1.645 * error.hypot(error));
            seen += u32::from(found > margin);
        }
        f64::from(seen) / f64::from(STUDIES)
    }

    #[test]
    fn the_promised_power_is_met_by_simulated_studies() {
        let cases = [
            (0.78, 0.006, 0.6, 0.02, 3, 4096.0),
            (0.78, 0.006, 0.6, 0.02, 2, 4096.0),
            (0.50, 0.010, 1.0, 0.02, 5, 1000.0),
            (0.30, 0.002, 0.6, 0.01, 4, 2000.0),
            (0.78, 0.015, 0.6, 0.02, 8, 4096.0),
            (0.78, 0.0, 0.6, 0.01, 3, 4096.0),
        ];
        for (rate, between_seeds, over_binomial, difference, seeds, completions) in cases {
            let noise = Noise { rate, between_seeds, over_binomial };
            let promised = noise.power(difference, seeds, completions);
            let found = simulated(&noise, difference, seeds as usize, completions);
            // Three standard errors of 4,000 studies.
            assert!((promised - found).abs() < 0.024, "{noise:?} {seeds}: {promised} {found}");
        }
    }

    #[test]
    fn what_is_planned_for_a_difference_sees_it() {
        let noise = Noise { rate: 0.75, between_seeds: 0.008, over_binomial: 0.6 };
        let seeds = noise.seeds_for(0.02, 0.8, 4096.0).unwrap();
        let found = simulated(&noise, 0.02, seeds as usize, 4096.0);
        assert!(found > 0.78, "{seeds} seeds see it in {found}");
        assert!(simulated(&noise, 0.02, seeds as usize - 1, 4096.0) < 0.82);
        let completions = noise.completions_for(0.02, 0.8, seeds).unwrap();
        assert!(completions <= 4096.0);
        assert!(simulated(&noise, 0.02, seeds as usize, completions) > 0.78);
    }

    #[test]
    fn where_seeds_differ_too_much_no_evaluation_is_large_enough() {
        let noise = Noise { rate: 0.75, between_seeds: 0.05, over_binomial: 0.6 };
        assert_eq!(noise.completions_for(0.02, 0.8, 3), None);
        assert!(noise.resolves(0.8, 3, 1e6) > 0.05);
    }

    fn noises() -> impl Strategy<Value = Noise> {
        (0.1..0.9_f64, 0.0..0.03_f64, 0.3..1.2_f64).prop_map(|(rate, between_seeds, f)| Noise {
            rate,
            between_seeds,
            over_binomial: f,
        })
    }

    proptest! {
        #[test]
        fn the_density_of_the_spread_sums_to_one(seeds in 2..=MOST_SEEDS) {
            let sum: f64 =
                (0..20_000).map(|k| spread_density(f64::from(k) * 2.5e-4, seeds) * 2.5e-4).sum();
            prop_assert!((sum - 1.0).abs() < 1e-3, "{}", sum);
        }

        #[test]
        fn more_of_anything_is_seen_more_often(
            noise in noises(), difference in 0.002..0.05_f64, seeds in 2..20_u32,
            completions in 100.0..20_000.0_f64,
        ) {
            let power = noise.power(difference, seeds, completions);
            prop_assert!((0.0..=1.0 + 1e-6).contains(&power));
            prop_assert!(noise.power(1.2 * difference, seeds, completions) >= power - 1e-6);
            prop_assert!(noise.power(difference, seeds + 1, completions) >= power - 1e-3);
            prop_assert!(noise.power(difference, seeds, 2.0 * completions) >= power - 1e-3);
            // No difference is seen in one study of twenty at most; quantiles of Student's t are
            // within 0.01.
            prop_assert!(noise.power(0.0, seeds, completions) < 0.0515);
        }

        #[test]
        fn what_is_resolved_has_its_power(
            noise in noises(), seeds in 2..12_u32, completions in 200.0..9000.0_f64,
        ) {
            let difference = noise.resolves(0.8, seeds, completions);
            prop_assert!((noise.power(difference, seeds, completions) - 0.8).abs() < 5e-3);
        }
    }
}
