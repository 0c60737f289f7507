//! A model that learns: float32 master weights, a copy to compute with, gradients, the optimizer.
//!
//! With bf16 the network runs on a rounded copy of the masters, renewed after each step; a
//! generator in the same process reads that very copy, so trainer and generator cannot disagree
//! about weights. Gradients are summed over micro-batches in float32.
//!
//! A model with an adapter learns nothing else: its float32 matrices are masters and what the network
//! computes with in one, and the base, in the kind that is computed in, has no gradients.
//!
//! Losses come from outside: [`Learner::forward`] gives log-probs, the caller gives back a gradient
//! per token. Not here: what the loss is.

use std::ops::Range;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tch::{Kind, TchError, Tensor};
use thiserror::Error;

use super::adamw::{AdamW, AdamWConfig, KeptIn};
use super::batch::TrainingBatch;
use super::ranks::RankError;
use super::shard::{Direction, HeadGradient, PassKind, Shard, Units, residing};
use crate::error::LoadError;
use crate::folder::Model;
use crate::head::{Head, HeadOptions, TokenGradients, TokenScores};
use crate::network::{Activations, ExpertLoad, ForwardPass, Part, Residence as _};
use crate::save::SaveKind;
use scalerl_torch::collective::CollectiveError;
use scalerl_torch::shim;
use scalerl_torch::stopwatch::Stopwatch;

/// What the network computes in. Master weights and optimizer are float32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeKind {
    Float32,
    BFloat16,
}

/// How ranks with weights in parts compute with a layer's experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExpertWeights {
    /// Each rank gathers all of them.
    #[default]
    Gathered,
    /// Each rank has its own and computes with them for all; rows of tokens travel.
    Owned,
}

/// How a model is trained.
#[derive(Debug, Clone, Copy)]
pub struct LearnerOptions {
    pub compute: ComputeKind,
    pub activations: Activations,
    pub head: HeadOptions,
    pub optimizer: AdamWConfig,
    /// In which numbers gradients are summed. In bf16 they stay where the backward pass leaves them;
    /// the head's, which is summed over chunks of tokens, is float32 all the same.
    pub gradients: KeptIn,
    pub experts: ExpertWeights,
}

impl LearnerOptions {
    /// bf16 on CUDA, float32 on the CPU; the rest as the paper has it.
    pub fn of(device: tch::Device) -> Self {
        let is_cpu = device == tch::Device::Cpu;
        Self {
            compute: if is_cpu { ComputeKind::Float32 } else { ComputeKind::BFloat16 },
            activations: Activations::Keep,
            head: HeadOptions::of(device),
            optimizer: AdamWConfig::default(),
            gradients: KeptIn::Float32,
            experts: ExpertWeights::Gathered,
        }
    }
}

/// Why a step was not taken.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StepError {
    #[error("step {step}: no batch has added a gradient")]
    NoGradient { step: u64 },
    /// Weights and optimizer are as before the step.
    #[error("step {step}: the gradient of `{parameter}` is not finite; the step was not taken")]
    NotFinite { step: u64, parameter: String },
    /// A rank is lost; the run cannot go on with its other ranks.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

impl From<RankError> for StepError {
    fn from(error: RankError) -> Self {
        match error {
            RankError::Collective(error) => Self::Collective(error),
            RankError::Torch(error) => Self::Torch(error),
        }
    }
}

impl StepError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoGradient { .. } => "the batch had no scored token",
            Self::NotFinite { .. } => {
                "lower the learning rate or the largest gradient norm, and look at the batch"
            }
            Self::Collective(error) => error.hint(),
            Self::Torch(_) => "out of memory? try smaller micro-batches or recomputed activations",
        }
    }
}

/// What one optimizer step did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// Steps taken, this one included.
    pub step: u64,
    pub lr: f64,
    /// Before clipping.
    pub gradient_norm: f64,
    /// Load of the experts averaged over layers and micro-batches (1 is even); `None` without any.
    pub expert_imbalance: Option<f64>,
    pub busiest_expert: Option<f64>,
}

