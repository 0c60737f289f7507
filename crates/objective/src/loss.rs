//! The loss of a batch: surrogate, KL to a reference, entropy bonus.
//!
//! loss = Σ sequences [ surrogate + Σ_t w_t (β · KL_t − α · H_t) ]
//!
//! KL and entropy use the same weights as the surrogate, so they are averaged the way it is. This
//! is the scalar reference; `worker` has the tensor form and is judged by this one.

use scalerl_recipe::{Kl, Objective};
use scalerl_rollout::TrainSequence;

use crate::{
    kl,
    ratio::{RatioSums, log_ratios},
    surrogate::{Sequence, SequenceLoss, surrogate_loss},
};

/// What a forward pass gives for one sequence. The lists have the completion's length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossInputs<'a> {
    /// Log-probs under the policy being trained, at the sampling temperature.
    pub trainer: &'a [f64],
    /// Log-probs under the reference model; read only when the recipe has a KL penalty.
    pub reference: &'a [f64],
    /// Entropy of the policy at each token; read only when the recipe has a bonus.
    pub entropy: &'a [f64],
}

/// The loss of some sequences and its gradient with respect to the trainer's log-probs.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchLoss {
    /// To be minimised.
    pub loss: f64,
    /// One list per sequence. The entropy bonus acts through the logits and is not in here.
    pub gradients: Vec<Vec<f64>>,
    /// Weighted mean of the KL estimate; 0 without a reference.
    pub reference_kl: f64,
    /// Trainer against generator.
    pub ratio: RatioSums,
}

/// Loss of a batch or of any part of it; parts add up.
///
/// # Panics
/// When the inputs do not fit the sequences: one entry each, of the completion's length.
pub fn loss(
    objective: &Objective,
    sequences: &[TrainSequence],
    inputs: &[LossInputs<'_>],
) -> BatchLoss {
    assert_eq!(sequences.len(), inputs.len(), "one forward pass per sequence");
    let mut total =
        BatchLoss { loss: 0.0, gradients: vec![], reference_kl: 0.0, ratio: RatioSums::default() };
    for (sequence, inputs) in sequences.iter().zip(inputs) {
        let generator: Vec<f64> =
            sequence.generator_logprobs.iter().copied().map(f64::from).collect();
        let view = Sequence {
            trainer: inputs.trainer,
            generator: &generator,
            weights: &sequence.weights,
            advantage: sequence.advantage,
        };
        assert_eq!(view.trainer.len(), view.weights.len(), "one log-prob per token");
        let mut part = surrogate_loss(objective, &view);
        count_ratios(&mut total.ratio, objective, &view, &part);
        total.reference_kl += add_kl(&objective.kl, &view, inputs.reference, &mut part);
        total.loss += part.loss - entropy_bonus(objective.entropy_bonus, &view, inputs.entropy);
        total.gradients.push(part.gradient);
    }
    total
}

/// Adds β Σ w KL to a completion's loss; returns Σ w KL.
fn add_kl(kl: &Kl, sequence: &Sequence<'_>, reference: &[f64], part: &mut SequenceLoss) -> f64 {
    let (estimator, coefficient): (fn(f64, f64) -> kl::Penalty, f64) = match kl {
        Kl::None => return 0.0,
        Kl::K1 { coefficient } => (kl::k1, *coefficient),
        Kl::K2 { coefficient } => (kl::k2, *coefficient),
        Kl::K3 { coefficient } => (kl::k3, *coefficient),
    };
    let mut sum = 0.0;
    let trained = sequence.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
    for (t, weight) in trained {
        let penalty = estimator(sequence.trainer[t], reference[t]);
        sum += weight * penalty.value;
        part.gradient[t] += coefficient * weight * penalty.slope;
    }
    part.loss += coefficient * sum;
    sum
}

fn entropy_bonus(coefficient: f64, sequence: &Sequence<'_>, entropy: &[f64]) -> f64 {
    if coefficient > 0.0 {
        coefficient * sequence.weights.iter().zip(entropy).map(|(w, h)| w * h).sum::<f64>()
    } else {
        0.0
    }
}

fn count_ratios(
    sums: &mut RatioSums,
    objective: &Objective,
    sequence: &Sequence<'_>,
    part: &SequenceLoss,
) {
    let used = log_ratios(&objective.ratio, sequence);
    for (t, own) in sequence.token_log_ratios().iter().enumerate() {
        if sequence.weights[t] > 0.0 {
            sums.add(used[t], *own, part.is_clipped[t]);
        }
    }
}
