//! Sums of a step that stay on the device until it is over: one read, whatever the micro-batches.

use scalerl_objective::RatioSums;
use tch::{Kind, TchError, Tensor};

use super::SurrogateLoss;

/// Sums over the tokens of one or more micro-batches.
#[derive(Debug)]
pub struct Tally {
    tokens: u64,
    /// [9] loss, w · KL, entropy, ratio, ratio², clipped, −log ρ, k3, |log ρ|.
    sums: Tensor,
    /// [2] −(smallest ratio), largest ratio: both grow.
    extremes: Tensor,
}

/// What a step's tokens come to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Totals {
    /// KL and entropy terms included.
    pub loss: f64,
    /// Weighted mean of the KL estimate; 0 without a reference.
    pub reference_kl: f64,
    /// Mean over tokens.
    pub entropy: f64,
    /// Trainer against generator.
    pub ratio: RatioSums,
}

impl Tally {
    pub(super) fn new(
        part: &SurrogateLoss,
        kl_m: Option<&Tensor>,
        entropy_m: &Tensor,
        ratio_m: &Tensor,
        own_m: &Tensor,
    ) -> Result<Self, TchError> {
        let nothing = part.loss_m.f_zeros_like()?;
        let columns = [
            &part.loss_m,
            kl_m.unwrap_or(&nothing),
            entropy_m,
            ratio_m,
            &ratio_m.f_square()?,
            &part.is_clipped_m.f_to_kind(Kind::Double)?,
            &own_m.f_neg()?,
            &own_m.f_expm1()?.f_sub(own_m)?,
            &own_m.f_abs()?,
        ];
        let sums = Tensor::f_stack(&columns, 0)?.f_sum_dim_intlist(1, false, None::<Kind>)?;
        let extremes = Tensor::f_stack(&[&ratio_m.f_neg()?, ratio_m], 0)?.f_amax(1, false)?;
        Ok(Self { tokens: part.loss_m.size1()? as u64, sums, extremes })
    }

    /// Adds the sums of another piece of the batch.
    pub fn merge(&mut self, other: &Self) -> Result<(), TchError> {
        self.tokens += other.tokens;
        self.sums = self.sums.f_add(&other.sums)?;
        self.extremes = self.extremes.f_maximum(&other.extremes)?;
        Ok(())
    }

    /// Waits for the device and brings the numbers over, in one copy.
    pub fn read(&self) -> Result<Totals, TchError> {
        let all = Tensor::f_cat(&[&self.sums, &self.extremes], 0)?;
        let numbers = Vec::<f64>::try_from(all)?;
        let (sums, extremes) = numbers.split_at_checked(9).unwrap_or_default();
        let &[loss, kl, entropy, ratio, ratio_squared, clipped, minus_log, k3, abs_log] = sums
        else {
            return Err(TchError::Shape(format!("{} sums instead of 9", sums.len())));
        };
        let &[minus_min, max] = extremes else {
            return Err(TchError::Shape(format!("{} extremes instead of 2", extremes.len())));
        };
        Ok(Totals {
            loss,
            reference_kl: kl,
            entropy: entropy / self.tokens.max(1) as f64,
            ratio: RatioSums {
                tokens: self.tokens,
                ratio,
                ratio_squared,
                min: -minus_min,
                max,
                clipped: clipped as u64,
                minus_log,
                k3,
                abs_log,
            },
        })
    }
}