/// A forward pass that waits for its gradient.
pub struct Pending {
    pass: ForwardPass,
    hidden_md: Tensor,
    /// What the caller's loss is made of.
    pub scores: TokenScores,
}

/// Where the head's gradient is added up.
enum HeadSum {
    /// With its place among the gradients.
    Running(usize, Tensor),
    Row(HeadGradient),
}

impl HeadSum {
    fn grad_vd(&mut self) -> &mut Tensor {
        match self {
            Self::Running(_, sum) => sum,
            Self::Row(row) => &mut row.grad_vd,
        }
    }
}

/// A model that learns.
pub struct Learner {
    /// What the network computes with.
    pub model: Model,
    /// One a parameter, or the rank's part of each row where the memory is shared out.
    pub(crate) masters: Vec<Tensor>,
    pub(crate) optimizer: AdamW,
    pub(crate) steps_taken: u64,
    pub(crate) shard: Option<Shard>,
    /// Where the model's weights are in parts, too.
    pub(super) units: Option<Units>,
    pub(super) grads: Vec<Option<Tensor>>,
    /// Place of the matrix that the head multiplies with; `None` where it is frozen.
    head_place: Option<usize>,
    loads: Vec<ExpertLoad>,
    options: LearnerOptions,
    /// Whether a step leaves the network's rounded weights as they are, for whoever shares them.
    is_renewed_elsewhere: bool,
    /// Set by benches.
    pub stopwatch: Option<Stopwatch>,
}

impl Learner {
    /// Takes a model loaded in float32, or with an adapter and in the kind that is computed in.
    pub fn new(model: Model, options: LearnerOptions) -> Result<Self, TchError> {
        assert!(
            model.trained().iter().all(|parameter| parameter.kind() == Kind::Float),
            "master weights are float32"
        );
        let masters: Vec<Tensor> = model.trained().iter().map(Tensor::shallow_clone).collect();
        let model = if options.compute == ComputeKind::Float32 || model.adapter.is_some() {
            model
        } else {
            let rounded = masters.iter().map(|master| master.f_to_kind(Kind::BFloat16));
            model.with_trained(rounded.collect::<Result<_, _>>()?)?
        };
        Self::over(model, masters, (None, None), options)
    }

    pub(super) fn over(
        model: Model,
        masters: Vec<Tensor>,
        (shard, units): (Option<Shard>, Option<Units>),
        options: LearnerOptions,
    ) -> Result<Self, TchError> {
        for parameter in model.trained() {
            let _ = parameter.f_set_requires_grad(true)?;
        }
        let head = if model.config.is_head_tied { "embedding" } else { "head" };
        let head_place = model.trained_layout().iter().position(|known| known.name == head);
        let mut optimizer = AdamW::new(&masters, options.optimizer)?;
        if let Some(shard) = &shard {
            optimizer.places = shard.places();
        }
        Ok(Self {
            optimizer,
            grads: match &shard {
                Some(shard) => shard.gradients(&masters)?,
                None => masters.iter().map(|_| None).collect(),
            },
            head_place,
            steps_taken: 0,
            loads: Vec::new(),
            is_renewed_elsewhere: false,
            stopwatch: None,
            shard,
            units,
            masters,
            model,
            options,
        })
    }

    /// Optimizer steps taken; the version of the policy.
    pub fn steps_taken(&self) -> u64 {
        self.steps_taken
    }

    /// The float32 weights that are trained, in the order of their layout.
    pub fn masters(&self) -> &[Tensor] {
        assert!(self.shard.is_none(), "ranks hold parts: gather them");
        &self.masters
    }

    /// Gradients summed in float32 since the last step, in the order of the trained weights.
    pub fn gradients(&self) -> &[Option<Tensor>] {
        &self.grads
    }

    fn head(&self) -> Result<Head, TchError> {
        Head::new(self.model.network.head(), self.options.head)
    }

    /// Log-probs of later batches are those of logits / `temperature`.
    pub fn set_temperature(&mut self, temperature: f64) {
        self.options.head.temperature = temperature;
    }

    /// How log-probs are computed.
    pub fn head_options(&self) -> HeadOptions {
        self.options.head
    }

