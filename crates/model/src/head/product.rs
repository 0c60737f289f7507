//! How hidden states and the head's matrix are multiplied, by mode.
//!
//! The product of two bf16 numbers is exact in float32. So where both sides are bf16, tensor cores
//! that accumulate in float32 and write float32 compute what an FP32 product would: nothing needs
//! splitting. A side that is float32 is written as the sum of three bf16 numbers (8 + 8 + 8 bits
//! hold its 24), one tensor-core product per part.
//!
//! Gradients of logits are rounded to bf16 for their two products (`split`, `bf16`), as every
//! other gradient of a bf16 network is, and their sums are float32.

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, TchError, Tensor};

/// Which arithmetic the head uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadMode {
    /// FP32 products, never TF32.
    Exact,
    /// bf16 tensor-core products with float32 sums and float32 logits.
    Split,
    /// Logits rounded to bf16: what the FP32 head is compared with.
    Bf16,
}

/// A head matrix prepared for a mode.
pub(super) struct Product {
    mode: HeadMode,
    /// Whose sum is the matrix; one part for `exact` and `bf16`.
    parts_vd: Vec<Tensor>,
}

/// A tensor as a sum of bf16 tensors: itself where it is bf16, three parts where it is wider.
fn bf16_parts(tensor: &Tensor) -> Result<Vec<Tensor>, TchError> {
    if tensor.kind() == Kind::BFloat16 {
        return Ok(vec![tensor.shallow_clone()]);
    }
    let mut rest = tensor.f_to_kind(Kind::Float)?;
    let mut parts = Vec::new();
    for _ in 0..3 {
        let part = rest.f_to_kind(Kind::BFloat16)?;
        rest = rest.f_sub(&part.f_to_kind(Kind::Float)?)?;
        parts.push(part);
    }
    Ok(parts)
}

/// bf16 [a, b] times bf16 [b, c] with float32 sums, as float32.
fn float_product(left: &Tensor, right: &Tensor) -> Result<Tensor, TchError> {
    if left.device() == Device::Cpu {
        return left.f_to_kind(Kind::Float)?.f_mm(&right.f_to_kind(Kind::Float)?);
    }
    left.f_mm_dtype(right, Kind::Float)
}

impl Product {
    pub(super) fn new(weight_vd: &Tensor, mode: HeadMode) -> Result<Self, TchError> {
        let parts_vd = match mode {
            HeadMode::Exact if weight_vd.kind() == Kind::Double => vec![weight_vd.shallow_clone()],
            HeadMode::Exact => vec![weight_vd.f_to_kind(Kind::Float)?],
            HeadMode::Split => bf16_parts(weight_vd)?,
            HeadMode::Bf16 => vec![weight_vd.f_to_kind(Kind::BFloat16)?],
        };
        Ok(Self { mode, parts_vd })
    }

    /// float32 [c, v]; memory of its own, free to be overwritten.
    pub(super) fn logits(&self, hidden_cd: &Tensor) -> Result<Tensor, TchError> {
        match self.mode {
            HeadMode::Exact => {
                let weight = &self.parts_vd[0];
                hidden_cd.f_to_kind(weight.kind())?.f_mm(&weight.f_tr()?)
            }
            HeadMode::Bf16 => {
                let hidden = hidden_cd.f_to_kind(Kind::BFloat16)?;
                hidden.f_mm(&self.parts_vd[0].f_tr()?)?.f_to_kind(Kind::Float)
            }
            HeadMode::Split => {
                let mut sum: Option<Tensor> = None;
                for (i, hidden) in bf16_parts(hidden_cd)?.iter().enumerate() {
                    // Products of two small parts lie below float32's last bit.
                    for weight in self.parts_vd.iter().take(3 - i) {
                        let term = float_product(hidden, &weight.f_tr()?)?;
                        sum = Some(match sum {
                            Some(mut sum) => sum.f_add_(&term)?,
                            None => term,
                        });
                    }
                }
                Ok(sum.expect("every tensor has a part"))
            }
        }
    }

    /// The matrix, where one product of bf16 numbers with float32 sums gives the logits.
    pub(super) fn wide_matrix(&self) -> Option<&Tensor> {
        let [matrix] = &self.parts_vd[..] else { return None };
        (self.mode == HeadMode::Split).then_some(matrix)
    }

    /// Adds d logits' part of the matrix' gradient into `grad_vd`, where it is wanted; returns that of the hidden
    /// states, in their kind.
    pub(super) fn backward(
        &self,
        d_logits_cv: &Tensor,
        hidden_cd: &Tensor,
        grad_vd: Option<&mut Tensor>,
    ) -> Result<Tensor, TchError> {
        let weight = &self.parts_vd[0];
        if self.mode == HeadMode::Exact || d_logits_cv.device() == Device::Cpu {
            let wide = if self.mode == HeadMode::Exact { weight.kind() } else { Kind::Float };
            let narrow = |x: &Tensor| {
                let x = if self.mode == HeadMode::Exact {
                    x.shallow_clone()
                } else {
                    x.f_to_kind(Kind::BFloat16)?
                };
                x.f_to_kind(wide)
            };
            let (d_logits, hidden) = (narrow(d_logits_cv)?, narrow(hidden_cd)?);
            if let Some(grad_vd) = grad_vd {
                let _ = grad_vd.f_addmm_(&d_logits.f_tr()?, &hidden)?;
            }
            return d_logits.f_mm(&weight.f_to_kind(wide)?)?.f_to_kind(hidden_cd.kind());
        }
        let d_logits = d_logits_cv.f_to_kind(Kind::BFloat16)?;
        if let Some(grad_vd) = grad_vd {
            let hidden = hidden_cd.f_to_kind(Kind::BFloat16)?;
            let transposed = d_logits.f_tr()?;
            let added = grad_vd.f_addmm_dtype_out(grad_vd, &transposed, &hidden, Kind::Float);
            if added.is_err() {
                // A backend without the adding form: one more pass over the matrix' gradient.
                let _ = grad_vd.f_add_(&transposed.f_mm_dtype(&hidden, Kind::Float)?)?;
            }
        }
        d_logits.f_mm(weight)?.f_to_kind(hidden_cd.kind())
    }
}
