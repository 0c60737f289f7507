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
//! All ranks do the same operations in the same order. It is written down when a pass begins, so a rank
//! without a batch of its own, or one whose own work has failed, does the rest of them all the same:
//! nobody waits for it in vain.

use std::collections::VecDeque;

use tch::{Kind, TchError, Tensor};

use super::Row;
use super::home::Home;
use crate::config::ModelConfig;
use crate::network::Part;
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

/// One operation of a pass on a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Gather(usize),
    Scatter(usize),
}

/// A pass under way.
#[derive(Debug)]
struct Pass {
    kind: PassKind,
    /// What has not been started yet.
    left: VecDeque<Operation>,
    /// The unit that is being gathered, and its row.
    coming: Option<(usize, Tensor, Underway)>,
    /// The unit whose gradients leave, their row, and the own part of everybody's.
    leaving: Option<Leaving>,
}

#[derive(Debug)]
struct Leaving {
    unit: usize,
    row: Tensor,
    part: Tensor,
    underway: Underway,
}

/// A model's weights in parts.
#[derive(Debug)]
pub(crate) struct Units {
    rows: Vec<Row>,
    layers: usize,
    is_head_tied: bool,
    /// Whether weights have gradients: not those of a frozen base.
    is_trained: bool,
    pub(super) policy: Home,
    pub(super) reference: Option<Home>,
    pass: Option<Pass>,
    /// Passes of this step that were begun, those of reading left out.
    pub(super) begun: usize,
    /// Bytes of units at the moment, weights and gradients, and the most so far.
    whole: (i64, i64),
    /// After how many further allocations one fails.
    #[cfg(test)]
    pub(super) failing: std::cell::Cell<Option<usize>>,
}

impl Units {
    pub(super) fn new(
        config: &ModelConfig,
        rows: Vec<Row>,
        policy: Home,
        is_trained: bool,
    ) -> Self {
        assert_eq!(rows.len(), policy.parts.len(), "one part a unit");
        Self {
            rows,
            layers: config.layers.len(),
            is_head_tied: config.is_head_tied,
            is_trained,
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
        self.is_trained
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
            Part::Norm => 1 + self.layers,
            Part::Head if self.is_head_tied => 0,
            Part::Head => 2 + self.layers,
        }
    }

    /// What every rank does in a pass, in the order in which it is started.
    fn order(&self, kind: PassKind) -> VecDeque<Operation> {
        use Operation::{Gather, Scatter};
        if kind == PassKind::Reading {
            return (0..self.rows.len()).map(Gather).collect();
        }
        let [norm, head] = [Part::Norm, Part::Head].map(|part| self.unit(part));
        let layers = 1..=self.layers;
        let mut order: VecDeque<Operation> =
            (0..=self.layers).chain([norm, head]).map(Gather).collect();
        if kind == PassKind::Reference {
            return order;
        }
        let scatter = |order: &mut VecDeque<Operation>, unit| {
            if self.is_trained {
                order.push_back(Scatter(unit));
            }
        };
        // The last layer comes back while the head computes.
        order.push_back(Gather(self.layers));
        scatter(&mut order, head);
        scatter(&mut order, norm);
        for layer in layers.rev() {
            if layer > 1 {
                order.push_back(Gather(layer - 1));
            }
            scatter(&mut order, layer);
        }
        scatter(&mut order, 0);
        order
    }

    fn home(&self, kind: PassKind) -> &Home {
        match kind {
            PassKind::Reference => self.reference.as_ref().expect("a reference was made"),
            PassKind::Training | PassKind::Reading => &self.policy,
        }
    }

