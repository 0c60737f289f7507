//! − w · Â · log π: no ratio at all. Judged by `objective`'s file of this name.

use tch::{Kind, TchError, Tensor};

use super::SurrogateLoss;

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
