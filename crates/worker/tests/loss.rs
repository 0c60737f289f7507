//! The tensor form of every objective is the scalar reference, however the batch is cut.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use scalerl_objective::{BatchLoss, LossInputs, PreparedBatch, loss, prepare, ratio::RatioSums};
use scalerl_recipe::{AdvantageScope, Aggregation, Filter, Kl, Objective, RatioGrain, Surrogate};
use scalerl_rollout::{
    Batch, Completion, FinishReason, Group, GroupId, PolicyVersion, Prompt, PromptId, Reward,
    Rollout, TrainSequence,
};
use scalerl_worker::loss::{Tally, Totals, token_loss};
use scalerl_worker::micro_batch::MicroBatch;
use tch::{Device, Kind, Tensor};

/// Both sides compute in float64 from the same inputs; they add in different orders and have
/// exponentials of different libraries, each good to about 1e-16 a term, over at most some hundred
/// terms of size 1 to 100.
const DOUBLE: f64 = 1e-12;
/// The gradient goes to the head as float32: one rounding, half a unit in the last place of 24 bits.
const FLOAT: f64 = 6e-8;

const VOCABULARY: i64 = 64;

/// One token as it comes: recorded log-prob, how far trainer and reference have moved, entropy.
type Token = (f32, f32, f32, f32, bool);

fn rollouts() -> impl Strategy<Value = (Vec<Token>, bool)> {
    let token =
        (-4.0_f32..-0.01, -0.9_f32..0.9, -0.9_f32..0.9, 0.0_f32..3.0, prop::bool::weighted(0.2));
    (prop::collection::vec(token, 1..9), any::<bool>())
}

/// A batch, and the forward pass over each completion in order.
#[derive(Debug, Clone)]
struct Case {
    batch: Batch,
    /// [completion][token] trainer, reference, entropy; of the same shape as the batch.
    forward: Vec<Vec<[f32; 3]>>,
}

fn cases() -> impl Strategy<Value = Case> {
    prop::collection::vec(prop::collection::vec(rollouts(), 2..5), 1..4).prop_map(|groups| {
        let forward = groups
            .iter()
            .flatten()
            .map(|(tokens, _)| tokens.iter().map(|t| [t.0 + t.1, t.0 + t.2, t.3]).collect());
        let forward = forward.collect();
        let group = |(index, rollouts): (usize, &Vec<(Vec<Token>, bool)>)| Group {
            id: GroupId(index as u64),
            prompt: Prompt {
                id: PromptId(format!("prompt {index}")),
                dataset: "made up".into(),
                text: String::new(),
                // Names the group in `index_of`.
                token_ids: vec![index as u32],
                answer: String::new(),
            },
            rollouts: rollouts.iter().enumerate().map(rollout).collect(),
        };
        let groups = groups.iter().enumerate().map(group).collect();
        Case { batch: Batch { version: PolicyVersion(5), groups }, forward }
    })
}

/// The first token id names the completion in its group, see `index_of`.
fn rollout((index, (tokens, is_correct)): (usize, &(Vec<Token>, bool))) -> Rollout {
    Rollout {
        completion: Completion {
            token_ids: vec![index as u32; tokens.len()],
            logprobs: tokens.iter().map(|t| t.0).collect(),
            versions: vec![PolicyVersion(3); tokens.len()],
            is_injected: tokens.iter().map(|t| t.4).collect(),
            text: String::new(),
            thinking_tokens: 0,
            finish: FinishReason::Stop,
        },
        reward: Reward { value: if *is_correct { 1.0 } else { -1.0 }, is_correct: *is_correct },
        episode: None,
    }
}

impl Case {
    /// The forward pass of a prepared sequence.
    fn forward_of(&self, sequence: &TrainSequence) -> &[[f32; 3]] {
        let group = sequence.prompt_token_ids[0] as usize;
        let before: usize = self.batch.groups[..group].iter().map(|g| g.rollouts.len()).sum();
        &self.forward[before + sequence.completion_token_ids[0] as usize]
    }

    fn reference(&self, objective: &Objective, sequences: &[TrainSequence]) -> BatchLoss {
        let columns: Vec<[Vec<f64>; 3]> = sequences
            .iter()
            .map(|sequence| {
                let forward = self.forward_of(sequence);
                [0, 1, 2].map(|i| forward.iter().map(|t| f64::from(t[i])).collect())
            })
            .collect();
        let inputs: Vec<LossInputs> = columns
            .iter()
            .map(|[trainer, reference, entropy]| LossInputs { trainer, reference, entropy })
            .collect();
        loss(objective, sequences, &inputs)
    }

    /// Mean over the tokens that carry loss.
    fn entropy(&self, sequences: &[TrainSequence]) -> f64 {
        let entropies: Vec<f64> = sequences
            .iter()
            .flat_map(|s| s.weights.iter().zip(self.forward_of(s)))
            .filter(|(weight, _)| **weight > 0.0)
            .map(|(_, forward)| f64::from(forward[2]))
            .collect();
        entropies.iter().sum::<f64>() / entropies.len() as f64
    }