    /// So many numbers more, or fewer.
    fn count(&mut self, numbers: i64, kind: Kind) {
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

    /// What a unit's weights are gathered in.
    fn kind_of(&self, unit: usize) -> Kind {
        self.policy.parts[unit].kind()
    }

    /// Begins a pass: its first unit is on its way.
    pub(super) fn begin(&mut self, kind: PassKind, data: &ProcessGroup) -> Result<(), RankError> {
        assert!(self.pass.is_none(), "one pass at a time");
        let left = self.order(kind);
        self.pass = Some(Pass { kind, left, coming: None, leaving: None });
        self.begun += usize::from(kind != PassKind::Reading);
        self.start_gather(data)
    }

    /// Starts to gather, where that is next.
    fn start_gather(&mut self, data: &ProcessGroup) -> Result<(), RankError> {
        let pass = self.pass.as_ref().expect("a pass is under way");
        let Some(&Operation::Gather(unit)) = pass.left.front() else { return Ok(()) };
        let part = &self.home(pass.kind).parts[unit];
        let whole = self.room(self.rows[unit].whole(), part.kind())?;
        let underway = data.start_all_gather(&whole, part)?;
        let pass = self.pass.as_mut().expect("a pass is under way");
        pass.left.pop_front();
        pass.coming = Some((unit, whole, underway));
        self.count(self.rows[unit].whole(), self.kind_of(unit));
        Ok(())
    }

    /// Waits for a unit, and has the next one follow.
    fn arrive(&mut self, data: &ProcessGroup) -> Result<(usize, Tensor), RankError> {
        let pass = self.pass.as_mut().expect("a pass is under way");
        let (unit, whole, underway) = pass.coming.take().expect("a unit is on its way");
        data.finish(underway)?;
        self.start_gather(data)?;
        Ok((unit, whole))
    }

    /// Brings a unit's weights to where the network reads them.
    pub(super) fn bring(&mut self, wanted: usize, data: &ProcessGroup) -> Result<(), RankError> {
        let (unit, whole) = self.arrive(data)?;
        assert_eq!(unit, wanted, "units come in the order of the pass");
        let kind = self.pass.as_ref().expect("a pass is under way").kind;
        Ok(self.home(kind).bring(&self.rows[unit], &whole)?)
    }

    /// Lets go of a unit's weights.
    pub(super) fn send_away(&mut self, unit: usize) -> Result<(), TchError> {
        let kind = self.pass.as_ref().expect("a pass is under way").kind;
        self.home(kind).send_away(&self.rows[unit])?;
        self.count(-self.rows[unit].whole(), self.kind_of(unit));
        Ok(())
    }

    /// A row for a unit's gradients, at zero.
    fn gradient_row(&mut self, unit: usize) -> Result<Tensor, TchError> {
        let row = self.room(self.rows[unit].whole(), Kind::Float)?.f_zero_()?;
        self.count(self.rows[unit].whole(), Kind::Float);
        Ok(row)
    }

    /// Room for the head's gradient; `None` where it is frozen.
    pub(crate) fn head_gradient(&mut self) -> Result<Option<HeadGradient>, TchError> {
        if !self.is_trained {
            return Ok(None);
        }
        let unit = self.unit(Part::Head);
        let row = self.gradient_row(unit)?;
        let grad_vd = self.rows[unit].views(&row)?.swap_remove(0);
        Ok(Some(HeadGradient { row, grad_vd }))
    }

    /// Sends a unit's gradients to the ranks that own them, once those before have arrived.
    pub(super) fn scatter(
        &mut self,
        unit: usize,
        row: Tensor,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        self.settle(data, grads)?;
        // An error before the start leaves the operation to do: for `drain`.
        let part = self.room(self.rows[unit].part, Kind::Float)?;
        let pass = self.pass.as_mut().expect("a pass is under way");
        assert_eq!(pass.left.front(), Some(&Operation::Scatter(unit)), "in the pass's order");
        let underway = data.start_reduce_scatter(&part, &row)?;
        pass.left.pop_front();
        pass.leaving = Some(Leaving { unit, row, part, underway });
        self.count(self.rows[unit].part, Kind::Float);
        Ok(())
    }

    /// Waits for the gradients that left last and adds them up.
    fn settle(
        &mut self,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        let pass = self.pass.as_mut().expect("a pass is under way");
        let Some(Leaving { unit, row, part, underway }) = pass.leaving.take() else {
            return Ok(());
        };
        data.finish(underway)?;
        drop(row);
        let sum = grads[unit].as_mut().expect("sums begin at zero");
        let _ = sum.f_add_(&part)?;
        self.count(-self.rows[unit].whole() - self.rows[unit].part, Kind::Float);
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
        let (numbers, kind) = (self.rows[unit].whole(), self.kind_of(unit));
        // What the backward pass left with the parameters.
        self.count(numbers, kind);
        self.settle(data, grads)?;
        // The embedding's weights were not asked for on the way back.
        if part != Part::Embedding {
            self.send_away(unit)?;
        }
        let row = self.take_gradients(unit)?;
        self.count(-numbers, kind);
        self.scatter(unit, row, data, grads)
    }

    /// The gradients that a unit's parameters have, as a row; they are taken from them.
    fn take_gradients(&mut self, unit: usize) -> Result<Tensor, TchError> {
        let row = self.gradient_row(unit)?;
        let views = self.rows[unit].views(&row)?;
        let parameters = &self.policy.parameters[self.rows[unit].parameters()];
        for (parameter, mut view) in parameters.iter().zip(views) {
            if let Some(grad) = shim::take_grad(parameter)? {
                view.f_copy_(&grad)?;
            }
        }
        Ok(row)
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

    fn empty(&mut self, kind: PassKind) -> Result<(), TchError> {
        let home = self.home(kind);
        self.rows.iter().try_for_each(|row| home.send_away(row))?;
        self.whole.0 = 0;
        Ok(())
    }

    /// Does what is left of the pass under way, without computing: the other ranks count on it.
    pub(super) fn drain(
        &mut self,
        data: &ProcessGroup,
        grads: &mut [Option<Tensor>],
    ) -> Result<(), RankError> {
        let Some(pass) = &self.pass else { return Ok(()) };
        let kind = pass.kind;
        // Whatever the network still holds is not needed any more.
        self.empty(kind)?;
        while let Some(pass) = &self.pass {
            if pass.coming.is_some() {
                let (unit, whole) = self.arrive(data)?;
                self.count(-(whole.numel() as i64), self.kind_of(unit));
                continue;
            }
            match pass.left.front() {
                Some(Operation::Gather(_)) => self.start_gather(data)?,
                Some(&Operation::Scatter(unit)) => {
                    let nothing = self.gradient_row(unit)?;
                    self.scatter(unit, nothing, data, grads)?;
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
    pub(super) row: Tensor,
    /// [v, d] of the row.
    pub(crate) grad_vd: Tensor,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Shape;
    use crate::layout::{layout, units as units_of};

    fn units(is_head_tied: bool, is_trained: bool) -> Units {
        let shape =
            Shape { layers: 3, width: 8, heads: 2, kv_heads: 1, feed_forward: 16, vocabulary: 32 };
        let mut config = shape.config().unwrap();
        config.is_head_tied = is_head_tied;
        let table = layout(&config);
        let rows: Vec<Row> =
            units_of(&table).into_iter().map(|range| Row::new(&table, range, 2)).collect();
        let parts = rows.iter().map(|_| Tensor::from(0.0_f32)).collect();
        let home = Home { parameters: Vec::new(), parts };
        Units::new(&config, rows, home, is_trained)
    }

    #[test]
    fn units_are_the_embedding_each_layer_the_norm_and_the_head() {
        assert_eq!(units(false, true).rows.len(), 1 + 3 + 2);
        assert_eq!(units(true, true).rows.len(), 1 + 3 + 1, "a tied head is the embedding");
    }

    /// Every unit is asked for while the one before it computes, and a scatter is never before its
    /// gather.
    #[test]
    fn a_pass_gathers_one_unit_ahead_and_scatters_what_it_has_used() {
        use Operation::{Gather, Scatter};
        let (norm, head) = (4, 5);
        let expected = [
            [Gather(0), Gather(1), Gather(2), Gather(3), Gather(norm), Gather(head)].as_slice(),
            // Starts as the head begins; each next one before the scatter of the one that computes.
            &[Gather(3), Scatter(head), Scatter(norm)],
            &[Gather(2), Scatter(3), Gather(1), Scatter(2), Scatter(1), Scatter(0)],
        ]
        .concat();
        assert_eq!(units(false, true).order(PassKind::Training), expected);
        let frozen = units(false, false).order(PassKind::Training);
        let gathers = expected.iter().filter(|operation| matches!(operation, Gather(_)));
        assert!(frozen.iter().eq(gathers), "a frozen base has no gradients");
        assert_eq!(units(false, true).order(PassKind::Reference), &expected[..6]);
        let tied = units(true, true).order(PassKind::Training);
        let of_embedding = tied.iter().filter(|operation| **operation == Scatter(0)).count();
        assert_eq!(of_embedding, 2, "once as the head and once as the embedding");
    }
}
