//! Losses and gradients against TRL's own code.
//!
//! testdata/trl_losses.json holds what `GRPOTrainer._compute_loss` of TRL 1.9.0 gives for a small
//! batch in float64 (scripts/golden/trl_losses.py). Where TRL's conventions are not the paper's,
//! docs/objectives.md says so; here each case is put in our terms.

use std::collections::BTreeMap;

use scalerl_objective::{
    aggregate::token_weights,
    kl::k3,
    surrogate::{Sequence, SequenceLoss, surrogate_loss},
};
use scalerl_recipe::{Aggregation, Objective, RatioGrain, Surrogate};
use serde::Deserialize;

/// Both sides are float64; only the order of sums differs.
const TOLERANCE: f64 = 1e-12;

#[derive(Deserialize)]
struct Golden {
    completions_per_prompt: usize,
    max_completion_length: u32,
    advantages: Vec<f64>,
    generator_logprobs: Vec<Vec<f64>>,
    trainer_logprobs: Vec<Vec<f64>>,
    reference_logprobs: Vec<Vec<f64>>,
    is_injected: Vec<Vec<bool>>,
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    loss_type: String,
    importance_sampling_level: String,
    epsilon_low: f64,
    epsilon_high: f64,
    beta: f64,
    loss: f64,
    gradient: Vec<Vec<f64>>,
    clip_fraction: f64,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../testdata/trl_losses.json")).expect("the golden file")
}

/// TRL's settings in our terms.
fn objective(case: &Case, golden: &Golden) -> Objective {
    let surrogate = match case.loss_type.as_str() {
        // An absolute cap, although TRL calls it epsilon_high.
        "cispo" => Surrogate::Cispo { cap: case.epsilon_high },
        _ => Surrogate::Clip { low: case.epsilon_low, high: case.epsilon_high },
    };
    let aggregation = match case.loss_type.as_str() {
        "grpo" => Aggregation::Sample,
        "bnpo" | "dapo" | "cispo" => Aggregation::Token,
        "dr_grpo" => Aggregation::Constant { tokens: golden.max_completion_length },
        other => panic!("no such loss: {other}"),
    };
    let ratio = match case.importance_sampling_level.as_str() {
        "token" => RatioGrain::Token,
        _ => RatioGrain::Sequence,
    };
    Objective { surrogate, aggregation, ratio, ..Objective::default() }
}

fn weights(golden: &Golden, aggregation: &Aggregation) -> Vec<Vec<f64>> {
    let sampled = |row: &Vec<bool>| row.iter().filter(|is_injected| !**is_injected).count();
    let counts: Vec<usize> = golden.is_injected.iter().map(sampled).collect();
    let groups: Vec<Vec<usize>> =
        counts.chunks(golden.completions_per_prompt).map(<[usize]>::to_vec).collect();
    let per_row = token_weights(aggregation, &groups).concat();
    let spread = |(row, weight): (&Vec<bool>, f64)| {
        row.iter().map(|is_injected| if *is_injected { 0.0 } else { weight }).collect()
    };
    golden.is_injected.iter().zip(per_row).map(spread).collect()
}

fn rows(golden: &Golden, case: &Case) -> Vec<SequenceLoss> {
    let objective = objective(case, golden);
    let weights = weights(golden, &objective.aggregation);
    (0..weights.len())
        .map(|row| {
            let trainer = &golden.trainer_logprobs[row];
            let mut part = surrogate_loss(
                &objective,
                &Sequence {
                    trainer,
                    generator: &golden.generator_logprobs[row],
                    weights: &weights[row],
                    advantage: golden.advantages[row],
                },
            );
            for (t, weight) in weights[row].iter().enumerate() {
                let penalty = k3(trainer[t], golden.reference_logprobs[row][t]);
                part.loss += case.beta * weight * penalty.value;
                part.gradient[t] += case.beta * weight * penalty.slope;
            }
            part
        })
        .collect()
}

#[test]
fn losses_and_gradients_equal_trl() {
    let golden = golden();
    assert_eq!(golden.cases.len(), 10);
    for (name, case) in &golden.cases {
        let rows = rows(&golden, case);
        let loss: f64 = rows.iter().map(|row| row.loss).sum();
        assert!((loss - case.loss).abs() < TOLERANCE, "{name}: loss {loss}, TRL {}", case.loss);
        for (row, (ours, theirs)) in rows.iter().zip(&case.gradient).enumerate() {
            for (t, (ours, theirs)) in ours.gradient.iter().zip(theirs).enumerate() {
                let difference = (ours - theirs).abs();
                assert!(difference < TOLERANCE, "{name}, row {row}, token {t}: {ours} {theirs}");
            }
        }
    }
}

#[test]
fn clip_fractions_equal_trl_where_both_count_tokens() {
    let golden = golden();
    let counts_tokens =
        |case: &Case| case.loss_type != "cispo" && case.importance_sampling_level == "token";
    for (name, case) in golden.cases.iter().filter(|(_, case)| counts_tokens(case)) {
        let rows = rows(&golden, case);
        let clipped = rows.iter().flat_map(|row| &row.is_clipped).filter(|c| **c).count();
        let sampled = golden.is_injected.iter().flatten().filter(|i| !**i).count();
        let fraction = clipped as f64 / sampled as f64;
        // TRL counts in float32.
        assert!((fraction - case.clip_fraction).abs() < 1e-6, "{name}: {fraction}");
        assert!(clipped > 0, "{name} must clip something to be worth comparing");
    }
}
