//! Where a model's weights live while no pass computes with them, and how a unit of them comes and goes.
//!
//! A parameter whose weights are away is one NaN in the parameter's shape: whoever uses it is found out.

use tch::{Device, Kind, TchError, Tensor};

use super::Row;
use crate::layout::Parameter;

/// A model's parameters, and the own part of each unit's weights.
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

    pub(super) fn send_away(&self, row: &Row) -> Result<(), TchError> {
        for parameter in &self.parameters[row.parameters()] {
            let nothing = Tensor::f_full([1], f64::NAN, (parameter.kind(), parameter.device()))?;
            let nothing = nothing.f_expand(parameter.size(), false)?;
            parameter.shallow_clone().f_set_data(&nothing)?;
        }
        Ok(())
    }
}
