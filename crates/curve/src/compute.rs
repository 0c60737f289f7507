//! Compute: what was spent until a point, on whatever axis a run is counted.

use std::fmt;
use std::ops::{Div, Mul};

use serde::{Deserialize, Serialize};

/// An amount of compute: GPU-hours, tokens, FLOPs or steps. The law has no unit, so the number is
/// on the axis of the series it belongs to. Zero is before training.
///
/// ```
/// use scalerl_curve::Compute;
/// let spent = Compute(8_000.0);
/// assert_eq!(spent * 2.0, Compute(16_000.0));
/// assert_eq!(spent / Compute(2_000.0), 4.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Compute(pub f64);

impl Compute {
    /// Nothing spent yet.
    pub const ZERO: Self = Self(0.0);
    /// More than any run spends.
    pub const UNLIMITED: Self = Self(f64::INFINITY);

    /// Natural logarithm; minus infinity at zero.
    pub fn ln(self) -> f64 {
        self.0.ln()
    }

    /// Is anything spent?
    pub fn is_positive(self) -> bool {
        self.0 > 0.0
    }

    /// The smaller of two.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// The larger of two.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self(self.0.max(other.0))
    }
}

impl Mul<f64> for Compute {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self(self.0 * factor)
    }
}

impl Div for Compute {
    type Output = f64;

    fn div(self, other: Self) -> f64 {
        self.0 / other.0
    }
}

impl fmt::Display for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
