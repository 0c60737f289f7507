//! The fakes do what every generator and trainer must.

use std::time::Duration;

use scalerl_engine::fake::{FakeGenerator, FakeTrainer, Fault};
use scalerl_rollout::conformance::{Subject, check_all};
use scalerl_rollout::{GroupId, SampleRequest, Sampling};
use tokio::task::yield_now;

struct Fakes {
    longest_token: Duration,
}

impl Subject for Fakes {
    type Generator = FakeGenerator;
    type Trainer = FakeTrainer;

    fn pair(&self) -> (FakeGenerator, FakeTrainer) {
        (FakeGenerator::new(3, self.longest_token), FakeTrainer::new())
    }

    fn request(&self) -> SampleRequest {
        SampleRequest {
            group: GroupId(0),
            prompt_token_ids: vec![1, 2, 3],
            count: 6,
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
            max_thinking_tokens: 20,
            max_answer_tokens: 20,
            end_of_thinking: vec![5],
            interruptions: Vec::new(),
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            end_of_answer: None,
            seed: 11,
        }
    }

    fn limit(&self) -> Option<u64> {
        None
    }

    async fn a_few_steps(&self, _: u32) {
        for _ in 0..3 {
            yield_now().await;
            tokio::time::sleep(self.longest_token / 2).await;
        }
    }

    fn is_empty(&self, _: &FakeGenerator) -> bool {
        // A request lives in its future.
        true
    }

    async fn dead(&self) -> FakeGenerator {
        FakeGenerator::new(3, self.longest_token).with_fault(Fault::Gone(1))
    }
}

#[tokio::test(start_paused = true)]
async fn fakes_conform() {
    for milliseconds in [0, 10] {
        let subject = Fakes { longest_token: Duration::from_millis(milliseconds) };
        let checks = tokio::time::timeout(Duration::from_hours(1), check_all(&subject)).await;
        assert!(checks.is_ok(), "a check waits for ever");
    }
}
