//! Floor and ceiling given a shape: the two levels that every posterior integrates out exactly.
//!
//! ```text
//! R = X (R0, A)' + error,  X = [1-g, g],  error ~ N(0, L L')
//! P = diag(p0, pA) + p_g v v',  v = (1 - g_n)(-1, 1)        prior precision
//! P m = (p0 m0, pA mA) + p_g m_g v
//! M = X'V^-1X + P,  b = X'V^-1R + P m,  mu = M^-1 b
//! ln weight = -(R'V^-1R + m'Pm - b'mu)/2 - ln|M|/2 + ln|P|/2       and -ln|L| by the caller
//! ```
//!
//! The last term of P says how much gain is still to come after the last point.

use super::cholesky::{Cholesky, LANES, dot};
use crate::compute::Compute;

/// Gaussian prior of (R0, A) without the gain still to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LevelPrior {
    pub(crate) mean: [f64; 2],
    pub(crate) precision: [f64; 2],
}

/// Gaussian prior of the gain still to come, (A - R0)(1 - g_n).
#[derive(Debug, Clone, Copy)]
pub(crate) struct GainPrior {
    pub(crate) mean: f64,
    pub(crate) precision: f64,
}

impl GainPrior {
    /// Says nothing.
    pub(crate) const NONE: Self = Self { mean: 0.0, precision: 0.0 };
}

/// That prior for one shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PriorTerms {
    precision: [f64; 3],
    pull: [f64; 2],
    /// m'Pm - ln|P|, halved in the weight.
    constant: f64,
}

impl LevelPrior {
    /// `left` is the share of the gain still to come.
    pub(crate) fn terms(&self, left: f64, to_come: GainPrior) -> PriorTerms {
        let gain = left * left * to_come.precision;
        let precision = [self.precision[0] + gain, -gain, self.precision[1] + gain];
        let expected = left * to_come.precision * to_come.mean;
        let pull = [
            self.precision[0] * self.mean[0] - expected,
            self.precision[1] * self.mean[1] + expected,
        ];
        let determinant = determinant(precision);
        let mean = times(inverse(precision, determinant), pull);
        PriorTerms { precision, pull, constant: dot(&pull, &mean) - determinant.ln() }
    }
}

/// Posterior of (R0, A) for one shape; the weight lacks what the caller knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Levels {
    pub(crate) log_weight: f64,
    pub(crate) mean: [f64; 2],
    /// Covariance: floor, both, ceiling.
    pub(crate) covariance: [f64; 3],
}

/// Whitened values and ones, and their products.
pub(crate) struct Base {
    values: Vec<f64>,
    ones: Vec<f64>,
    values_values: f64,
    ones_values: f64,
    ones_ones: f64,
}

/// Products of whitened shares with themselves, with ones and with values.
pub(crate) struct Products {
    shares: [f64; LANES],
    ones: [f64; LANES],
    values: [f64; LANES],
}

impl Base {
    pub(crate) fn new(factor: &Cholesky, values: &[f64]) -> Self {
        let ones = factor.whiten(&vec![1.0; values.len()]);
        let values = factor.whiten(values);
        Self {
            values_values: dot(&values, &values),
            ones_values: dot(&ones, &values),
            ones_ones: dot(&ones, &ones),
            values,
            ones,
        }
    }

    /// Of [`LANES`] whitened columns of shares.
    pub(crate) fn products(&self, shares: &[[f64; LANES]]) -> Products {
        let mut products =
            Products { shares: [0.0; LANES], ones: [0.0; LANES], values: [0.0; LANES] };
        for ((row, one), value) in shares.iter().zip(&self.ones).zip(&self.values) {
            for (lane, share) in row.iter().enumerate() {
                products.shares[lane] += share * share;
                products.ones[lane] += share * one;
                products.values[lane] += share * value;
            }
        }
        products
    }

    /// The posterior for the shape in one lane.
    pub(crate) fn solve(&self, products: &Products, lane: usize, prior: &PriorTerms) -> Levels {
        let (gg, go, gv) = (products.shares[lane], products.ones[lane], products.values[lane]);
        let (p, pull) = (prior.precision, prior.pull);
        let m = [self.ones_ones - 2.0 * go + gg + p[0], go - gg + p[1], gg + p[2]];
        let b = [self.ones_values - gv + pull[0], gv + pull[1]];
        let determinant = determinant(m);
        let covariance = inverse(m, determinant);
        let mean = times(covariance, b);
        let misfit = self.values_values - dot(&b, &mean) + prior.constant;
        Levels { log_weight: -0.5 * (misfit + determinant.ln()), mean, covariance }
    }
}

/// Shares at every compute, [`LANES`] shapes side by side.
pub(crate) fn share_blocks<S>(
    computes: &[Compute],
    shapes: &[S],
    share: impl Fn(&S, Compute) -> f64,
) -> Vec<Vec<[f64; LANES]>> {
    let block = |shapes: &[S]| {
        let row = |compute: Compute| {
            let mut row = [0.0; LANES];
            for (value, shape) in row.iter_mut().zip(shapes) {
                *value = share(shape, compute);
            }
            row
        };
        computes.iter().map(|compute| row(*compute)).collect()
    };
    shapes.chunks(LANES).map(block).collect()
}

fn determinant(m: [f64; 3]) -> f64 {
    m[0] * m[2] - m[1] * m[1]
}

fn inverse(m: [f64; 3], determinant: f64) -> [f64; 3] {
    [m[2] / determinant, -m[1] / determinant, m[0] / determinant]
}

fn times(m: [f64; 3], v: [f64; 2]) -> [f64; 2] {
    [m[0] * v[0] + m[1] * v[1], m[1] * v[0] + m[2] * v[1]]
}
