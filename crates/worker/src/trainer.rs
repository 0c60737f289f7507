//! The trainer on this process's device.
//!
//! ```text
//! step     check -> pieces -> [log-probs -> loss -> gradients]* -> one read -> clip, AdamW
//! publish  weights in the kind the network computes in -> shelf
//! save     float32 masters, both moments, step count; whole or not at all, with checksums
//! ```
//! A step that fails leaves weights and optimizer as they were: everything is checked before the
//! optimizer runs, and it refuses gradients that are not finite.
//!
//! A step draws nothing at random, so there is no random state to save. A reference model, where
//! the recipe has a KL penalty, is the model the trainer was made with: on resume it is made from
//! the run's starting model again and then restored.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use scalerl_model::device;
use scalerl_model::folder::Model;
use scalerl_model::train::checkpoint::{self, CheckpointError};
use scalerl_model::train::{BatchError, Learner, StepError};
use scalerl_recipe::{Kl, Objective, RatioGrain, Recipe};
use scalerl_rollout::{PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError, WeightHandle};
use serde_json::json;
use tch::{Kind, TchError, Tensor};

use crate::flops::{SequenceSize, forward_flops};
use crate::loss::{Tally, Totals, token_loss};
use crate::micro_batch::{MicroBatch, check, length, pieces};
use crate::options::learner_options;
use crate::shelf::Shelf;

/// Trains a model of this process.
pub struct LocalTrainer {
    learner: Learner,
    objective: Objective,
    micro_batch_tokens: usize,
    reference: Option<Model>,
    shelf: Arc<Shelf>,
    threads: Option<usize>,
}

impl LocalTrainer {
    /// Takes a model loaded in float32 on the device to train on; version 0.
    pub fn try_new(recipe: &Recipe, model: Model, shelf: Arc<Shelf>) -> Result<Self, TrainerError> {
        let options = learner_options(recipe, model.device());
        let failed = |error: TchError| device_error(PolicyVersion(0), &error);
        let learner = Learner::new(model, options).map_err(failed)?;
        let reference = (recipe.objective.kl != Kl::None)
            .then(|| frozen(&learner.model))
            .transpose()
            .map_err(failed)?;
        Ok(Self {
            learner,
            objective: recipe.objective.clone(),
            micro_batch_tokens: recipe.pipeline.micro_batch_tokens as usize,
            reference,
            shelf,
            threads: None,
        })
    }

