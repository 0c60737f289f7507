//! How the ratio enters the loss, token by token.
//!
//! | surrogate | loss of a token                                   | d loss / d log π          |
//! |-----------|---------------------------------------------------|---------------------------|
//! | cispo     | − w · min(ρ, cap) · Â · log π, the ratio constant | − w · min(ρ, cap) · Â     |
//! | clip      | − w · min(ρ Â, clip(ρ, 1 − low, 1 + high) Â)      | − w ρ Â, or 0 if clipped  |
//! | reinforce | − w · Â · log π                                   | − w · Â                   |
//!
//! GSPO is `clip` with the completion's ratio s for ρ and its mean weight for w: its loss
//! W · min(s Â, …) is that of n tokens with W / n each, and ds / dlog π_t = s / n spreads the
//! gradient the same way.
//!
//! A log-prob that is not a number must not end as a gradient of 0: comparisons are written so
//! that NaN takes the branch that keeps it, and the step is refused.

use tch::{Kind, TchError, Tensor};

use super::SurrogateLoss;

pub(super) fn cispo(
    logprob_m: &Tensor,
    ratio_m: &Tensor,
    weight_m: &Tensor,
    advantage_m: &Tensor,
    cap: f64,
) -> Result<SurrogateLoss, TchError> {
    let gradient_m = ratio_m.f_clamp_max(cap)?.f_mul(weight_m)?.f_mul(advantage_m)?.f_neg()?;
    Ok(SurrogateLoss {
        loss_m: gradient_m.f_mul(logprob_m)?,
        gradient_m,
        is_clipped_m: ratio_m.f_gt(cap)?,
    })
}

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

pub(super) fn reinforce(
    logprob_m: &Tensor,
    weight_m: &Tensor,
    advantage_m: &Tensor,
) -> Result<SurrogateLoss, TchError> {
    let gradient_m = weight_m.f_mul(advantage_m)?.f_neg()?;
    Ok(SurrogateLoss {
        loss_m: gradient_m.f_mul(logprob_m)?,
        is_clipped_m: gradient_m.f_zeros_like()?.f_to_kind(Kind::Bool)?,
        gradient_m,
    })
}
