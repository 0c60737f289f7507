//! PPO's clip per token: symmetric bounds are GRPO's, a wider upper one DAPO's.
//!
//! loss = − Σ_t w_t · min(ρ_t Â, clip(ρ_t, 1 − low, 1 + high) Â)
//!
//! A token pushed past its bound in the direction its advantage wants has no gradient.

use super::{Sequence, SequenceLoss};

/// A completion's loss.
pub fn clip(sequence: &Sequence<'_>, low: f64, high: f64) -> SequenceLoss {
    let mut result = SequenceLoss::zero(sequence.trainer.len());
    let advantage = sequence.advantage;
    for (t, log_ratio) in sequence.token_log_ratios().iter().enumerate() {
        let (ratio, weight) = (log_ratio.exp(), sequence.weights[t]);
        let (free, bound) = (ratio * advantage, ratio.clamp(1.0 - low, 1.0 + high) * advantage);
        result.loss -= weight * free.min(bound);
        // dρ/dlog π = ρ on the free branch; the clipped one is constant.
        result.gradient[t] = if free <= bound { -weight * free } else { 0.0 };
        result.is_clipped[t] = weight > 0.0 && bound < free;
    }
    result
}
