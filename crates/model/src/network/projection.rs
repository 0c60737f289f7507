//! One linear layer: a matrix, its bias, and the adapter that may be on it.

use tch::{TchError, Tensor};

use super::layer::Multiply;
use crate::adapter::LowRank;

/// What activations are multiplied by.
pub(crate) struct Projection {
    pub(crate) weight: Tensor,
    pub(crate) bias: Option<Tensor>,
    pub(crate) adapter: Option<LowRank>,
}

impl Projection {
    /// `x` [n, a] to [n, b]. The matrix is multiplied by `products`, the adapter by torch.
    pub(crate) fn forward(&self, x: &Tensor, products: &dyn Multiply) -> Result<Tensor, TchError> {
        let y = products.linear(x, &self.weight, self.bias.as_ref())?;
        match &self.adapter {
            None => Ok(y),
            Some(adapter) => adapter.add_to(&y, x),
        }
    }

    pub(crate) fn matrix(&self) -> super::Matrix<'_> {
        (&self.weight, self.bias.as_ref())
    }
}

/// Tensors of a network by the names of its layout.
pub(crate) struct Named<'a> {
    pub(crate) weight: &'a dyn Fn(&str) -> Option<Tensor>,
    pub(crate) adapter: &'a dyn Fn(&str) -> Option<LowRank>,
}

impl Named<'_> {
    /// A tensor that every layout with this config has.
    pub(crate) fn need(&self, name: &str) -> Tensor {
        (self.weight)(name).unwrap_or_else(|| panic!("layout has no parameter {name}"))
    }

    pub(crate) fn projection(&self, name: &str) -> Projection {
        Projection {
            weight: self.need(name),
            bias: (self.weight)(&format!("{name}_bias")),
            adapter: (self.adapter)(name),
        }
    }
}
