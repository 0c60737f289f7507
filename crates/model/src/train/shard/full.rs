//! A learner whose weights are in parts: how it starts, what it does beside training.

use std::ops::Range;

use tch::{Kind, TchError, Tensor};
use thiserror::Error;

use super::home::{Home, away};
use super::owned::between;
use super::pass::{Direction, Residing};
use super::row::rows_of;
use super::units::{PassKind, Units};
use super::{Reading, Row, Shard, Shared, computed_in};
use crate::error::LoadError;
use crate::folder::Model;
use crate::head::TokenScores;
use crate::layout::units;
use crate::network::{Activations, Network, Part, Residence as _};
use crate::train::batch::TrainingBatch;
use crate::train::learner::{ExpertWeights, Learner, LearnerOptions};
use crate::train::ranks::RankError;
use crate::unloaded::UnloadedModel;
use scalerl_torch::collective::{CollectiveError, ProcessGroup};

/// Why a learner of ranks cannot begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// Rank 0 reads the weights.
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error(transparent)]
    Ranks(#[from] RankError),
    #[error(
        "a layer has {experts} experts, which {ranks} trainer ranks cannot own in equal numbers"
    )]
    #[expect(missing_docs, reason = "the message names the fields")]
    IndivisibleExperts { experts: i64, ranks: usize },
}

impl From<TchError> for StartError {
    fn from(error: TchError) -> Self {
        RankError::from(error).into()
    }
}

impl Learner {
    /// Shares out weights, gradients and optimizer. Rank 0 reads the model, a unit at a time, and no rank
    /// ever holds more of it than its parts and one unit; the others need its config alone.
    pub fn fully_sharded(
        unloaded: UnloadedModel,
        options: LearnerOptions,
        data: ProcessGroup,
    ) -> Result<Self, StartError> {
        assert_eq!(options.activations, Activations::Recompute, "weights come back with them");
        let _guard = tch::no_grad_guard();
        if options.experts == ExpertWeights::Owned {
            can_be_owned(&unloaded, data.size())?;
        }
        let is_trained = unloaded.adapter.is_none();
        let base_kind = computed_in(&options);
        // Masters are as exact as what is read; a frozen base is in the kind it computes in.
        let read_kind = if is_trained { Kind::Float } else { base_kind };
        let (layout, device) = (unloaded.layout.clone(), unloaded.device);
        let rows = |range| rows_of(&layout, range, data.size(), options.experts);
        let by_unit: Vec<Vec<Row>> = units(&layout).into_iter().map(rows).collect();
        let rows = by_unit.concat();
        let (mut masters, mut parts) = (Vec::new(), Vec::new());
        let mut reading = Reading::of(unloaded, read_kind);
        for row in &rows {
            let whole = Tensor::f_zeros([row.whole()], (read_kind, device))?;
            if data.rank() == 0 {
                for (index, mut view) in row.parameters().zip(row.views(&whole)?) {
                    view.f_copy_(&reading.read(index)?)?;
                }
            }
            data.broadcast(&[&whole], 0).map_err(RankError::from)?;
            let own = whole.f_narrow_copy(0, row.part_of(data.rank()).start, row.part)?;
            if is_trained {
                // With float32 the masters are what the network computes with.
                parts.push(own.f_to_kind(base_kind)?);
                masters.push(own);
            } else {
                parts.push(own);
            }
        }
        let UnloadedModel { config, folder, adapter, .. } = reading.end(data.rank())?;
        let mut model = Model::over(config, away(&layout, base_kind, device)?, folder)?;
        let shard = match adapter {
            None => Shard { data, rows, whole: None },
            Some(adapter) => {
                let adapted = model.adapted(adapter)?;
                let shared = Shared::of_adapter(&adapted, &data)?;
                model = adapted.with_trained(shared.parameters()?)?;
                let (master, shard) = shared.into_shard(data)?;
                masters.push(master);
                shard
            }
        };
        let parameters = model.parameters.iter().map(Tensor::shallow_clone).collect();
        let home = Home { parameters, parts };
        let units = Units::new(&model.config, by_unit, home, is_trained);
        Ok(Self::over(model, masters, (Some(shard), Some(units)), options)?)
    }

    /// Whether its model has its weights only while a pass is under way.
    pub fn is_fully_sharded(&self) -> bool {
        self.units.is_some()
    }

