//! Prompts that are drawn again: what became of them since the last time.
//!
//! The pass rate of training falls by itself where solved prompts leave the training set
//! (No-Positive-Resampling), so it says nothing about the policy. The same prompt, before and now,
//! does. The comparison errs on the safe side: a prompt is drawn again because it was not solved the
//! last time, so luck alone makes it look better now. In a first epoch no prompt is drawn again, and
//! nothing is said.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Differences that are looked at.
const WINDOW: usize = 256;
/// Differences that are enough to say something.
const ENOUGH: usize = 64;
/// Times the standard error.
const BAR: f64 = 4.5;
/// A smaller mean difference matters to nobody.
pub(super) const LEAST: f64 = 0.05;

/// The newest differences of pass rates, now less before.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct DrawnAgain {
    differences: VecDeque<f64>,
}

impl DrawnAgain {
    pub(super) fn push(&mut self, before: f64, now: f64) {
        if self.differences.len() == WINDOW {
            self.differences.pop_front();
        }
        self.differences.push_back(now - before);
    }

    /// The mean difference.
    pub(super) fn mean(&self) -> f64 {
        self.differences.iter().sum::<f64>() / self.differences.len().max(1) as f64
    }

    /// Whether they are worse beyond chance.
    pub(super) fn has_fallen(&self) -> bool {
        let (count, mean) = (self.differences.len(), self.mean());
        if count < ENOUGH || mean > -LEAST {
            return false;
        }
        let squares = self.differences.iter().map(|difference| (difference - mean).powi(2));
        let variance = squares.sum::<f64>() / (count - 1) as f64;
        mean < -BAR * (variance / count as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
    use rand_distr::{Bernoulli, Distribution as _, Uniform};

    fn passed(rng: &mut ChaCha8Rng, rate: f64) -> f64 {
        f64::from(
            (0..16).map(|_| u32::from(Bernoulli::new(rate).unwrap().sample(rng))).sum::<u32>(),
        ) / 16.0
    }

    /// Draws prompts of their own difficulty until they are solved, as the curriculum does; `change` is
    /// what every draw adds to the policy's chance. Whether a fall was told.
    fn told(rng: &mut ChaCha8Rng, change: f64) -> bool {
        let mut prompts: Vec<(f64, Option<f64>)> =
            (0..200).map(|_| (Uniform::new(0.2, 0.95).unwrap().sample(rng), None)).collect();
        let mut again = DrawnAgain::default();
        for epoch in 0..8 {
            prompts.retain(|(_, before)| before.is_none_or(|rate| rate < 0.9));
            for (rate, before) in &mut prompts {
                let now = passed(rng, (*rate + change * f64::from(epoch)).clamp(0.0, 1.0));
                if let Some(before) = before {
                    again.push(*before, now);
                }
                *before = Some(now);
                if again.has_fallen() {
                    return true;
                }
            }
        }
        false
    }

    #[test]
    fn a_curriculum_that_takes_solved_prompts_away_is_no_fall() {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        for change in [0.0, 0.02] {
            let alarms = (0..200).filter(|_| told(&mut rng, change)).count();
            assert!(alarms <= 2, "{alarms} of 200 at {change}");
        }
    }

    #[test]
    fn a_policy_that_gets_worse_is_told() {
        let mut rng = ChaCha8Rng::seed_from_u64(10);
        let alarms = (0..200).filter(|_| told(&mut rng, -0.1)).count();
        assert!(alarms >= 190, "{alarms} of 200");
    }
}
