//! Trainer and generator on one set of bf16 weights: no token, log-prob or version differs from two
//! sets, and nobody computes with weights that are neither one version's nor another's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tiny;

use std::sync::Arc;
use std::time::Duration;

use scalerl_generate::CacheAfterExchange;
use scalerl_model::folder::Model;
use scalerl_model::train::TrainingBatch;
use scalerl_recipe::{Compute, Recipe};
use scalerl_rollout::{
    Completion, Generator, PolicyVersion, SampleRequest, StepReport, TrainBatch, TrainSequence,
    Trainer,
};
use scalerl_worker::options::head_options;
use scalerl_worker::{LocalGenerator, LocalTrainer, WeightStore};
use tch::{Device, Kind, Tensor};
use tiny::{model, request, setup};

fn recipe() -> Recipe {
    let mut recipe = tiny::recipe();
    recipe.model.compute = Compute::Bf16;
    recipe
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Weights {
    Copied,
    Shared,
}

/// Trainer and generator with as many sets of weights as it says.
fn pair(weights: Weights, cache: CacheAfterExchange) -> (LocalTrainer, LocalGenerator) {
    let store = WeightStore::new();
    let mut trainer = LocalTrainer::try_new(&recipe(), model(1), Arc::clone(&store)).unwrap();
    let theirs: Vec<Tensor> = if weights == Weights::Shared {
        trainer = trainer.with_shared_weights();
        trainer.model().trained().iter().map(Tensor::detach).collect()
    } else {
        trainer.model().trained().iter().map(Tensor::detach_copy).collect()
    };
    let mut setup = setup(&store);
    setup.model = trainer.model().with_trained(theirs).unwrap();
    setup.cache_after_exchange = cache;
    (trainer, LocalGenerator::start(setup).unwrap())
}

fn long(count: u32) -> SampleRequest {
    SampleRequest { max_answer_tokens: 90, ..request(count) }
}

fn batch(completions: &[Completion]) -> TrainBatch {
    let sequence = |(index, one): (usize, &Completion)| TrainSequence {
        prompt_token_ids: request(1).prompt_token_ids,
        completion_token_ids: one.token_ids.clone(),
        generator_logprobs: one.logprobs.clone(),
        weights: vec![1.0; one.len()],
        advantage: if index % 2 == 0 { 1.0 } else { -1.0 },
    };
    let sequences = completions.iter().enumerate().map(sequence).collect();
    TrainBatch { temperature: 1.0, sequences }
}

fn untimed(report: &StepReport) -> StepReport {
    StepReport { seconds: 0.0, peak_memory_bytes: None, ..report.clone() }
}

#[tokio::test]
async fn one_set_gives_the_tokens_and_steps_of_two() {
    let mut runs = Vec::new();
    for weights in [Weights::Copied, Weights::Shared] {
        let (mut trainer, generator) = pair(weights, CacheAfterExchange::Stale);
        let mut seen = Vec::new();
        for version in 0..3 {
            let completions = generator.generate(long(12)).await.unwrap();
            let report = untimed(&trainer.step(&batch(&completions)).unwrap());
            generator.adopt(&trainer.publish().unwrap()).await.unwrap();
            assert_eq!(generator.stats().version, PolicyVersion(version + 1));
            seen.push((completions, report));
        }
        runs.push(seen);
    }
    assert!(runs[0] == runs[1]);
    assert_ne!(runs[0][0].0, runs[0][2].0, "the steps were seen");
}

/// Log-probs of each completion's tokens under a model.
fn logprobs(model: &Model, completions: &[Completion]) -> Vec<Vec<f32>> {
    let prompt = request(1).prompt_token_ids;
    let ids: Vec<Vec<i64>> = completions
        .iter()
        .map(|one| prompt.iter().chain(&one.token_ids).copied().map(i64::from).collect())
        .collect();
    let batch = TrainingBatch::all_scored(&ids, model.config.vocabulary, Device::Cpu).unwrap();
    let scores = model.score(&batch, head_options(&recipe(), Device::Cpu)).unwrap();
    let mut lists = vec![Vec::new(); completions.len()];
    for (place, logprob) in batch.places.iter().zip(Vec::<f32>::try_from(&scores.logprob).unwrap())
    {
        if place.position >= prompt.len() {
            lists[place.sequence].push(logprob);
        }
    }
    lists
}

#[tokio::test]
async fn a_step_in_mid_completion_reaches_no_token_before_the_exchange() {
    // Two models of their own judge whose each token is.
    let (mut judge, generator) = pair(Weights::Copied, CacheAfterExchange::Recompute);
    let first = generator.generate(long(12)).await.unwrap();
    let old = judge.model().trained().iter().map(Tensor::detach_copy).collect();
    let old = judge.model().with_trained(old).unwrap();
    let _ = judge.step(&batch(&first)).unwrap();

    // When the weights arrive is the machine's business: until they come in the middle.
    for attempt in 1..=10 {
        let (completions, trainer) = exchanged_in_mid_completion(&first, 3 * attempt).await;
        let kept: Vec<&Tensor> = trainer.model().trained().iter().collect();
        let right: Vec<&Tensor> = judge.model().trained().iter().collect();
        assert!(kept.iter().zip(&right).all(|(a, b)| a == b), "the same step");
        let by_version = [logprobs(&old, &completions), logprobs(judge.model(), &completions)];
        let (mut right, mut wrong, mut count) = (0.0, 0.0, [0, 0]);
        for (index, one) in completions.iter().enumerate() {
            for (t, (version, logprob)) in one.versions.iter().zip(&one.logprobs).enumerate() {
                let version = version.0 as usize;
                right += f64::from((by_version[version][index][t] - logprob).abs());
                wrong += f64::from((by_version[1 - version][index][t] - logprob).abs());
                count[version] += 1;
            }
        }
        assert!(right < 0.1 * wrong, "{right} {wrong}");
        if count[0] > 100 && count[1] > 100 {
            return;
        }
    }
    panic!("the weights came too late or too early in ten attempts");
}

/// Completions during which shared weights change, after some decode steps and an optimizer's step.
async fn exchanged_in_mid_completion(
    first: &[Completion],
    steps: u64,
) -> (Vec<Completion>, LocalTrainer) {
    let (mut trainer, generator) = pair(Weights::Shared, CacheAfterExchange::Recompute);
    let begun = generator.generate(long(96));
    let exchange = async {
        while generator.stats().steps < steps {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        // The optimizer works while completions are written.
        let batch = batch(first);
        let stepped = tokio::task::spawn_blocking(move || {
            let _ = trainer.step(&batch).unwrap();
            let handle = trainer.publish().unwrap();
            (trainer, handle)
        });
        let (trainer, handle) = stepped.await.unwrap();
        generator.adopt(&handle).await.unwrap();
        trainer
    };
    let (completions, trainer) = tokio::join!(begun, exchange);
    (completions.unwrap(), trainer)
}

#[tokio::test]
async fn a_trainer_does_not_compute_with_weights_that_are_behind_and_saves_those_that_are_not() {
    let (mut trainer, generator) = pair(Weights::Shared, CacheAfterExchange::Stale);
    let completions = generator.generate(long(12)).await.unwrap();
    let batch = batch(&completions);
    let before: Vec<Tensor> = trainer.model().trained().iter().map(Tensor::detach_copy).collect();
    let _ = trainer.step(&batch).unwrap();
    let now = trainer.model().trained();
    assert!(before.iter().zip(now).all(|(a, b)| a == b), "they are the generator's");
    for _ in 0..2 {
        let refused = trainer.step(&batch).unwrap_err().to_string();
        assert!(refused.contains("has not taken the weights of the last step"), "{refused}");
        let _ = trainer.publish().unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    trainer.save(folder.path()).unwrap();
    let saved = Model::load(&folder.path().join("model"), Kind::BFloat16, Device::Cpu).unwrap();
    for (saved, master) in saved.parameters.iter().zip(trainer.masters()) {
        assert_eq!(saved, &master.to_kind(Kind::BFloat16), "the step is in it");
    }
    generator.adopt(&trainer.publish().unwrap()).await.unwrap();
    let _ = trainer.step(&batch).unwrap();
}
