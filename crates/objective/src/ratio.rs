//! How far the trainer is from the generator on the tokens it trains on.
//!
//! The ratio is π_train / π_gen; the denominator is the log-prob recorded when the token was
//! drawn, and both are at the sampling temperature. Per completion it is the geometric mean over
//! the tokens that carry loss (GSPO). Sums are kept, not means, so that pieces of a batch add up.

use scalerl_recipe::RatioGrain;
use scalerl_rollout::RatioStats;

use crate::surrogate::Sequence;

/// The log ratio that each token's loss uses. Tokens without loss have 0.
pub fn log_ratios(grain: &RatioGrain, sequence: &Sequence<'_>) -> Vec<f64> {
    let own = sequence.token_log_ratios();
    match grain {
        RatioGrain::Token => own,
        RatioGrain::Sequence => {
            let mean = own.iter().sum::<f64>() / sequence.trained_tokens().max(1) as f64;
            sequence.weights.iter().map(|w| if *w > 0.0 { mean } else { 0.0 }).collect()
        }
    }
}

/// Running sums from which [`RatioStats`] are made. Tensor forms fill the fields themselves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioSums {
    /// Tokens counted.
    pub tokens: u64,
    /// Σ ratio.
    pub ratio: f64,
    /// Σ ratio².
    pub ratio_squared: f64,
    /// Smallest ratio.
    pub min: f64,
    /// Largest ratio.
    pub max: f64,
    /// Tokens that were capped or clipped.
    pub clipped: u64,
    /// Σ −log of the tokens' own ratios.
    pub minus_log: f64,
    /// Σ (ratio − 1 − log ratio) of the tokens' own ratios.
    pub k3: f64,
    /// Σ |log| of the tokens' own ratios.
    pub abs_log: f64,
}

impl Default for RatioSums {
    fn default() -> Self {
        Self {
            tokens: 0,
            ratio: 0.0,
            ratio_squared: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            clipped: 0,
            minus_log: 0.0,
            k3: 0.0,
            abs_log: 0.0,
        }
    }
}

impl RatioSums {
    /// Counts one token: the log ratio its loss uses, its own log ratio, and whether it was
    /// capped or clipped.
    pub fn add(&mut self, log_ratio: f64, own_log_ratio: f64, is_clipped: bool) {
        let ratio = log_ratio.exp();
        self.tokens += 1;
        self.ratio += ratio;
        self.ratio_squared += ratio * ratio;
        self.min = self.min.min(ratio);
        self.max = self.max.max(ratio);
        self.clipped += u64::from(is_clipped);
        self.minus_log -= own_log_ratio;
        self.k3 += own_log_ratio.exp_m1() - own_log_ratio;
        self.abs_log += own_log_ratio.abs();
    }

    /// Adds the sums of another piece of the batch.
    pub fn merge(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.ratio += other.ratio;
        self.ratio_squared += other.ratio_squared;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.clipped += other.clipped;
        self.minus_log += other.minus_log;
        self.k3 += other.k3;
        self.abs_log += other.abs_log;
    }

    /// The statistics; `None` before the first token.
    pub fn finish(&self) -> Option<RatioStats> {
        let count = self.tokens as f64;
        (self.tokens > 0).then(|| RatioStats {
            tokens: self.tokens,
            mean: self.ratio / count,
            min: self.min,
            max: self.max,
            clip_fraction: self.clipped as f64 / count,
            effective_sample_share: self.ratio.powi(2) / (count * self.ratio_squared),
            kl_k1: self.minus_log / count,
            kl_k3: self.k3 / count,
            mean_abs_log: self.abs_log / count,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sums(log_ratios: &[f64]) -> RatioSums {
        let mut sums = RatioSums::default();
        for value in log_ratios {
            sums.add(*value, *value, *value > 0.5);
        }
        sums
    }

    #[test]
    fn equal_policies_have_ratio_one_and_full_effective_sample() {
        let stats = sums(&[0.0; 7]).finish().unwrap();
        let expected = RatioStats {
            tokens: 7,
            mean: 1.0,
            min: 1.0,
            max: 1.0,
            clip_fraction: 0.0,
            effective_sample_share: 1.0,
            kl_k1: 0.0,
            kl_k3: 0.0,
            mean_abs_log: 0.0,
        };
        assert_eq!(stats, expected);
        assert_eq!(RatioSums::default().finish(), None);
    }

    #[test]
    fn one_heavy_token_uses_up_the_effective_sample() {
        let stats = sums(&[0.0, 0.0, 0.0, 1000.0_f64.ln()]).finish().unwrap();
        assert!((stats.effective_sample_share - 0.25).abs() < 0.01, "{stats:?}");
        assert!((stats.clip_fraction - 0.25).abs() < 1e-12);
    }

    #[test]
    fn differences_of_both_signs_do_not_cancel() {
        let stats = sums(&[1e-5, -3e-5]).finish().unwrap();
        assert!((stats.mean_abs_log - 2e-5).abs() < 1e-12, "{stats:?}");
        assert!((stats.kl_k1 - 1e-5).abs() < 1e-12, "{stats:?}");
    }

    proptest! {
        #[test]
        fn pieces_add_up(values in prop::collection::vec(-3.0..3.0, 2..40), cut in 1_usize..39) {
            let cut = cut.min(values.len() - 1);
            let mut left = sums(&values[..cut]);
            left.merge(&sums(&values[cut..]));
            let (pieces, whole) = (left.finish().unwrap(), sums(&values).finish().unwrap());
            prop_assert!((pieces.mean - whole.mean).abs() < 1e-9);
            prop_assert!((pieces.kl_k3 - whole.kl_k3).abs() < 1e-9);
            prop_assert!((pieces.mean_abs_log - whole.mean_abs_log).abs() < 1e-9);
            prop_assert!(
                (pieces.effective_sample_share - whole.effective_sample_share).abs() < 1e-9
            );
            prop_assert!(whole.effective_sample_share <= 1.0 + 1e-12 && whole.kl_k3 >= 0.0);
        }
    }
}
