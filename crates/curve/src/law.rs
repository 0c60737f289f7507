//! The law itself: pass rate as a function of compute, its inverse and its gradient.
//!
//! ```text
//! R(C) = R0 + (A - R0) / (1 + (C_mid / C)^B)        the sigmoid (arXiv 2510.13786, eq. 1)
//! R(C) = A - D / C^B                                its rival, the power law
//! ```
//!
//! | symbol | here | meaning |
//! |---|---|---|
//! | A | `ceiling` | pass rate that unlimited compute would reach |
//! | R0 | `floor` | pass rate before any RL compute |
//! | B | `steepness` | how fast the gain comes, in log compute |
//! | C_mid | `midpoint` | compute at which half of the gain is reached |
//!
//! Not here: how the parameters are found (`fit`), nor how sure they are.

use serde::Serialize;

use crate::compute::Compute;

/// The sigmoid in log compute.
///
/// ```
/// use scalerl_curve::{Compute, Sigmoid};
/// let midpoint = Compute(2500.0);
/// let curve = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 1.9, midpoint };
/// assert!((curve.value_at(midpoint) - 0.5).abs() < 1e-12);
/// assert!((curve.compute_for(0.5).unwrap() / midpoint - 1.0).abs() < 1e-9);
/// assert_eq!(curve.compute_for(0.7), None); // above the ceiling
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sigmoid {
    /// Pass rate at zero compute, R0.
    pub floor: f64,
    /// Pass rate at unlimited compute, A.
    pub ceiling: f64,
    /// B, positive.
    pub steepness: f64,
    /// C_mid, positive.
    pub midpoint: Compute,
}

impl Sigmoid {
    /// Share of the whole gain that is reached at `compute`, in [0, 1].
    pub fn share_at(&self, compute: Compute) -> f64 {
        if !compute.is_positive() {
            return 0.0;
        }
        1.0 / (1.0 + (self.midpoint / compute).powf(self.steepness))
    }

    /// Pass rate at `compute`.
    pub fn value_at(&self, compute: Compute) -> f64 {
        self.floor + (self.ceiling - self.floor) * self.share_at(compute)
    }

    /// Compute at which `value` is reached, `None` when it lies outside (floor, ceiling).
    pub fn compute_for(&self, value: f64) -> Option<Compute> {
        let share = (value - self.floor) / (self.ceiling - self.floor);
        let is_inside = share > 0.0 && share < 1.0;
        is_inside.then(|| self.midpoint * (share / (1.0 - share)).powf(1.0 / self.steepness))
    }

    /// Derivatives of the pass rate at `compute` with respect to floor, ceiling, steepness and
    /// midpoint, in that order.
    pub fn gradient_at(&self, compute: Compute) -> [f64; 4] {
        let share = self.share_at(compute);
        if !compute.is_positive() {
            return [1.0, 0.0, 0.0, 0.0];
        }
        let gain = self.ceiling - self.floor;
        let slope = gain * share * (1.0 - share);
        [
            1.0 - share,
            share,
            slope * (compute / self.midpoint).ln(),
            -slope * self.steepness / self.midpoint.0,
        ]
    }

    /// The leave-one-out transform F(R) = C_mid^B / ((A - R0)/(R - R0) - 1), which equals C^B on
    /// the curve: `ln F` against `ln C` is a line of slope B. `None` outside (floor, ceiling).
    ///
    /// ```
    /// use scalerl_curve::{Compute, Sigmoid};
    /// let midpoint = Compute(100.0);
    /// let curve = Sigmoid { floor: 0.4, ceiling: 0.6, steepness: 2.0, midpoint };
    /// let f = curve.straighten(curve.value_at(Compute(300.0))).unwrap();
    /// assert!((f - 300.0_f64.powi(2)).abs() < 1e-6);
    /// ```
    pub fn straighten(&self, value: f64) -> Option<f64> {
        self.compute_for(value).map(|compute| compute.0.powf(self.steepness))
    }
}

/// The power law R = A - D / C^B, the sigmoid's rival: no floor, no inflection.
///
/// ```
/// use scalerl_curve::{Compute, PowerLaw};
/// let curve = PowerLaw { ceiling: 0.7, scale: 3.0, steepness: 0.5 };
/// assert!((curve.value_at(Compute(100.0)) - 0.4).abs() < 1e-12);
/// assert!((curve.compute_for(0.4).unwrap() / Compute(100.0) - 1.0).abs() < 1e-9);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PowerLaw {
    /// Pass rate at unlimited compute, A.
    pub ceiling: f64,
    /// D, the distance from the ceiling at one unit of compute.
    pub scale: f64,
    /// B, positive.
    pub steepness: f64,
}

