//! How much better a completion did than its siblings.
//!
//! Â_i = r_i − mean of its group, then divided by a standard deviation: of the group, of all Â in
//! the batch, or not at all. Deviations are of the sample (n − 1), as in verl and TRL, with a small
//! number added so that rounding noise in equal rewards stays noise.

use scalerl_recipe::AdvantageScope;

/// Added to every standard deviation (verl's value; TRL has 1e-4).
pub const EPSILON: f64 = 1e-6;

/// Advantages of each group's completions, from their rewards. Same shape as `rewards`.
pub fn advantages(scope: &AdvantageScope, rewards: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut centred: Vec<Vec<f64>> = rewards.iter().map(|group| centre(group)).collect();
    match scope {
        AdvantageScope::None => {}
        AdvantageScope::Group => {
            for group in &mut centred {
                let divisor = deviation(group) + EPSILON;
                for advantage in group {
                    *advantage /= divisor;
                }
            }
        }
        AdvantageScope::Batch => {
            let all: Vec<f64> = centred.iter().flatten().copied().collect();
            let divisor = deviation(&all) + EPSILON;
            for advantage in centred.iter_mut().flatten() {
                *advantage /= divisor;
            }
        }
    }
    centred
}

fn centre(rewards: &[f64]) -> Vec<f64> {
    let mean = rewards.iter().sum::<f64>() / rewards.len() as f64;
    rewards.iter().map(|reward| reward - mean).collect()
}

/// Standard deviation of a sample; 0 when there are fewer than two values.
pub fn deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-5
    }

    #[test]
    fn the_group_scope_makes_a_hard_and_an_easy_prompt_equally_loud() {
        let rewards = vec![vec![1.0, -1.0, -1.0, -1.0], vec![1.0, 0.9, 0.9, 0.9]];
        let found = advantages(&AdvantageScope::Group, &rewards);
        assert!(close(found[0][0], 1.5) && (found[1][0] - 1.5).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn the_batch_scope_has_unit_deviation_over_the_batch() {
        let rewards = vec![vec![1.0, -1.0, -1.0, -1.0], vec![1.0, 1.0, 1.0, -1.0]];
        let found = advantages(&AdvantageScope::Batch, &rewards);
        let all: Vec<f64> = found.iter().flatten().copied().collect();
        assert!(close(deviation(&all), 1.0));
        assert!(found.iter().all(|group| close(group.iter().sum(), 0.0)));
    }

    #[test]
    fn without_a_scope_rewards_are_only_centred() {
        let found = advantages(&AdvantageScope::None, &[vec![1.0, -1.0]]);
        assert!(close(found[0][0], 1.0) && close(found[0][1], -1.0));
    }

    #[test]
    fn equal_rewards_give_no_advantage_under_any_scope() {
        for scope in [AdvantageScope::None, AdvantageScope::Group, AdvantageScope::Batch] {
            for advantage in advantages(&scope, &[vec![0.1; 3], vec![0.7; 5]]).iter().flatten() {
                assert!(advantage.abs() < 1e-9, "{scope:?}: {advantage}");
            }
        }
    }
}
