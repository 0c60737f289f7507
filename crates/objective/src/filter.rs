//! Groups that have nothing to teach.
//!
//! When all rewards of a prompt are equal every advantage is 0. Such a group leaves the batch,
//! which shrinks (ScaleRL) or is refilled (DAPO); the second is the engine's work, so the question
//! is answered here for single groups too.

use scalerl_recipe::{Filter, Objective};
use scalerl_rollout::Group;

use crate::length::shaped_rewards;

/// Spread below this is rounding noise, not variance.
const NOISE: f64 = 1e-9;

/// Whether rewards differ at all.
pub fn has_variance(rewards: &[f64]) -> bool {
    let low = rewards.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rewards.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    high - low > NOISE
}

/// Whether the filter lets a group into the batch. Judged on the rewards that advantages are made
/// from, length penalty included: a group with spread there has a gradient.
pub fn keeps(objective: &Objective, group: &Group) -> bool {
    match objective.filter {
        Filter::None => true,
        Filter::ZeroVarianceShrink | Filter::ZeroVarianceRefill { .. } => {
            has_variance(&shaped_rewards(&objective.length_control, group))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_noise_is_not_variance() {
        assert!(!has_variance(&[0.1 + 0.2, 0.3]));
        assert!(has_variance(&[1.0, -1.0, 1.0]));
        assert!(!has_variance(&[1.0]) && !has_variance(&[]));
    }
}
