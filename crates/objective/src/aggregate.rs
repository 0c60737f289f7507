//! How token losses become one number: each token's share of the batch's loss.
//!
//! | choice   | weight of a token of completion i, prompt p                    |
//! |----------|----------------------------------------------------------------|
//! | prompt   | 1 / (prompts × tokens of p)                                     |
//! | sample   | 1 / (completions × tokens of i)                                 |
//! | token    | 1 / tokens of the batch                                         |
//! | constant | 1 / (completions × constant)                                    |
//!
//! Only tokens that carry loss are counted, and only prompts and completions that have some. The
//! denominators are the whole batch's, so micro-batches and ranks add up without rescaling.

use scalerl_recipe::Aggregation;

/// Weight of each loss-carrying token of each completion; `tokens[p][i]` counts them. Completions
/// without any have weight 0.
pub fn token_weights(aggregation: &Aggregation, tokens: &[Vec<usize>]) -> Vec<Vec<f64>> {
    let total = |group: &Vec<usize>| group.iter().sum::<usize>() as f64;
    let prompts = tokens.iter().filter(|group| total(group) > 0.0).count() as f64;
    let completions = tokens.iter().flatten().filter(|count| **count > 0).count() as f64;
    let batch: f64 = tokens.iter().map(total).sum();
    let denominator = |group: &Vec<usize>, count: usize| match aggregation {
        Aggregation::Prompt => prompts * total(group),
        Aggregation::Sample => completions * count as f64,
        Aggregation::Token => batch,
        Aggregation::Constant { tokens } => completions * f64::from(*tokens),
    };
    let weight = |group: &Vec<usize>, count: usize| {
        if count == 0 { 0.0 } else { 1.0 / denominator(group, count) }
    };
    tokens.iter().map(|group| group.iter().map(|count| weight(group, *count)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Loss shares by prompt: tokens × weight, summed over the prompt's completions.
    fn shares(aggregation: &Aggregation, tokens: &[Vec<usize>]) -> Vec<f64> {
        let weights = token_weights(aggregation, tokens);
        let share = |(counts, weights): (&Vec<usize>, &Vec<f64>)| {
            counts.iter().zip(weights).map(|(count, weight)| *count as f64 * weight).sum()
        };
        tokens.iter().zip(&weights).map(share).collect()
    }

    fn counts() -> impl Strategy<Value = Vec<Vec<usize>>> {
        prop::collection::vec(prop::collection::vec(0_usize..2000, 1..6), 1..6)
            .prop_filter("some tokens", |groups| groups.iter().flatten().any(|count| *count > 0))
    }

    proptest! {
        #[test]
        fn the_prompt_average_gives_each_prompt_the_same_weight_whatever_its_lengths(
            tokens in counts()
        ) {
            let found = shares(&Aggregation::Prompt, &tokens);
            let prompts = tokens.iter().filter(|group| group.iter().sum::<usize>() > 0).count();
            for (group, share) in tokens.iter().zip(found) {
                let expected = if group.iter().sum::<usize>() > 0 { 1.0 / prompts as f64 } else { 0.0 };
                prop_assert!((share - expected).abs() < 1e-12);
            }
        }

        #[test]
        fn averages_share_out_exactly_one(tokens in counts()) {
            for aggregation in [Aggregation::Prompt, Aggregation::Sample, Aggregation::Token] {
                let total: f64 = shares(&aggregation, &tokens).iter().sum();
                prop_assert!((total - 1.0).abs() < 1e-12, "{aggregation:?} {total}");
            }
        }
    }

    #[test]
    fn the_constant_keeps_long_completions_heavy() {
        let weights =
            token_weights(&Aggregation::Constant { tokens: 8 }, &[vec![2, 8], vec![4, 0]]);
        assert_eq!(weights, vec![vec![1.0 / 24.0, 1.0 / 24.0], vec![1.0 / 24.0, 0.0]]);
    }
}
