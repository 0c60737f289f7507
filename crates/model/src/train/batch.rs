//! Sequences of one micro-batch and which of their tokens are scored.

use tch::{Device, TchError, Tensor};
use thiserror::Error;

use crate::folder::Model;
use crate::head::{Head, HeadOptions, TokenScores};
use crate::packed::Packed;
use scalerl_torch::shim::upload;

/// Where a scored token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenPlace {
    pub sequence: usize,
    /// At least 1: the first token of a sequence has nothing before it.
    pub position: usize,
}

/// Why sequences cannot be trained on.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum BatchError {
    #[error("sequence {sequence} has {tokens} tokens but {flags} flags")]
    LengthMismatch { sequence: usize, tokens: usize, flags: usize },
    #[error(
        "sequence {sequence}, position {position}: token {token} is outside the vocabulary of {vocabulary}"
    )]
    OutsideVocabulary { sequence: usize, position: usize, token: i64, vocabulary: i64 },
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// A micro-batch. Per-token arrays (scores, gradients) follow the order of `places`.
#[derive(Debug)]
pub struct TrainingBatch {
    /// Each sequence up to the token before its last scored one: nothing depends on what follows.
    pub packed: Packed,
    pub places: Vec<TokenPlace>,
    /// [m] rows of the hidden states that predict the scored tokens.
    pub(crate) rows: Tensor,
    /// [m] the scored tokens.
    pub(crate) targets: Tensor,
}

impl TrainingBatch {
    /// `is_scored[s][t]` says whether token t of sequence s counts; the first token never does.
    pub fn new<S: AsRef<[i64]>, F: AsRef<[bool]>>(
        sequences: &[S],
        is_scored: &[F],
        vocabulary: i64,
        device: Device,
    ) -> Result<Self, BatchError> {
        let (mut places, mut rows, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen: Vec<&[i64]> = Vec::with_capacity(sequences.len());
        let mut start = 0;
        for (sequence, (tokens, flags)) in sequences.iter().zip(is_scored).enumerate() {
            let (tokens, flags) = (tokens.as_ref(), flags.as_ref());
            if tokens.len() != flags.len() {
                let (tokens, flags) = (tokens.len(), flags.len());
                return Err(BatchError::LengthMismatch { sequence, tokens, flags });
            }
            for (position, &token) in tokens.iter().enumerate() {
                if !(0..vocabulary).contains(&token) {
                    return Err(BatchError::OutsideVocabulary {
                        sequence,
                        position,
                        token,
                        vocabulary,
                    });
                }
                if position > 0 && flags[position] {
                    places.push(TokenPlace { sequence, position });
                    rows.push(start + position as i64 - 1);
                    targets.push(token);
                }
            }
            let last = flags.iter().rposition(|is_scored| *is_scored).unwrap_or(0);
            seen.push(&tokens[..last]);
            start += last as i64;
        }
        if places.is_empty() {
            // Nothing to learn from; a network still wants tokens.
            seen = sequences.iter().map(AsRef::as_ref).collect();
        }
        Ok(Self {
            packed: Packed::new(&seen, device)?,
            places,
            rows: upload(&rows, device)?,
            targets: upload(&targets, device)?,
        })
    }

    /// Every token but the first of each sequence is scored.
    pub fn all_scored<S: AsRef<[i64]>>(
        sequences: &[S],
        vocabulary: i64,
        device: Device,
    ) -> Result<Self, BatchError> {
        let flags: Vec<Vec<bool>> =
            sequences.iter().map(|sequence| vec![true; sequence.as_ref().len()]).collect();
        Self::new(sequences, &flags, vocabulary, device)
    }

    /// Scored tokens.
    pub fn scored(&self) -> usize {
        self.places.len()
    }
}

impl Model {
    /// Log-probs and entropies of a batch's scored tokens, without a graph.
    pub fn score(
        &self,
        batch: &TrainingBatch,
        options: HeadOptions,
    ) -> Result<TokenScores, TchError> {
        let hidden_nd = self.network.hidden(&batch.packed)?;
        let hidden_md = hidden_nd.f_index_select(0, &batch.rows)?;
        Head::new(self.network.head(), options)?.score(&hidden_md, &batch.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scored_tokens_are_predicted_by_the_row_before_them() {
        let sequences = [vec![4, 5, 6], vec![7, 8]];
        let flags = [vec![true, false, true], vec![false, true]];
        let batch = TrainingBatch::new(&sequences, &flags, 10, Device::Cpu).unwrap();
        assert_eq!(batch.packed.lengths, [2, 1]);
        assert_eq!(Vec::<i64>::try_from(&batch.rows).unwrap(), [1, 2]);
        assert_eq!(Vec::<i64>::try_from(&batch.targets).unwrap(), [6, 8]);
        assert_eq!(batch.places[1], TokenPlace { sequence: 1, position: 1 });
    }

    #[test]
    fn what_follows_the_last_scored_token_is_not_computed() {
        let sequences = [vec![4, 5, 6, 7], vec![7, 8, 9], vec![1, 2]];
        let flags = [vec![false, true, false, false], vec![false; 3], vec![false, true]];
        let batch = TrainingBatch::new(&sequences, &flags, 10, Device::Cpu).unwrap();
        assert_eq!(Vec::<i64>::try_from(&batch.packed.tokens).unwrap(), [4, 1]);
        assert_eq!(Vec::<i64>::try_from(&batch.rows).unwrap(), [0, 1]);
        let none = TrainingBatch::new(
            &sequences[..1],
            &[vec![true, false, false, false]],
            10,
            Device::Cpu,
        );
        let none = none.unwrap();
        assert_eq!((none.scored(), none.packed.len()), (0, 4));
    }

    #[test]
    fn a_token_outside_the_vocabulary_is_named() {
        let said = TrainingBatch::all_scored(&[vec![1, 2], vec![3, 10]], 10, Device::Cpu);
        let said = said.unwrap_err().to_string();
        assert!(said.contains("sequence 1, position 1: token 10"), "{said}");
    }
}
