//! Rows of tokens at the ranks that own the experts.
//!
//! ```text
//! sorted by expert        rank 0's experts | rank 1's experts       of each rank
//! counts                  all-to-all: an owner hears how many rows each rank has for each of its experts
//! rows there              all-to-all -> by rank and expert -> sorted by expert: blocks of all ranks
//! rows back               the other way round, and in a backward pass both again
//! ```
//! The owner's blocks are those of one process with all tokens, so its gradients are whole.

use std::ops::Range;

use tch::{Kind, TchError, Tensor};

use scalerl_torch::collective::{Parcels, ProcessGroup};
use scalerl_torch::ops::reorder;

/// Everybody's rows for the own experts, and how they go back.
pub(super) struct Guests<'a> {
    owners: &'a ProcessGroup,
    /// Sorted by expert.
    pub(super) rows: Tensor,
    /// Rows of each own expert.
    pub(super) tokens: Tensor,
    /// From the order in which they came to that of experts, and back.
    order: Tensor,
    inverse: Tensor,
    parcels: Parcels,
}

impl<'a> Guests<'a> {
    /// Sends rows that are sorted by expert, `tokens` of each, to the owners.
    pub(super) fn of(
        owners: &'a ProcessGroup,
        rows: &Tensor,
        tokens: &Tensor,
    ) -> Result<Self, TchError> {
        let (ranks, experts) = (owners.size() as i64, tokens.size()[0]);
        let own = experts / ranks;
        let equal = Parcels { sent: vec![own; owners.size()], received: vec![own; owners.size()] };
        // [rank it comes from, own expert]
        let coming = owners.exchange(tokens, &equal)?.f_view([ranks, own])?;
        let by_rank = |counts: &Tensor| {
            Vec::<i64>::try_from(counts.f_view([ranks, own])?.f_sum_dim_intlist(
                1,
                false,
                Kind::Int64,
            )?)
        };
        let parcels = Parcels { sent: by_rank(tokens)?, received: by_rank(&coming)? };
        let arrived = owners.exchange(rows, &parcels)?;
        let expert = Tensor::f_arange(own, (Kind::Int64, rows.device()))?.f_repeat([ranks])?;
        let expert =
            expert.f_repeat_interleave_self_tensor(&coming.f_view(-1)?, None, arrived.size()[0])?;
        let (_, order) = expert.f_sort_stable(true, 0, false)?;
        let inverse = order.f_argsort(0, false)?;
        let rows = reorder(&arrived, &order, &inverse, (None, None))?;
        let tokens = coming.f_sum_dim_intlist(0, false, Kind::Int64)?;
        Ok(Self { owners, rows, tokens, order, inverse, parcels })
    }

    /// Which of the layer's experts are this rank's.
    pub(super) fn own_experts(&self) -> Range<i64> {
        let (own, rank) = (self.tokens.size()[0], self.owners.rank() as i64);
        own * rank..own * (rank + 1)
    }

    /// What the experts have made of the rows goes back, to where each came from.
    pub(super) fn send_back(&self, out: &Tensor) -> Result<Tensor, TchError> {
        let out = reorder(out, &self.inverse, &self.order, (None, None))?;
        self.owners.exchange(&out, &self.parcels.returned())
    }
}
