//! The engine's trainer, in one of its two kinds.

use std::path::Path;
use std::sync::Arc;

use scalerl_model::folder::Model;
use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle, Writing,
};
use scalerl_worker::ranks::{RankedTrainer, Roll};
use scalerl_worker::{HoldsModel, LocalTrainer};

/// Trains in this process, or in several.
pub(crate) enum AnyTrainer {
    Local(Box<LocalTrainer>),
    Ranked(Box<RankedTrainer>),
}

impl AnyTrainer {
    /// Who trains, where several do.
    pub(crate) fn roll(&self) -> Option<Arc<Roll>> {
        match self {
            Self::Local(_) => None,
            Self::Ranked(trainer) => Some(trainer.roll()),
        }
    }

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

    fn snapshot(&mut self, folder: &Path) -> Result<Writing, TrainerError> {
        self.inner().snapshot(folder)
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        self.inner().restore(folder)
    }
}

impl HoldsModel for AnyTrainer {
    fn version(&self) -> PolicyVersion {
        match self {
            Self::Local(trainer) => trainer.version(),
            Self::Ranked(trainer) => trainer.version(),
        }
    }

    fn model(&self) -> &Model {
        match self {
            Self::Local(trainer) => trainer.model(),
            Self::Ranked(trainer) => trainer.model(),
        }
    }

    fn write_model(&mut self, folder: &Path) -> Result<(), TrainerError> {
        match self {
            Self::Local(trainer) => trainer.write_model(folder),
            Self::Ranked(trainer) => trainer.write_model(folder),
        }
    }
}
