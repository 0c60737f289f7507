//! The length penalty: correct but long answers lose reward.
//!
//! clip((L_max − |y|) / L_cache − 1, −1, 0): nothing up to L_max − L_cache tokens, a whole point at
//! L_max (DAPO, arXiv 2503.14476; in ScaleRL the rival of interruptions, on correct answers only).

use scalerl_recipe::LengthControl;
use scalerl_rollout::{Group, Rollout};

/// What a completion of `tokens` tokens loses, between −1 and 0.
pub fn length_penalty(tokens: usize, max_tokens: u32, cache_tokens: u32) -> f64 {
    let left = f64::from(max_tokens) - tokens as f64;
    (left / f64::from(cache_tokens) - 1.0).clamp(-1.0, 0.0)
}

/// The rewards that advantages are made from.
pub fn shaped_rewards(control: &LengthControl, group: &Group) -> Vec<f64> {
    let shaped = |rollout: &Rollout| {
        let penalty = match control {
            LengthControl::Penalty { max_tokens, cache_tokens } if rollout.reward.is_correct => {
                length_penalty(rollout.tokens(), *max_tokens, *cache_tokens)
            }
            _ => 0.0,
        };
        rollout.reward.value + penalty
    };
    group.rollouts.iter().map(shaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_grows_over_the_cache_and_stops_at_one() {
        for (tokens, expected) in [(0, 0.0), (800, 0.0), (900, -0.5), (1000, -1.0), (5000, -1.0)] {
            let found = length_penalty(tokens, 1000, 200);
            assert!((found - expected).abs() < 1e-12, "{tokens} tokens: {found}");
        }
    }
}
