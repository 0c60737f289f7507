//! The model that runs start from, as the stand-in servers are started with it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use scalerl_generate::{CacheAfterExchange, GeneratorOptions};
use scalerl_model::folder::Model;
use scalerl_model::tokenizer::Tokenizer;
use scalerl_rollout::{GroupId, SampleRequest, Sampling};
use scalerl_torch::tch::{Device, Kind};
use scalerl_worker::{LocalGeneratorSetup, WeightStore};

/// `<eos>` of the chain's tokens.
pub(crate) const END: u32 = 19;

/// Set before a server is started.
pub(crate) static FOLDER: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn model(_seed: i64) -> Model {
    Model::load(FOLDER.get().unwrap(), Kind::Float, Device::Cpu).unwrap()
}

pub(crate) fn setup(weight_store: &Arc<WeightStore>) -> LocalGeneratorSetup {
    LocalGeneratorSetup {
        model: model(1),
        options: GeneratorOptions {
            cache_tokens: 4096,
            running: 64,
            ..GeneratorOptions::of(Device::Cpu)
        },
        tokenizer: Arc::new(Tokenizer::load(FOLDER.get().unwrap()).unwrap()),
        stop_tokens: vec![END],
        cache_after_exchange: CacheAfterExchange::Stale,
        weight_store: weight_store.clone(),
        threads: Some(1),
        is_warmed_up: false,
    }
}

/// What a call of the wire leaves open.
pub(crate) fn request(count: u32) -> SampleRequest {
    SampleRequest {
        group: GroupId(0),
        prompt_token_ids: Vec::new(),
        count,
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
        max_thinking_tokens: 0,
        max_answer_tokens: 1,
        end_of_thinking: Vec::new(),
        interruptions: Vec::new(),
        stop: Vec::new(),
        stop_token_ids: Vec::new(),
        end_of_answer: None,
        seed: 0,
    }
}
