//! Weights in parts: whole only while a pass computes with them.
//!
//! The embedding, each layer, the final norm and the head are a unit each; a head that is the embedding
//! is that unit. A unit's weights are gathered while the one before it computes, let go of after use,
//! gathered again in the backward pass, and its gradients leave while the next one computes:
//!
//! ```text
//! compute    | embed  | layer 0 | layer 1 | norm | head | layer 1 again, back | layer 0 again, back |
//! gather  E  | 0      | 1       | N       | H    | 1    | 0                   |                     |
//! scatter                                          H, N                        | 1                   | 0, E
//! ```
//! All ranks do the same operations in the same order (`order.rs`), so a rank without a batch of its own,
//! or one whose own work has failed, does the rest of them all the same: nobody waits for it in vain.
//!
//! Not here: experts that stay with their owners (`owned.rs`).

use std::collections::VecDeque;
use std::ops::Range;

use tch::{Kind, TchError, Tensor};

use super::Row;
use super::home::Home;
use super::order::{Operation, Sequence};
use crate::config::ModelConfig;
use crate::network::{Network, Part};
use crate::train::ranks::RankError;
use scalerl_torch::collective::{ProcessGroup, Underway};
use scalerl_torch::shim;

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassKind {
    /// Forward and backward through the policy.
    Training,
    /// Forward through the reference.
    Reference,
    /// The policy's units one after the other.
    Reading,
}

/// A pass under way.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) kind: PassKind,
    /// What has not been started yet.
    pub(super) left: VecDeque<Operation>,
    /// The unit that is being gathered, and its rows.
    coming: Option<(usize, Vec<Coming>)>,
    /// The rows whose gradients leave.
    leaving: Vec<Leaving>,
    /// Exchanges that were begun before the unit that computes.
    pub(super) exchanges: usize,
}

#[derive(Debug)]
struct Coming {
    row: usize,
    whole: Tensor,
    underway: Underway,
}

/// A row of gradients, and the own part of everybody's.
#[derive(Debug)]
struct Leaving {
    row: usize,
    whole: Tensor,
    part: Tensor,
    underway: Underway,
}

/// A model's weights in parts.
#[derive(Debug)]
pub(crate) struct Units {
    pub(super) rows: Vec<Row>,
    /// Which rows are each unit's.
    places: Vec<Range<usize>>,
    sequence: Sequence,
    pub(super) policy: Home,
    pub(super) reference: Option<Home>,
    pub(super) pass: Option<Pass>,
    /// Passes of this step that were begun, those of reading left out.
    pub(super) begun: usize,
    /// Bytes of units at the moment, weights and gradients, and the most so far.
    whole: (i64, i64),
    /// After how many further allocations one fails.
    #[cfg(test)]
    pub(super) failing: std::cell::Cell<Option<usize>>,
}

impl Units {
    /// Takes the rows of each unit.
    pub(super) fn new(
        config: &ModelConfig,
        by_unit: Vec<Vec<Row>>,
        policy: Home,
        is_trained: bool,
    ) -> Self {
        let layers = config.layers.len();
        let sequence = Sequence {
            layers,
            norm: 1 + layers,
            head: if config.is_head_tied { 0 } else { 2 + layers },
            serves: by_unit.iter().map(|rows| rows.iter().any(|row| row.is_owned)).collect(),
            is_trained,
        };
        let mut places = Vec::new();
        for rows in &by_unit {
            let start = places.last().map_or(0, |before: &Range<usize>| before.end);
            places.push(start..start + rows.len());
        }
        let rows: Vec<Row> = by_unit.into_iter().flatten().collect();
        assert_eq!(rows.len(), policy.parts.len(), "one part a row");
        Self {
            rows,
            places,
            sequence,
            policy,
            reference: None,
            pass: None,
            begun: 0,
            whole: (0, 0),
            #[cfg(test)]
            failing: std::cell::Cell::default(),
        }
    }

    /// Whether gradients leave unit by unit.
    pub(crate) fn is_trained(&self) -> bool {
        self.sequence.is_trained
    }

    /// Whether experts stay with their owners.
    pub(crate) fn has_owned(&self) -> bool {
        self.sequence.serves.iter().any(|serves| *serves)
    }

    /// The most bytes that units took at once.
    pub(super) fn most_whole(&self) -> usize {
        self.whole.1 as usize
    }