    /// The policy as it is now, in parts of its own where it is trained: for [`Learner::score_reference`]
    /// alone.
    pub fn freeze(&mut self) -> Result<Model, TchError> {
        let units = self.units.as_mut().expect("weights in parts");
        let first = &units.policy.parts[0];
        let hollow = away(&self.model.layout, first.kind(), first.device())?;
        let mut model = Model::over(self.model.config.clone(), hollow, self.model.folder.clone())?;
        if let Some(adapter) = self.model.adapter.as_ref().filter(|adapter| !adapter.is_fresh) {
            let copies = adapter.parameters.iter().map(Tensor::f_detach_copy);
            model = model.adapted(adapter.over(copies.collect::<Result<_, _>>()?))?;
        }
        // What is not trained nobody changes.
        let is_trained = units.is_trained();
        let copy = |part: &Tensor| {
            if is_trained { part.f_detach_copy() } else { Ok(part.shallow_clone()) }
        };
        let parts = units.policy.parts.iter().map(copy).collect::<Result<_, _>>()?;
        let parameters = model.parameters.iter().map(Tensor::shallow_clone).collect();
        units.reference = Some(Home { parameters, parts });
        Ok(model)
    }

    /// Log-probs and entropies under what [`Learner::freeze`] made. All ranks call it together, or
    /// [`Learner::keep_pace`] does.
    pub fn score_reference(
        &mut self,
        reference: &Model,
        batch: &TrainingBatch,
    ) -> Result<TokenScores, RankError> {
        let scored = self.try_score_reference(reference, batch);
        self.see_through_with(Some(reference), scored)
    }

    fn try_score_reference(
        &mut self,
        reference: &Model,
        batch: &TrainingBatch,
    ) -> Result<TokenScores, RankError> {
        let _guard = tch::no_grad_guard();
        self.begin(PassKind::Reference)?;
        let options = self.head_options();
        let Self { units, shard, grads, .. } = self;
        let mut weights = residing(units, shard.as_ref(), grads, Direction::Forward);
        let pass =
            reference.network.forward_with(&batch.packed, Activations::Keep, &mut weights)?;
        let hidden_md = pass.hidden_nd.f_index_select(0, &batch.rows)?;
        weights.enter(Part::Head)?;
        let head = crate::head::Head::new(reference.network.head(), options)?;
        let scores = head.score(&hidden_md, &batch.targets)?;
        drop(head);
        weights.end()?;
        Ok(scores)
    }

    /// Takes part in what is left of these passes of a step, without a batch: the other ranks have more of
    /// them, or this one has failed in one. `reference` is what [`Learner::freeze`] made. Where this rank has
    /// ended its group there is nothing left to take part in.
    pub fn keep_pace(
        &mut self,
        reference: Option<&Model>,
        passes: &[PassKind],
    ) -> Result<(), RankError> {
        let Err(error) = self.try_keep_pace(reference, passes) else { return Ok(()) };
        let Self { units: Some(units), shard: Some(shard), .. } = self else { return Err(error) };
        if !units.has_owned() {
            return Err(error);
        }
        // Nobody can do what was this rank's to do.
        units.cut_short(&shard.data)?;
        Err(between(error, &shard.data))
    }

    fn try_keep_pace(
        &mut self,
        reference: Option<&Model>,
        passes: &[PassKind],
    ) -> Result<(), RankError> {
        let Self { model, units: Some(units), shard: Some(shard), grads, .. } = self else {
            return Ok(());
        };
        let data = &shard.data;
        if data.record().is_aborted() {
            return Ok(());
        }
        let network = |kind| -> &Network {
            match kind {
                PassKind::Reference => &reference.expect("it is kept pace with").network,
                PassKind::Training | PassKind::Reading => &model.network,
            }
        };
        if let Some(pass) = &units.pass {
            units.drain(network(pass.kind), data, grads)?;
        }
        for &kind in passes.iter().skip(units.begun) {
            units.begin(kind, data)?;
            units.drain(network(kind), data, grads)?;
        }
        // An adapter's, of experts that computed for others.
        Ok(self.collect_gradients()?)
    }

    /// An error of this rank's own leaves the others with a pass to end: it is ended here too.
    pub(crate) fn see_through<T>(&mut self, outcome: Result<T, RankError>) -> Result<T, RankError> {
        self.see_through_with(None, outcome)
    }