    /// The tensor form over one piece: its gradients, a list per sequence, and its sums.
    fn piece(
        &self,
        objective: &Objective,
        sequences: &[&TrainSequence],
        kind: Kind,
    ) -> (Vec<Vec<f64>>, Tally) {
        let mut micro = MicroBatch::new(objective, sequences, VOCABULARY, Device::Cpu).unwrap();
        let column = |i: usize| -> Tensor {
            let places = micro.tokens.places.iter();
            let values: Vec<f32> = places
                .map(|place| self.forward_of(sequences[place.sequence])[place.position - 1][i])
                .collect();
            Tensor::from_slice(&values).to_kind(kind)
        };
        let [trainer, reference, entropy] = [0, 1, 2].map(column);
        micro.inputs.reference_m = Some(reference.to_kind(Kind::Double));
        let (gradients, tally) = token_loss(objective, &trainer, &entropy, &micro.inputs).unwrap();
        let slopes = Vec::<f64>::try_from(&gradients.logprob).unwrap();
        if objective.entropy_bonus > 0.0 {
            let slopes = Vec::<f64>::try_from(&gradients.entropy.unwrap()).unwrap();
            let weights = Vec::<f64>::try_from(&micro.inputs.weight_m).unwrap();
            for (slope, weight) in slopes.iter().zip(weights) {
                assert!((slope + objective.entropy_bonus * weight).abs() <= DOUBLE);
            }
        }
        let mut lists: Vec<Vec<f64>> =
            sequences.iter().map(|sequence| vec![0.0; sequence.weights.len()]).collect();
        for (place, slope) in micro.tokens.places.iter().zip(slopes) {
            lists[place.sequence][place.position - 1] = slope;
        }
        (lists, tally)
    }
}

fn is_close(found: f64, expected: f64, tolerance: f64) -> bool {
    (found - expected).abs() <= tolerance * expected.abs().max(1.0)
}

fn assert_totals(found: &Totals, expected: &BatchLoss, why: &str) {
    let (f, e): (&RatioSums, &RatioSums) = (&found.ratio, &expected.ratio);
    assert_eq!((f.tokens, f.clipped), (e.tokens, e.clipped), "{why}");
    for (name, found, expected) in [
        ("loss", found.loss, expected.loss),
        ("KL", found.reference_kl, expected.reference_kl),
        ("ratio", f.ratio, e.ratio),
        ("ratio²", f.ratio_squared, e.ratio_squared),
        ("min", f.min, e.min),
        ("max", f.max, e.max),
        ("k1", f.minus_log, e.minus_log),
        ("k3", f.k3, e.k3),
        ("|log|", f.abs_log, e.abs_log),
    ] {
        assert!(is_close(found, expected, DOUBLE), "{name} {found} {expected} {why}");
    }
}

/// Every surrogate × aggregation × advantage scope, with the KL and entropy terms on some.
fn objectives() -> Vec<Objective> {
    let surrogates = [
        (Surrogate::Cispo { cap: 5.0 }, RatioGrain::Token),
        (Surrogate::Cispo { cap: 1.1 }, RatioGrain::Token),
        (Surrogate::Cispo { cap: 1.1 }, RatioGrain::Sequence),
        (Surrogate::Clip { low: 0.2, high: 0.2 }, RatioGrain::Token),
        (Surrogate::Clip { low: 0.2, high: 0.26 }, RatioGrain::Token),
        (Surrogate::Clip { low: 3e-3, high: 5e-3 }, RatioGrain::Sequence),
        (Surrogate::None, RatioGrain::Token),
        (Surrogate::None, RatioGrain::Sequence),
    ];
    let aggregations = [
        Aggregation::Prompt,
        Aggregation::Sample,
        Aggregation::Token,
        Aggregation::Constant { tokens: 12 },
    ];
    let penalties = [
        Kl::None,
        Kl::K1 { coefficient: 0.1 },
        Kl::K2 { coefficient: 0.1 },
        Kl::K3 { coefficient: 0.1 },
    ];
    let mut all = Vec::new();
    for (surrogate, ratio) in &surrogates {
        for aggregation in &aggregations {
            for advantage in [AdvantageScope::Batch, AdvantageScope::Group, AdvantageScope::None] {
                let number = all.len();
                all.push(Objective {
                    surrogate: surrogate.clone(),
                    ratio: ratio.clone(),
                    aggregation: aggregation.clone(),
                    advantage,
                    filter: Filter::None,
                    kl: penalties[number % 4].clone(),
                    entropy_bonus: if number % 3 == 0 { 0.01 } else { 0.0 },
                    ..Objective::default()
                });
            }
        }
    }
    all
}

fn prepared(objective: &Objective, case: &Case) -> Option<PreparedBatch> {
    let prepared = prepare(objective, 1.0, &case.batch).unwrap();
    (!prepared.train.sequences.is_empty()).then_some(prepared)
}

