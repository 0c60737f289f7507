//! Sums of a step that stay on the device until it is over: one read, whatever the micro-batches.

use scalerl_objective::RatioSums;
use tch::{Kind, TchError, Tensor};

use super::surrogate::SurrogateLoss;

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
    pub fn read(&self) -> Result<StepSums, TchError> {
        let all = Tensor::f_cat(&[&self.sums, &self.extremes], 0)?;
        let read = Vec::<f64>::try_from(all)?;
        let mut numbers = StepSums::nothing().0;
        if read.len() + 1 != numbers.len() {
            return Err(TchError::Shape(format!(
                "{} sums instead of {}",
                read.len(),
                StepSums::COUNT - 1
            )));
        }
        numbers[0] = self.tokens as f64;
        numbers[1..].copy_from_slice(&read);
        Ok(StepSums(numbers))
    }
}

/// Where the extremes begin.
const EXTREMES: usize = 10;

/// The sums of a step as plain numbers: of one process, or of several after [`StepSums::merge`].
///
/// Tokens, the sums, the two extremes; counts are exact in an f64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepSums([f64; 12]);

impl StepSums {
    /// Tokens, sums and extremes.
    pub const COUNT: usize = 12;

    /// Of no token at all.
    pub fn nothing() -> Self {
        let mut numbers = [0.0; Self::COUNT];
        numbers[EXTREMES..].fill(f64::NEG_INFINITY);
        Self(numbers)
    }

    /// For the way to another process.
    pub fn numbers(&self) -> &[f64; Self::COUNT] {
        &self.0
    }

    /// From another process.
    pub fn from_numbers(numbers: [f64; Self::COUNT]) -> Self {
        Self(numbers)
    }

    /// Adds the sums of another part of the batch.
    pub fn merge(&mut self, other: &Self) {
        let (sums, extremes) = self.0.split_at_mut(EXTREMES);
        sums.iter_mut().zip(&other.0).for_each(|(own, other)| *own += other);
        for (own, other) in extremes.iter_mut().zip(&other.0[EXTREMES..]) {
            // Not `max`, which would drop a NaN.
            *own = if *own > *other || own.is_nan() { *own } else { *other };
        }
    }

    /// What they come to.
    pub fn totals(&self) -> Totals {
        let [
            tokens,
            loss,
            kl,
            entropy,
            ratio,
            ratio_squared,
            clipped,
            minus_log,
            k3,
            abs_log,
            minus_min,
            max,
        ] = self.0;
        Totals {
            loss,
            reference_kl: kl,
            entropy: entropy / tokens.max(1.0),
            ratio: RatioSums {
                tokens: tokens as u64,
                ratio,
                ratio_squared,
                min: -minus_min,
                max,
                clipped: clipped as u64,
                minus_log,
                k3,
                abs_log,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_parts_are_the_sums_of_the_whole() {
        let part = |tokens: f64, loss: f64, min: f64, max: f64| {
            let mut numbers = StepSums::nothing().0;
            (numbers[0], numbers[1]) = (tokens, loss);
            (numbers[EXTREMES], numbers[EXTREMES + 1]) = (-min, max);
            StepSums(numbers)
        };
        let mut all = StepSums::nothing();
        for one in [part(3.0, 0.5, 0.7, 1.1), StepSums::nothing(), part(2.0, -1.0, 0.2, 1.0)] {
            all.merge(&one);
        }
        let totals = all.totals();
        assert!((totals.loss + 0.5).abs() < 1e-15);
        assert_eq!((totals.ratio.tokens, totals.ratio.min, totals.ratio.max), (5, 0.2, 1.1));
        for order in [[f64::NAN, 1.0], [1.0, f64::NAN]] {
            let mut all = part(1.0, 0.0, 1.0, order[0]);
            all.merge(&part(1.0, 0.0, 1.0, order[1]));
            assert!(all.totals().ratio.max.is_nan(), "a NaN stays");
        }
    }
}
