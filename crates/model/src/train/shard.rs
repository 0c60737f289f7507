//! A learner's memory shared out over ranks: weights whole, everything of the optimizer in parts.
//!
//! All parameters stand in one row, in the order of the layout, padded so that `size` ranks own
//! equal parts of it:
//!
//! ```text
//! row       [ embedding | layer 0 … | norm | head | padding ]      every rank: what it computes with
//! gradients [            the same, float32                   ]      every rank: sums of its own batch
//! part            [ own part ]                                      one rank: master, both moments
//!
//! step   reduce-scatter gradients -> norm over all ranks -> AdamW on the part -> all-gather the row
//! ```
//! Every number of the optimizer is kept and updated by one rank (ZeRO stage 1). Gradients of ranks
//! are added, not averaged: each token's weight already has the whole batch's denominators in it.
//!
//! Not here: the way of parts to and from a disk (`checkpoint/ranks.rs`).

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

use super::learner::{ComputeKind, Learner, LearnerOptions, StepError, StepReport};
use crate::folder::Model;
use crate::layout::Parameter;
use scalerl_torch::collective::{CollectiveError, ProcessGroup};
use scalerl_torch::shim;

/// The trainer ranks, seen from one of them. Both groups have the same members in the same order.
#[derive(Debug)]
pub struct Ranks {
    /// For small things and for what comes from the CPU: Gloo.
    pub control: ProcessGroup,
    /// For gradients and weights: NCCL between GPUs, Gloo between CPUs.
    pub data: ProcessGroup,
}

impl Ranks {
    pub fn rank(&self) -> usize {
        self.control.rank()
    }

    pub fn size(&self) -> usize {
        self.control.size()
    }

    /// Everybody's numbers, in the order of ranks.
    pub fn numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, RankError> {
        let own = Tensor::f_from_slice(own)?;
        let all =
            Tensor::f_zeros([(self.size() * own.numel()) as i64], (Kind::Double, Device::Cpu))?;
        self.control.all_gather(&all, &own)?;
        let all = Vec::<f64>::try_from(all)?;
        Ok(all.chunks(own.numel().max(1)).map(<[f64]>::to_vec).collect())
    }
}

/// Why something between ranks did not happen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    #[error("libtorch: {0}")]
    Torch(#[from] TchError),
}

/// One stretch of a parameter inside a stretch of the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) parameter: usize,
    /// Within the parameter.
    pub(crate) from: i64,
    /// Within the stretch of the row that was asked for.
    pub(crate) at: i64,
    pub(crate) length: i64,
}

/// Where parameters stand in the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Start of each parameter, and the end of the last.
    starts: Vec<i64>,
    /// Numbers in each rank's part.
    pub(crate) part: i64,
}

impl Row {
    pub(crate) fn new(layout: &[Parameter], size: usize) -> Self {
        let mut starts = vec![0];
        for parameter in layout {
            let end = starts[starts.len() - 1] + parameter.shape.iter().product::<i64>();
            starts.push(end);
        }
        let total = starts[starts.len() - 1];
        Self { starts, part: (total + size as i64 - 1) / size as i64 }
    }

    /// Numbers without the padding.
    pub(crate) fn total(&self) -> i64 {
        self.starts[self.starts.len() - 1]
    }

    fn range(&self, parameter: usize) -> Range<i64> {
        self.starts[parameter]..self.starts[parameter + 1]
    }

    /// The parameters' parts in a stretch of the row; padding has none.
    pub(crate) fn stretches(&self, row: &Range<i64>) -> Vec<Stretch> {
        let first = self.starts.partition_point(|start| *start <= row.start).saturating_sub(1);
        (first..self.starts.len() - 1)
            .map(|parameter| (parameter, self.range(parameter)))
            .take_while(|(_, own)| own.start < row.end)
            .filter_map(|(parameter, own)| {
                let (from, to) = (own.start.max(row.start), own.end.min(row.end));
                let stretch = Stretch {
                    parameter,
                    from: from - own.start,
                    at: from - row.start,
                    length: to - from,
                };
                (from < to).then_some(stretch)
            })
            .collect()
    }
}

/// One rank's share of a learner's memory.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) row: Row,
    /// [size · part] in the kind the network computes in; the model's parameters are views of it.
    weights: Tensor,
    /// [size · part] float32; the learner's gradients are views of it.
    gradients: Tensor,
    shapes: Vec<Vec<i64>>,
}

impl Shard {
    /// The gradients' sums as the learner adds to them, at zero.
    pub(super) fn fresh_gradients(&mut self) -> Result<Vec<Option<Tensor>>, TchError> {
        let _ = self.gradients.f_zero_()?;
        let views = views(&self.gradients, &self.row, &self.shapes)?;
        Ok(views.into_iter().map(Some).collect())
    }
}

fn views(row_tensor: &Tensor, row: &Row, shapes: &[Vec<i64>]) -> Result<Vec<Tensor>, TchError> {
    let view = |(parameter, shape): (usize, &Vec<i64>)| {
        let range = row.range(parameter);
        row_tensor.f_narrow(0, range.start, range.end - range.start)?.f_view(&shape[..])?.f_detach()
    };
    shapes.iter().enumerate().map(view).collect()
}

