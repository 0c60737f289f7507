//! A tiny random model, a recipe for it, and batches that some model of its kind has recorded.

use scalerl_model::adapter;
use scalerl_model::bench::Shape;
use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_model::train::TrainingBatch;
use scalerl_objective::prepare;
use scalerl_recipe::{Filter, Recipe};
use scalerl_rollout::{
    Batch, Completion, FinishReason, Group, GroupId, PolicyVersion, Prompt, PromptId, Reward,
    Rollout, TrainBatch, TrainSequence,
};
use scalerl_worker::options::{adapter_config, head_options};
use tch::{Device, Kind};

pub(crate) fn model(seed: i64) -> Model {
    model_of(16, seed)
}

/// Four heads, each a quarter as wide as a layer.
pub(crate) fn model_of(width: i64, seed: i64) -> Model {
    let shape = Shape { layers: 2, width, heads: 4, kv_heads: 2, feed_forward: 32, vocabulary: 40 };
    let mut config = shape.config().unwrap();
    // Far from uniform, so that log-probs differ from token to token.
    config.initial_spread = 0.4;
    Model::random(config, seed, Kind::Float, Device::Cpu).unwrap()
}

/// Experts in its first and last layer, the head apart from the embedding.
#[allow(dead_code, reason = "for the tests of ranks")]
pub(crate) fn model_of_experts(seed: i64) -> Model {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.join("../model/testdata/qwen3_moe");
    let mut config = ModelConfig::load(&folder.join("config.json")).unwrap();
    config.initial_spread = 0.4;
    Model::random(config, seed, Kind::Float, Device::Cpu).unwrap()
}

/// As [`model`], with a head that is the embedding.
#[allow(dead_code, reason = "for the tests of ranks")]
pub(crate) fn tied_model(seed: i64) -> Model {
    let mut config = model(seed).config;
    config.is_head_tied = true;
    config.raw.insert("tie_word_embeddings".to_owned(), true.into());
    config.initial_spread = 0.4;
    Model::random(config, seed, Kind::Float, Device::Cpu).unwrap()
}

pub(crate) fn recipe() -> Recipe {
    let mut recipe = Recipe::default();
    recipe.optimizer.lr = 2e-3;
    recipe.optimizer.warmup_steps = 0;
    recipe.sampling.temperature = 0.8;
    recipe.objective.filter = Filter::None;
    recipe
}

/// The model as the recipe trains it: with its adapter, where it has one.
#[allow(dead_code, reason = "for the tests that train adapters")]
pub(crate) fn trained_as(recipe: &Recipe, model: Model) -> Model {
    adapter::start(model, None, adapter_config(recipe), recipe.seed).unwrap()
}

/// Log-probs of each sequence's completion under a model, all packed together.
pub(crate) fn logprobs(
    recipe: &Recipe,
    model: &Model,
    sequences: &[TrainSequence],
) -> Vec<Vec<f32>> {
    let ids: Vec<Vec<i64>> = sequences
        .iter()
        .map(|s| s.prompt_token_ids.iter().chain(&s.completion_token_ids).copied().map(i64::from))
        .map(Iterator::collect)
        .collect();
    let batch = TrainingBatch::all_scored(&ids, model.config.vocabulary, Device::Cpu).unwrap();
    let scores = model.score(&batch, head_options(recipe, Device::Cpu)).unwrap();
    let flat = Vec::<f32>::try_from(&scores.logprob).unwrap();
    let mut lists: Vec<Vec<f32>> = sequences.iter().map(|_| Vec::new()).collect();
    for (place, logprob) in batch.places.iter().zip(flat) {
        if place.position >= sequences[place.sequence].prompt_token_ids.len() {
            lists[place.sequence].push(logprob);
        }
    }
    lists
}

/// Three prompts of four completions, two right each, with an injected token in some; recorded by
/// the model of `seed`.
pub(crate) fn batch(recipe: &Recipe, seed: i64) -> TrainBatch {
    let token = |a: usize, b: usize, c: usize| ((a * 31 + b * 17 + c * 7 + 3) % 40) as u32;
    let groups = (0..3).map(|g| {
        let prompt = (0..3 + g).map(|t| token(g, 9, t)).collect();
        let rollouts = (0..4).map(|i| {
            let length = 3 + (g * 5 + i * 3) % 7;
            let completion = Completion {
                token_ids: (0..length).map(|t| token(g, i, t)).collect(),
                logprobs: vec![-1.0; length],
                versions: vec![PolicyVersion(0); length],
                is_injected: (0..length).map(|t| i == 1 && t == 1).collect(),
                text: String::new(),
                thinking_tokens: 0,
                finish: FinishReason::Stop,
            };
            let is_correct = i % 2 == 0;
            let value = if is_correct { 1.0 } else { -1.0 };
            Rollout { completion, reward: Reward { value, is_correct }, episode: None }
        });
        Group {
            id: GroupId(g as u64),
            prompt: Prompt {
                id: PromptId(g.to_string()),
                dataset: "made up".into(),
                text: String::new(),
                token_ids: prompt,
                answer: String::new(),
            },
            rollouts: rollouts.collect(),
        }
    });
    let groups = Batch { version: PolicyVersion(0), groups: groups.collect() };
    let mut train = prepare(&recipe.objective, recipe.sampling.temperature, &groups).unwrap().train;
    let recorded = logprobs(recipe, &model(seed), &train.sequences);
    for (sequence, recorded) in train.sequences.iter_mut().zip(recorded) {
        sequence.generator_logprobs = recorded;
    }
    train
}