    fn see_through_with<T>(
        &mut self,
        reference: Option<&Model>,
        outcome: Result<T, RankError>,
    ) -> Result<T, RankError> {
        let Err(error) = outcome else { return outcome };
        let Self { units: Some(units), shard: Some(shard), .. } = self else { return Err(error) };
        if !units.has_owned() {
            if matches!(error, RankError::Torch(_)) {
                self.keep_pace(reference, &[])?;
            }
            return Err(error);
        }
        let error = between(error, &shard.data);
        if units.can_be_seen_through(&shard.data) {
            // Where that fails, too, it has ended the group; the first failure is the one to tell.
            let _ = self.keep_pace(reference, &[]);
        } else {
            units.cut_short(&shard.data)?;
        }
        Err(error)
    }

    /// Whether the ranks can still tell each other why a pass was not made: one of them has ended it, and
    /// nobody was silent.
    pub fn can_hear_why(&self) -> bool {
        let (Some(units), Some(shard)) = (&self.units, &self.shard) else { return false };
        let is_late = matches!(shard.data.record().failure(), Some(CollectiveError::Late { .. }));
        units.has_owned() && !is_late
    }

    /// Shows all weights, an adapter in them, in the kind the network computes in: a unit at a time, in
    /// the order of the layout. All ranks call it; a failure of `show` is told at the end.
    pub fn each_unit<E: From<RankError>>(
        &mut self,
        mut show: impl FnMut(Range<usize>, &[Tensor]) -> Result<(), E>,
    ) -> Result<(), E> {
        let _guard = tch::no_grad_guard();
        let mut shown = Ok(());
        let went = self.try_each_unit(|model, range| {
            if shown.is_ok() {
                let merged = model.merged_in(range.clone()).map_err(RankError::from);
                shown = merged.map_err(E::from).and_then(|tensors| show(range, &tensors));
            }
        });
        self.see_through(went)?;
        shown
    }

    fn try_each_unit(
        &mut self,
        mut look: impl FnMut(&Model, Range<usize>),
    ) -> Result<(), RankError> {
        self.begin(PassKind::Reading)?;
        for (unit, range) in units(&self.model.layout).into_iter().enumerate() {
            let wire = self.units.as_mut().zip(self.shard.as_ref());
            wire.map_or(Ok(()), |(units, shard)| units.bring(unit, &shard.data))?;
            look(&self.model, range);
            self.units.as_mut().map_or(Ok(()), |units| units.send_away(unit))?;
        }
        let Self { units, shard, grads, .. } = self;
        residing(units, shard.as_ref(), grads, Direction::Backward).end()
    }

    /// Begins a pass, where weights are in parts.
    pub(crate) fn begin(&mut self, kind: PassKind) -> Result<(), RankError> {
        let wire = self.units.as_mut().zip(self.shard.as_ref());
        wire.map_or(Ok(()), |(units, shard)| units.begin(kind, &shard.data))
    }

    /// Bytes this rank holds between passes for weights, gradients and the optimizer, and the most that
    /// units brought beside them, gradients on their way from a backward pass too. Only of a learner whose weights are in parts.
    pub fn bytes_in_parts(&self) -> Option<(usize, usize)> {
        let units = self.units.as_ref()?;
        let bytes = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        let sum = |list: &[Tensor]| list.iter().map(bytes).sum::<usize>();
        let optimizer = [&self.masters, &self.optimizer.first, &self.optimizer.second];
        let optimizer: usize = optimizer.into_iter().map(|list| sum(list)).sum();
        let is_own_memory = self.masters[0].data_ptr() != units.policy.parts[0].data_ptr();
        let weights = if is_own_memory { sum(&units.policy.parts) } else { 0 };
        let gradients: usize = self.grads.iter().flatten().map(bytes).sum();
        Some((optimizer + weights + gradients, units.most_whole()))
    }
}

/// Refuses experts that so many ranks cannot own.
fn can_be_owned(unloaded: &UnloadedModel, ranks: usize) -> Result<(), StartError> {
    let indivisible = unloaded.config.indivisible_experts(ranks as u64);
    indivisible.map_or(Ok(()), |experts| Err(StartError::IndivisibleExperts { experts, ranks }))
}

/// What a pass needs of a learner beside its model, for a borrow of its own.
pub(crate) fn residing<'a>(
    units: &'a mut Option<Units>,
    shard: Option<&'a Shard>,
    grads: &'a mut [Option<Tensor>],
    direction: Direction,
) -> Residing<'a> {
    let units = units.as_mut().zip(shard.map(|shard| &shard.data));
    Residing::new(units, grads, direction)
}
