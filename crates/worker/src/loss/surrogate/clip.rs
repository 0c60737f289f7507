//! − w · min(ρ Â, clip(ρ, 1 − low, 1 + high) Â); the gradient is − w ρ Â, or 0 if clipped. Judged by
//! `objective`'s file of this name.

use tch::{TchError, Tensor};

use super::SurrogateLoss;

pub(super) fn clip(
    ratio_m: &Tensor,
    weight_m: &Tensor,
    advantage_m: &Tensor,
    [low, high]: [f64; 2],
) -> Result<SurrogateLoss, TchError> {
    let free_m = ratio_m.f_mul(advantage_m)?;
    let bound_m = ratio_m.f_clamp(1.0 - low, 1.0 + high)?.f_mul(advantage_m)?;
    let is_clipped_m = bound_m.f_lt_tensor(&free_m)?;
    let slope_m = free_m.f_mul(weight_m)?.f_neg()?;
    Ok(SurrogateLoss {
        loss_m: free_m.f_minimum(&bound_m)?.f_mul(weight_m)?.f_neg()?,
        gradient_m: slope_m.f_masked_fill(&is_clipped_m, 0.0)?,
        is_clipped_m,
    })
}
