//! No surrogate: the plain policy gradient, with no correction for off-policy tokens.
//!
//! loss = − Σ_t w_t · Â · log π(y_t)

use super::{Sequence, SequenceLoss};

/// A completion's loss.
pub fn reinforce(sequence: &Sequence<'_>) -> SequenceLoss {
    let mut result = SequenceLoss::zero(sequence.trainer.len());
    for (t, weight) in sequence.weights.iter().enumerate() {
        result.gradient[t] = -weight * sequence.advantage;
        result.loss += result.gradient[t] * sequence.trainer[t];
    }
    result
}
