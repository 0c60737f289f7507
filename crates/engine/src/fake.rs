//! A generator, a trainer, prompts, a grader and an environment without a model, for tests and simulations.
//!
//! They carry a simulated policy: each step adds experience, and the chance of a right answer is a
//! sigmoid in the logarithm of experience, so that evaluation curves look like real ones. All that
//! is sampled depends on the request's seed and the policy alone; how long things take comes from a
//! stream of its own. So two runs that differ in speed differ in nothing else.

mod environment;
mod generator;
mod task;
mod trainer;

use std::time::Duration;

pub use environment::FakeEnvironment;
pub use generator::{FakeGenerator, Fault, fake_intake, tokens_saying};
pub use task::{FakeGrader, FakePrompts, fake_prompts};
pub use trainer::{FakeTrainer, Refuses};

use crate::settings::mix;

/// How good the simulated policy is.
#[derive(Debug, Clone, Copy, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct FakePolicy {
    /// Steps, each weighed by how much of its batch carried loss.
    pub experience: f64,
}

impl FakePolicy {
    /// Chance of a right answer: 0.2 at first, 0.9 in the end, half of the way after 12 steps.
    pub fn pass_rate(&self) -> f64 {
        let (floor, ceiling, steepness, midpoint) = (0.2, 0.9, 1.5, 12.0_f64);
        let x = self.experience.powf(steepness);
        floor + (ceiling - floor) * x / (x + midpoint.powf(steepness))
    }
}

/// A stream of random delays up to `longest`; zero for none.
#[derive(Debug, Clone)]
pub struct Delays {
    seed: u64,
    count: u64,
    longest: Duration,
}

impl Delays {
    /// The stream of a seed.
    pub fn new(seed: u64, longest: Duration) -> Self {
        Self { seed, count: 0, longest }
    }

    /// Skewed, as real times are: most are short, a few are long.
    pub fn draw(&mut self) -> Duration {
        self.count += 1;
        let share = unit(mix(self.seed, "delay", self.count));
        self.longest.mul_f64(share.powi(3))
    }
}

/// A number in [0, 1) from random bits.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
