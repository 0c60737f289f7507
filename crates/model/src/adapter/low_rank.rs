//! The product of one adapter, and the adapter as a change of the matrix it is on.
//!
//! Both matrices are float32. Products are made of them as the network's are of its masters: rounded
//! into the kind that it computes in, summed in float32, and the last of them is added to the base's
//! before it is rounded. Activations are therefore neither widened nor kept twice.
//!
//! Legend: n rows of activations, e experts.

use std::ops::Range;

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

    /// Of these experts alone.
    pub(crate) fn of_experts(&self, own: &Range<i64>) -> Result<Self, TchError> {
        let some = |all: &Tensor| all.f_narrow(0, own.start, own.end - own.start);
        let (a, b) = (some(&self.a)?, some(&self.b)?);
        Ok(Self { a, b, parts: self.parts.clone(), scale: self.scale })
    }

    /// A, and B times the scale, as the network computes with them.
    fn rounded(&self, kind: Kind) -> Result<(Tensor, Tensor), TchError> {
        let b = self.b.f_mul_scalar(self.scale)?;
        Ok((self.a.f_to_kind(kind)?, b.f_to_kind(kind)?))
    }

    /// `y` = x Wᵀ and what the adapter adds to it, for one matrix.
    pub(crate) fn add_to(&self, y: &Tensor, x: &Tensor) -> Result<Tensor, TchError> {
        let (a, b) = self.rounded(x.kind())?;
        let low = x.f_linear(&a, None::<&Tensor>)?;
        y.f_addmm(&low, &self.side_by_side(&b, y.size()[1])?.f_tr()?)
    }

    /// The same for experts, each on its block of rows; `tokens` has the rows of each.
    pub(crate) fn add_to_blocks(
        &self,
        y: &Tensor,
        x: &Tensor,
        tokens: &Tensor,
    ) -> Result<Tensor, TchError> {
        let (a, b) = self.rounded(x.kind())?;
        if x.device() != Device::Cpu && !shim::is_grad_enabled() {
            return self.add_masked(y, x, tokens, &a, &b);
        }
        let counts = Vec::<i64>::try_from(tokens)?;
        let (xs, ys) =
            (x.f_split_with_sizes(&counts[..], 0)?, y.f_split_with_sizes(&counts[..], 0)?);
        // unbind, because its backward is one stack.
        let (a, b) = (a.f_unbind(0)?, b.f_unbind(0)?);
        let mut out = Vec::with_capacity(counts.len());
        for expert in (0..counts.len()).filter(|expert| counts[*expert] > 0) {
            let low = xs[expert].f_linear(&a[expert], None::<&Tensor>)?;
            let b = self.side_by_side(&b[expert], y.size()[1])?;
            out.push(ys[expert].f_addmm(&low, &b.f_tr()?)?);
        }
        if out.is_empty() {
            return Ok(y.shallow_clone());
        }
        Tensor::f_cat(&out, 0)
    }

    /// All experts' products, and those of the others set to zero: more work than blocks, and no
    /// size that depends on the routing, which a CUDA graph could not follow.
    fn add_masked(
        &self,
        y: &Tensor,
        x: &Tensor,
        tokens: &Tensor,
        a: &Tensor,
        b: &Tensor,
    ) -> Result<Tensor, TchError> {
        let (experts, low, inputs) = a.size3()?;
        let (n, width) = y.size2()?;
        let ends = tokens.f_cumsum(0, Kind::Int64)?.f_unsqueeze(0)?;
        let places = Tensor::f_arange(n, (Kind::Int64, x.device()))?.f_unsqueeze(1)?;
        let starts = ends.f_sub(&tokens.f_unsqueeze(0)?)?;
        let is_own = places.f_ge_tensor(&starts)?.f_logical_and(&places.f_lt_tensor(&ends)?)?;
        let low_all = x.f_linear(&a.f_reshape([experts * low, inputs])?, None::<&Tensor>)?;
        let low_all = low_all.f_view([n, experts, low])?;
        let low_all = low_all.f_mul(&is_own.f_unsqueeze(-1)?.f_to_kind(x.kind())?)?;
        // [e, width, low] to [e · low, width]
        let b = self.side_by_side(b, width)?.f_transpose(1, 2)?;
        let b = b.f_reshape([experts * low, width])?;
        y.f_addmm(&low_all.f_view([n, experts * low])?, &b)
    }

    /// B [.., rows of all parts, rank] as one matrix [.., width, parts · rank]: each part in rows of its own
    /// and columns of its own, zeros elsewhere. One product is then all parts'.
    fn side_by_side(&self, b: &Tensor, width: i64) -> Result<Tensor, TchError> {
        if let [part] = self.parts[..]
            && part.first_row == 0
            && part.rows == width
        {
            return Ok(b.shallow_clone());
        }
        let (rank, count) = (self.rank(), self.parts.len() as i64);
        let dimension = b.dim() as i64 - 2;
        let mut shape = b.size();
        shape[dimension as usize + 1] = rank * count;
        let mut empty = |rows: i64| {
            shape[dimension as usize] = rows;
            Tensor::f_zeros(&shape[..], (b.kind(), b.device()))
        };
        let (mut all, mut at, mut row) = (Vec::new(), 0, 0);
        for (index, part) in self.parts.iter().enumerate() {
            if part.first_row > at {
                all.push(empty(part.first_row - at)?);
            }
            let (before, after) = (index as i64 * rank, (count - index as i64 - 1) * rank);
            let own = b.f_narrow(dimension, row, part.rows)?;
            all.push(own.f_constant_pad_nd([before, after])?);
            at = part.first_row + part.rows;
            row += part.rows;
        }
        if at < width {
            all.push(empty(width - at)?);
        }
        Tensor::f_cat(&all, dimension)
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
        let (a, b) = low_rank.rounded(Kind::Float).unwrap();
        let masked = low_rank.add_masked(&y, &x, &tokens, &a, &b).unwrap();
        assert!(blocks.allclose(&masked, 1e-5, 1e-6, false));
        let untouched = blocks.narrow(1, 3, 2);
        assert!(untouched.equal(&y.narrow(1, 3, 2)), "rows without an adapter stay");
        let whole = Tensor::zeros([4, 8, 6], kind);
        let change = low_rank.merged(&whole).unwrap();
        let first = x.narrow(0, 0, 3).linear::<&Tensor>(&change.select(0, 0), None);
        let direct = y.narrow(0, 0, 3) + first;
        assert!(blocks.narrow(0, 0, 3).allclose(&direct, 1e-5, 1e-6, false));
    }

    /// What the network computes with is rounded as its other weights are; the gradients are those of the
    /// float32 product to the digits that bf16 has, and arrive in float32.
    #[test]
    fn products_in_bf16_are_those_in_float32_to_the_digits_that_bf16_has() {
        let kind = (Kind::Float, Device::Cpu);
        let leaf = |shape: &[i64]| Tensor::randn(shape, kind).set_requires_grad(true);
        let parts = vec![Part { first_row: 0, rows: 32 }, Part { first_row: 48, rows: 16 }];
        let low_rank = LowRank { a: leaf(&[8, 40]), b: leaf(&[48, 4]), parts, scale: 2.0 };
        let (x, y) = (Tensor::randn([64, 40], kind), Tensor::randn([64, 80], kind));
        let pull = Tensor::randn([64, 80], kind);
        let answer = |wide: bool| {
            let rounded = |tensor: &Tensor| tensor.to_kind(Kind::BFloat16);
            let (x, y) = if wide { (x.copy(), y.copy()) } else { (rounded(&x), rounded(&y)) };
            let out = low_rank.add_to(&y, &x).unwrap();
            assert_eq!(out.kind(), y.kind());
            let pulled = (out.to_kind(Kind::Float) * &pull).sum(Kind::Float);
            let gradients =
                Tensor::run_backward(&[pulled], &[&low_rank.a, &low_rank.b], false, false);
            std::iter::once(out.to_kind(Kind::Float)).chain(gradients).collect::<Vec<_>>()
        };
        for (found, expected) in answer(false).iter().zip(answer(true)) {
            assert_eq!(found.kind(), Kind::Float);
            let apart = (found - &expected).norm() / expected.norm();
            let apart = f64::try_from(apart).unwrap();
            assert!(apart < 0.01, "{apart}");
        }
    }
}
