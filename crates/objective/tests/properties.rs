//! What every objective must obey, whatever the batch.

use proptest::prelude::*;
use scalerl_objective::{
    LossInputs, PreparedBatch, loss, prepare,
    ratio::log_ratios,
    surrogate::{Sequence, SequenceLoss, surrogate_loss},
};
use scalerl_recipe::{
    AdvantageScope, Aggregation, Filter, Kl, LengthControl, Objective, RatioGrain, Surrogate,
    Truncated,
};
use scalerl_rollout::{
    Batch, Completion, FinishReason, Group, GroupId, PolicyVersion, Prompt, PromptId, Reward,
    Rollout,
};

const STEP: f64 = 1e-6;
/// Central differences in f64 at STEP are good to about this.
const TOLERANCE: f64 = 1e-6;

fn surrogates() -> impl Strategy<Value = (Surrogate, RatioGrain)> {
    prop_oneof![
        Just((Surrogate::Cispo { cap: 5.0 }, RatioGrain::Token)),
        Just((Surrogate::Cispo { cap: 1.1 }, RatioGrain::Token)),
        Just((Surrogate::Cispo { cap: 1.1 }, RatioGrain::Sequence)),
        Just((Surrogate::Clip { low: 0.2, high: 0.2 }, RatioGrain::Token)),
        Just((Surrogate::Clip { low: 0.2, high: 0.26 }, RatioGrain::Token)),
        Just((Surrogate::Clip { low: 3e-3, high: 5e-3 }, RatioGrain::Sequence)),
        Just((Surrogate::None, RatioGrain::Token)),
    ]
}

fn objectives() -> impl Strategy<Value = Objective> {
    let scopes = prop_oneof![
        Just(AdvantageScope::Batch),
        Just(AdvantageScope::Group),
        Just(AdvantageScope::None)
    ];
    let aggregations = prop_oneof![
        Just(Aggregation::Prompt),
        Just(Aggregation::Sample),
        Just(Aggregation::Token),
        Just(Aggregation::Constant { tokens: 12 }),
    ];
    let filters = prop_oneof![Just(Filter::None), Just(Filter::ZeroVarianceShrink)];
    let lengths = prop_oneof![
        Just(LengthControl::None),
        Just(LengthControl::Penalty { max_tokens: 8, cache_tokens: 4 }),
    ];
    let truncations = prop_oneof![Just(Truncated::Masked), Just(Truncated::Kept)];
    (surrogates(), scopes, aggregations, filters, lengths, truncations).prop_map(
        |((surrogate, ratio), advantage, aggregation, filter, length_control, truncated)| {
            Objective {
                surrogate,
                ratio,
                advantage,
                aggregation,
                filter,
                length_control,
                truncated,
                kl: Kl::K3 { coefficient: 0.05 },
                ..Objective::default()
            }
        },
    )
}

fn rollouts() -> impl Strategy<Value = Rollout> {
    let tokens = prop::collection::vec((-4.0_f32..-0.01, prop::bool::weighted(0.2)), 1..9);
    (tokens, any::<bool>(), prop::bool::weighted(0.15)).prop_map(
        |(tokens, is_correct, is_truncated)| Rollout {
            completion: Completion {
                token_ids: (0..tokens.len() as u32).collect(),
                logprobs: tokens.iter().map(|(logprob, _)| *logprob).collect(),
                versions: vec![PolicyVersion(3); tokens.len()],
                is_injected: tokens.iter().map(|(_, is_injected)| *is_injected).collect(),
                text: String::new(),
                thinking_tokens: 0,
                finish: if is_truncated { FinishReason::Length } else { FinishReason::Stop },
            },
            reward: Reward { value: if is_correct { 1.0 } else { -1.0 }, is_correct },
            episode: None,
        },
    )
}

fn batches() -> impl Strategy<Value = Batch> {
    let groups = prop::collection::vec(prop::collection::vec(rollouts(), 2..6), 1..5);
    groups.prop_map(|groups| Batch {
        version: PolicyVersion(5),
        groups: groups
            .into_iter()
            .enumerate()
            .map(|(index, rollouts)| Group {
                id: GroupId(index as u64),
                prompt: Prompt {
                    id: PromptId(format!("prompt {index}")),
                    dataset: "made up".into(),
                    text: String::new(),
                    token_ids: vec![index as u32],
                    answer: String::new(),
                },
                rollouts,
            })
            .collect(),
    })
}

/// Log-probs of a policy that has moved a little, the same for the same tokens.
fn moved(prepared: &PreparedBatch) -> Vec<Vec<f64>> {
    let move_by = |(t, logprob): (usize, &f32)| f64::from(*logprob) + 0.3 * (1.7 * t as f64).sin();
    prepared
        .train
        .sequences
        .iter()
        .map(|sequence| sequence.generator_logprobs.iter().enumerate().map(move_by).collect())
        .collect()
}