impl PowerLaw {
    /// Pass rate at `compute`; minus infinity at zero when the law rises.
    pub fn value_at(&self, compute: Compute) -> f64 {
        self.ceiling - self.scale / compute.0.powf(self.steepness)
    }

    /// Compute at which `value` is reached, `None` at or beyond the ceiling.
    pub fn compute_for(&self, value: f64) -> Option<Compute> {
        let ratio = self.scale / (self.ceiling - value);
        let is_ahead = ratio > 0.0 && ratio.is_finite();
        is_ahead.then(|| Compute(ratio.powf(1.0 / self.steepness)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `floor + gain * share` may round one unit above the ceiling.
    const ROUNDING: f64 = 1e-15;

    fn sigmoids() -> impl Strategy<Value = Sigmoid> {
        (0.0..0.45, 0.5..1.0, 0.2..4.0, 0.0..5.0_f64).prop_map(
            |(floor, ceiling, steepness, log_midpoint)| Sigmoid {
                floor,
                ceiling,
                steepness,
                midpoint: Compute(10.0_f64.powf(log_midpoint)),
            },
        )
    }

    proptest! {
        #[test]
        fn half_of_the_gain_is_reached_at_the_midpoint(curve in sigmoids()) {
            let half = f64::midpoint(curve.floor, curve.ceiling);
            prop_assert!((curve.value_at(curve.midpoint) - half).abs() < 1e-12);
        }

        #[test]
        fn the_curve_rises_and_stays_between_floor_and_ceiling(
            curve in sigmoids(), at in 1e-3..1e6_f64, factor in 1.0..100.0_f64,
        ) {
            let (low, high) = (curve.value_at(Compute(at)), curve.value_at(Compute(at * factor)));
            prop_assert!(low <= high + ROUNDING);
            prop_assert!(curve.floor <= low && high <= curve.ceiling + ROUNDING);
        }

        #[test]
        fn the_inverse_undoes_the_law(curve in sigmoids(), share in 0.01..0.99_f64) {
            let value = curve.floor + share * (curve.ceiling - curve.floor);
            let compute = curve.compute_for(value).unwrap();
            prop_assert!((curve.value_at(compute) - value).abs() < 1e-10);
        }

        #[test]
        fn the_gradient_equals_finite_differences(curve in sigmoids(), ratio in 0.05..20.0_f64) {
            let at = curve.midpoint * ratio;
            let nudged = |index: usize, by: f64| {
                let mut parameters =
                    [curve.floor, curve.ceiling, curve.steepness, curve.midpoint.0];
                parameters[index] += by;
                let [floor, ceiling, steepness, midpoint] = parameters;
                let midpoint = Compute(midpoint);
                Sigmoid { floor, ceiling, steepness, midpoint }.value_at(at)
            };
            let steps = [1e-5, 1e-5, 1e-5, 1e-5 * curve.midpoint.0];
            for (index, (step, slope)) in steps.iter().zip(curve.gradient_at(at)).enumerate() {
                let difference = (nudged(index, *step) - nudged(index, -step)) / (2.0 * step);
                prop_assert!((difference - slope).abs() * step / 1e-5 < 1e-7, "parameter {index}");
            }
        }

        #[test]
        fn the_straightened_curve_has_slope_b(curve in sigmoids(), ratio in 0.1..10.0_f64) {
            let at = curve.midpoint * ratio;
            let f = curve.straighten(curve.value_at(at)).unwrap();
            prop_assert!((f.ln() - curve.steepness * at.ln()).abs() < 1e-6);
        }

        #[test]
        fn the_power_law_inverts(
            ceiling in 0.3..1.0_f64, scale in 0.1..10.0_f64, steepness in 0.1..2.0_f64,
            at in 1.0..1e5_f64,
        ) {
            let curve = PowerLaw { ceiling, scale, steepness };
            let back = curve.compute_for(curve.value_at(Compute(at))).unwrap();
            prop_assert!((back / Compute(at) - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn zero_compute_gives_the_floor() {
        let curve = Sigmoid { floor: 0.3, ceiling: 0.6, steepness: 1.5, midpoint: Compute(10.0) };
        assert!((curve.value_at(Compute::ZERO) - 0.3).abs() < 1e-15);
        assert!(curve.gradient_at(Compute::ZERO)[1].abs() < 1e-15);
    }
}
