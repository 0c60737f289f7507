//! How the ratio enters the loss, token by token: one file per surrogate, each with its gradient.
//!
//! A log-prob that is not a number must not end as a gradient of 0: comparisons are written so
//! that NaN takes the branch that keeps it, and the step is refused.

mod cispo;
mod clip;
mod gspo;
mod reinforce;

use scalerl_recipe::{Objective, RatioGrain, Surrogate};
use tch::{TchError, Tensor};

use super::TokenInputs;

/// What a surrogate gives for each token, float64 [m].
#[expect(clippy::struct_field_names, reason = "tensors end in their dimensions")]
pub(crate) struct SurrogateLoss {
    pub(crate) loss_m: Tensor,
    /// d loss / d logprob.
    pub(crate) gradient_m: Tensor,
    /// Whether the ratio was capped or clipped; bool.
    pub(crate) is_clipped_m: Tensor,
}

/// The loss of each token by the surrogate that the recipe names.
pub(super) fn surrogate_loss(
    objective: &Objective,
    logprob_m: &Tensor,
    ratio_m: &Tensor,
    inputs: &TokenInputs,
) -> Result<SurrogateLoss, TchError> {
    let (weight_m, advantage_m) = (&inputs.weight_m, &inputs.advantage_m);
    match (&objective.surrogate, &objective.ratio) {
        (Surrogate::Cispo { cap }, _) => {
            cispo::cispo(logprob_m, ratio_m, weight_m, advantage_m, *cap)
        }
        (Surrogate::Clip { low, high }, RatioGrain::Token) => {
            clip::clip(ratio_m, weight_m, advantage_m, [*low, *high])
        }
        (Surrogate::Clip { low, high }, RatioGrain::Sequence) => {
            gspo::gspo(ratio_m, weight_m, advantage_m, inputs.segments(), [*low, *high])
        }
        (Surrogate::None, _) => reinforce::reinforce(logprob_m, weight_m, advantage_m),
    }
}
