//! The local trainer on a tiny random model.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;

use std::sync::Arc;

use batches::{batch, logprobs, model, recipe};
use scalerl_model::folder::Model;
use scalerl_recipe::{Compute, Gradients, Kl, Moments, RatioGrain, Recipe, Surrogate};
use scalerl_rollout::{PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError};
use scalerl_worker::{LocalTrainer, WeightStore};
use tch::{Device, Kind, Tensor};

/// Mean of |log ratio| between two float32 passes over the same weights, packed differently.
const SAME_WEIGHTS: f64 = 1e-5;
/// Pieces of a batch add float32 gradients in another order.
const FLOAT_SUMS: f64 = 1e-4;

fn trainer(recipe: &Recipe, seed: i64) -> LocalTrainer {
    LocalTrainer::try_new(recipe, model(seed), WeightStore::new()).unwrap()
}

fn bits(trainer: &LocalTrainer) -> Vec<Vec<f32>> {
    trainer.masters().iter().map(|m| Vec::try_from(m.flatten(0, -1)).unwrap()).collect()
}

/// One step, its report without the time and memory it took.
fn step(trainer: &mut LocalTrainer, batch: &TrainBatch) -> StepReport {
    StepReport { seconds: 0.0, peak_memory_bytes: None, ..trainer.step(batch).unwrap() }
}

#[test]
fn one_step_makes_rewarded_completions_likelier_and_lowers_the_loss() {
    let recipe = recipe();
    let mut trainer = trainer(&recipe, 1);
    let batch = batch(&recipe, 1);
    let before = logprobs(&recipe, trainer.model(), &batch.sequences);
    let report = trainer.step(&batch).unwrap();
    let after = logprobs(&recipe, trainer.model(), &batch.sequences);
    let (mut change, mut rose) = (0.0, [0.0, 0.0]);
    for (sequence, (before, after)) in batch.sequences.iter().zip(before.iter().zip(&after)) {
        for (t, weight) in sequence.weights.iter().enumerate() {
            let moved = f64::from(after[t] - before[t]);
            // At lag 0 every ratio is 1, so this is the CISPO loss with its ratios held.
            change -= weight * sequence.advantage * moved;
            rose[usize::from(sequence.advantage > 0.0)] += weight * moved;
        }
    }
    assert!(change < -1e-3, "the loss changed by {change}");
    assert!(rose[1] > 0.0 && rose[0] < 0.0, "wrong ones {}, right ones {}", rose[0], rose[1]);
    assert_eq!((report.version, trainer.version()), (PolicyVersion(1), PolicyVersion(1)));
    assert!(report.gradient_norm > 0.0 && report.entropy > 0.0 && report.model_flops > 0.0);
    assert!((report.learning_rate - 2e-3).abs() < 1e-15);
    let trained: usize =
        batch.sequences.iter().flat_map(|s| &s.weights).filter(|weight| **weight > 0.0).count();
    assert_eq!(report.trained_tokens, trained as u64);
    assert_eq!(report.reference_kl, None);
}

#[test]
fn at_lag_zero_trainer_and_recorder_agree() {
    let mut recipe = recipe();
    let batch = batch(&recipe, 1);
    for micro_batch_tokens in [1, 20, 10_000] {
        recipe.pipeline.micro_batch_tokens = micro_batch_tokens;
        let ratio = trainer(&recipe, 1).step(&batch).unwrap().ratio;
        assert!(ratio.kl_k1.abs() <= SAME_WEIGHTS, "{ratio:?}");
        assert!((ratio.max - 1.0).abs() <= 10.0 * SAME_WEIGHTS, "{ratio:?}");
        assert!((ratio.min - 1.0).abs() <= 10.0 * SAME_WEIGHTS, "{ratio:?}");
        assert!(ratio.clip_fraction.abs() < 1e-12 && ratio.kl_k3 < 1e-8, "{ratio:?}");
    }
    // The wrong temperature would show.
    let wrong = TrainBatch { temperature: 1.0, ..batch };
    let ratio = trainer(&recipe, 1).step(&wrong).unwrap().ratio;
    assert!(ratio.kl_k3 > 100.0 * SAME_WEIGHTS, "{ratio:?}");
}

