//! A tiny random model with a tokenizer, and what a local generator needs to run it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use scalerl_generate::{CacheAfterExchange, GeneratorOptions};
use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_model::tokenizer::Tokenizer;
use scalerl_recipe::{Filter, Recipe};
use scalerl_rollout::{GroupId, SampleRequest, Sampling};
use scalerl_worker::{LocalGeneratorSetup, WeightStore};
use tch::{Device, Kind};

/// `</s>` of the tokenizer.
pub(crate) const END: u32 = 2;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat")
}

pub(crate) fn model(seed: i64) -> Model {
    let mut config = ModelConfig::load(&folder().join("config.json")).unwrap();
    // Far from uniform, so that log-probs differ from token to token.
    config.initial_spread = 0.4;
    Model::random(config, seed, Kind::Float, Device::Cpu).unwrap()
}

/// Steps large enough to be seen in log-probs.
#[allow(dead_code, reason = "for the tests that train")]
pub(crate) fn recipe() -> Recipe {
    let mut recipe = Recipe::default();
    recipe.optimizer.lr = 5e-3;
    recipe.optimizer.warmup_steps = 0;
    recipe.objective.filter = Filter::None;
    recipe
}

pub(crate) fn setup(weight_store: &Arc<WeightStore>) -> LocalGeneratorSetup {
    LocalGeneratorSetup {
        model: model(1),
        options: GeneratorOptions {
            cache_tokens: 2048,
            running: 16,
            ..GeneratorOptions::of(Device::Cpu)
        },
        tokenizer: Arc::new(Tokenizer::load(&folder()).unwrap()),
        stop_tokens: vec![END],
        cache_after_exchange: CacheAfterExchange::Stale,
        weight_store: weight_store.clone(),
        threads: Some(1),
        is_warmed_up: true,
    }
}

/// Up to 20 tokens at temperature 1, without thinking.
pub(crate) fn request(count: u32) -> SampleRequest {
    SampleRequest {
        group: GroupId(0),
        prompt_token_ids: vec![1, 7, 9],
        count,
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
        max_thinking_tokens: 0,
        max_answer_tokens: 20,
        end_of_thinking: Vec::new(),
        interruptions: Vec::new(),
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        end_of_answer: None,
        seed: 5,
    }
}

/// Six completions with room for 110 tokens each, for `rollout::conformance`.
#[allow(dead_code, reason = "for the tests that judge a whole generator")]
pub(crate) fn long_request() -> SampleRequest {
    SampleRequest {
        max_thinking_tokens: 60,
        max_answer_tokens: 50,
        end_of_thinking: vec![5],
        ..request(6)
    }
}

/// From one to some hundred milliseconds, and again: the middle of a completion on any machine.
#[allow(dead_code, reason = "for the tests that judge a whole generator")]
pub(crate) async fn until_the_middle(attempt: u32) {
    let growth = 1.4_f64.powi((attempt % 16) as i32);
    tokio::time::sleep(Duration::from_millis(1).mul_f64(growth)).await;
}
