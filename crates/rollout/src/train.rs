//! What a trainer is given and what it reports.

use serde::{Deserialize, Serialize};

use crate::version::PolicyVersion;

/// One completion ready for training. Made by `objective`, used by trainers.
///
/// `completion_token_ids`, `generator_logprobs` and `weights` share a length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainSequence {
    /// Context: read, never trained on.
    pub prompt_token_ids: Vec<u32>,
    /// Tokens in order, injected ones included.
    pub completion_token_ids: Vec<u32>,
    /// Log-probs recorded when the tokens were drawn: the ratio's denominator.
    pub generator_logprobs: Vec<f32>,
    /// Share of the batch's loss that each token has: its mask and every denominator in one
    /// number, so that losses of micro-batches and ranks simply add up. Exactly 0 where the token
    /// carries no loss, above 0 everywhere else.
    pub weights: Vec<f64>,
    /// Advantage of the whole completion.
    pub advantage: f64,
}

/// The work of one optimizer step. Made by `objective`, used by trainers in pieces of any size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainBatch {
    /// Temperature the tokens were drawn at; the trainer divides its logits by the same.
    pub temperature: f32,
    /// Sequences with at least one token that carries loss.
    pub sequences: Vec<TrainSequence>,
}

/// How far trainer and generator are apart on the tokens of a step. Made by `objective`.
///
/// Taken over the tokens that carry loss, of the ratio the loss uses: trainer's probability over
/// generator's, of the token or of its sequence. The KL estimates are always of single tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioStats {
    /// Tokens counted.
    pub tokens: u64,
    /// Mean ratio; 1 in expectation when the generator's policy is trained on.
    pub mean: f64,
    /// Smallest ratio.
    pub min: f64,
    /// Largest ratio.
    pub max: f64,
    /// Share of tokens whose ratio was capped or clipped.
    pub clip_fraction: f64,
    /// (Σ ratio)² / (n Σ ratio²), in (0, 1]: 1 when all ratios are equal.
    pub effective_sample_share: f64,
    /// Mean of −log ratio: unbiased estimate of KL(generator, trainer); can be negative.
    pub kl_k1: f64,
    /// Mean of ratio − 1 − log ratio: estimate of the same that is never negative.
    pub kl_k3: f64,
    /// Mean of |log ratio|: how far apart the two are on the same weights is rounding, and this
    /// shows it where the KL estimates, which are of second order, show 0. 0 in folders of releases
    /// that did not write it.
    #[serde(default)]
    pub mean_abs_log: f64,
}

/// What one optimizer step did. Made by a trainer, used by the engine and the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// The version this step made.
    pub version: PolicyVersion,
    /// Loss of the batch, KL and entropy terms included.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// Mean entropy of the policy over the tokens that carry loss, in nats.
    pub entropy: f64,
    /// KL to the reference model, where the recipe asks for one.
    pub reference_kl: Option<f64>,
    /// Trainer against generator.
    pub ratio: RatioStats,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Tokens run through the model, prompts included.
    pub tokens: u64,
    /// Tokens that carry loss.
    pub trained_tokens: u64,
    /// Floating-point operations the step needs, activations computed again not counted.
    pub model_flops: f64,
    /// Wall-clock time of the step.
    pub seconds: f64,
    /// Peak memory of the trainer so far, where it is known: of its device, or of its process on a
    /// CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}
