//! Several sequences end to end in one row of tokens: no padding, whatever their lengths.
//!
//! ```text
//! sequences   [a b c] [d e]            tokens     a b c d e
//!                                      positions  0 1 2 0 1
//! ```
//! Layers see one long row; only attention needs to know where a sequence ends.

use scalerl_torch::shim::upload;
use tch::{Device, TchError, Tensor};

/// Sequences end to end. `tokens` and `positions` share a length, the sum of `lengths`.
#[derive(Debug)]
pub struct Packed {
    /// [n] int64
    pub tokens: Tensor,
    /// [n] int64, counted from the start of each sequence.
    pub positions: Tensor,
    pub lengths: Vec<i64>,
}

impl Packed {
    /// Packs sequences in the order given; empty ones take no place.
    pub fn new<S: AsRef<[i64]>>(sequences: &[S], device: Device) -> Result<Self, TchError> {
        let mut tokens = Vec::new();
        let mut positions = Vec::new();
        let mut lengths = Vec::new();
        for sequence in sequences.iter().map(AsRef::as_ref).filter(|s| !s.is_empty()) {
            tokens.extend_from_slice(sequence);
            positions.extend(0..sequence.len() as i64);
            lengths.push(sequence.len() as i64);
        }
        Ok(Self {
            tokens: upload(&tokens, device)?,
            positions: upload(&positions, device)?,
            lengths,
        })
    }

    /// All tokens.
    pub fn len(&self) -> i64 {
        self.lengths.iter().sum()
    }

    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }
}

/// Shares sequences out over micro-batches of at most `capacity` tokens: indices into `lengths`.
///
/// Longest first into the first batch with room, so batches are nearly full and their number
/// small. A sequence longer than `capacity` gets a batch of its own.
pub fn share_out(lengths: &[usize], capacity: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(lengths[index]), index));
    let mut batches: Vec<(usize, Vec<usize>)> = Vec::new();
    for index in order {
        let length = lengths[index];
        match batches.iter_mut().find(|(filled, _)| filled + length <= capacity) {
            Some((filled, batch)) => {
                *filled += length;
                batch.push(index);
            }
            None => batches.push((length, vec![index])),
        }
    }
    batches.into_iter().map(|(_, batch)| batch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_start_again_with_each_sequence() {
        let packed = Packed::new(&[vec![5, 6, 7], vec![], vec![8, 9]], Device::Cpu).unwrap();
        assert_eq!(Vec::<i64>::try_from(&packed.tokens).unwrap(), [5, 6, 7, 8, 9]);
        assert_eq!(Vec::<i64>::try_from(&packed.positions).unwrap(), [0, 1, 2, 0, 1]);
        assert_eq!(packed.lengths, [3, 2]);
    }

    #[test]
    fn every_sequence_is_in_one_batch_and_batches_keep_their_capacity() {
        let lengths = [7, 3, 12, 5, 5, 1, 9, 30];
        let batches = share_out(&lengths, 12);
        let mut seen: Vec<usize> = batches.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
        for batch in &batches {
            let filled: usize = batch.iter().map(|&index| lengths[index]).sum();
            assert!(filled <= 12 || batch.len() == 1, "{batch:?} holds {filled}");
        }
        assert_eq!(batches.len(), 5);
    }
}