    /// The weights follow the masters.
    pub(super) fn renew(&self, masters: &[Tensor]) -> Result<(), TchError> {
        if self.policy.parts[0].kind() == masters[0].kind() {
            // They are the same memory.
            return Ok(());
        }
        shim::copy_each(&self.policy.parts, masters)
    }

    pub(super) fn unit(&self, part: Part) -> usize {
        match part {
            Part::Embedding => 0,
            Part::Layer(index) => 1 + index,
            Part::Norm => self.sequence.norm,
            Part::Head => self.sequence.head,
        }
    }

    /// The rows of a unit that the ranks gather in a pass of this kind.
    fn gathered(&self, kind: PassKind, unit: usize) -> Vec<usize> {
        let is_gathered = |row: &usize| kind == PassKind::Reading || !self.rows[*row].is_owned;
        self.places[unit].clone().filter(is_gathered).collect()
    }

    /// The rows of a unit whose experts stay with their owners.
    pub(super) fn owned(&self, unit: usize) -> Vec<usize> {
        self.places[unit].clone().filter(|row| self.rows[*row].is_owned).collect()
    }

    /// Numbers of these rows.
    fn numbers(&self, rows: &[usize]) -> i64 {
        rows.iter().map(|row| self.rows[*row].whole()).sum()
    }

    pub(super) fn home(&self, kind: PassKind) -> &Home {
        match kind {
            PassKind::Reference => self.reference.as_ref().expect("a reference was made"),
            PassKind::Training | PassKind::Reading => &self.policy,
        }
    }

    /// So many numbers more, or fewer.
    pub(super) fn count(&mut self, numbers: i64, kind: Kind) {
        let now = self.whole.0 + numbers * kind.elt_size_in_bytes() as i64;
        self.whole = (now, self.whole.1.max(now));
    }

    /// Memory for numbers of a pass.
    fn room(&self, numbers: i64, kind: Kind) -> Result<Tensor, TchError> {
        #[cfg(test)]
        if let Some(left) = self.failing.take() {
            if left == 0 {
                return Err(TchError::Torch("no room, as the test wants it".to_owned()));
            }
            self.failing.set(Some(left - 1));
        }
        Tensor::f_empty([numbers], (kind, self.policy.parts[0].device()))
    }

    /// What weights are gathered in.
    pub(super) fn kind(&self) -> Kind {
        self.policy.parts[0].kind()
    }

    /// Begins a pass: its first unit is on its way.
    pub(super) fn begin(&mut self, kind: PassKind, data: &ProcessGroup) -> Result<(), RankError> {
        assert!(self.pass.is_none(), "one pass at a time");
        let (left, exchanges) = (self.sequence.of(kind), data.record().exchanges());
        self.pass = Some(Pass { kind, left, coming: None, leaving: Vec::new(), exchanges });
        self.begun += usize::from(kind != PassKind::Reading);
        self.start_gather(data)
    }

    /// Starts to gather, where that is next.
    fn start_gather(&mut self, data: &ProcessGroup) -> Result<(), RankError> {
        let pass = self.pass.as_ref().expect("a pass is under way");
        let Some(&Operation::Gather(unit)) = pass.left.front() else { return Ok(()) };
        let (kind, rows) = (pass.kind, self.gathered(pass.kind, unit));
        // All memory first: an error before the start leaves the operation to do.
        let room = |row: &usize| self.room(self.rows[*row].whole(), self.kind());
        let wholes = rows.iter().map(room).collect::<Result<Vec<_>, _>>()?;
        let mut coming = Vec::new();
        for (&row, whole) in rows.iter().zip(wholes) {
            let underway = data.start_all_gather(&whole, &self.home(kind).parts[row])?;
            coming.push(Coming { row, whole, underway });
        }
        let pass = self.pass.as_mut().expect("a pass is under way");
        pass.left.pop_front();
        pass.coming = Some((unit, coming));
        self.count(self.numbers(&rows), self.kind());
        Ok(())
    }

    /// Waits for a unit, and has the next one follow.
    fn arrive(&mut self, data: &ProcessGroup) -> Result<(usize, Vec<(usize, Tensor)>), RankError> {
        let pass = self.pass.as_mut().expect("a pass is under way");
        pass.exchanges = data.record().exchanges();
        let (unit, coming) = pass.coming.take().expect("a unit is on its way");
        let mut arrived = Vec::new();
        for Coming { row, whole, underway } in coming {
            data.finish(underway)?;
            arrived.push((row, whole));
        }
        self.start_gather(data)?;
        Ok((unit, arrived))
    }

