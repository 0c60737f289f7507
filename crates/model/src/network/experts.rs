//! Mixture of experts: a router, grouped products over the experts, and how even the load is.
//!
//! Tokens are sorted by expert, so each expert works on one block of rows. On CUDA all blocks are
//! one grouped product; on the CPU a product per expert that has rows. Where several ranks own the
//! experts, the sorted rows go to them and come back (`owners.rs`).
//!
//! Legend: n tokens, k experts per token, e experts, d width, f expert width.

use std::ops::Range;

use tch::{Device, Kind, TchError, Tensor};

use owners::Guests;

use super::projection::Projection;
use crate::config::Gate;
use scalerl_torch::collective::ProcessGroup;
use scalerl_torch::ops::{reorder, swiglu};
use scalerl_torch::shim;

mod owners;

/// How the tokens of one layer spread over its experts.
#[derive(Debug)]
pub struct ExpertLoad {
    /// [e] tokens sent to each expert.
    pub tokens: Tensor,
    /// [e] mean router probability of each expert.
    pub probability: Tensor,
}

impl ExpertLoad {
    /// Switch Transformer's measure (arXiv 2101.03961, eq. 4, without its factor): the sum over
    /// experts of token share × probability, times the number of experts. 1 when even.
    pub fn imbalance(&self) -> Result<f64, TchError> {
        let tokens = self.tokens.f_to_kind(Kind::Float)?;
        let share = tokens.f_div(&tokens.f_sum(Kind::Float)?)?;
        let even = self.probability.size()[0] as f64;
        Ok(even * share.f_mul(&self.probability)?.f_sum(Kind::Float)?.f_double_value(&[])?)
    }

    /// Share of the busiest expert times the number of experts. 1 when even.
    pub fn busiest(&self) -> Result<f64, TchError> {
        let tokens = self.tokens.f_to_kind(Kind::Float)?;
        let (top, all) = (tokens.f_max()?, tokens.f_sum(Kind::Float)?);
        Ok(top.f_div(&all)?.f_double_value(&[])? * self.tokens.size()[0] as f64)
    }
}

/// The experts of one layer.
pub(crate) struct Experts {
    pub(crate) router_ed: Tensor,
    /// [e, 2 f, d]
    pub(crate) gate_up: Projection,
    /// [e, d, f]
    pub(crate) down: Projection,
    pub(crate) active: i64,
    pub(crate) gate: Gate,
}

struct Routed {
    /// [n, k]
    experts: Tensor,
    /// [n, k], in the kind of the activations.
    weights: Tensor,
    load: ExpertLoad,
}

impl Experts {
    /// With `owners` the weights are those of this rank's own experts.
    pub(crate) fn forward(
        &self,
        x_nd: &Tensor,
        owners: Option<&ProcessGroup>,
    ) -> Result<(Tensor, ExpertLoad), TchError> {
        let (n, d) = x_nd.size2()?;
        let k = self.active;
        let routed = self.route(x_nd)?;
        // One row per (token, chosen expert), sorted by expert.
        let flat = routed.experts.f_reshape([n * k])?;
        let (_, order) = flat.f_sort_stable(true, 0, false)?;
        let inverse = order.f_argsort(0, false)?;
        let mut rows = x_nd.f_unsqueeze(1)?.f_expand([n, k, d], false)?;
        if self.gate == Gate::SigmoidInput {
            rows = rows.f_mul(&routed.weights.f_unsqueeze(-1)?)?;
        }
        let rows = reorder(&rows.f_reshape([n * k, d])?, &order, &inverse, (None, None))?;
        let out = match owners {
            None => self.blocks(&rows, &routed.load.tokens, None)?,
            Some(owners) => self.at_owners(&rows, &routed.load.tokens, owners)?,
        };
        let out = reorder(&out, &inverse, &order, (None, None))?.f_view([n, k, d])?;
        let out = if self.gate == Gate::SigmoidInput {
            out
        } else {
            out.f_mul(&routed.weights.f_unsqueeze(-1)?)?
        };
        let sum =
            if k == 1 { out.f_squeeze_dim(1)? } else { out.f_sum_dim_intlist(1, false, None)? };
        Ok((sum, routed.load))
    }

    fn route(&self, x_nd: &Tensor) -> Result<Routed, TchError> {
        let kind = x_nd.kind();
        let count = self.router_ed.size()[0];
        let scores_ne = x_nd.f_linear(&self.router_ed, None::<&Tensor>)?;
        let wide = if kind == Kind::Double { Kind::Double } else { Kind::Float };
        let probabilities = scores_ne.f_softmax(-1, wide)?;
        let (weights, experts) = if self.gate == Gate::SigmoidInput {
            let (top, experts) = scores_ne.f_topk(self.active, -1, true, false)?;
            (top.f_to_kind(wide)?.f_sigmoid()?, experts)
        } else {
            probabilities.f_topk(self.active, -1, true, false)?
        };
        let weights = if self.gate == Gate::SoftmaxNormalised {
            weights.f_div(&weights.f_sum_dim_intlist(-1, true, None)?)?
        } else {
            weights
        };
        // Not bincount: that one waits for the device, which no graph can.
        let chosen = experts.f_reshape(-1)?;
        let none = Tensor::f_zeros([count], (Kind::Int64, x_nd.device()))?;
        let tokens = none.f_scatter_add(0, &chosen, &chosen.f_ones_like()?)?;
        let probability =
            probabilities.f_detach()?.f_mean_dim(0, false, None)?.f_to_kind(Kind::Float)?;
        let load = ExpertLoad { tokens, probability };
        Ok(Routed { experts, weights: weights.f_to_kind(kind)?, load })
    }