    /// Forgets the gradients summed since the last step: for callers that give a step up halfway.
    pub fn discard_gradients(&mut self) -> Result<(), TchError> {
        self.loads.clear();
        if let Some(units) = &mut self.units {
            units.forget()?;
        }
        match &self.shard {
            Some(shard) => shard.zero(&mut self.grads)?,
            None => self.grads.iter_mut().for_each(|grad| *grad = None),
        }
        // A backward pass that failed may have left gradients with the leaves.
        self.model.trained().iter().try_for_each(|leaf| shim::take_grad(leaf).map(drop))
    }

    /// Log-probs and entropies only.
    pub fn score(&self, batch: &TrainingBatch) -> Result<TokenScores, TchError> {
        assert!(self.units.is_none(), "the weights are in parts");
        self.model.score(batch, self.options.head)
    }

    /// Log-probs and entropies, ready to go back.
    pub fn forward(&mut self, batch: &TrainingBatch) -> Result<Pending, RankError> {
        let forward = self.try_forward(batch);
        self.see_through(forward)
    }

    fn try_forward(&mut self, batch: &TrainingBatch) -> Result<Pending, RankError> {
        let (pass, hidden_md) = self.hidden(batch)?;
        let scores = self.head()?.score(&hidden_md, &batch.targets)?;
        Ok(Pending { pass, hidden_md, scores })
    }

    /// What the head is given; its weights are there from here on.
    fn hidden(&mut self, batch: &TrainingBatch) -> Result<(ForwardPass, Tensor), RankError> {
        self.begin(PassKind::Training)?;
        let (network, activations) = (&self.model.network, self.options.activations);
        let mut weights =
            residing(&mut self.units, self.shard.as_ref(), &mut self.grads, Direction::Forward);
        let pass = network.forward_with(&batch.packed, activations, &mut weights)?;
        let hidden_md = pass.hidden_nd.f_detach()?.f_index_select(0, &batch.rows)?;
        weights.enter(Part::Head)?;
        Ok((pass, hidden_md))
    }

    /// Adds the gradients of a batch, given that of the loss at each of its scored tokens.
    pub fn backward(
        &mut self,
        pending: Pending,
        batch: &TrainingBatch,
        gradients: &TokenGradients,
    ) -> Result<(), RankError> {
        let went = self.try_backward(pending, batch, gradients);
        self.see_through(went)
    }

    fn try_backward(
        &mut self,
        Pending { pass, hidden_md, scores }: Pending,
        batch: &TrainingBatch,
        gradients: &TokenGradients,
    ) -> Result<(), RankError> {
        let mut gradient = self.head_gradient()?;
        let grad_vd = gradient.as_mut().map(HeadSum::grad_vd);
        let head = self.head()?;
        let d_hidden = head.backward(&hidden_md, &batch.targets, &scores, gradients, grad_vd)?;
        drop((head, hidden_md));
        self.leave_head(gradient)?;
        self.finish(pass, batch, &d_hidden)
    }

    /// Forward and backward in one, for losses that are sums over tokens: the head's products are
    /// made once. `gradient_of` gets a range of the batch's scored tokens and their scores.
    pub fn accumulate(
        &mut self,
        batch: &TrainingBatch,
        gradient_of: impl FnMut(Range<i64>, &TokenScores) -> Result<TokenGradients, TchError>,
    ) -> Result<TokenScores, RankError> {
        let scores = self.try_accumulate(batch, gradient_of);
        self.see_through(scores)
    }

    fn try_accumulate(
        &mut self,
        batch: &TrainingBatch,
        gradient_of: impl FnMut(Range<i64>, &TokenScores) -> Result<TokenGradients, TchError>,
    ) -> Result<TokenScores, RankError> {
        let (pass, hidden_md) = self.hidden(batch)?;
        self.lap("forward")?;
        let mut gradient = self.head_gradient()?;
        let grad_vd = gradient.as_mut().map(HeadSum::grad_vd);
        let head = self.head()?;
        let (scores, d_hidden) =
            head.score_and_backward(&hidden_md, &batch.targets, grad_vd, gradient_of)?;
        drop((head, hidden_md));
        self.leave_head(gradient)?;
        self.lap("head")?;
        self.finish(pass, batch, &d_hidden)?;
        Ok(scores)
    }

