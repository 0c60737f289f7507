//! The loss of a micro-batch as tensors, with its gradient, on the device the log-probs are on.
//!
//! loss = Σ_t [ surrogate_t + w_t (β · KL_t − α · H_t) ]
//!
//! The formulas are those of `scalerl_objective::loss`, which judges them (tests/loss.rs). Weights
//! already hold every denominator of the batch, so micro-batches add up, in any order.
//!
//! Vectors are float64: they have one number per token where the logits have one per token and
//! word, so width is free, and what is left of rounding is the log-probs' own. Only tokens that
//! carry loss have a place in them: an injected token has no row, hence no gradient at all.
//! Nothing here waits for the device; [`Tally::read`] does, once a step.
//!
//! Legend: m tokens that carry loss, s sequences.

mod segments;
mod surrogate;
mod tally;

use std::ops::Range;

use scalerl_model::head::TokenGradients;
use scalerl_recipe::{Kl, Objective, RatioGrain};
use tch::{Kind, TchError, Tensor};

pub use segments::Segments;
use surrogate::{SurrogateLoss, surrogate_loss};
pub use tally::{StepSums, Tally, Totals};

/// What the loss knows of each token beside its log-prob: float64 [m], in the order of the scores.
#[derive(Debug)]
pub struct TokenInputs {
    /// Log-prob recorded when the token was drawn.
    pub generator_m: Tensor,
    /// Share of the batch's loss, above 0.
    pub weight_m: Tensor,
    /// Advantage of the token's completion.
    pub advantage_m: Tensor,
    /// Log-prob under the reference model; needed where the objective has a KL penalty.
    pub reference_m: Option<Tensor>,
    /// Where completions begin and end; needed for ratios per completion.
    pub segments: Option<Segments>,
}

impl TokenInputs {
    fn segments(&self) -> &Segments {
        self.segments.as_ref().expect("ratios per completion need its segments")
    }

    /// The tokens of a range, for ratios per token: a completion may be cut in the middle.
    pub fn range(&self, range: &Range<i64>) -> Result<Self, TchError> {
        assert!(self.segments.is_none(), "a completion whose ratio is one cannot be cut");
        let cut = |tensor: &Tensor| tensor.f_narrow(0, range.start, range.end - range.start);
        Ok(Self {
            generator_m: cut(&self.generator_m)?,
            weight_m: cut(&self.weight_m)?,
            advantage_m: cut(&self.advantage_m)?,
            reference_m: self.reference_m.as_ref().map(cut).transpose()?,
            segments: None,
        })
    }
}

/// Gradient of the loss at each token, and this micro-batch's part of the step's sums, from the
/// policy's log-probs and entropies [m] at the sampling temperature, of any kind.
pub fn token_loss(
    objective: &Objective,
    logprob_m: &Tensor,
    entropy_m: &Tensor,
    inputs: &TokenInputs,
) -> Result<(TokenGradients, Tally), TchError> {
    let _guard = tch::no_grad_guard();
    let logprob_m = logprob_m.f_to_kind(Kind::Double)?;
    let entropy_m = entropy_m.f_to_kind(Kind::Double)?;
    let own_m = logprob_m.f_sub(&inputs.generator_m)?;
    let used_m = match objective.ratio {
        RatioGrain::Token => own_m.shallow_clone(),
        RatioGrain::Sequence => inputs.segments().mean(&own_m)?,
    };
    let ratio_m = used_m.f_exp()?;
    let mut part = surrogate_loss(objective, &logprob_m, &ratio_m, inputs)?;
    let kl_m = add_kl(&objective.kl, &logprob_m, inputs, &mut part)?;
    let mut entropy_gradient = None;
    if objective.entropy_bonus > 0.0 {
        let slope_m = inputs.weight_m.f_mul_scalar(-objective.entropy_bonus)?;
        part.loss_m = part.loss_m.f_add(&slope_m.f_mul(&entropy_m)?)?;
        entropy_gradient = Some(slope_m);
    }
    let tally = Tally::new(&part, kl_m.as_ref(), &entropy_m, &ratio_m, &own_m)?;
    Ok((TokenGradients { logprob: part.gradient_m, entropy: entropy_gradient }, tally))
}

/// Adds β w KL to loss and gradient; returns w KL.
fn add_kl(
    kl: &Kl,
    logprob_m: &Tensor,
    inputs: &TokenInputs,
    part: &mut SurrogateLoss,
) -> Result<Option<Tensor>, TchError> {
    let (Kl::K1 { coefficient } | Kl::K2 { coefficient } | Kl::K3 { coefficient }) = kl else {
        return Ok(None);
    };
    let reference_m = inputs.reference_m.as_ref().expect("a KL penalty needs a reference");
    let difference_m = logprob_m.f_sub(reference_m)?;
    let (value_m, slope_m) = match kl {
        Kl::K1 { .. } => (difference_m.shallow_clone(), difference_m.f_ones_like()?),
        Kl::K2 { .. } => (difference_m.f_square()?.f_mul_scalar(0.5)?, difference_m),
        _ => {
            let grown_m = difference_m.f_neg()?.f_expm1()?;
            (grown_m.f_add(&difference_m)?, grown_m.f_neg()?)
        }
    };
    let kl_m = inputs.weight_m.f_mul(&value_m)?;
    part.loss_m = part.loss_m.f_add(&kl_m.f_mul_scalar(*coefficient)?)?;
    let slope_m = inputs.weight_m.f_mul(&slope_m)?.f_mul_scalar(*coefficient)?;
    part.gradient_m = part.gradient_m.f_add(&slope_m)?;
    Ok(Some(kl_m))
}
