//! The product of one adapter, and the adapter as a change of the matrix it is on.
//!
//! Both matrices are float32, and so are their products: they are added to those of the base before
//! the one rounding into the kind that the network computes in, as PEFT does it.
//!
//! Legend: n rows of activations, e experts.

use tch::{Device, Kind, TchError, Tensor};

use super::Part;
use scalerl_torch::shim;

/// A and B of one matrix of the network, or of one for each expert.
#[derive(Debug)]
pub(crate) struct LowRank {
    /// [parts · rank, inputs], or [e, parts · rank, inputs].
    pub(crate) a: Tensor,
    /// [rows of all parts, rank], or [e, rows of all parts, rank].
    pub(crate) b: Tensor,
    pub(crate) parts: Vec<Part>,
    pub(crate) scale: f64,
}

impl LowRank {
    fn rank(&self) -> i64 {
        *self.b.size().last().expect("a matrix has columns")
    }

    /// What the adapter adds to `y` = x Wᵀ, for one matrix.
    pub(crate) fn add_to(&self, y: &Tensor, x: &Tensor) -> Result<Tensor, TchError> {
        let low = x.f_to_kind(self.a.kind())?.f_linear(&self.a, None::<&Tensor>)?;
        self.sum(y, &self.raised(&low, &self.b, y.size()[1])?)
    }

    /// The same for experts, each on its block of rows; `counts` has the rows of each.
    pub(crate) fn add_to_blocks(
        &self,
        y: &Tensor,
        x: &Tensor,
        tokens: &Tensor,
    ) -> Result<Tensor, TchError> {
        let x = x.f_to_kind(self.a.kind())?;
        let width = y.size()[1];
        if x.device() != Device::Cpu && !shim::is_grad_enabled() {
            return self.sum(y, &self.masked(&x, tokens, width)?);
        }
        let counts = Vec::<i64>::try_from(tokens)?;
        let blocks = x.f_split_with_sizes(&counts[..], 0)?;
        // unbind, because its backward is one stack.
        let (a, b) = (self.a.f_unbind(0)?, self.b.f_unbind(0)?);
        let mut out = Vec::with_capacity(counts.len());
        for (expert, block) in blocks.iter().enumerate().filter(|(expert, _)| counts[*expert] > 0) {
            let low = block.f_linear(&a[expert], None::<&Tensor>)?;
            out.push(self.raised(&low, &b[expert], width)?);
        }
        self.sum(y, &Tensor::f_cat(&out, 0)?)
    }

    /// All experts' products, and those of the others set to zero: more work than blocks, and no
    /// size that depends on the routing, which a CUDA graph could not follow.
    fn masked(&self, x: &Tensor, tokens: &Tensor, width: i64) -> Result<Tensor, TchError> {
        let (experts, low, inputs) = self.a.size3()?;
        let n = x.size()[0];
        let ends = tokens.f_cumsum(0, Kind::Int64)?.f_unsqueeze(0)?;
        let places = Tensor::f_arange(n, (Kind::Int64, x.device()))?.f_unsqueeze(1)?;
        let starts = ends.f_sub(&tokens.f_unsqueeze(0)?)?;
        let is_own = places.f_ge_tensor(&starts)?.f_logical_and(&places.f_lt_tensor(&ends)?)?;
        let low_all = x.f_linear(&self.a.f_view([experts * low, inputs])?, None::<&Tensor>)?;
        let low_all = low_all.f_view([n, experts, low])?;
        let low_all = low_all.f_mul(&is_own.f_unsqueeze(-1)?.f_to_kind(x.kind())?)?;
        let (rank, mut columns, mut row) = (self.rank(), Vec::new(), 0);
        for (index, part) in self.parts.iter().enumerate() {
            // [n, e · rank] by [e · rank, rows]
            let low = low_all.f_narrow(2, index as i64 * rank, rank)?;
            let b = self.b.f_narrow(1, row, part.rows)?.f_transpose(1, 2)?;
            let b = b.f_reshape([experts * rank, part.rows])?;
            columns.push(low.f_reshape([n, experts * rank])?.f_mm(&b)?);
            row += part.rows;
        }
        self.placed(columns, n, width)
    }