#[test]
fn how_a_batch_is_cut_and_ordered_does_not_matter() {
    let cispo = recipe();
    let mut gspo = recipe();
    gspo.objective.surrogate = Surrogate::Clip { low: 0.003, high: 0.005 };
    gspo.objective.ratio = RatioGrain::Sequence;
    let mut all_terms = recipe();
    all_terms.objective.kl = Kl::K3 { coefficient: 0.1 };
    all_terms.objective.entropy_bonus = 0.01;
    for mut recipe in [cispo, gspo, all_terms] {
        // Recorded by another model: ratios are not 1.
        let mut batch = batch(&recipe, 2);
        let whole = trainer(&recipe, 1).step(&batch).unwrap();
        assert!((whole.ratio.mean - 1.0).abs() > 0.01, "{:?}", whole.ratio);
        batch.sequences.reverse();
        for micro_batch_tokens in [1, 20, 33] {
            recipe.pipeline.micro_batch_tokens = micro_batch_tokens;
            let cut = trainer(&recipe, 1).step(&batch).unwrap();
            for (found, expected) in [
                (cut.loss, whole.loss),
                (cut.gradient_norm, whole.gradient_norm),
                (cut.entropy, whole.entropy),
                (cut.ratio.mean, whole.ratio.mean),
                (cut.ratio.max, whole.ratio.max),
                (cut.ratio.effective_sample_share, whole.ratio.effective_sample_share),
                (cut.ratio.clip_fraction, whole.ratio.clip_fraction),
                (cut.ratio.kl_k3, whole.ratio.kl_k3),
            ] {
                let scale = expected.abs().max(1.0);
                assert!((found - expected).abs() <= FLOAT_SUMS * scale, "{found} {expected}");
            }
            assert_eq!((cut.tokens, cut.trained_tokens), (whole.tokens, whole.trained_tokens));
        }
    }
}

