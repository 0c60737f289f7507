//! The local pair does what every generator and trainer must.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tiny;

use std::time::Duration;

use scalerl_rollout::conformance::{Subject, check_all};
use scalerl_rollout::{Generator, PolicyVersion, SampleRequest};
use scalerl_worker::{LocalGenerator, LocalTrainer, WeightStore};

struct LocalPair;

impl Subject for LocalPair {
    type Generator = LocalGenerator;
    type Trainer = LocalTrainer;

    fn pair(&self) -> (LocalGenerator, LocalTrainer) {
        let weight_store = WeightStore::new();
        let trainer = LocalTrainer::try_new(&tiny::recipe(), tiny::model(1), weight_store.clone());
        (LocalGenerator::start(tiny::setup(&weight_store)).unwrap(), trainer.unwrap())
    }

    fn request(&self) -> SampleRequest {
        tiny::long_request()
    }

    fn limit(&self) -> Option<u64> {
        // The tiny model's positions; its cache has more room.
        Some(128)
    }

    async fn a_few_steps(&self, attempt: u32) {
        tiny::until_the_middle(attempt).await;
    }

    fn is_empty(&self, generator: &LocalGenerator) -> bool {
        let stats = generator.stats();
        (stats.running, stats.waiting, stats.pool.pages_in_use) == (0, 0, 0)
    }

    async fn dead(&self) -> LocalGenerator {
        let weight_store = WeightStore::new();
        let generator = LocalGenerator::start(tiny::setup(&weight_store)).unwrap();
        let broken: Vec<_> = tiny::model(1).parameters.iter().map(|p| p * f64::NAN).collect();
        let handle = weight_store.publish(PolicyVersion(1), &broken).unwrap();
        generator.adopt(&handle).await.unwrap();
        generator
    }
}

#[tokio::test]
async fn the_local_pair_conforms() {
    let checks = tokio::time::timeout(Duration::from_mins(3), check_all(&LocalPair)).await;
    assert!(checks.is_ok(), "a check waits for ever");
}
