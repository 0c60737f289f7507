//! `clip` with the completion's ratio s for ρ and its mean weight for w: its loss W · min(s Â, …) is
//! that of n tokens with W / n each, and ds / dlog π_t = s / n spreads the gradient the same way.
//! Judged by `objective`'s file of this name.

use tch::{TchError, Tensor};

use super::{SurrogateLoss, clip::clip};
use crate::loss::Segments;

pub(super) fn gspo(
    ratio_m: &Tensor,
    weight_m: &Tensor,
    advantage_m: &Tensor,
    segments: &Segments,
    bounds: [f64; 2],
) -> Result<SurrogateLoss, TchError> {
    clip(ratio_m, &segments.mean(weight_m)?, advantage_m, bounds)
}
