//! Trains the simulated policy and remembers exactly what it was trained on.

use std::{fs, path::Path};

use scalerl_rollout::{
    PolicyVersion, RatioStats, StepReport, TrainBatch, TrainSequence, Trainer, TrainerError,
    WeightHandle,
};
use serde::{Deserialize, Serialize};

use super::FakePolicy;
use crate::settings::mix;

/// What a trainer refuses to train on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refuses {
    /// Nothing.
    #[default]
    Nothing,
    /// Sequences, about one in so many, by what is in them.
    Sequences(u64),
    /// Batches, one sequence of which is like that, without saying which.
    Batches(u64),
}

impl Refuses {
    fn is_refused(self, sequence: &TrainSequence) -> bool {
        let (Self::Sequences(one_in) | Self::Batches(one_in)) = self else { return false };
        let tokens = sequence.completion_token_ids.iter().copied().map(u64::from);
        tokens.fold(3, |sum, token| mix(sum, "refuse", token)).is_multiple_of(one_in)
    }
}

/// A trainer without a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FakeTrainer {
    /// Steps taken.
    pub version: PolicyVersion,
    /// What was learnt.
    pub policy: FakePolicy,
    /// A sum over every token ever trained on, in order: two trainers with the same digest have
    /// seen the same.
    pub digest: u64,
    /// The step from this version fails.
    #[serde(skip)]
    pub fails_at: Option<u64>,
    /// What it does not train on.
    #[serde(skip)]
    pub refuses: Refuses,
}

impl FakeTrainer {
    /// An untrained one.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Trainer for FakeTrainer {
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
        assert!(!batch.sequences.is_empty(), "a batch without sequences is not a step");
        if self.fails_at == Some(self.version.0) {
            let (version, quantity) = (self.version, "the loss");
            return Err(TrainerError::NotFinite { version, quantity, value: f64::NAN });
        }
        if let Some(sequence) = batch.sequences.iter().position(|one| self.refuses.is_refused(one))
        {
            let (version, reason) = (self.version, "as told".to_owned());
            return Err(match self.refuses {
                Refuses::Batches(_) => TrainerError::BadBatch { version, reason },
                _ => TrainerError::BadSequence { version, sequence, reason },
            });
        }
        let mut tokens = 0;
        for sequence in &batch.sequences {
            tokens += sequence.prompt_token_ids.len() + sequence.completion_token_ids.len();
            for (token, weight) in sequence.completion_token_ids.iter().zip(&sequence.weights) {
                self.digest = mix(self.digest, "token", u64::from(*token) ^ weight.to_bits());
            }
            self.digest = mix(self.digest, "advantage", sequence.advantage.to_bits());
        }
        self.version = self.version.next();
        self.policy.experience += 1.0;
        let ratio = RatioStats {
            tokens: tokens as u64,
            mean: 1.0,
            min: 0.8,
            max: 1.2,
            clip_fraction: 0.0,
            effective_sample_share: 0.95,
            kl_k1: 0.001,
            kl_k3: 0.001,
            mean_abs_log: 0.01,
        };
        Ok(StepReport {
            version: self.version,
            loss: (self.digest % 1000) as f64 / 1000.0,
            gradient_norm: 0.5,
            entropy: 0.7,
            reference_kl: None,
            ratio,
            learning_rate: 1e-6,
            tokens: tokens as u64,
            trained_tokens: batch.sequences.iter().map(|one| one.weights.len() as u64).sum(),
            model_flops: 6.0 * tokens as f64,
            seconds: 0.1,
            peak_memory_bytes: None,
        })
    }

    fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        let location = self.policy.experience.to_string();
        Ok(WeightHandle { version: self.version, location })
    }

    fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
        let path = folder.join("trainer.json");
        let bad = |reason: String| TrainerError::Storage { path: path.clone(), reason, hint: None };
        let text = serde_json::to_vec(self).map_err(|error| bad(error.to_string()))?;
        fs::write(&path, text).map_err(|error| bad(error.to_string()))
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        let path = folder.join("trainer.json");
        let bad = |reason: String| TrainerError::Storage { path: path.clone(), reason, hint: None };
        let text = fs::read(&path).map_err(|error| bad(error.to_string()))?;
        let saved: Self = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
        *self = Self { fails_at: self.fails_at, refuses: self.refuses, ..saved };
        Ok(self.version)
    }
}