fn assert_equal_to_reference(objective: &Objective, case: &Case, kind: Kind) {
    let Some(prepared) = prepared(objective, case) else { return };
    let sequences = &prepared.train.sequences;
    let expected = case.reference(objective, sequences);
    let all: Vec<&TrainSequence> = sequences.iter().collect();
    let (gradients, tally) = case.piece(objective, &all, kind);
    let totals = tally.read().unwrap().totals();
    assert_totals(&totals, &expected, &format!("{objective:?}"));
    assert!(is_close(totals.entropy, case.entropy(sequences), DOUBLE));
    for ((found, expected), sequence) in gradients.iter().zip(&expected.gradients).zip(sequences) {
        for ((found, expected), weight) in found.iter().zip(expected).zip(&sequence.weights) {
            assert!(is_close(*found, *expected, DOUBLE), "{found} {expected} {objective:?}");
            let rounded = f64::from(*found as f32);
            assert!((rounded - expected).abs() <= FLOAT * expected.abs() + DOUBLE);
            assert!(*weight > 0.0 || found.to_bits() == 0, "an injected token has a gradient");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_objective_equals_its_scalar_reference(case in cases()) {
        for objective in objectives() {
            for kind in [Kind::Float, Kind::Double] {
                assert_equal_to_reference(&objective, &case, kind);
            }
        }
    }

    #[test]
    fn micro_batches_in_any_order_add_up_to_the_batch(
        case in cases(), keys in prop::collection::vec(any::<u32>(), 12), size in 1_usize..5,
    ) {
        for objective in objectives() {
            let Some(prepared) = prepared(&objective, &case) else { continue };
            let sequences = &prepared.train.sequences;
            let expected = case.reference(&objective, sequences);
            let mut order: Vec<usize> = (0..sequences.len()).collect();
            order.sort_by_key(|index| keys[*index]);
            let mut total: Option<Tally> = None;
            for indices in order.chunks(size) {
                let piece: Vec<&TrainSequence> = indices.iter().map(|i| &sequences[*i]).collect();
                let (gradients, tally) = case.piece(&objective, &piece, Kind::Double);
                for (index, found) in indices.iter().zip(gradients) {
                    for (found, expected) in found.iter().zip(&expected.gradients[*index]) {
                        prop_assert!(is_close(*found, *expected, DOUBLE), "{found} {expected}");
                    }
                }
                match &mut total {
                    Some(total) => total.merge(&tally).unwrap(),
                    None => total = Some(tally),
                }
            }
            assert_totals(&total.unwrap().read().unwrap().totals(), &expected, &format!("{objective:?}"));
        }
    }

    #[test]
    fn a_completion_may_be_cut_where_ratios_are_per_token(case in cases(), cut in 0.0..1.0) {
        let objective = Objective { kl: Kl::K3 { coefficient: 0.1 }, filter: Filter::None,
            ..Objective::default() };
        let Some(prepared) = prepared(&objective, &case) else { return Ok(()) };
        let sequences: Vec<&TrainSequence> = prepared.train.sequences.iter().collect();
        let mut micro = MicroBatch::new(&objective, &sequences, VOCABULARY, Device::Cpu).unwrap();
        let logprob = micro.inputs.generator_m.cos();
        micro.inputs.reference_m = Some(logprob.sin());
        let tokens = logprob.size1().unwrap();
        let cut = 1 + (cut * (tokens - 1) as f64) as i64;
        prop_assume!(cut < tokens);
        let part = |range: std::ops::Range<i64>| {
            let inputs = micro.inputs.range(&range).unwrap();
            let logprob = logprob.narrow(0, range.start, range.end - range.start);
            token_loss(&objective, &logprob, &logprob, &inputs).unwrap()
        };
        let (whole_gradient, whole) = part(0..tokens);
        let ((left_gradient, mut left), (right_gradient, right)) = (part(0..cut), part(cut..tokens));
        left.merge(&right).unwrap();
        let joined = Tensor::cat(&[left_gradient.logprob, right_gradient.logprob], 0);
        prop_assert_eq!(joined, whole_gradient.logprob);
        let (found, expected) = (left.read().unwrap().totals(), whole.read().unwrap().totals());
        prop_assert!(is_close(found.loss, expected.loss, DOUBLE));
        prop_assert!(is_close(found.entropy, expected.entropy, DOUBLE));
    }
}

#[test]
fn a_log_prob_that_is_no_number_never_ends_as_a_gradient_of_zero() {
    for objective in objectives().into_iter().filter(|o| o.surrogate != Surrogate::None) {
        let sequence = TrainSequence {
            prompt_token_ids: vec![1],
            completion_token_ids: vec![2, 3],
            generator_logprobs: vec![-1.0, -1.0],
            weights: vec![0.5, 0.5],
            advantage: -1.0,
        };
        let mut micro = MicroBatch::new(&objective, &[&sequence], VOCABULARY, Device::Cpu).unwrap();
        micro.inputs.reference_m = Some(Tensor::from_slice(&[-1.0, -1.0]));
        let logprob = Tensor::from_slice(&[f64::NAN, -1.0]);
        let (gradients, tally) = token_loss(&objective, &logprob, &logprob, &micro.inputs).unwrap();
        assert!(gradients.logprob.double_value(&[0]).is_nan(), "{objective:?}");
        assert!(tally.read().unwrap().totals().loss.is_nan());
    }
}
