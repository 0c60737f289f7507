//! − w · min(ρ, cap) · Â · log π, the ratio held constant. Judged by `objective`'s file of this name.

use tch::{TchError, Tensor};

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