    /// Cross-entropy with a weight per scored token: adds the gradients of Σ -weight · logprob.
    pub fn cross_entropy(
        &mut self,
        batch: &TrainingBatch,
        weights_m: &Tensor,
    ) -> Result<TokenScores, TchError> {
        let slope = weights_m.f_neg()?;
        let scores = self.accumulate(batch, |range, _| {
            let logprob = slope.f_narrow(0, range.start, range.end - range.start)?;
            Ok(TokenGradients { logprob, entropy: None })
        });
        scores.map_err(|error| match error {
            RankError::Torch(error) => error,
            RankError::Collective(error) => TchError::Torch(error.to_string()),
        })
    }

    /// The rate of the next step.
    pub(super) fn rate(&self) -> f64 {
        self.options.optimizer.rate(self.steps_taken)
    }

    pub(super) fn lap(&mut self, part: &'static str) -> Result<(), TchError> {
        self.stopwatch.as_mut().map_or(Ok(()), |watch| watch.lap(part))
    }

    /// Where the head's gradient is added up in place: the running sum, taken out, or where weights are
    /// in parts a row of its own.
    fn head_gradient(&mut self) -> Result<Option<HeadSum>, TchError> {
        if let Some(units) = &mut self.units {
            return Ok(units.head_gradient()?.map(HeadSum::Row));
        }
        let Some(place) = self.head_place else { return Ok(None) };
        let sum = match self.grads[place].take() {
            Some(sum) => sum,
            None => self.masters[place].f_zeros_like()?,
        };
        Ok(Some(HeadSum::Running(place, sum)))
    }

    /// The head has computed.
    fn leave_head(&mut self, gradient: Option<HeadSum>) -> Result<(), RankError> {
        let row = match gradient {
            Some(HeadSum::Running(place, sum)) => {
                self.grads[place] = Some(sum);
                None
            }
            Some(HeadSum::Row(row)) => Some(row),
            None => None,
        };
        residing(&mut self.units, self.shard.as_ref(), &mut self.grads, Direction::Backward)
            .leave_head(row)
    }

    fn finish(
        &mut self,
        mut pass: ForwardPass,
        batch: &TrainingBatch,
        d_hidden_md: &Tensor,
    ) -> Result<(), RankError> {
        self.loads.append(&mut pass.loads);
        let is_whole = batch.scored() as i64 == batch.packed.len();
        let d_hidden_nd = if is_whole {
            d_hidden_md.shallow_clone()
        } else {
            pass.hidden_nd.f_zeros_like()?.f_detach()?.f_index_copy_(0, &batch.rows, d_hidden_md)?
        };
        let mut weights =
            residing(&mut self.units, self.shard.as_ref(), &mut self.grads, Direction::Backward);
        self.model.network.backward_with(pass, &batch.packed, &d_hidden_nd, &mut weights)?;
        weights.end()?;
        self.collect_gradients()?;
        Ok(self.lap("backward")?)
    }

    /// Adds the gradients that a backward pass has left with the trained parameters to their sums.
    pub(super) fn collect_gradients(&mut self) -> Result<(), TchError> {
        let stays = self.sums_in_bf16();
        // A unit's own gradients have left with it.
        let leaves = match &self.units {
            Some(units) if units.is_trained() => &[],
            _ => self.model.trained(),
        };
        for (leaf, sum) in leaves.iter().zip(&mut self.grads) {
            if stays && sum.is_none() {
                continue;
            }
            let Some(grad) = shim::take_grad(leaf)? else { continue };
            match sum {
                Some(sum) => {
                    if sum.kind() != Kind::Float {
                        *sum = sum.f_to_kind(Kind::Float)?;
                    }
                    let _ = sum.f_add_(&grad)?;
                }
                // One batch's gradient is no sum: it stays as it came until another is added to it.
                None => *sum = Some(grad),
            }
        }
        Ok(())
    }

