//! The policy being trained: a learner, the objective it learns by, the reference it may be held to.
//!
//! What every trainer does with a batch, or with its share of one, before the optimizer: check it,
//! cut it into pieces, add up gradients and the sums of the step.

use std::path::Path;

use scalerl_model::folder::Model;
use scalerl_model::save::{FolderToSave, ModelToSave, SaveKind, save_model, save_model_of};
use scalerl_model::train::checkpoint::{CheckpointError, Snapshot};
use scalerl_model::train::{BatchError, Learner, PassKind, RankError, Ranks, StepError};
use scalerl_recipe::{Kl, Objective, RatioGrain, Recipe};
use scalerl_rollout::{
    PolicyVersion, StepReport, TrainBatch, TrainSequence, TrainerError, WeightHandle, Writing,
};
use scalerl_torch::device::peak_memory;
use tch::{Device, Kind, TchError, Tensor};

use crate::flops::{SequenceSize, forward_flops};
use crate::loss::{Tally, Totals, token_loss};
use crate::memory::Holders;
use crate::micro_batch::{MicroBatch, check, length, pieces};
use crate::ranks::rank_error;
use crate::trainer::{checkpoint_error, file_error};
use crate::weight_store::{Form, WeightStore};

/// A model that learns from batches.
pub(crate) struct Policy {
    pub(crate) learner: Learner,
    objective: Objective,
    micro_batch_tokens: usize,
    reference: Option<Model>,
    holders: Holders,
}

impl Policy {
    /// The reference, where the recipe has a KL penalty, is the learner's model as it is now.
    /// `holders` is what its errors say of memory.
    pub(crate) fn try_new(
        recipe: &Recipe,
        mut learner: Learner,
        holders: Holders,
    ) -> Result<Self, TchError> {
        let has_reference = recipe.objective.kl != Kl::None;
        let reference = has_reference.then(|| {
            if learner.is_fully_sharded() { learner.freeze() } else { frozen(&learner.model) }
        });
        let reference = reference.transpose()?;
        Ok(Self {
            learner,
            objective: recipe.objective.clone(),
            micro_batch_tokens: recipe.pipeline.micro_batch_tokens as usize,
            reference,
            holders,
        })
    }

    /// Writes the model beside a saved trainer, as a folder that transformers and vLLM load.
    pub(crate) fn save_model(&mut self, folder: &Path) -> Result<(), TrainerError> {
        let path = folder.join("model");
        if self.is_in_parts() {
            return self.write_model(&path);
        }
        let saved = self.learner.save_model(&path, self.save_kind());
        saved.map_err(|error| file_error(&path, error))
    }

    /// The same of a state that was taken. An adapter is small and written at once.
    pub(crate) fn model_of(
        &mut self,
        state: &Snapshot,
        folder: &Path,
    ) -> Result<Writing, TrainerError> {
        let model = &self.learner.model;
        if model.adapter.is_some() {
            return self.save_model(folder).map(|()| Writing::done());
        }
        let (config, companions) = (model.config.clone(), model.folder.clone());
        let (kind, path) = (self.save_kind(), folder.join("model"));
        let parameters = state.masters();
        Ok(Writing::new(move || {
            let companions = companions.as_deref();
            let model = ModelToSave { config: &config, parameters: &parameters, kind, companions };
            save_model(&model, &path).map_err(|error| file_error(&path, error))
        }))
    }

    /// The kind of numbers of a saved model: that of the layers.
    fn save_kind(&self) -> SaveKind {
        match self.learner.model.network.head().kind() {
            Kind::BFloat16 => SaveKind::BFloat16,
            _ => SaveKind::Float32,
        }
    }

    /// Whether what generators get is only together unit by unit. An adapter is whole on every rank.
    pub(crate) fn is_in_parts(&self) -> bool {
        self.learner.is_fully_sharded() && self.learner.model.adapter.is_none()
    }

    /// Writes all weights, an adapter in them. Where they are in parts all ranks show theirs meanwhile, and
    /// have done so when this returns.
    pub(crate) fn write_model(&mut self, folder: &Path) -> Result<(), TrainerError> {
        let (kind, learner) = (self.save_kind(), &mut self.learner);
        let (config, companions) = (learner.model.config.clone(), learner.model.folder.clone());
        let about = FolderToSave { config: &config, kind, companions: companions.as_deref() };
        let mut is_shown = false;
        let written: Result<(), CheckpointError> = save_model_of(&about, folder, |writer| {
            is_shown = true;
            learner.each_unit(|_, weights| {
                Ok(weights.iter().try_for_each(|weight| writer.write(weight))?)
            })
        });
        if !is_shown {
            // No folder to write into: the others show their weights all the same.
            let shown = learner.each_unit(|_, _| Ok::<(), RankError>(()));
            shown.map_err(|error| rank_error(&error))?;
        }
        written.map_err(|error| checkpoint_error(folder, error))
    }