    /// Leaves the other CPU threads to the generator.
    #[must_use]
    pub fn with_threads(mut self, threads: Option<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// The policy as it is now.
    pub fn version(&self) -> PolicyVersion {
        PolicyVersion(self.learner.steps_taken())
    }

    /// The model being trained.
    pub fn model(&self) -> &Model {
        &self.learner.model
    }

    /// The float32 weights, for a finished model's folder.
    pub fn masters(&self) -> &[Tensor] {
        self.learner.masters()
    }

    fn check(&self, batch: &TrainBatch) -> Result<(), TrainerError> {
        let version = self.version();
        let bad = |reason: String| Err(TrainerError::BadBatch { version, reason });
        if batch.sequences.is_empty() {
            return bad("it has no sequences".to_owned());
        }
        let temperature = batch.temperature;
        if !temperature.is_finite() || temperature <= 0.0 {
            return bad(format!("its temperature is {temperature}, it must be above 0"));
        }
        let vocabulary = self.learner.model.config.vocabulary;
        for (sequence, carrier) in batch.sequences.iter().enumerate() {
            check(carrier, vocabulary).map_err(|problem| {
                let reason = problem.to_string();
                TrainerError::BadSequence { version, sequence, reason }
            })?;
        }
        Ok(())
    }

    /// Adds the gradients of all pieces; the sums of the step are read once, at the end.
    fn accumulate(&mut self, batch: &TrainBatch) -> Result<Totals, BatchError> {
        let (vocabulary, device) = {
            let model = &self.learner.model;
            (model.config.vocabulary, model.device())
        };
        let mut total: Option<Tally> = None;
        for piece in pieces(batch, self.micro_batch_tokens) {
            let mut micro = MicroBatch::new(&self.objective, &piece, vocabulary, device)?;
            if let Some(reference) = &self.reference {
                let scores = reference.score(&micro.tokens, self.learner.head_options())?;
                micro.inputs.reference_m = Some(scores.logprob.f_to_kind(Kind::Double)?);
            }
            self.add(&micro, &mut total)?;
        }
        Ok(total.expect("a batch has sequences").read()?)
    }

    fn add(&mut self, micro: &MicroBatch, total: &mut Option<Tally>) -> Result<(), TchError> {
        let objective = &self.objective;
        match objective.ratio {
            // The head's products are made once, and the loss is taken chunk by chunk.
            RatioGrain::Token => {
                let _ = self.learner.accumulate(&micro.tokens, |range, scores| {
                    let inputs = micro.inputs.range(&range)?;
                    let (gradients, tally) =
                        token_loss(objective, &scores.logprob, &scores.entropy, &inputs)?;
                    merge(total, tally)?;
                    Ok(gradients)
                })?;
                Ok(())
            }
            // A completion's ratio needs all of its tokens before any of them has a gradient.
            RatioGrain::Sequence => {
                let pending = self.learner.forward(&micro.tokens)?;
                let scores = &pending.scores;
                let (gradients, tally) =
                    token_loss(objective, &scores.logprob, &scores.entropy, &micro.inputs)?;
                merge(total, tally)?;
                self.learner.backward(pending, &micro.tokens, &gradients)
            }
        }
    }

    /// Forgets what the failed step had summed, and says why it failed.
    fn give_up(&mut self, error: TrainerError) -> TrainerError {
        // A device that fails here too has failed for the reason we are about to tell.
        let _ = self.learner.discard_gradients();
        error
    }

    fn flops(&self, batch: &TrainBatch) -> f64 {
        let config = &self.learner.model.config;
        let forward: f64 = batch
            .sequences
            .iter()
            .map(|sequence| {
                let scored = sequence.weights.iter().filter(|weight| **weight > 0.0).count();
                let (tokens, scored) = (length(sequence) as u64, scored as u64);
                forward_flops(config, SequenceSize { tokens, scored })
            })
            .sum();
        forward * if self.reference.is_some() { 4.0 } else { 3.0 }
    }
}

impl Trainer for LocalTrainer {
    fn step(&mut self, batch: &TrainBatch) -> Result<StepReport, TrainerError> {
        let started = Instant::now();
        let version = self.version();
        self.check(batch)?;
        if let Some(threads) = self.threads {
            device::use_threads(threads);
        }
        self.learner.set_temperature(f64::from(batch.temperature));
        let totals = match self.accumulate(batch) {
            Ok(totals) => totals,
            Err(BatchError::Torch(error)) => {
                return Err(self.give_up(device_error(version, &error)));
            }
            Err(error) => {
                let reason = error.to_string();
                return Err(self.give_up(TrainerError::BadBatch { version, reason }));
            }
        };
        if !totals.loss.is_finite() {
            let (quantity, value) = ("the loss", totals.loss);
            return Err(self.give_up(TrainerError::NotFinite { version, quantity, value }));
        }
        let step = self.learner.step().map_err(|error| step_error(version, &error));
        let step = step.map_err(|error| self.give_up(error))?;
        Ok(StepReport {
            version: self.version(),
            loss: totals.loss,
            gradient_norm: step.gradient_norm,
            entropy: totals.entropy,
            reference_kl: self.reference.as_ref().map(|_| totals.reference_kl),
            ratio: totals.ratio.finish().expect("a checked batch trains on some token"),
            learning_rate: step.lr,
            tokens: batch.sequences.iter().map(|sequence| length(sequence) as u64).sum(),
            trained_tokens: totals.ratio.tokens,
            model_flops: self.flops(batch),
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    fn publish(&mut self) -> Result<WeightHandle, TrainerError> {
        let version = self.version();
        let published = self.shelf.publish(version, &self.learner.model.parameters);
        published.map_err(|error| device_error(version, &error))
    }

    fn save(&mut self, folder: &Path) -> Result<(), TrainerError> {
        checkpoint::save(&self.learner, &json!({"trainer": "local"}), folder)
            .map(drop)
            .map_err(|error| storage(folder, error.to_string()))
    }

    fn restore(&mut self, folder: &Path) -> Result<PolicyVersion, TrainerError> {
        let found = checkpoint::list(folder).map_err(|error| storage(folder, error.to_string()))?;
        let Some((_, path)) = found.last() else {
            return Err(storage(folder, "no trainer was saved in this folder".to_owned()));
        };
        let restored = checkpoint::restore(&mut self.learner, path);
        restored.map_err(|error: CheckpointError| storage(path, error.to_string()))?;
        self.learner.discard_gradients().map_err(|error| device_error(self.version(), &error))?;
        Ok(self.version())
    }
}

fn merge(total: &mut Option<Tally>, tally: Tally) -> Result<(), TchError> {
    if let Some(total) = total {
        return total.merge(&tally);
    }
    *total = Some(tally);
    Ok(())
}

/// A copy that no step touches, in the kind the network computes in.
fn frozen(model: &Model) -> Result<Model, TchError> {
    let copies = model.parameters.iter().map(Tensor::f_detach_copy);
    let copies = copies.collect::<Result<Vec<_>, _>>()?;
    Model::over(model.config.clone(), copies, model.folder.clone())
}

fn device_error(version: PolicyVersion, error: &TchError) -> TrainerError {
    let reason = error.to_string();
    // CUDA's allocator says the first, the CPU's the second.
    if ["out of memory", "not enough memory", "can't allocate memory"]
        .iter()
        .any(|words| reason.contains(words))
    {
        return TrainerError::OutOfMemory { version, reason };
    }
    TrainerError::Device { reason }
}

fn step_error(version: PolicyVersion, error: &StepError) -> TrainerError {
    match error {
        StepError::NotFinite { .. } => {
            TrainerError::NotFinite { version, quantity: "the gradient norm", value: f64::NAN }
        }
        StepError::Torch(error) => device_error(version, error),
        other => TrainerError::BadBatch { version, reason: other.to_string() },
    }
}

fn storage(path: &Path, reason: String) -> TrainerError {
    TrainerError::Storage { path: PathBuf::from(path), reason }
}