#[test]
fn injected_tokens_do_not_matter_to_the_last_bit() {
    let recipe = recipe();
    let ours = batch(&recipe, 2);
    let mut theirs = ours.clone();
    let mut changed = 0;
    for sequence in &mut theirs.sequences {
        for (logprob, weight) in sequence.generator_logprobs.iter_mut().zip(&sequence.weights) {
            if *weight <= 0.0 {
                *logprob = f32::NAN;
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 3);
    let (mut one, mut other) = (trainer(&recipe, 1), trainer(&recipe, 1));
    assert_eq!(step(&mut one, &ours), step(&mut other, &theirs));
    assert_eq!(bits(&one), bits(&other));
}

#[test]
fn a_restored_trainer_takes_the_same_next_step_to_the_last_bit() {
    let recipe = recipe();
    let (first, second) = (batch(&recipe, 1), batch(&recipe, 2));
    let folder = tempfile::tempdir().unwrap();
    let mut straight = trainer(&recipe, 1);
    straight.step(&first).unwrap();
    straight.save(folder.path()).unwrap();
    let saved = Model::load(&folder.path().join("model"), Kind::Float, Device::Cpu).unwrap();
    for (saved, own) in saved.parameters.iter().zip(&straight.model().parameters) {
        assert!(saved.equal(own), "the model beside it is the policy of that step");
    }
    let expected = step(&mut straight, &second);

    let mut resumed = trainer(&recipe, 7);
    assert_eq!(resumed.restore(folder.path()).unwrap(), PolicyVersion(1));
    assert_eq!(step(&mut resumed, &second), expected);
    assert_eq!(bits(&resumed), bits(&straight));
}

#[test]
fn a_snapshot_is_what_was_when_it_was_taken() {
    for compute in [Compute::F32, Compute::Bf16] {
        let mut recipe = recipe();
        recipe.model.compute = compute.clone();
        recipe.optimizer.moments = Moments::Bf16;
        recipe.optimizer.gradients = Gradients::Bf16;
        let (at_once, later) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut trainer = trainer(&recipe, 1);
        trainer.step(&batch(&recipe, 1)).unwrap();
        trainer.save(at_once.path()).unwrap();
        let writing = trainer.snapshot(later.path()).unwrap();
        let second = step(&mut trainer, &batch(&recipe, 2));
        std::thread::spawn(move || writing.finish().unwrap()).join().unwrap();
        for name in ["step-00000001/learner.safetensors", "model/model.safetensors"] {
            let read =
                |folder: &tempfile::TempDir| std::fs::read(folder.path().join(name)).unwrap();
            assert!(read(&at_once) == read(&later), "{name} {compute:?}");
        }
        // Rounding by chance goes on as if nothing had happened.
        let mut resumed = self::trainer(&recipe, 7);
        assert_eq!(resumed.restore(later.path()).unwrap(), PolicyVersion(1));
        assert_eq!(step(&mut resumed, &batch(&recipe, 2)), second);
        assert_eq!(bits(&resumed), bits(&trainer));
    }
}

#[test]
fn a_damaged_or_missing_checkpoint_is_refused_and_changes_nothing() {
    let recipe = recipe();
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = trainer(&recipe, 1);
    let said = trainer.restore(folder.path()).unwrap_err().to_string();
    assert!(said.contains("no trainer was saved"), "{said}");
    trainer.step(&batch(&recipe, 1)).unwrap();
    trainer.save(folder.path()).unwrap();
    trainer.step(&batch(&recipe, 2)).unwrap();
    let file = folder.path().join("step-00000001/learner.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let before = bits(&trainer);
    let said = trainer.restore(folder.path()).unwrap_err().to_string();
    assert!(said.contains("SHA-256"), "{said}");
    assert_eq!((bits(&trainer), trainer.version()), (before, PolicyVersion(2)));
}

#[test]
fn a_step_that_is_not_finite_is_reported_and_leaves_no_trace() {
    let recipe = recipe();
    let good = batch(&recipe, 1);
    let mut trainer = trainer(&recipe, 1);
    let before = bits(&trainer);
    // Finite in float64, infinite as a float32 gradient.
    let mut steep = good.clone();
    steep.sequences[3].advantage = 1e300;
    let error = trainer.step(&steep).unwrap_err();
    let is_gradient =
        matches!(error, TrainerError::NotFinite { quantity, .. } if quantity.contains("gradient"));
    assert!(is_gradient, "{error}");
    // Recorded as impossible: the ratio overflows, and a wrong answer has no cap that would help.
    let mut clipped = recipe.clone();
    clipped.objective.surrogate = Surrogate::Clip { low: 0.2, high: 0.2 };
    let mut overflowing = good.clone();
    for sequence in &mut overflowing.sequences {
        sequence.generator_logprobs.fill(-1e30);
    }
    let mut other = LocalTrainer::try_new(&clipped, model(1), WeightStore::new()).unwrap();
    let error = other.step(&overflowing).unwrap_err();
    let is_loss = matches!(error, TrainerError::NotFinite { quantity: "the loss", version, .. } if version.0 == 0);
    assert!(is_loss, "{error}");
    assert_eq!(bits(&other), before);
    let mut fresh = LocalTrainer::try_new(&clipped, model(1), WeightStore::new()).unwrap();
    assert_eq!(step(&mut other, &good), step(&mut fresh, &good));
    assert_eq!(bits(&other), bits(&fresh));

    assert_eq!((bits(&trainer), trainer.version()), (before, PolicyVersion(0)));
    let report = step(&mut trainer, &good);
    let mut fresh = self::trainer(&recipe, 1);
    assert_eq!(report, step(&mut fresh, &good));
    assert_eq!(bits(&trainer), bits(&fresh));
}

#[test]
fn published_weights_stay_as_they_were_published() {
    for (compute, kind) in [(Compute::F32, Kind::Float), (Compute::Bf16, Kind::BFloat16)] {
        let mut recipe = recipe();
        recipe.model.compute = compute;
        let weight_store = WeightStore::new();
        let mut trainer =
            LocalTrainer::try_new(&recipe, model(1), Arc::clone(&weight_store)).unwrap();
        let batch = batch(&recipe, 1);
        trainer.step(&batch).unwrap();
        let handle = trainer.publish().unwrap();
        let expected = logprobs(&recipe, trainer.model(), &batch.sequences);
        trainer.step(&batch).unwrap();
        assert_ne!(logprobs(&recipe, trainer.model(), &batch.sequences), expected);

        let weights =
            std::thread::spawn(move || weight_store.take(&handle).unwrap()).join().unwrap();
        assert_eq!(weights.version, PolicyVersion(1));
        assert!(weights.parameters.iter().all(|p| p.kind() == kind && !p.requires_grad()));
        let parameters = weights.parameters.iter().map(Tensor::shallow_clone).collect();
        let model = Model::over(trainer.model().config.clone(), parameters, None).unwrap();
        assert_eq!(logprobs(&recipe, &model, &batch.sequences), expected);
    }
}

#[test]
fn the_reference_is_the_model_the_run_started_from() {
    let mut recipe = recipe();
    recipe.objective.kl = Kl::K3 { coefficient: 1.0 };
    let batch = batch(&recipe, 1);
    let mut trainer = trainer(&recipe, 1);
    let start = trainer.step(&batch).unwrap().reference_kl.unwrap();
    assert!(start.abs() < SAME_WEIGHTS, "{start}");
    for _ in 0..4 {
        trainer.step(&batch).unwrap();
    }
    // Without rewards only the penalty is left, and it leads back.
    let mut still = batch.clone();
    still.sequences.iter_mut().for_each(|sequence| sequence.advantage = 0.0);
    let away = trainer.step(&still).unwrap().reference_kl.unwrap();
    let back = (0..6).map(|_| trainer.step(&still).unwrap().reference_kl.unwrap()).last().unwrap();
    assert!(away > 1e-3 && back < 0.8 * away, "{away} {back}");
}

#[test]
fn the_entropy_bonus_raises_entropy() {
    let mut recipe = recipe();
    recipe.objective.entropy_bonus = 0.1;
    let mut batch = batch(&recipe, 1);
    batch.sequences.iter_mut().for_each(|sequence| sequence.advantage = 0.0);
    let mut trainer = trainer(&recipe, 1);
    let first = trainer.step(&batch).unwrap();
    assert!((first.loss + 0.1 * first.entropy).abs() < 0.1, "{first:?}");
    let second = trainer.step(&batch).unwrap();
    assert!(second.entropy > first.entropy, "{} {}", first.entropy, second.entropy);
}

#[test]
fn batches_that_cannot_be_trained_on_are_refused_by_sequence() {
    let recipe = recipe();
    let mut trainer = trainer(&recipe, 1);
    let good = batch(&recipe, 1);
    let empty = TrainBatch { sequences: vec![], ..good.clone() };
    let said = trainer.step(&empty).unwrap_err().to_string();
    assert_eq!(said, "the batch for v0 cannot be trained on: it has no sequences");
    let frozen = TrainBatch { temperature: 0.0, ..good.clone() };
    let said = trainer.step(&frozen).unwrap_err().to_string();
    assert!(said.contains("its temperature is 0"), "{said}");
    let mut broken = good;
    broken.sequences[2].completion_token_ids[0] = 40;
    let said = trainer.step(&broken).unwrap_err().to_string();
    assert_eq!(
        said,
        "sequence 2 of the batch for v0 cannot be trained on: token id 40 is outside the \
         vocabulary of 40"
    );
}
