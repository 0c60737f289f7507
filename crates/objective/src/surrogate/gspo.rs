//! GSPO (arXiv 2507.18071): PPO's clip on one ratio per completion.
//!
//! s = exp(mean over tokens of log ρ_t)      loss = − W · min(s Â, clip(s, 1 − low, 1 + high) Â)
//!
//! W is the sum of the completion's token weights. The gradient reaches every token alike:
//! ds / dlog π(y_t) = s / |y|, over the tokens that carry loss.

use super::{Sequence, SequenceLoss};

/// A completion's loss.
pub fn gspo(sequence: &Sequence<'_>, low: f64, high: f64) -> SequenceLoss {
    let mut result = SequenceLoss::zero(sequence.trainer.len());
    let tokens = sequence.trained_tokens().max(1) as f64;
    let total_weight: f64 = sequence.weights.iter().sum();
    let ratio = (sequence.token_log_ratios().iter().sum::<f64>() / tokens).exp();
    let free = ratio * sequence.advantage;
    let bound = ratio.clamp(1.0 - low, 1.0 + high) * sequence.advantage;
    result.loss = -total_weight * free.min(bound);
    let trained = (0..sequence.weights.len()).filter(|t| sequence.weights[*t] > 0.0);
    for t in trained {
        result.gradient[t] = if free <= bound { -total_weight * free / tokens } else { 0.0 };
        result.is_clipped[t] = bound < free;
    }
    result
}