    /// Rows sorted by expert, computed by the ranks that own the experts.
    fn at_owners(
        &self,
        rows: &Tensor,
        tokens: &Tensor,
        owners: &ProcessGroup,
    ) -> Result<Tensor, TchError> {
        let guests = Guests::of(owners, rows, tokens)?;
        let own = guests.own_experts();
        guests.send_back(&self.blocks(&guests.rows, &guests.tokens, Some(&own))?)
    }

    /// What [`Experts::forward`] does for other ranks' rows on one that has none.
    pub(crate) fn serve(&self, owners: &ProcessGroup, goes_back: bool) -> Result<(), TchError> {
        let weight = &self.gate_up.weight;
        let nothing = Tensor::f_zeros([0, weight.size()[2]], (weight.kind(), weight.device()))?;
        let experts = self.router_ed.size()[0];
        let tokens = Tensor::f_zeros([experts], (Kind::Int64, weight.device()))?;
        if !goes_back {
            return tch::no_grad(|| self.at_owners(&nothing, &tokens, owners)).map(drop);
        }
        let out = self.at_owners(&nothing.f_set_requires_grad(true)?, &tokens, owners)?;
        shim::backward(&[&out], &[&out.f_zeros_like()?.f_detach()?])
    }

    /// Each expert on its block of rows. `own`: which experts' weights are here, where not all of them are.
    fn blocks(
        &self,
        rows: &Tensor,
        tokens: &Tensor,
        own: Option<&Range<i64>>,
    ) -> Result<Tensor, TchError> {
        let adapted = |projection: &Projection, x: &Tensor, y: Tensor| {
            match (&projection.adapter, own) {
                (None, _) => Ok(y),
                (Some(adapter), None) => adapter.add_to_blocks(&y, x, tokens),
                // An adapter is whole on every rank.
                (Some(adapter), Some(own)) => adapter.of_experts(own)?.add_to_blocks(&y, x, tokens),
            }
        };
        let gate_up = adapted(&self.gate_up, rows, product(rows, &self.gate_up.weight, tokens)?)?;
        let hidden = swiglu(&gate_up)?;
        adapted(&self.down, &hidden, product(&hidden, &self.down.weight, tokens)?)
    }
}

/// Each block of rows by its expert's matrix [e, out, in].
fn product(rows: &Tensor, weight: &Tensor, tokens: &Tensor) -> Result<Tensor, TchError> {
    // The grouped product moves blocks of 16 bytes.
    let is_aligned = weight.size()[1..].iter().all(|size| size % 8 == 0);
    let has_rows = rows.size()[0] > 0;
    if rows.device() != Device::Cpu && rows.kind() == Kind::BFloat16 && is_aligned && has_rows {
        let ends = tokens.f_cumsum(0, Kind::Int)?;
        let transposed = weight.f_transpose(-1, -2)?;
        return rows.f_internal_grouped_mm(&transposed, Some(&ends), None, None);
    }
    let counts = Vec::<i64>::try_from(tokens)?;
    let blocks = rows.f_split_with_sizes(&counts[..], 0)?;
    // unbind, because its backward is one stack: a select per expert would write a whole
    // zero-filled gradient for each.
    let matrices = weight.f_unbind(0)?;
    let mut out = Vec::with_capacity(counts.len());
    for (expert, block) in blocks.iter().enumerate() {
        // Without any row at all the graph goes through one expert all the same: gradients of rows that
        // went elsewhere come back along it.
        if counts[expert] > 0 || (!has_rows && expert == 0) {
            out.push(block.f_linear(&matrices[expert], None::<&Tensor>)?);
        }
    }
    Tensor::f_cat(&out, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_load_measures_one_and_a_collapsed_one_the_number_of_experts() {
        let load = |tokens: &[i64], probability: &[f32]| ExpertLoad {
            tokens: Tensor::from_slice(tokens),
            probability: Tensor::from_slice(probability),
        };
        let even = load(&[5, 5, 5, 5], &[0.25; 4]);
        assert!((even.imbalance().unwrap() - 1.0).abs() < 1e-6);
        assert!((even.busiest().unwrap() - 1.0).abs() < 1e-6);
        let collapsed = load(&[0, 20, 0, 0], &[0.0, 1.0, 0.0, 0.0]);
        assert!((collapsed.imbalance().unwrap() - 4.0).abs() < 1e-6);
        assert!((collapsed.busiest().unwrap() - 4.0).abs() < 1e-6);
    }
}