fn total(objective: &Objective, prepared: &PreparedBatch) -> (f64, Vec<Vec<f64>>) {
    let trainer = moved(prepared);
    let inputs: Vec<_> = trainer
        .iter()
        .map(|row| LossInputs { trainer: row, reference: row, entropy: &[] })
        .collect();
    let result = loss(objective, &prepared.train.sequences, &inputs);
    (result.loss, result.gradients)
}

/// True when no ratio is so near a bound that a finite step would cross it.
fn is_smooth(objective: &Objective, sequence: &Sequence<'_>) -> bool {
    let bounds = match objective.surrogate {
        Surrogate::Cispo { cap } => [cap, cap],
        Surrogate::Clip { low, high } => [1.0 - low, 1.0 + high],
        Surrogate::None => return true,
    };
    let ratios = log_ratios(&objective.ratio, sequence);
    ratios.iter().all(|log| bounds.iter().all(|bound| (log.exp() - bound).abs() > 1e-4))
}

/// Numerical gradient. Where the surrogate holds the ratio constant, the generator moves along, so
/// that only the log-prob moves.
fn numerical(objective: &Objective, sequence: &Sequence<'_>, t: usize) -> f64 {
    let holds_ratio = matches!(objective.surrogate, Surrogate::Cispo { .. });
    let at = |step: f64| {
        let (mut trainer, mut generator) = (sequence.trainer.to_vec(), sequence.generator.to_vec());
        trainer[t] += step;
        generator[t] += if holds_ratio { step } else { 0.0 };
        let moved = Sequence { trainer: &trainer, generator: &generator, ..*sequence };
        surrogate_loss(objective, &moved).loss
    };
    (at(STEP) - at(-STEP)) / (2.0 * STEP)
}

proptest! {
    #[test]
    fn the_gradient_equals_finite_differences(
        (surrogate, ratio) in surrogates(),
        tokens in prop::collection::vec((-4.0..-0.01, -0.8..0.8, 0_u8..4), 1..8),
        advantage in -2.0..2.0,
    ) {
        let objective = Objective { surrogate, ratio, ..Objective::default() };
        let generator: Vec<f64> = tokens.iter().map(|(old, _, _)| *old).collect();
        let trainer: Vec<f64> = tokens.iter().map(|(old, change, _)| old + change).collect();
        let weights: Vec<f64> = tokens.iter().map(|(_, _, weight)| f64::from(*weight)).collect();
        let sequence = Sequence { trainer: &trainer, generator: &generator, weights: &weights, advantage };
        prop_assume!(is_smooth(&objective, &sequence));
        let SequenceLoss { gradient, .. } = surrogate_loss(&objective, &sequence);
        for (t, slope) in gradient.iter().enumerate() {
            let expected = numerical(&objective, &sequence, t);
            let scale = slope.abs().max(1.0);
            prop_assert!((slope - expected).abs() < TOLERANCE * scale, "token {t}: {slope} {expected}");
        }
    }

    #[test]
    fn equal_rewards_give_no_loss_gradient(
        objective in objectives(), mut batch in batches(), reward in -1.0..1.0,
    ) {
        for rollout in batch.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
            rollout.reward = Reward { value: reward, is_correct: false };
        }
        let prepared = prepare(&objective, 1.0, &batch).unwrap();
        if objective.filter == Filter::ZeroVarianceShrink {
            prop_assert!(prepared.train.sequences.is_empty());
            prop_assert_eq!(prepared.counts.zero_variance_groups.len(), batch.groups.len());
        }
        // The reference is the policy itself, so the KL term has no slope either.
        for slope in total(&objective, &prepared).1.iter().flatten() {
            prop_assert!(slope.abs() < 1e-9, "{slope}");
        }
    }

    #[test]
    fn a_permutation_of_completions_changes_nothing(objective in objectives(), batch in batches()) {
        let mut turned = batch.clone();
        for group in &mut turned.groups {
            group.rollouts.reverse();
        }
        turned.groups.reverse();
        let (ours, theirs) =
            (prepare(&objective, 1.0, &batch).unwrap(), prepare(&objective, 1.0, &turned).unwrap());
        let ((loss, gradients), (turned_loss, mut turned_gradients)) =
            (total(&objective, &ours), total(&objective, &theirs));
        turned_gradients.reverse();
        prop_assert!((loss - turned_loss).abs() < 1e-12 * loss.abs().max(1.0));
        for (ours, theirs) in gradients.iter().flatten().zip(turned_gradients.iter().flatten()) {
            prop_assert!((ours - theirs).abs() < 1e-12 * ours.abs().max(1.0));
        }
    }

    #[test]
    fn injected_tokens_carry_no_gradient_and_their_log_probs_do_not_matter(
        objective in objectives(), batch in batches(), noise in -5.0_f32..5.0,
    ) {
        let mut other = batch.clone();
        for rollout in other.groups.iter_mut().flat_map(|group| &mut group.rollouts) {
            let completion = &mut rollout.completion;
            for (logprob, is_injected) in completion.logprobs.iter_mut().zip(&completion.is_injected) {
                *logprob += if *is_injected { noise } else { 0.0 };
            }
        }
        let (ours, theirs) =
            (prepare(&objective, 1.0, &batch).unwrap(), prepare(&objective, 1.0, &other).unwrap());
        let trainer = moved(&ours);
        let run = |prepared: &PreparedBatch| {
            let inputs: Vec<_> = trainer
                .iter()
                .map(|row| LossInputs { trainer: row, reference: row, entropy: &[] })
                .collect();
            loss(&objective, &prepared.train.sequences, &inputs)
        };
        let result = run(&ours);
        prop_assert_eq!(&result, &run(&theirs));
        for (sequence, gradient) in ours.train.sequences.iter().zip(&result.gradients) {
            for (weight, slope) in sequence.weights.iter().zip(gradient) {
                prop_assert!(*weight > 0.0 || slope.abs() < f64::MIN_POSITIVE);
            }
        }
        let sampled: usize = ours.train.sequences.iter()
            .map(|sequence| sequence.weights.iter().filter(|weight| **weight > 0.0).count()).sum();
        prop_assert_eq!(sampled, ours.counts.trained_tokens);
    }

    #[test]
    fn micro_batches_add_up_to_the_batch(objective in objectives(), batch in batches()) {
        let prepared = prepare(&objective, 1.0, &batch).unwrap();
        let whole = total(&objective, &prepared).0;
        let pieces: f64 = prepared.train.sequences.iter().map(|sequence| {
            let mut piece = prepared.clone();
            piece.train.sequences = vec![sequence.clone()];
            total(&objective, &piece).0
        }).sum();
        prop_assert!((whole - pieces).abs() < 1e-12 * whole.abs().max(1.0));
    }

    #[test]
    fn masked_truncated_completions_leave_the_batch(batch in batches()) {
        let objective = Objective { filter: Filter::None, ..Objective::default() };
        let prepared = prepare(&objective, 1.0, &batch).unwrap();
        let finished = batch.groups.iter().flat_map(|group| &group.rollouts)
            .filter(|rollout| !rollout.completion.is_truncated() && rollout.completion.sampled_tokens() > 0)
            .count();
        prop_assert_eq!(prepared.train.sequences.len(), finished);
    }

    /// Whoever refuses a sequence must know which group to leave out.
    #[test]
    fn every_sequence_names_the_group_it_came_from(
        objective in objectives(),
        batch in batches(),
    ) {
        let mut batch = batch;
        for (index, group) in batch.groups.iter_mut().enumerate() {
            (group.id, group.prompt.token_ids) = (GroupId(index as u64), vec![index as u32]);
        }
        let prepared = prepare(&objective, 1.0, &batch).unwrap();
        let named: Vec<Vec<u32>> = prepared.groups.iter().map(|group| vec![group.0 as u32]).collect();
        let found: Vec<Vec<u32>> =
            prepared.train.sequences.iter().map(|one| one.prompt_token_ids.clone()).collect();
        prop_assert_eq!(named, found);
    }
}