impl Learner {
    /// Takes a model as [`Learner::new`] does, the same on every rank: whatever ranks were given, rank
    /// 0's weights are broadcast.
    #[expect(clippy::needless_pass_by_value, reason = "the weights live on in the shard alone")]
    pub fn sharded(
        model: Model,
        options: LearnerOptions,
        ranks: &Ranks,
    ) -> Result<Self, RankError> {
        let _guard = tch::no_grad_guard();
        let row = Row::new(model.trained_layout(), ranks.size());
        let (device, whole) = (model.device(), row.part * ranks.size() as i64);
        // An adapter's matrices are float32 whatever the base computes in.
        let is_wide = options.compute == ComputeKind::Float32 || model.adapter.is_some();
        let kind = if is_wide { Kind::Float } else { Kind::BFloat16 };
        if model.adapter.is_some() {
            for parameter in &model.parameters {
                ranks.data.broadcast(&[&parameter.f_detach()?], 0)?;
            }
        }
        let weights = Tensor::f_zeros([whole], (kind, device))?;
        let start = row.part * ranks.rank() as i64;
        let master = if is_wide {
            // One memory for both: the optimizer writes where the network reads.
            weights.f_narrow(0, start, row.part)?
        } else {
            Tensor::f_zeros([row.part], (Kind::Float, device))?
        };
        let own = row.stretches(&(start..start + row.part));
        for (index, parameter) in model.trained().iter().enumerate() {
            // Contiguous by construction, whoever made the model.
            let flat = parameter.f_detach()?.f_contiguous()?.f_view(-1)?;
            ranks.data.broadcast(&[&flat], 0)?;
            let range = row.range(index);
            weights.f_narrow(0, range.start, range.end - range.start)?.f_copy_(&flat)?;
            for part in own.iter().filter(|part| part.parameter == index) {
                let source = flat.f_narrow(0, part.from, part.length)?;
                master.f_narrow(0, part.at, part.length)?.f_copy_(&source)?;
            }
        }
        let master = master.f_detach()?;
        let shapes: Vec<Vec<i64>> =
            model.trained_layout().iter().map(|p| p.shape.clone()).collect();
        let parameters = views(&weights, &row, &shapes)?;
        let gradients = Tensor::f_zeros([whole], (Kind::Float, device))?;
        let shard = Shard { row, weights, gradients, shapes };
        let mut learner =
            Self::over(model.with_trained(parameters)?, vec![master], Some(shard), options)?;
        learner.optimizer.place = start;
        Ok(learner)
    }

    /// Takes one step with the gradients of all ranks. Every rank calls it, with or without
    /// gradients of its own; an error before the weights move leaves all of them as they were.
    pub fn step_together(&mut self, ranks: &Ranks) -> Result<StepReport, StepError> {
        let step = self.steps_taken + 1;
        let shard = self.shard.as_ref().expect("a learner made by `sharded`");
        let part = self.masters[0].f_empty_like()?;
        ranks.data.reduce_scatter(&part, &shard.gradients)?;
        let part = [part];
        let square = shim::global_norm(&part)?.f_double_value(&[])?.powi(2);
        let squares = ranks.numbers(&[square])?;
        let gradient_norm = squares.iter().flatten().sum::<f64>().sqrt();
        if !gradient_norm.is_finite() {
            let own: Vec<Tensor> = self.grads.iter().flatten().map(Tensor::shallow_clone).collect();
            return Err(self.name_the_first_not_finite(step, &own)?);
        }
        let lr = self.rate();
        let norm = Tensor::f_from_slice(&[gradient_norm as f32])?.f_to_device(part[0].device())?;
        tch::no_grad(|| self.optimizer.apply(&self.masters, &part, &norm.f_squeeze()?, lr))?;
        self.renew_weights(ranks)?;
        let (expert_imbalance, busiest_expert) = self.expert_report()?;
        self.discard_gradients()?;
        self.steps_taken = step;
        self.lap("optimizer")?;
        Ok(StepReport { step, lr, gradient_norm, expert_imbalance, busiest_expert })
    }

    /// Every rank's part of the masters, in the kind the network computes in, becomes its weights.
    pub(super) fn renew_weights(&self, ranks: &Ranks) -> Result<(), RankError> {
        let shard = self.shard.as_ref().expect("a learner made by `sharded`");
        let part = self.masters[0].f_to_kind(shard.weights.kind())?;
        Ok(ranks.data.all_gather(&shard.weights, &part)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Start;

    fn layout(lengths: &[i64]) -> Vec<Parameter> {
        let parameter = |length: &i64| Parameter {
            name: length.to_string(),
            shape: vec![*length],
            sources: Vec::new(),
            start: Start::Zeros,
        };
        lengths.iter().map(parameter).collect()
    }

    #[test]
    fn parts_cover_the_row_and_stretches_cover_the_parts() {
        let lengths = [5, 1, 7, 3];
        for size in 1..=20 {
            let row = Row::new(&layout(&lengths), size);
            let mut seen: Vec<Vec<bool>> =
                lengths.iter().map(|n| vec![false; *n as usize]).collect();
            for rank in 0..size as i64 {
                let mut place = 0;
                for stretch in row.stretches(&(rank * row.part..(rank + 1) * row.part)) {
                    assert_eq!(stretch.at, place, "stretches follow each other");
                    place += stretch.length;
                    for i in stretch.from..stretch.from + stretch.length {
                        let seen = &mut seen[stretch.parameter][i as usize];
                        assert!(!*seen, "owned twice");
                        *seen = true;
                    }
                }
            }
            assert!(seen.iter().flatten().all(|seen| *seen), "{size} ranks own everything");
        }
    }
}