    /// `low` [n, parts · rank] by each part's B, where the part's rows are.
    fn raised(&self, low: &Tensor, b: &Tensor, width: i64) -> Result<Tensor, TchError> {
        let (rank, mut columns, mut row) = (self.rank(), Vec::new(), 0);
        for (index, part) in self.parts.iter().enumerate() {
            let low = low.f_narrow(1, index as i64 * rank, rank)?;
            columns.push(low.f_linear(&b.f_narrow(0, row, part.rows)?, None::<&Tensor>)?);
            row += part.rows;
        }
        self.placed(columns, low.size()[0], width)
    }

    /// The parts' columns side by side, with zeros where no part is.
    fn placed(&self, columns: Vec<Tensor>, n: i64, width: i64) -> Result<Tensor, TchError> {
        let options = (self.a.kind(), self.a.device());
        let (mut all, mut at) = (Vec::new(), 0);
        for (part, column) in self.parts.iter().zip(columns) {
            if part.first_row > at {
                all.push(Tensor::f_zeros([n, part.first_row - at], options)?);
            }
            all.push(column);
            at = part.first_row + part.rows;
        }
        if at < width {
            all.push(Tensor::f_zeros([n, width - at], options)?);
        }
        match &mut all[..] {
            [one] => Ok(one.shallow_clone()),
            many => Tensor::f_cat(many, 1),
        }
    }

    fn sum(&self, y: &Tensor, change: &Tensor) -> Result<Tensor, TchError> {
        let change = change.f_mul_scalar(self.scale)?;
        y.f_to_kind(change.kind())?.f_add(&change)?.f_to_kind(y.kind())
    }

    /// The matrix with the adapter in it, rounded once.
    pub(crate) fn merged(&self, weight: &Tensor) -> Result<Tensor, TchError> {
        let wide = if weight.kind() == Kind::Double { Kind::Double } else { Kind::Float };
        let sum =
            if weight.kind() == wide { weight.f_detach_copy()? } else { weight.f_to_kind(wide)? };
        let dimension = sum.dim() as i64 - 2;
        let (rank, mut row) = (self.rank(), 0);
        for (index, part) in self.parts.iter().enumerate() {
            let a = self.a.f_narrow(dimension, index as i64 * rank, rank)?;
            let b = self.b.f_narrow(dimension, row, part.rows)?;
            let change = b.f_to_kind(wide)?.f_matmul(&a.f_to_kind(wide)?)?;
            let mut rows = sum.f_narrow(dimension, part.first_row, part.rows)?;
            let _ = rows.f_add_(&change.f_mul_scalar(self.scale)?)?;
            row += part.rows;
        }
        sum.f_to_kind(weight.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoding on a device uses the masked product; here both can be asked.
    #[test]
    fn the_masked_product_of_experts_is_the_product_of_their_blocks() {
        let kind = (Kind::Float, Device::Cpu);
        let parts = vec![Part { first_row: 0, rows: 3 }, Part { first_row: 5, rows: 2 }];
        let low_rank = LowRank {
            a: Tensor::randn([4, 2 * 2, 6], kind),
            b: Tensor::randn([4, 5, 2], kind),
            parts,
            scale: 0.5,
        };
        let (x, y) = (Tensor::randn([9, 6], kind), Tensor::randn([9, 8], kind));
        let tokens = Tensor::from_slice(&[3_i64, 0, 5, 1]);
        let blocks = low_rank.add_to_blocks(&y, &x, &tokens).unwrap();
        let masked = low_rank.sum(&y, &low_rank.masked(&x, &tokens, 8).unwrap()).unwrap();
        assert!(blocks.allclose(&masked, 1e-5, 1e-6, false));
        let untouched = blocks.narrow(1, 3, 2);
        assert!(untouched.equal(&y.narrow(1, 3, 2)), "rows without an adapter stay");
        let whole = Tensor::zeros([4, 8, 6], kind);
        let change = low_rank.merged(&whole).unwrap();
        let first = x.narrow(0, 0, 3).linear::<&Tensor>(&change.select(0, 0), None);
        let direct = y.narrow(0, 0, 3) + first;
        assert!(blocks.narrow(0, 0, 3).allclose(&direct, 1e-5, 1e-6, false));
    }
}