    /// Leaves weights that are in parts for generators, unit by unit, in the host's memory: no device has
    /// room for all of them.
    pub(crate) fn publish_units(
        &mut self,
        weight_store: &WeightStore,
    ) -> Result<WeightHandle, TrainerError> {
        let version = self.version();
        let trained = self.learner.model.trained();
        let form = Form { device: Device::Cpu, ..Form::of(trained) };
        let memory = weight_store.spare(&form);
        let shown = self.learner.each_unit(|range, weights| {
            let Ok(memory) = &memory else { return Ok(()) };
            for (place, weight) in memory[range].iter().zip(weights) {
                place.shallow_clone().f_copy_(weight)?;
            }
            Ok::<(), RankError>(())
        });
        shown.map_err(|error| pass_error(version, &error))?;
        let memory = memory.map_err(|error| device_error(version, &error))?;
        Ok(weight_store.place(version, memory))
    }

    pub(crate) fn version(&self) -> PolicyVersion {
        PolicyVersion(self.learner.steps_taken())
    }

    pub(crate) fn check(&self, batch: &TrainBatch) -> Result<(), TrainerError> {
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

    /// Adds the gradients of all pieces of a checked batch; `None` where it has no sequences.
    pub(crate) fn accumulate(&mut self, batch: &TrainBatch) -> Result<Option<Tally>, TrainerError> {
        self.learner.set_temperature(f64::from(batch.temperature));
        let version = self.version();
        let failed = |error: RankError| pass_error(version, &error);
        let (vocabulary, device) = {
            let model = &self.learner.model;
            (model.config.vocabulary, model.device())
        };
        let mut total: Option<Tally> = None;
        for piece in pieces(batch, self.micro_batch_tokens) {
            let micro = MicroBatch::new(&self.objective, &piece, vocabulary, device);
            let mut micro = micro.map_err(|error| match error {
                BatchError::Torch(error) => device_error(version, &error),
                error => TrainerError::BadBatch { version, reason: error.to_string() },
            })?;
            micro.inputs.reference_m = self.reference_logprobs(&micro).map_err(failed)?;
            self.add(&micro, &mut total).map_err(failed)?;
        }
        Ok(total)
    }

    fn reference_logprobs(&mut self, micro: &MicroBatch) -> Result<Option<Tensor>, RankError> {
        let Some(reference) = &self.reference else { return Ok(None) };
        let scores = if self.learner.is_fully_sharded() {
            self.learner.score_reference(reference, &micro.tokens)?
        } else {
            reference.score(&micro.tokens, self.learner.head_options())?
        };
        Ok(Some(scores.logprob.f_to_kind(Kind::Double)?))
    }

    /// Pieces of the rank that has most of them, where every rank takes part in each; 0 where none needs to.
    pub(crate) fn rounds(&self, ranks: &Ranks, share: &TrainBatch) -> Result<usize, TrainerError> {
        if !self.learner.is_fully_sharded() {
            return Ok(0);
        }
        let own = pieces(share, self.micro_batch_tokens).len() as f64;
        let everybody = ranks.numbers(&[own]).map_err(|error| rank_error(&error))?;
        Ok(everybody.into_iter().flatten().fold(0.0, f64::max) as usize)
    }

    /// Takes part in the passes of so many pieces that this rank has not begun.
    pub(crate) fn keep_pace(&mut self, rounds: usize) -> Result<(), TrainerError> {
        let of_a_piece: &[PassKind] = match &self.reference {
            Some(_) => &[PassKind::Reference, PassKind::Training],
            None => &[PassKind::Training],
        };
        let kept = self.learner.keep_pace(self.reference.as_ref(), &of_a_piece.repeat(rounds));
        kept.map_err(|error| pass_error(self.version(), &error))
    }

    fn add(&mut self, micro: &MicroBatch, total: &mut Option<Tally>) -> Result<(), RankError> {
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

    /// Refuses sums that no optimizer should see.
    pub(crate) fn check_totals(&self, totals: &Totals) -> Result<(), TrainerError> {
        if totals.loss.is_finite() {
            return Ok(());
        }
        let (version, quantity, value) = (self.version(), "the loss", totals.loss);
        Err(TrainerError::NotFinite { version, quantity, value })
    }

    /// Forgets what the failed step had summed, and says why it failed.
    pub(crate) fn give_up(&mut self, error: TrainerError) -> TrainerError {
        // A device that fails here too has failed for the reason we are about to tell.
        let _ = self.learner.discard_gradients();
        self.with_holders(error)
    }

    /// An error of a device without room says who holds it.
    pub(crate) fn with_holders(&self, error: TrainerError) -> TrainerError {
        self.holders.name_in(error)
    }

    /// Errors speak of other holders from here on.
    pub(crate) fn set_holders(&mut self, holders: Holders) {
        self.holders = holders;
    }

    /// What a step over the whole batch comes to.
    pub(crate) fn report(
        &self,
        batch: &TrainBatch,
        totals: &Totals,
        step: &scalerl_model::train::StepReport,
        seconds: f64,
    ) -> StepReport {
        StepReport {
            version: self.version(),
            loss: totals.loss,
            gradient_norm: step.gradient_norm,
            entropy: totals.entropy,
            reference_kl: self.reference.as_ref().map(|_| totals.reference_kl),
            ratio: totals.ratio.finish().expect("a checked batch trains on some token"),
            learning_rate: step.lr,
            tokens: batch.sequences.iter().map(|sequence| length(sequence) as u64).sum(),
            trained_tokens: totals.ratio.tokens,
            model_flops: self.flops(&batch.sequences),
            seconds,
            peak_memory_bytes: peak_memory(self.learner.model.device()),
        }
    }

    fn flops(&self, sequences: &[TrainSequence]) -> f64 {
        let config = &self.learner.model.config;
        let forward: f64 = sequences
            .iter()
            .map(|sequence| {
                let scored = sequence.weights.iter().filter(|weight| **weight > 0.0).count();
                let (tokens, scored) = (length(sequence) as u64, scored as u64);
                forward_flops(config, SequenceSize { tokens, scored })
            })
            .sum();
        let reference = if self.reference.is_some() { 1.0 } else { 0.0 };
        let Some(adapter) = &self.learner.model.adapter else {
            return forward * (3.0 + reference);
        };
        // Frozen weights have no gradients of their own; the adapter's numbers have all three passes.
        let tokens: f64 = sequences.iter().map(|sequence| length(sequence) as f64).sum();
        forward * (2.0 + reference) + 3.0 * 2.0 * adapter.parameter_count() as f64 * tokens
    }
}

fn merge(total: &mut Option<Tally>, tally: Tally) -> Result<(), TchError> {
    if let Some(total) = total {
        return total.merge(&tally);
    }
    *total = Some(tally);
    Ok(())
}

/// The model as it is now, which no step touches, in the kind the network computes in. A base with a
/// fresh adapter is frozen already; one that came with an adapter needs a copy of that alone.
fn frozen(model: &Model) -> Result<Model, TchError> {
    if model.adapter.as_ref().is_some_and(|adapter| adapter.is_fresh) {
        return model.base();
    }
    let copies = model.trained().iter().map(Tensor::f_detach_copy);
    model.with_trained(copies.collect::<Result<Vec<_>, _>>()?)
}

/// What went wrong in a pass that ranks make together.
pub(crate) fn pass_error(version: PolicyVersion, error: &RankError) -> TrainerError {
    match error {
        RankError::Torch(error) => device_error(version, error),
        error => rank_error(error),
    }
}

pub(crate) fn device_error(version: PolicyVersion, error: &TchError) -> TrainerError {
    failed_device(version, error.to_string())
}

/// What a device has failed with, as it or another rank says it.
pub(crate) fn failed_device(version: PolicyVersion, reason: String) -> TrainerError {
    // CUDA's allocator says the first, the CPU's the second.
    if ["out of memory", "not enough memory", "can't allocate memory"]
        .iter()
        .any(|words| reason.contains(words))
    {
        return TrainerError::OutOfMemory { version, reason };
    }
    TrainerError::Device { reason }
}

pub(crate) fn step_error(version: PolicyVersion, error: &StepError) -> TrainerError {
    match error {
        StepError::NotFinite { .. } => {
            TrainerError::NotFinite { version, quantity: "the gradient norm", value: f64::NAN }
        }
        StepError::Torch(error) => device_error(version, error),
        StepError::Collective(error) => TrainerError::RankLost { reason: error.to_string() },
        other => TrainerError::BadBatch { version, reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use scalerl_model::adapter;
    use scalerl_model::bench::Shape;
    use tch::Device;

    use super::*;
    use crate::options::adapter_config;

    #[test]
    fn the_reference_of_an_adapter_is_its_base_and_has_no_memory_of_its_own() {
        let shape =
            Shape { layers: 1, width: 8, heads: 2, kv_heads: 1, feed_forward: 16, vocabulary: 32 };
        let model = Model::random(shape.config().unwrap(), 1, Kind::Float, Device::Cpu).unwrap();
        let adapter = scalerl_recipe::Adapter::Lora { rank: 2, alpha: 2.0, layers: Vec::new() };
        let recipe = Recipe { adapter, ..Default::default() };
        let adapted = adapter::start(model, None, adapter_config(&recipe), 1).unwrap();
        let reference = frozen(&adapted).unwrap();
        assert!(reference.adapter.is_none());
        for (own, shared) in adapted.parameters.iter().zip(&reference.parameters) {
            assert_eq!(own.data_ptr(), shared.data_ptr());
        }
    }
}
