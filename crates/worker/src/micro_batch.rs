//! From a step's sequences to pieces that fit the device: packed tokens and the loss's vectors.
//!
//! A prompt is packed in front of each of its completions. Only tokens with a weight are scored;
//! everything else is context. How a batch is cut changes memory and speed, never the result.

use scalerl_model::packed::share_out;
use scalerl_model::train::{BatchError, TrainingBatch};
use scalerl_recipe::{Objective, RatioGrain};
use scalerl_rollout::{TrainBatch, TrainSequence};
use scalerl_torch::shim::upload;
use tch::{Device, TchError};
use thiserror::Error;

use crate::loss::{Segments, TokenInputs};

/// Why a sequence cannot be trained on: whoever made it is broken.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SequenceProblem {
    #[error("its prompt is empty, so nothing predicts its first token")]
    NoPrompt,
    #[error("{tokens} tokens, {logprobs} log-probs and {weights} weights; the three must be equal")]
    Lengths { tokens: usize, logprobs: usize, weights: usize },
    #[error("none of its tokens carries loss")]
    NoLoss,
    #[error("the advantage is {advantage}")]
    Advantage { advantage: f64 },
    #[error("token {token} has weight {weight}; weights are finite and not below 0")]
    Weight { token: usize, weight: f64 },
    #[error("token {token} was recorded with log-prob {logprob}")]
    Logprob { token: usize, logprob: f32 },
    #[error("token id {id} is outside the vocabulary of {vocabulary}")]
    Vocabulary { id: u32, vocabulary: i64 },
}

/// Checks a sequence by itself.
pub fn check(sequence: &TrainSequence, vocabulary: i64) -> Result<(), SequenceProblem> {
    let tokens = sequence.completion_token_ids.len();
    let (logprobs, weights) = (sequence.generator_logprobs.len(), sequence.weights.len());
    if tokens != logprobs || tokens != weights {
        return Err(SequenceProblem::Lengths { tokens, logprobs, weights });
    }
    if sequence.prompt_token_ids.is_empty() {
        return Err(SequenceProblem::NoPrompt);
    }
    if !sequence.advantage.is_finite() {
        return Err(SequenceProblem::Advantage { advantage: sequence.advantage });
    }
    let mut ids = sequence.prompt_token_ids.iter().chain(&sequence.completion_token_ids);
    if let Some(&id) = ids.find(|id| i64::from(**id) >= vocabulary) {
        return Err(SequenceProblem::Vocabulary { id, vocabulary });
    }
    for (token, &weight) in sequence.weights.iter().enumerate() {
        if !weight.is_finite() || weight < 0.0 {
            return Err(SequenceProblem::Weight { token, weight });
        }
        let logprob = sequence.generator_logprobs[token];
        if weight > 0.0 && !logprob.is_finite() {
            return Err(SequenceProblem::Logprob { token, logprob });
        }
    }
    if sequence.weights.iter().all(|weight| *weight <= 0.0) {
        return Err(SequenceProblem::NoLoss);
    }
    Ok(())
}

/// Tokens of a sequence, prompt included.
pub fn length(sequence: &TrainSequence) -> usize {
    sequence.prompt_token_ids.len() + sequence.completion_token_ids.len()
}

/// Shares the sequences out over pieces of at most `tokens` tokens.
pub fn pieces(batch: &TrainBatch, tokens: usize) -> Vec<Vec<&TrainSequence>> {
    let lengths: Vec<usize> = batch.sequences.iter().map(length).collect();
    let sequences = |piece: Vec<usize>| piece.iter().map(|i| &batch.sequences[*i]).collect();
    share_out(&lengths, tokens).into_iter().map(sequences).collect()
}

/// One piece, on the device.
#[derive(Debug)]
pub struct MicroBatch {
    /// What the network reads.
    pub tokens: TrainingBatch,
    /// What the loss reads, without reference log-probs.
    pub inputs: TokenInputs,
}