#[test]
fn the_entropy_bonus_lowers_the_loss_by_its_weighted_mean() {
    let objective = Objective {
        entropy_bonus: 0.5,
        surrogate: Surrogate::None,
        aggregation: Aggregation::Token,
        ..Objective::default()
    };
    let sequence = scalerl_rollout::TrainSequence {
        prompt_token_ids: vec![1],
        completion_token_ids: vec![2, 3, 4],
        generator_logprobs: vec![-1.0; 3],
        weights: vec![0.5, 0.0, 0.5],
        advantage: 0.0,
    };
    let inputs = LossInputs { trainer: &[-1.0; 3], reference: &[], entropy: &[2.0, 100.0, 1.0] };
    let result = loss(&objective, &[sequence], &[inputs]);
    assert!((result.loss + 0.5 * 1.5).abs() < 1e-12);
}

#[test]
fn broken_completions_are_refused_by_group_and_number() {
    let completion = Completion {
        token_ids: vec![1, 2],
        logprobs: vec![-0.5, f32::NAN],
        versions: vec![PolicyVersion(0); 2],
        is_injected: vec![false; 2],
        text: String::new(),
        thinking_tokens: 0,
        finish: FinishReason::Stop,
    };
    let prompt = Prompt {
        id: PromptId("p".into()),
        dataset: "d".into(),
        text: String::new(),
        token_ids: vec![],
        answer: String::new(),
    };
    let rollout =
        Rollout { completion, reward: Reward { value: 1.0, is_correct: true }, episode: None };
    let group = Group { id: GroupId(7), prompt, rollouts: vec![rollout] };
    let batch = Batch { version: PolicyVersion(0), groups: vec![group] };
    let error = prepare(&Objective::default(), 1.0, &batch).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("group 7, completion 0: token 1 has a log-prob of NaN"), "{said}");
    assert_eq!(error.group(), GroupId(7));
}
