//! The local pair does what every generator and trainer must.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tiny;

use std::time::Duration;

use scalerl_rollout::conformance::{Subject, check_all};
use scalerl_rollout::{Generator, PolicyVersion, SampleRequest};
use scalerl_worker::{LocalGenerator, LocalTrainer, Shelf};

struct LocalPair;

impl Subject for LocalPair {
    type Generator = LocalGenerator;
    type Trainer = LocalTrainer;

    fn pair(&self) -> (LocalGenerator, LocalTrainer) {
        let shelf = Shelf::new();
        let trainer = LocalTrainer::try_new(&tiny::recipe(), tiny::model(1), shelf.clone());
        (LocalGenerator::start(tiny::setup(&shelf)).unwrap(), trainer.unwrap())
    }

    fn request(&self) -> SampleRequest {
        SampleRequest {
            max_thinking_tokens: 60,
            max_answer_tokens: 50,
            end_of_thinking: vec![5],
            ..tiny::request(6)
        }
    }

    fn limit(&self) -> Option<u64> {
        // The tiny model's positions; its cache has more room.
        Some(128)
    }

    async fn a_few_steps(&self, attempt: u32) {
        // From one to some hundred milliseconds, and again: a slow machine's middle is found too.
        tokio::time::sleep(Duration::from_millis(1).mul_f64(1.4_f64.powi((attempt % 16) as i32)))
            .await;
    }

    fn is_empty(&self, generator: &LocalGenerator) -> bool {
        let stats = generator.stats();
        (stats.running, stats.waiting, stats.pool.pages_in_use) == (0, 0, 0)
    }

    async fn dead(&self) -> LocalGenerator {
        let shelf = Shelf::new();
        let generator = LocalGenerator::start(tiny::setup(&shelf)).unwrap();
        let broken: Vec<_> = tiny::model(1).parameters.iter().map(|p| p * f64::NAN).collect();
        let handle = shelf.publish(PolicyVersion(1), &broken).unwrap();
        generator.adopt(&handle).await.unwrap();
        generator
    }
}

#[tokio::test]
async fn the_local_pair_conforms() {
    let checks = tokio::time::timeout(Duration::from_mins(3), check_all(&LocalPair)).await;
    assert!(checks.is_ok(), "a check waits for ever");
}
