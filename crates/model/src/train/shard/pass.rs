//! A pass of the network over weights that come and go, or that are always there.

use tch::Tensor;

use super::units::{HeadGradient, Units};
use crate::network::{Part, Residence};
use crate::train::ranks::RankError;
use scalerl_torch::collective::ProcessGroup;

/// Which way a pass goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    /// What is left has gradients.
    Backward,
}

/// The residence of a pass: of units, or of weights that are always there.
pub(crate) struct Residing<'a> {
    units: Option<(&'a mut Units, &'a ProcessGroup)>,
    grads: &'a mut [Option<Tensor>],
    direction: Direction,
}

impl<'a> Residing<'a> {
    pub(crate) fn new(
        units: Option<(&'a mut Units, &'a ProcessGroup)>,
        grads: &'a mut [Option<Tensor>],
        direction: Direction,
    ) -> Self {
        Self { units, grads, direction }
    }

    /// The head has computed; its gradient is in its row where it is trained.
    pub(crate) fn leave_head(&mut self, gradient: Option<HeadGradient>) -> Result<(), RankError> {
        let Some((units, data)) = &mut self.units else { return Ok(()) };
        let unit = units.unit(Part::Head);
        units.send_away(unit)?;
        let Some(HeadGradient { row, grad_vd }) = gradient else { return Ok(()) };
        drop(grad_vd);
        units.scatter(unit, vec![row], data, self.grads)
    }

    /// Ends the pass.
    pub(crate) fn end(self) -> Result<(), RankError> {
        let Some((units, data)) = self.units else { return Ok(()) };
        units.end(data, self.grads)
    }
}

impl Residence for Residing<'_> {
    type Error = RankError;

    fn enter(&mut self, part: Part) -> Result<(), RankError> {
        let Some((units, data)) = &mut self.units else { return Ok(()) };
        let unit = units.unit(part);
        units.bring(unit, data)
    }

    fn owners(&self) -> Option<&ProcessGroup> {
        let (units, data) = self.units.as_ref()?;
        units.has_owned().then_some(*data)
    }

    fn leave(&mut self, part: Part) -> Result<(), RankError> {
        let Some((units, data)) = &mut self.units else { return Ok(()) };
        units.served(units.unit(part));
        let is_backward = self.direction == Direction::Backward;
        if is_backward && units.is_trained() {
            return units.hand_over(part, data, self.grads);
        }
        // The embedding's weights were not asked for on the way back.
        if !(is_backward && part == Part::Embedding) {
            units.send_away(units.unit(part))?;
        }
        Ok(())
    }
}