    /// Brings a unit's weights to where the network reads them.
    pub(super) fn bring(&mut self, wanted: usize, data: &ProcessGroup) -> Result<(), RankError> {
        let (unit, arrived) = self.arrive(data)?;
        assert_eq!(unit, wanted, "units come in the order of the pass");
        let kind = self.pass.as_ref().expect("a pass is under way").kind;
        let home = self.home(kind);
        arrived.iter().try_for_each(|(row, whole)| home.bring(&self.rows[*row], whole))?;
        if kind != PassKind::Reading {
            self.bring_own(unit)?;
        }
        Ok(())
    }

    /// Lets go of a unit's weights.
    pub(super) fn send_away(&mut self, unit: usize) -> Result<(), TchError> {
        let kind = self.pass.as_ref().expect("a pass is under way").kind;
        let home = self.home(kind);
        self.rows[self.places[unit].clone()].iter().try_for_each(|row| home.send_away(row))?;
        self.count(-self.numbers(&self.gathered(kind, unit)), self.kind());
        Ok(())
    }

    /// A row for gradients, at zero.
    fn gradient_row(&mut self, row: usize) -> Result<Tensor, TchError> {
        let whole = self.room(self.rows[row].whole(), Kind::Float)?.f_zero_()?;
        self.count(self.rows[row].whole(), Kind::Float);
        Ok(whole)
    }

    /// Rows for the gradients of a unit that leave, at zero.
    fn gradient_rows(&mut self, unit: usize) -> Result<Vec<(usize, Tensor)>, TchError> {
        let rows = self.gathered(PassKind::Training, unit);
        rows.into_iter().map(|row| Ok((row, self.gradient_row(row)?))).collect()
    }

    /// Room for the head's gradient; `None` where it is frozen.
    pub(crate) fn head_gradient(&mut self) -> Result<Option<HeadGradient>, TchError> {
        if !self.is_trained() {
            return Ok(None);
        }
        let place = self.places[self.sequence.head].start;
        let row = self.gradient_row(place)?;
        let grad_vd = self.rows[place].views(&row)?.swap_remove(0);
        Ok(Some(HeadGradient { row: (place, row), grad_vd }))
    }

    /// Sends a unit's gradients to the ranks that own them, once those before have arrived.
    pub(super) fn scatter(
        &mut self,
        unit: usize,
        rows: Vec<(usize, Tensor)>,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        self.settle(data, grads)?;
        // An error before the start leaves the operation to do: for `drain`.
        let room = |(row, _): &(usize, Tensor)| self.room(self.rows[*row].part, Kind::Float);
        let parts = rows.iter().map(room).collect::<Result<Vec<_>, _>>()?;
        let pass = self.pass.as_mut().expect("a pass is under way");
        assert_eq!(pass.left.front(), Some(&Operation::Scatter(unit)), "in the pass's order");
        let mut numbers = 0;
        for ((row, whole), part) in rows.into_iter().zip(parts) {
            let underway = data.start_reduce_scatter(&part, &whole)?;
            numbers += self.rows[row].part;
            pass.leaving.push(Leaving { row, whole, part, underway });
        }
        pass.left.pop_front();
        self.count(numbers, Kind::Float);
        Ok(())
    }

    /// Waits for the gradients that left last and adds them up.
    fn settle(
        &mut self,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        let pass = self.pass.as_mut().expect("a pass is under way");
        for Leaving { row, whole, part, underway } in std::mem::take(&mut pass.leaving) {
            data.finish(underway)?;
            drop(whole);
            let sum = grads[row].as_mut().expect("sums begin at zero");
            let _ = sum.f_add_(&part)?;
            self.count(-self.rows[row].whole() - self.rows[row].part, Kind::Float);
        }
        Ok(())
    }

    /// Lets go of a unit after its backward pass and sends its gradients to their owners. Those of the unit
    /// before are added up first, and the weights leave: no row waits beside another.
    pub(super) fn hand_over(
        &mut self,
        part: Part,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        let unit = self.unit(part);
        let gathered = self.gathered(PassKind::Training, unit);
        let (numbers, kind) = (self.numbers(&gathered), self.kind());
        // What the backward pass left with the parameters.
        self.count(numbers, kind);
        self.settle(data, grads)?;
        self.keep_own(unit, grads)?;
        // The embedding's weights were not asked for on the way back.
        if part != Part::Embedding {
            self.send_away(unit)?;
        }
        let rows = self.take_gradients(unit)?;
        self.count(-numbers, kind);
        self.scatter(unit, rows, data, grads)
    }