    /// Takes one optimizer step with the gradients summed so far, and forgets them.
    pub fn step(&mut self) -> Result<StepReport, StepError> {
        assert!(self.shard.is_none(), "ranks step together");
        let step = self.steps_taken + 1;
        if self.grads.iter().all(Option::is_none) {
            return Err(StepError::NoGradient { step });
        }
        let grads = self.take_gradients()?;
        let lr = self.rate();
        let rounded = computed_apart(&self.model).filter(|_| !self.is_renewed_elsewhere);
        let gradient_norm =
            tch::no_grad(|| self.optimizer.step(&self.masters, &grads, rounded, lr))?;
        let (expert_imbalance, busiest_expert) = self.expert_report()?;
        if !gradient_norm.is_finite() {
            return Err(self.name_the_first_not_finite(step, &grads)?);
        }
        self.steps_taken = step;
        self.lap("optimizer")?;
        Ok(StepReport { step, lr, gradient_norm, expert_imbalance, busiest_expert })
    }

    /// From here on somebody else rounds the masters into the weights that the network computes with:
    /// whoever shares them, when it may. No batch goes through the network in between.
    pub fn leave_renewal(&mut self) {
        assert!(self.model.trained()[0].kind() == Kind::BFloat16, "masters are not computed with");
        self.is_renewed_elsewhere = true;
    }

    /// Writes the model as a folder that transformers and vLLM load.
    pub fn save_model(&self, folder: &Path, kind: SaveKind) -> Result<(), LoadError> {
        if self.is_renewed_elsewhere {
            // The rounded weights may be those of the step before.
            return self.model.save_as(&self.masters, folder, kind);
        }
        self.model.save(folder, kind)
    }

    /// Rounds the masters into the weights that the network computes with, where they are this
    /// learner's to renew.
    pub(super) fn renew_computed(&self) -> Result<(), TchError> {
        match computed_apart(&self.model).filter(|_| !self.is_renewed_elsewhere) {
            Some(computed) => shim::copy_each(computed, &self.masters),
            None => Ok(()),
        }
    }

    /// Whether backward passes add up gradients by themselves, in the kind of the weights.
    fn sums_in_bf16(&self) -> bool {
        self.options.gradients == KeptIn::BFloat16
            && self.shard.is_none()
            && self.model.trained().first().is_some_and(|leaf| leaf.kind() == Kind::BFloat16)
    }

    fn take_gradients(&mut self) -> Result<Vec<Tensor>, TchError> {
        let leaves = self.model.trained().iter();
        self.grads
            .iter_mut()
            .zip(leaves)
            .map(|(sum, leaf)| match sum.take() {
                Some(sum) => Ok(sum),
                None => shim::take_grad(leaf)?.map_or_else(|| leaf.f_zeros_like(), Ok),
            })
            .collect()
    }

    fn name_the_first_not_finite(
        &self,
        step: u64,
        grads: &[Tensor],
    ) -> Result<StepError, TchError> {
        for (grad, parameter) in grads.iter().zip(self.model.trained_layout()) {
            if grad.f_isfinite()?.f_all()?.f_int64_value(&[])? == 0 {
                return Ok(StepError::NotFinite { step, parameter: parameter.name.clone() });
            }
        }
        // Each is finite and their squares overflow.
        Ok(StepError::NotFinite { step, parameter: "all parameters together".to_owned() })
    }

    pub(super) fn expert_report(&mut self) -> Result<(Option<f64>, Option<f64>), TchError> {
        let loads = std::mem::take(&mut self.loads);
        if loads.is_empty() {
            return Ok((None, None));
        }
        let mean = |measure: fn(&ExpertLoad) -> Result<f64, TchError>| {
            let sum: f64 = loads.iter().map(measure).sum::<Result<f64, _>>()?;
            Ok::<_, TchError>(Some(sum / loads.len() as f64))
        };
        Ok((mean(ExpertLoad::imbalance)?, mean(ExpertLoad::busiest)?))
    }
}

/// The rounded weights that the network computes with, where they are others than the masters.
fn computed_apart(model: &Model) -> Option<&[Tensor]> {
    let computed = model.trained();
    computed.first().is_some_and(|first| first.kind() != Kind::Float).then_some(computed)
}
