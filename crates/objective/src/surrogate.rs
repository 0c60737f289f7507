//! How the ratio enters the loss: one file per surrogate, each with its gradient.
//!
//! Every function takes one completion and returns its part of the batch's loss and the gradient
//! with respect to the trainer's log-probs. Parts simply add up, because a token's weight already
//! holds every denominator.

pub mod cispo;
pub mod clip;
pub mod gspo;
pub mod reinforce;

use scalerl_recipe::{Objective, RatioGrain, Surrogate};

use crate::ratio::log_ratios;

/// One completion as the losses see it. The three slices share a length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sequence<'a> {
    /// Log-probs under the policy being trained, at the sampling temperature.
    pub trainer: &'a [f64],
    /// Log-probs recorded by the generator when it drew the tokens.
    pub generator: &'a [f64],
    /// Each token's share of the loss; exactly 0 where it carries none.
    pub weights: &'a [f64],
    /// Advantage of the completion.
    pub advantage: f64,
}

impl Sequence<'_> {
    /// Tokens that carry loss.
    pub fn trained_tokens(&self) -> usize {
        self.weights.iter().filter(|weight| **weight > 0.0).count()
    }

    /// Log ratio of each token that carries loss; 0 for the others, whose recorded log-prob means
    /// nothing.
    pub fn token_log_ratios(&self) -> Vec<f64> {
        let pairs = self.trainer.iter().zip(self.generator).zip(self.weights);
        pairs.map(|((new, old), weight)| if *weight > 0.0 { new - old } else { 0.0 }).collect()
    }
}

/// A completion's part of the loss. The two lists have the sequence's length.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceLoss {
    /// To be minimised.
    pub loss: f64,
    /// Derivative with respect to each of the trainer's log-probs.
    pub gradient: Vec<f64>,
    /// Tokens whose ratio was capped or clipped.
    pub is_clipped: Vec<bool>,
}

impl SequenceLoss {
    /// No loss, no gradient.
    pub(crate) fn zero(tokens: usize) -> Self {
        Self { loss: 0.0, gradient: vec![0.0; tokens], is_clipped: vec![false; tokens] }
    }
}

/// A completion's part of the loss by the surrogate that the recipe names.
pub fn surrogate_loss(objective: &Objective, sequence: &Sequence<'_>) -> SequenceLoss {
    match (&objective.surrogate, &objective.ratio) {
        (Surrogate::Cispo { cap }, grain) => {
            cispo::cispo(sequence, &log_ratios(grain, sequence), *cap)
        }
        (Surrogate::Clip { low, high }, RatioGrain::Token) => clip::clip(sequence, *low, *high),
        (Surrogate::Clip { low, high }, RatioGrain::Sequence) => gspo::gspo(sequence, *low, *high),
        (Surrogate::None, _) => reinforce::reinforce(sequence),
    }
}
