//! KL of the policy to a reference model, token by token, by its usual estimators.
//!
//! With d = log π − log π_ref of a token that the policy drew:
//!
//! | name | value            | d value / d log π |
//! |------|------------------|-------------------|
//! | k1   | d                | 1                 |
//! | k2   | d² / 2           | d                 |
//! | k3   | exp(−d) − 1 + d  | 1 − exp(−d)       |
//!
//! k1 is unbiased as a measure, but its gradient knows nothing of the reference, so a recipe may
//! not use it as a penalty. k3 is never negative (GRPO uses it).

/// Value and derivative with respect to the policy's log-prob.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalty {
    /// The estimate.
    pub value: f64,
    /// Its derivative.
    pub slope: f64,
}

/// The log ratio itself.
pub fn k1(logprob: f64, reference: f64) -> Penalty {
    Penalty { value: logprob - reference, slope: 1.0 }
}

/// Half its square.
pub fn k2(logprob: f64, reference: f64) -> Penalty {
    let difference = logprob - reference;
    Penalty { value: 0.5 * difference.powi(2), slope: difference }
}

/// The one that is never negative.
pub fn k3(logprob: f64, reference: f64) -> Penalty {
    let difference = logprob - reference;
    Penalty { value: (-difference).exp_m1() + difference, slope: -(-difference).exp_m1() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn slopes_equal_finite_differences(logprob in -8.0..0.0, reference in -8.0..0.0) {
            const STEP: f64 = 1e-5;
            for estimator in [k1, k2, k3] {
                let up = estimator(logprob + STEP, reference).value;
                let down = estimator(logprob - STEP, reference).value;
                let slope = estimator(logprob, reference).slope;
                prop_assert!(((up - down) / (2.0 * STEP) - slope).abs() < 1e-4 * slope.abs().max(1.0));
            }
        }

        #[test]
        fn k2_and_k3_are_never_negative(logprob in -30.0..0.0, reference in -30.0..0.0) {
            prop_assert!(k2(logprob, reference).value >= 0.0);
            prop_assert!(k3(logprob, reference).value >= 0.0);
        }
    }
}
