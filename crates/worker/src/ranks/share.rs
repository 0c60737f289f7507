//! Splits a batch over ranks so that each has about the same number of tokens.
//!
//! Lengths of completions differ by a hundred times, so equal numbers of sequences would leave most
//! ranks waiting for one. Longest first to whoever has least: no rank has more than 4/3 of what the
//! best split would give it (Graham 1969).

use std::cmp::Reverse;

use scalerl_rollout::TrainBatch;

use crate::micro_batch::length;

/// One batch a rank; some are empty where there are fewer sequences than ranks.
pub fn split(batch: &TrainBatch, ranks: usize) -> Vec<TrainBatch> {
    let mut order: Vec<usize> = (0..batch.sequences.len()).collect();
    order.sort_by_key(|index| (Reverse(length(&batch.sequences[*index])), *index));
    let mut shares: Vec<(usize, Vec<usize>)> = vec![(0, Vec::new()); ranks];
    for index in order {
        let least = shares.iter_mut().min_by_key(|(tokens, _)| *tokens);
        let (tokens, share) = least.expect("at least one rank");
        *tokens += length(&batch.sequences[index]);
        share.push(index);
    }
    let take = |(_, mut share): (usize, Vec<usize>)| {
        share.sort_unstable();
        let sequences = share.into_iter().map(|index| batch.sequences[index].clone()).collect();
        TrainBatch { temperature: batch.temperature, sequences }
    };
    shares.into_iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use scalerl_rollout::TrainSequence;

    use super::*;

    fn sequence(tokens: usize, index: usize) -> TrainSequence {
        TrainSequence {
            prompt_token_ids: vec![index as u32],
            completion_token_ids: vec![0; tokens],
            generator_logprobs: vec![0.0; tokens],
            weights: vec![1.0; tokens],
            advantage: 0.0,
        }
    }

    proptest! {
        #[test]
        fn every_sequence_has_one_rank_and_ranks_have_their_share(
            lengths in prop::collection::vec(1_usize..500, 1..60), ranks in 1_usize..9,
        ) {
            let sequences = lengths.iter().enumerate().map(|(i, n)| sequence(*n, i)).collect();
            let batch = TrainBatch { temperature: 1.0, sequences };
            let shares = split(&batch, ranks);
            let mut seen: Vec<u32> =
                shares.iter().flat_map(|s| &s.sequences).map(|s| s.prompt_token_ids[0]).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len() as u32).collect::<Vec<_>>());
            let total: usize = lengths.iter().map(|n| n + 1).sum();
            let longest = lengths.iter().max().map_or(0, |n| n + 1);
            // List scheduling: the fullest got its last sequence while it had least.
            let bound = total / ranks + longest;
            let fullest = shares.iter().map(|s| s.sequences.iter().map(length).sum::<usize>()).max();
            prop_assert!(fullest.unwrap_or(0) <= bound, "{fullest:?} {bound}");
        }
    }
}
