//! Covariances of drift, warm-up distrust and sampling noise between the points of a window.
//!
//! With x = ln(C + c1/2), x_n that of the last point and a = x - x_n:
//!
//! ```text
//! drift     tau^2    [ 1{a a' > 0} min(|a|, |a'|) + (a+1)_+ (a'+1)_+ ]
//! distrust  lambda^2 min(h, h')^2,      h = gap^2 / max gap
//! noise     sigma^2  on the diagonal
//! ```
//!
//! Drift is a two-sided random walk anchored at the last point plus a trend over the last e-fold
//! that is carried on: it grows backwards, so old points count less, and forwards, so forecasts
//! widen. The gap of a point is how far it lies below the last level, made non-increasing in
//! compute and less two noise scales: the early climb may be distrusted, the plateau may not.

use crate::compute::Compute;
use crate::fit::cholesky::Cholesky;
use crate::noise;
use crate::window::Window;

#[derive(Debug, Clone)]
pub(crate) struct Covariance {
    /// ln(C + c1/2) less that of the last point.
    pub(crate) a: Vec<f64>,
    half_first_compute: f64,
    last_x: f64,
    /// Lower triangles, row-major.
    drift: Vec<f64>,
    distrust: Vec<f64>,
    /// Variance of each point over that of a typical one.
    relative_variance: Vec<f64>,
    pub(crate) noise_scale: f64,
}

impl Covariance {
    pub(crate) fn new(window: &Window) -> Self {
        let points = &window.unit;
        let size = points.len();
        let x = noise::log_axis(points);
        let last_x = x[size - 1];
        let a: Vec<f64> = x.iter().map(|x| x - last_x).collect();
        let distrusted = distrusted_height(window);
        let mut drift = vec![0.0; size * size];
        let mut distrust = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..=i {
                drift[i * size + j] = drift_between(a[i], a[j]);
                distrust[i * size + j] = distrusted[i].min(distrusted[j]).powi(2);
            }
        }
        let relative_variance = window.noise.relative.iter().map(|r| r * r).collect();
        let half_first_compute = window.first_compute().0 / 2.0;
        let noise_scale = window.noise.scale;
        Self { a, half_first_compute, last_x, drift, distrust, relative_variance, noise_scale }
    }

    pub(crate) fn size(&self) -> usize {
        self.a.len()
    }

    pub(crate) fn last_compute(&self) -> Compute {
        Compute(self.last_x.exp() - self.half_first_compute)
    }

    /// Distance in log compute from the last point.
    pub(crate) fn position(&self, compute: Compute) -> f64 {
        (compute.0 + self.half_first_compute).ln() - self.last_x
    }

    /// Factor of tau^2 Kd + lambda^2 Kw + sigma^2 I; `sigma` in units of the noise scale.
    pub(crate) fn factor(&self, tau: f64, lambda: f64, sigma: f64) -> Cholesky {
        let size = self.size();
        let (tau2, lambda2) = (tau * tau, lambda * lambda);
        let mut matrix: Vec<f64> = self
            .drift
            .iter()
            .zip(&self.distrust)
            .map(|(drift, distrust)| tau2 * drift + lambda2 * distrust)
            .collect();
        for i in 0..size {
            let sd = sigma * self.noise_scale;
            matrix[i * size + i] += sd * sd * self.relative_variance[i];
        }
        Cholesky::factor(matrix, size).expect("noise makes the covariance positive definite")
    }
}

/// Drift covariance between two positions, for tau = 1.
pub(crate) fn drift_between(a: f64, b: f64) -> f64 {
    let walk = if a * b > 0.0 { a.abs().min(b.abs()) } else { 0.0 };
    walk + trend_weight(a) * trend_weight(b)
}

/// How strongly the local trend acts at a position.
pub(crate) fn trend_weight(a: f64) -> f64 {
    (a + 1.0).max(0.0)
}

fn distrusted_height(window: &Window) -> Vec<f64> {
    let level = window.last_level();
    let mut height: Vec<f64> = window.unit.iter().map(|p| (level - p.value).max(0.0)).collect();
    for i in (0..height.len() - 1).rev() {
        height[i] = height[i].max(height[i + 1]);
    }
    for gap in &mut height {
        *gap = (*gap - 2.0 * window.noise.scale).max(0.0);
    }
    let largest = height[0];
    if largest > 0.0 {
        for gap in &mut height {
            *gap = *gap * *gap / largest;
        }
    }
    height
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_uncorrelated_across_the_last_point_but_for_the_trend() {
        assert!((drift_between(-2.0, 1.0)).abs() < 1e-12);
        assert!((drift_between(-0.5, 1.0) - 1.0).abs() < 1e-12);
        assert!((drift_between(1.0, 2.0) - (1.0 + 6.0)).abs() < 1e-12);
    }

    #[test]
    fn drift_grows_forwards() {
        assert!(drift_between(1.0, 1.0) > drift_between(0.5, 0.5));
    }
}
