//! The generator over vLLM servers, against servers of this process that speak the same wire:
//! every duty of a generator, and what happens when servers fail.
//!
//! Not here: the real vLLM (`make test-vllm`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adapters;
mod conforming;
mod failing;
mod fake;
#[path = "../tiny/mod.rs"]
mod tiny;

use std::sync::Arc;
use std::time::Duration;

use scalerl_model::tokenizer::Tokenizer;
use scalerl_rollout::{PolicyVersion, WeightHandle};
use scalerl_worker::vllm::Notice;
use scalerl_worker::{VllmGenerator, VllmSetup, WeightFolder};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use fake::{Fake, Options};

/// A generator over fakes, with what they need to live.
struct Rig {
    generator: VllmGenerator,
    fakes: Vec<Fake>,
    weights: WeightFolder,
    notices: UnboundedReceiver<Notice>,
    _place: TempDir,
}

fn setup(urls: Vec<String>) -> (VllmSetup, UnboundedReceiver<Notice>) {
    let (tell, notices) = unbounded_channel();
    let setup = VllmSetup {
        urls,
        token: None,
        requests_at_once: 16,
        patience: Duration::from_secs(20),
        silence: Duration::from_secs(10),
        deadline: Duration::from_mins(1),
        keeps_cache: true,
        is_seeded: true,
        tokenizer: Arc::new(Tokenizer::load(&tiny::folder()).unwrap()),
        stop_tokens: vec![tiny::END],
        vocabulary: tiny::model(1).config.vocabulary,
        owner: "test".to_owned(),
        notices: Some(tell),
    };
    (setup, notices)
}

/// Fakes that serve version 0, which is the tiny model of seed 1.
async fn rig(count: usize, change: impl FnOnce(&mut VllmSetup)) -> Rig {
    let mut rig = idle_rig(vec![Options::default(); count], change).await;
    rig.adopt(0, 1).await;
    rig
}

/// Fakes that have no weights of the run yet.
async fn idle_rig(servers: Vec<Options>, change: impl FnOnce(&mut VllmSetup)) -> Rig {
    let mut fakes = Vec::new();
    for options in servers {
        fakes.push(Fake::start_with(options).await);
    }
    let (mut setup, notices) = setup(fakes.iter().map(Fake::url).collect());
    change(&mut setup);
    let generator = VllmGenerator::start(setup).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let weights = WeightFolder::open(place.path()).unwrap();
    Rig { generator, fakes, weights, notices, _place: place }
}

impl Rig {
    /// Publishes the tiny model of a seed as a version, and lets the servers take it.
    async fn adopt(&mut self, version: u64, seed: i64) -> WeightHandle {
        use scalerl_rollout::Generator;
        let handle = self.weights.publish(PolicyVersion(version), &tiny::model(seed)).unwrap();
        self.generator.adopt(&handle).await.unwrap();
        handle
    }
}
