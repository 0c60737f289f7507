//! A learner's memory shared out over ranks.
//!
//! Parameters stand side by side in rows, padded so that `size` ranks own equal parts of each. Masters
//! and both moments of a number are with one rank, in either scheme:
//!
//! ```text
//! optimizer   one row of all that is trained; every rank has the weights and its own sums of gradients
//!             step   reduce-scatter gradients -> norm over all ranks -> AdamW on the part -> all-gather
//! full        rows for each unit (`shard/units.rs`); weights and sums of gradients in parts too
//!             pass   all-gather a unit's weights ahead of use, reduce-scatter its gradients after
//!             step   norm over all ranks -> AdamW on the parts
//! ```
//! These are ZeRO's stages 1 and 3 (arXiv 1910.02054). With an adapter the first is the adapter's, and
//! `full` shares out the frozen base beside it. Gradients of ranks are added, not averaged: each token's
//! weight already has the whole batch's denominators in it.
//!
//! Not here: the way of parts to and from a disk (`checkpoint/ranks.rs`).

mod full;
mod home;
mod order;
mod owned;
mod pass;
mod reading;
mod row;
mod units;

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

use super::learner::{ComputeKind, Learner, LearnerOptions, StepError, StepReport};
use super::ranks::{RankError, Ranks};
use crate::folder::Model;
use crate::layout::Parameter;
use crate::unloaded::UnloadedModel;
use scalerl_torch::collective::ProcessGroup;
use scalerl_torch::shim;

pub use full::StartError;
pub(super) use full::residing;
pub(super) use pass::Direction;
use reading::Reading;
pub(crate) use row::Row;
pub use units::PassKind;
pub(super) use units::{HeadGradient, Units};

/// One rank's share of a learner's memory.
#[derive(Debug)]
pub(crate) struct Shard {
    /// For gradients and weights: NCCL between GPUs, Gloo between CPUs.
    pub(super) data: ProcessGroup,
    /// What is trained; the learner's masters are its own part of each.
    pub(crate) rows: Vec<Row>,
    /// Where every rank has all that is trained.
    whole: Option<Whole>,
}

/// What the one row of `optimizer` looks like whole.
#[derive(Debug)]
struct Whole {
    /// In the kind the network computes in; the model's parameters are views of it.
    weights: Tensor,
    /// float32; the learner's gradients are views of it.
    gradients: Tensor,
}

impl Shard {
    /// This rank's part of a row.
    pub(crate) fn own_part(&self, row: &Row) -> Range<i64> {
        row.part_of(self.data.rank())
    }

    /// Where this rank's numbers of each row stand among all that is trained, whoever has the others.
    pub(super) fn places(&self) -> Vec<i64> {
        self.rows.iter().map(|row| row.place_of(self.data.rank())).collect()
    }

    /// The gradients' sums as the learner adds to them; `masters` have the form of parts.
    pub(super) fn gradients(&self, masters: &[Tensor]) -> Result<Vec<Option<Tensor>>, TchError> {
        let Some(whole) = &self.whole else {
            return masters.iter().map(|part| part.f_zeros_like().map(Some)).collect();
        };
        Ok(self.rows[0].views(&whole.gradients)?.into_iter().map(Some).collect())
    }

    /// Sets them to zero where they are.
    pub(super) fn zero(&self, grads: &mut Vec<Option<Tensor>>) -> Result<(), TchError> {
        let Some(whole) = &self.whole else {
            return grads.iter_mut().flatten().try_for_each(|grad| grad.f_zero_().map(drop));
        };
        let _ = whole.gradients.shallow_clone().f_zero_()?;
        // A pass that failed may have taken one out.
        *grads = self.rows[0].views(&whole.gradients)?.into_iter().map(Some).collect();
        Ok(())
    }
}

/// The kind in which a network computes.
fn computed_in(options: &LearnerOptions) -> Kind {
    match options.compute {
        ComputeKind::Float32 => Kind::Float,
        ComputeKind::BFloat16 => Kind::BFloat16,
    }
}

/// The row of all that is trained, whole on every rank, and the own part of its masters.
struct Shared {
    row: Row,
    weights: Tensor,
    master: Tensor,
}

impl Shared {
    /// Takes what `next` gives one after the other: a parameter in float32, the same on all ranks. `kind`
    /// is what the network computes in.
    fn of(
        layout: &[Parameter],
        (kind, device): (Kind, Device),
        data: &ProcessGroup,
        mut next: impl FnMut(usize) -> Result<Tensor, StartError>,
    ) -> Result<Self, StartError> {
        let row = Row::new(layout, 0..layout.len(), data.size());
        let weights = Tensor::f_zeros([row.whole()], (kind, device))?;
        let own = row.part_of(data.rank());
        let master = if kind == Kind::Float {
            // One memory for both: the optimizer writes where the network reads.
            weights.f_narrow(0, own.start, row.part)?
        } else {
            Tensor::f_zeros([row.part], (Kind::Float, device))?
        };
        let stretches = row.stretches(&own);
        for (index, view) in row.views(&weights)?.into_iter().enumerate() {
            let flat = next(index)?.f_view(-1)?;
            view.f_view(-1)?.f_copy_(&flat)?;
            for part in stretches.iter().filter(|part| part.parameter == index) {
                let source = flat.f_narrow(0, part.from, part.length)?;
                master.f_narrow(0, part.at, part.length)?.f_copy_(&source)?;
            }
        }
        Ok(Self { row, weights, master: master.f_detach()? })
    }

    /// What an adapter trains: rank 0's numbers on every rank.
    fn of_adapter(model: &Model, data: &ProcessGroup) -> Result<Self, StartError> {
        // Float32 whatever the base computes in.
        Self::of(model.trained_layout(), (Kind::Float, model.device()), data, |index| {
            // Contiguous by construction, whoever made the model.
            let own = model.trained()[index].f_detach()?.f_contiguous()?;
            data.broadcast(&[&own], 0).map_err(RankError::from)?;
            Ok(own)
        })
    }

