//! Trainer ranks that take simulated time, in the engine's trainer for a trainer.
//!
//! A batch is shared out as real ranks do it, longest first to whoever has the fewest tokens; the step
//! takes as long as its slowest rank, then gradients and weights are exchanged.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use scalerl_engine::{TrainerHandle, fake::FakeTrainer};
use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle, Writing,
};
use tokio::time::{Instant, sleep};

use crate::{
    fleet::{Fleet, Make, Totals},
    problems::{PROMPT_TOKENS, STRIDE},
};

/// What had happened at the end of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) at: Instant,
    pub(crate) totals: Totals,
    /// Seconds in which the ranks worked, in steps and hand-overs.
    pub(crate) busy_s: f64,
    /// Tokens of this step, prompts included.
    pub(crate) tokens: f64,
}

pub(crate) struct Ranks {
    pub(crate) count: usize,
    pub(crate) make: Make,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) trainer: FakeTrainer,
    pub(crate) busy_s: f64,
    /// One for every step.
    pub(crate) marks: Arc<Mutex<Vec<Mark>>>,
}

impl Ranks {
    async fn pass(&mut self, seconds: f64) {
        self.busy_s += seconds;
        sleep(Duration::from_secs_f64(seconds)).await;
    }

    /// Lengths of the sequences of each rank.
    fn shares(&self, batch: &TrainBatch) -> Vec<Vec<f64>> {
        let tokens = |completion: usize| PROMPT_TOKENS + completion as f64 * f64::from(STRIDE);
        let mut lengths: Vec<f64> =
            batch.sequences.iter().map(|one| tokens(one.completion_token_ids.len())).collect();
        lengths.sort_by(|a, b| b.total_cmp(a));
        let mut shares = vec![(0.0_f64, Vec::new()); self.count];
        for length in lengths {
            let fewest = shares.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((sum, share)) = fewest {
                *sum += length;
                share.push(length);
            }
        }
        shares.into_iter().map(|(_, share)| share).collect()
    }
}

impl TrainerHandle for Ranks {
    async fn step(&mut self, batch: TrainBatch) -> Result<StepReport, TrainerError> {
        let Make { model, rates, links, .. } = self.make;
        let shares = self.shares(&batch);
        let slowest = shares.iter().map(|share| rates.training(&model, share)).fold(0.0, f64::max);
        let ranks = self.count as f64;
        let together = links.exchange(&model, ranks) + rates.optimizer(&model, ranks);
        self.pass(slowest + together).await;
        let tokens = shares.iter().flatten().sum();
        let mark =
            Mark { at: Instant::now(), totals: self.fleet.totals(), busy_s: self.busy_s, tokens };
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).push(mark);
        self.trainer.step(&batch)
    }

    async fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        self.pass(self.make.rates.copy(&self.make.model)).await;
        self.trainer.publish()
    }

    /// Only the run's end is saved, after all that is measured.
    async fn save(&mut self, folder: PathBuf) -> Result<Writing, TrainerError> {
        self.trainer.snapshot(&folder)
    }

    async fn restore(&mut self, folder: PathBuf) -> Result<PolicyVersion, TrainerError> {
        self.trainer.restore(&folder)
    }
}