impl MicroBatch {
    /// Packs sequences that [`check`] has passed.
    pub fn new(
        objective: &Objective,
        sequences: &[&TrainSequence],
        vocabulary: i64,
        device: Device,
    ) -> Result<Self, BatchError> {
        let ids = |sequence: &&TrainSequence| -> Vec<i64> {
            let ids = sequence.prompt_token_ids.iter().chain(&sequence.completion_token_ids);
            ids.copied().map(i64::from).collect()
        };
        let flags = |sequence: &&TrainSequence| -> Vec<bool> {
            let prompt = sequence.prompt_token_ids.iter().map(|_| false);
            prompt.chain(sequence.weights.iter().map(|weight| *weight > 0.0)).collect()
        };
        let ids: Vec<Vec<i64>> = sequences.iter().map(ids).collect();
        let flags: Vec<Vec<bool>> = sequences.iter().map(flags).collect();
        let tokens = TrainingBatch::new(&ids, &flags, vocabulary, device)?;
        Ok(Self { tokens, inputs: inputs(objective, sequences, device)? })
    }
}

fn inputs(
    objective: &Objective,
    sequences: &[&TrainSequence],
    device: Device,
) -> Result<TokenInputs, TchError> {
    let (mut generator, mut weights, mut advantages) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts = Vec::new();
    for sequence in sequences {
        let before = weights.len();
        let trained = sequence.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0);
        for (t, weight) in trained {
            generator.push(f64::from(sequence.generator_logprobs[t]));
            weights.push(*weight);
            advantages.push(sequence.advantage);
        }
        counts.push((weights.len() - before) as i64);
    }
    let vector = |values: &[f64]| upload(values, device);
    let segments = (objective.ratio == RatioGrain::Sequence)
        .then(|| Segments::new(&counts, device))
        .transpose()?;
    Ok(TokenInputs {
        generator_m: vector(&generator)?,
        weight_m: vector(&weights)?,
        advantage_m: vector(&advantages)?,
        reference_m: None,
        segments,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence() -> TrainSequence {
        TrainSequence {
            prompt_token_ids: vec![1, 2],
            completion_token_ids: vec![3, 4, 5],
            generator_logprobs: vec![-1.0, f32::NAN, -2.0],
            weights: vec![0.5, 0.0, 0.5],
            advantage: 1.0,
        }
    }

    #[test]
    fn only_tokens_with_a_weight_have_a_place() {
        let sequence = sequence();
        assert_eq!(check(&sequence, 6), Ok(()));
        let micro = MicroBatch::new(&Objective::default(), &[&sequence], 6, Device::Cpu).unwrap();
        let positions: Vec<usize> = micro.tokens.places.iter().map(|p| p.position).collect();
        assert_eq!(positions, [2, 4]);
        let generator = Vec::<f64>::try_from(&micro.inputs.generator_m).unwrap();
        assert_eq!(generator, [-1.0, -2.0]);
    }

    #[test]
    fn broken_sequences_are_refused_with_the_reason() {
        let broken = |change: fn(&mut TrainSequence)| {
            let mut sequence = sequence();
            change(&mut sequence);
            check(&sequence, 6).unwrap_err().to_string()
        };
        for (change, expected) in [
            ((|s| s.prompt_token_ids.clear()) as fn(&mut TrainSequence), "its prompt is empty"),
            (|s| s.weights.truncate(2), "3 tokens, 3 log-probs and 2 weights"),
            (|s| s.weights.fill(0.0), "none of its tokens carries loss"),
            (|s| s.advantage = f64::NAN, "the advantage is NaN"),
            (|s| s.weights[1] = -1.0, "token 1 has weight -1"),
            (|s| s.weights[1] = 0.5, "token 1 was recorded with log-prob NaN"),
            (|s| s.completion_token_ids[2] = 6, "token id 6 is outside the vocabulary of 6"),
        ] {
            let said = broken(change);
            assert!(said.contains(expected), "{said}");
        }
    }
}