    /// The gradients that leave, of what a unit's parameters have, as rows; they are taken from them.
    fn take_gradients(&mut self, unit: usize) -> Result<Vec<(usize, Tensor)>, TchError> {
        let rows = self.gradient_rows(unit)?;
        for (row, whole) in &rows {
            let views = self.rows[*row].views(whole)?;
            let parameters = &self.policy.parameters[self.rows[*row].parameters()];
            for (parameter, mut view) in parameters.iter().zip(views) {
                if let Some(grad) = shim::take_grad(parameter)? {
                    view.f_copy_(&grad)?;
                }
            }
        }
        Ok(rows)
    }

    /// Ends a pass that was seen through.
    pub(super) fn end(
        &mut self,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        self.settle(data, grads)?;
        let pass = self.pass.take().expect("a pass is under way");
        assert!(pass.left.is_empty() && pass.coming.is_none(), "a pass ends with its last unit");
        Ok(self.empty(pass.kind)?)
    }

    pub(super) fn empty(&mut self, kind: PassKind) -> Result<(), TchError> {
        let home = self.home(kind);
        self.rows.iter().try_for_each(|row| home.send_away(row))?;
        self.whole.0 = 0;
        Ok(())
    }

    /// Does what is left of the pass under way, which is `network`'s, without a batch: the other ranks count
    /// on it.
    pub(super) fn drain(
        &mut self,
        network: &Network,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        let Some(pass) = &self.pass else { return Ok(()) };
        let kind = pass.kind;
        // Whatever the network still holds is not needed any more.
        self.empty(kind)?;
        while let Some(pass) = &self.pass {
            if pass.coming.is_some() {
                let (_, arrived) = self.arrive(data)?;
                let numbers: i64 = arrived.iter().map(|(_, whole)| whole.numel() as i64).sum();
                self.count(-numbers, self.kind());
                continue;
            }
            match pass.left.front() {
                Some(Operation::Gather(_)) => self.start_gather(data)?,
                Some(&Operation::Scatter(unit)) => {
                    let nothing = self.gradient_rows(unit)?;
                    self.scatter(unit, nothing, data, grads)?;
                }
                Some(&(Operation::Serve(unit) | Operation::ServeBack(unit))) => {
                    self.serve(unit, network, data, grads)?;
                }
                None => self.end(data, grads)?,
            }
        }
        Ok(())
    }

    /// Forgets a pass that cannot be seen through.
    pub(crate) fn forget(&mut self) -> Result<(), TchError> {
        self.begun = 0;
        match self.pass.take() {
            Some(pass) => self.empty(pass.kind),
            None => Ok(()),
        }
    }
}

/// Where the head's gradient is added up.
pub(crate) struct HeadGradient {
    /// With its place among the rows.
    pub(super) row: (usize, Tensor),
    /// [v, d] of the row.
    pub(crate) grad_vd: Tensor,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Shape;
    use crate::layout::{layout, units as units_of};
    use crate::train::learner::ExpertWeights;
    use crate::train::shard::row::rows_of;

    #[test]
    fn units_are_the_embedding_each_layer_the_norm_and_the_head() {
        let units = |is_head_tied: bool| {
            let shape = Shape {
                layers: 3,
                width: 8,
                heads: 2,
                kv_heads: 1,
                feed_forward: 16,
                vocabulary: 32,
            };
            let mut config = shape.config().unwrap();
            config.is_head_tied = is_head_tied;
            let table = layout(&config);
            let rows = |range| rows_of(&table, range, 2, ExpertWeights::Gathered);
            let rows: Vec<_> = units_of(&table).into_iter().map(rows).collect();
            let parts = rows.iter().map(|_| Tensor::from(0.0_f32)).collect();
            Units::new(&config, rows, Home { parameters: Vec::new(), parts }, true)
        };
        let apart = units(false);
        assert_eq!(apart.rows.len(), 1 + 3 + 2);
        assert_eq!((apart.unit(Part::Norm), apart.unit(Part::Head)), (4, 5));
        let tied = units(true);
        assert_eq!(tied.rows.len(), 1 + 3 + 1, "a tied head is the embedding");
        assert_eq!((tied.unit(Part::Norm), tied.unit(Part::Head)), (4, 0));
    }
}
