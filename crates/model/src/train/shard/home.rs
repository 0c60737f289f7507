//! Where a model's weights live while no pass computes with them, and how a unit of them comes and goes.
//!
//! A parameter whose weights are away is one NaN in the parameter's shape: whoever uses it is found out.
//! Experts that stay with their owner come as the rank's own alone, and need no gathering.

use tch::{Device, Kind, TchError, Tensor};

use super::Row;
use crate::layout::Parameter;

/// A model's parameters, and the own part of each row's weights.
#[derive(Debug)]
pub(super) struct Home {
    /// The very tensors that the network holds.
    pub(super) parameters: Vec<Tensor>,
    pub(super) parts: Vec<Tensor>,
}

/// Parameters in their shapes and without weights.
pub(super) fn away(
    layout: &[Parameter],
    kind: Kind,
    device: Device,
) -> Result<Vec<Tensor>, TchError> {
    let nothing = Tensor::f_full([1], f64::NAN, (kind, device))?;
    layout.iter().map(|known| nothing.f_expand(&known.shape[..], false)?.f_detach()).collect()
}

impl Home {
    pub(super) fn bring(&self, row: &Row, whole: &Tensor) -> Result<(), TchError> {
        let parameters = &self.parameters[row.parameters()];
        for (parameter, view) in parameters.iter().zip(row.views(whole)?) {
            parameter.shallow_clone().f_set_data(&view)?;
        }
        Ok(())
    }

    /// Puts the own experts of a row, the `place`th, where the network reads them.
    pub(super) fn bring_own(&self, row: &Row, place: usize) -> Result<(), TchError> {
        let own = self.parts[place].f_view(&row.own_experts()[..])?.f_detach()?;
        self.parameters[row.parameters().start].shallow_clone().f_set_data(&own)
    }

    pub(super) fn send_away(&self, row: &Row) -> Result<(), TchError> {
        for (parameter, shape) in self.parameters[row.parameters()].iter().zip(row.shapes()) {
            let nothing = Tensor::f_full([1], f64::NAN, (parameter.kind(), parameter.device()))?;
            let nothing = nothing.f_expand(&shape[..], false)?;
            parameter.shallow_clone().f_set_data(&nothing)?;
        }
        Ok(())
    }
}
