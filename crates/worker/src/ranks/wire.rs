//! A share of a batch as bytes: what rank 0 sends to another rank.
//!
//! ```text
//! f32 temperature, u32 sequences, then for each: u32 prompt tokens, u32 completion tokens,
//! f64 advantage, u32 ids of the prompt, u32 ids, f32 log-probs and f64 weights of the completion
//! ```
//! Little endian; 16 bytes a token that was drawn. Bytes behind the end are padding. Lengths are
//! checked against what is there before anything is allocated.

use scalerl_rollout::{TrainBatch, TrainSequence};
use thiserror::Error;

/// The bytes are not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a share of {bytes} bytes ends in the middle of a sequence")]
pub(super) struct WireError {
    bytes: usize,
}

pub(super) fn encode(batch: &TrainBatch) -> Vec<u8> {
    let mut out = batch.temperature.to_le_bytes().to_vec();
    out.extend((batch.sequences.len() as u32).to_le_bytes());
    for sequence in &batch.sequences {
        out.extend((sequence.prompt_token_ids.len() as u32).to_le_bytes());
        out.extend((sequence.completion_token_ids.len() as u32).to_le_bytes());
        out.extend(sequence.advantage.to_le_bytes());
        out.extend(sequence.prompt_token_ids.iter().flat_map(|id| id.to_le_bytes()));
        out.extend(sequence.completion_token_ids.iter().flat_map(|id| id.to_le_bytes()));
        out.extend(sequence.generator_logprobs.iter().flat_map(|logprob| logprob.to_le_bytes()));
        out.extend(sequence.weights.iter().flat_map(|weight| weight.to_le_bytes()));
    }
    out
}

struct Reader<'a> {
    left: &'a [u8],
    whole: usize,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, left) =
            self.left.split_at_checked(count).ok_or(WireError { bytes: self.whole })?;
        self.left = left;
        Ok(taken)
    }

    fn one<const N: usize, T>(&mut self, from: fn([u8; N]) -> T) -> Result<T, WireError> {
        let bytes = self.bytes(N)?.try_into().expect("as many as asked for");
        Ok(from(bytes))
    }

    fn many<const N: usize, T>(
        &mut self,
        count: usize,
        from: fn([u8; N]) -> T,
    ) -> Result<Vec<T>, WireError> {
        let bytes = self.bytes(count * N)?;
        let one = |bytes: &[u8]| from(bytes.try_into().expect("chunks are whole"));
        Ok(bytes.chunks_exact(N).map(one).collect())
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<TrainBatch, WireError> {
    let mut reader = Reader { left: bytes, whole: bytes.len() };
    let temperature = reader.one(f32::from_le_bytes)?;
    let count = reader.one(u32::from_le_bytes)?;
    let mut sequences = Vec::new();
    for _ in 0..count {
        let prompt = reader.one(u32::from_le_bytes)? as usize;
        let tokens = reader.one(u32::from_le_bytes)? as usize;
        let advantage = reader.one(f64::from_le_bytes)?;
        sequences.push(TrainSequence {
            prompt_token_ids: reader.many(prompt, u32::from_le_bytes)?,
            completion_token_ids: reader.many(tokens, u32::from_le_bytes)?,
            generator_logprobs: reader.many(tokens, f32::from_le_bytes)?,
            weights: reader.many(tokens, f64::from_le_bytes)?,
            advantage,
        });
    }
    Ok(TrainBatch { temperature, sequences })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> TrainBatch {
        let sequence = |n: usize| TrainSequence {
            prompt_token_ids: (0..2 * n as u32).collect(),
            completion_token_ids: vec![u32::MAX; n],
            generator_logprobs: vec![-0.1; n],
            weights: vec![1.0 / 3.0; n],
            advantage: -1.5e-300,
        };
        TrainBatch { temperature: 0.7, sequences: vec![sequence(3), sequence(0), sequence(1)] }
    }

    #[test]
    fn a_share_arrives_as_it_was_to_the_last_bit_whatever_the_padding() {
        let mut bytes = encode(&batch());
        assert_eq!(decode(&bytes).unwrap(), batch());
        bytes.resize(bytes.len() + 100, 0);
        assert_eq!(decode(&bytes).unwrap(), batch());
    }

    #[test]
    fn a_share_that_was_cut_off_is_refused_wherever_it_was_cut() {
        let bytes = encode(&batch());
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Err(WireError { bytes: length }));
        }
    }
}
