//! CISPO (MiniMax-M1, arXiv 2506.13585), as ScaleRL uses it: the ratio is capped and held constant.
//!
//! loss = − Σ_t w_t · stop_gradient(min(ρ_t, cap)) · Â · log π(y_t)
//!
//! The cap is absolute, not 1 + ε. No token loses its gradient, however far its ratio has gone. The
//! ratio may be the token's or the sequence's: no gradient flows through it either way.

use super::{Sequence, SequenceLoss};

/// A completion's loss; `log_ratios` as [`crate::ratio::log_ratios`] gives them.
pub fn cispo(sequence: &Sequence<'_>, log_ratios: &[f64], cap: f64) -> SequenceLoss {
    let mut result = SequenceLoss::zero(sequence.trainer.len());
    for (t, log_ratio) in log_ratios.iter().enumerate() {
        let ratio = log_ratio.exp();
        let slope = -sequence.weights[t] * ratio.min(cap) * sequence.advantage;
        result.loss += slope * sequence.trainer[t];
        result.gradient[t] = slope;
        result.is_clipped[t] = sequence.weights[t] > 0.0 && ratio > cap;
    }
    result
}
