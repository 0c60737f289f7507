//! The engine's two partners, each in one of its two kinds.

use std::path::Path;
use std::sync::Arc;

use scalerl_rollout::{
    Completion, Generator, GeneratorError, PolicyVersion, SampleRequest, StepReport, TrainBatch,
    Trainer, TrainerError, WeightHandle,
};
use scalerl_worker::ranks::RankedTrainer;
use scalerl_worker::remote::RedisGenerator;
use scalerl_worker::{LocalGenerator, LocalTrainer};

/// Trains in this process, or in several.
pub(crate) enum AnyTrainer {
    Local(Box<LocalTrainer>),
    Ranked(Box<RankedTrainer>),
}

impl AnyTrainer {
    fn inner(&mut self) -> &mut dyn Trainer {
        match self {
            Self::Local(trainer) => &mut **trainer,
            Self::Ranked(trainer) => &mut **trainer,
        }
    }
}

impl Trainer for AnyTrainer {
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
        self.inner().step(batch)
    }

    fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        self.inner().publish()
    }

    fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
        self.inner().save(folder)
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        self.inner().restore(folder)
    }
}

/// Generates in this process, or in others.
pub(crate) enum AnyGenerator {
    Local(Box<LocalGenerator>),
    Remote(Arc<RedisGenerator>),
}

impl Generator for AnyGenerator {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        match self {
            Self::Local(generator) => generator.generate(request).await,
            Self::Remote(generator) => generator.generate(request).await,
        }
    }

    async fn adopt(&self, weights: &WeightHandle) -> Result<(), GeneratorError> {
        match self {
            Self::Local(generator) => generator.adopt(weights).await,
            Self::Remote(generator) => generator.adopt(weights).await,
        }
    }
}