    /// The network's parameters, which are views of the row.
    fn parameters(&self) -> Result<Vec<Tensor>, TchError> {
        self.row.views(&self.weights)
    }

    /// With room for gradients: last, when nothing that was read is held any more.
    fn into_shard(self, data: ProcessGroup) -> Result<(Tensor, Shard), TchError> {
        let Self { row, weights, master } = self;
        let gradients = Tensor::f_zeros([row.whole()], (Kind::Float, weights.device()))?;
        let whole = Some(Whole { weights, gradients });
        Ok((master, Shard { data, rows: vec![row], whole }))
    }
}

impl Learner {
    /// Shares out the optimizer's memory alone. Rank 0 reads the model, a weight at a time, and no rank
    /// holds one in float32 for longer than it takes to hand it on; the others need its config alone.
    /// `data` is what gradients and weights will travel in.
    pub fn sharded(
        unloaded: UnloadedModel,
        options: LearnerOptions,
        data: ProcessGroup,
    ) -> Result<Self, StartError> {
        let _guard = tch::no_grad_guard();
        let kind = computed_in(&options);
        let (model, shared) = if unloaded.adapter.is_some() {
            let mut reading = Reading::of(unloaded, kind);
            let places = 0..reading.model().layout.len();
            let base = places.map(|index| reading.on_every_rank(index, &data));
            let base = base.collect::<Result<_, _>>()?;
            let UnloadedModel { config, folder, adapter, .. } = reading.end(data.rank())?;
            let adapter = adapter.expect("looked for");
            let model = Model::over(config, base, folder)?.adapted(adapter)?;
            let shared = Shared::of_adapter(&model, &data)?;
            (model.with_trained(shared.parameters()?)?, shared)
        } else {
            let mut reading = Reading::of(unloaded, Kind::Float);
            let (layout, device) = (reading.model().layout.clone(), reading.model().device);
            let next = |index| reading.on_every_rank(index, &data);
            let shared = Shared::of(&layout, (kind, device), &data, next)?;
            let UnloadedModel { config, folder, .. } = reading.end(data.rank())?;
            (Model::over(config, shared.parameters()?, folder)?, shared)
        };
        let (master, shard) = shared.into_shard(data)?;
        Ok(Self::over(model, vec![master], (Some(shard), None), options)?)
    }

    /// Takes one step with the gradients of all ranks. Every rank calls it, with or without
    /// gradients of its own; an error before the weights move leaves all of them as they were.
    pub fn step_together(&mut self, ranks: &Ranks) -> Result<StepReport, StepError> {
        let step = self.steps_taken + 1;
        let parts = self.summed_parts()?;
        let square = shim::global_norm(&parts)?.f_double_value(&[])?.powi(2);
        let squares = ranks.numbers(&[square])?;
        let gradient_norm = squares.iter().flatten().sum::<f64>().sqrt();
        if !gradient_norm.is_finite() {
            return Err(self.name_the_first_not_finite_part(step, &parts)?);
        }
        let lr = self.rate();
        let norm = Tensor::f_from_slice(&[gradient_norm as f32])?.f_to_device(parts[0].device())?;
        tch::no_grad(|| self.optimizer.apply(&self.masters, &parts, &norm.f_squeeze()?, lr))?;
        drop(parts);
        self.renew_weights()?;
        let (expert_imbalance, busiest_expert) = self.expert_report()?;
        self.discard_gradients()?;
        self.steps_taken = step;
        self.lap("optimizer")?;
        Ok(StepReport { step, lr, gradient_norm, expert_imbalance, busiest_expert })
    }

    /// The own part of each row's gradients, summed over all ranks.
    fn summed_parts(&self) -> Result<Vec<Tensor>, RankError> {
        let shard = self.shard.as_ref().expect("a learner of ranks");
        let Some(whole) = &shard.whole else {
            // They were summed unit by unit.
            return Ok(self.grads.iter().flatten().map(Tensor::shallow_clone).collect());
        };
        let part = self.masters[0].f_empty_like()?;
        shard.data.reduce_scatter(&part, &whole.gradients)?;
        Ok(vec![part])
    }

    /// What a rank can see of gradients that are not finite: its own parts of them.
    fn name_the_first_not_finite_part(
        &self,
        step: u64,
        parts: &[Tensor],
    ) -> Result<StepError, TchError> {
        let shard = self.shard.as_ref().expect("a learner of ranks");
        for (row, part) in shard.rows.iter().zip(parts) {
            for stretch in row.stretches(&shard.own_part(row)) {
                let numbers = part.f_narrow(0, stretch.at, stretch.length)?;
                if numbers.f_isfinite()?.f_all()?.f_int64_value(&[])? == 0 {
                    let parameter = self.model.trained_layout()[stretch.parameter].name.clone();
                    return Ok(StepError::NotFinite { step, parameter });
                }
            }
        }
        let parameter = "another rank's part, or all parts together".to_owned();
        Ok(StepError::NotFinite { step, parameter })
    }

    /// Every rank's part of the masters, in the kind the network computes in, becomes its weights.
    pub(super) fn renew_weights(&self) -> Result<(), RankError> {
        let shard = self.shard.as_ref().expect("a learner of ranks");
        if let Some(whole) = &shard.whole {
            let part = self.masters[0].f_to_kind(whole.weights.kind())?;
            return Ok(shard.data.all_gather(&whole.weights, &part)?);
        }
        let units = self.units.as_ref().expect("weights in parts are units'");
        Ok(tch::no_grad(|| units.renew(&self.masters))?)
    }
}
