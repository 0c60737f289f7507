//! Draws from the refined grid, and everything that is read off them.
//!
//! Cells are drawn systematically (evenly spaced along the summed weights), (R0, A) from the
//! cell's normal; draws with an impossible floor or ceiling are dropped. A draw's drift at new
//! compute is normal given its residuals. One fixed seed, one set of random numbers per draw, so
//! that forecasts at neighbouring compute move together and results repeat exactly.

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal, StudentT, Uniform};

use super::covariance::{Covariance, drift_between, trend_weight};
use super::grid::{Grid, share};
use crate::compute::Compute;
use crate::fit::Estimate;
use crate::fit::cholesky::{Cholesky, dot};
use crate::forecast::Forecast;
use crate::window::Window;

const DRAWS: usize = 4000;
/// A fit that keeps fewer draws than this clips the impossible ones instead of dropping them.
const LEAST_DRAWS: usize = 400;
const SEED: u64 = 0x5ca1_e71d;
/// A new measurement may be an outlier: Student t.
const NOISE_FREEDOM: f64 = 5.0;
/// The ceiling is a claim about a decade more compute, so a decade of drift belongs to it.
const CEILING_DRIFT: f64 = std::f64::consts::LN_10;
/// Inside the window every so-manieth draw is enough: it is drawn, not forecast.
const THINNED: usize = 10;

#[derive(Debug, Clone)]
struct Draw {
    floor: f64,
    ceiling: f64,
    steepness: f64,
    log_midpoint: f64,
    tail: f64,
    /// Which of `Posterior::scales`.
    scale: usize,
    /// Reported parameters, spread over their cell.
    spread: [f64; 2],
    drift: f64,
    noise: f64,
    ceiling_drift: f64,
    /// tau^2 Σ trend_weight(a_i) alpha_i: the drift's conditional mean per unit of trend.
    trend: f64,
}

impl Draw {
    fn curve_at(&self, compute: Compute) -> f64 {
        let share = share(self.steepness, self.log_midpoint, self.tail, compute);
        self.floor + (self.ceiling - self.floor) * share
    }
}

/// A triple of scales that was drawn.
#[derive(Debug, Clone)]
struct ScaleFactor {
    tau: f64,
    noise: f64,
    factor: Cholesky,
}

/// The posterior as draws.
#[derive(Debug, Clone)]
pub(crate) struct Posterior {
    covariance: Covariance,
    scales: Vec<ScaleFactor>,
    draws: Vec<Draw>,
    /// V^-1 (residual) of every `THINNED`-th draw, × points: what drift did inside the window.
    alphas: Vec<f64>,
    /// Untruncated probability of a ceiling above 1.
    pub(crate) share_above_one: f64,
}

impl Posterior {
    pub(crate) fn draw(window: &Window, covariance: &Covariance, grid: &Grid) -> Self {
        let mut rng = ChaCha12Rng::seed_from_u64(SEED);
        let values: Vec<f64> = window.unit.iter().map(|p| p.value).collect();
        let picked = pick(&grid.weights());
        let mut posterior = Self {
            covariance: covariance.clone(),
            scales: Vec::new(),
            draws: Vec::with_capacity(DRAWS),
            alphas: Vec::new(),
            share_above_one: 0.0,
        };
        let mut kept = Vec::with_capacity(DRAWS);
        let mut seen_scale = None;
        let mut above_one = 0;
        let mut impossible = Vec::new();
        for cell in picked {
            let scale_index = cell / grid.shapes.len();
            if seen_scale != Some(scale_index) {
                seen_scale = Some(scale_index);
                let scale = grid.scales[scale_index];
                posterior.scales.push(ScaleFactor {
                    tau: scale.tau,
                    noise: scale.sigma * covariance.noise_scale,
                    factor: covariance.factor(scale.tau, scale.lambda, scale.sigma),
                });
            }
            let draw = draw_cell(grid, cell, posterior.scales.len() - 1, &mut rng);
            above_one += usize::from(draw.ceiling > 1.0);
            if draw.ceiling > 1.0 || draw.ceiling < 0.0 || draw.floor < 0.0 {
                impossible.push((cell, draw));
            } else {
                kept.push((cell, draw));
            }
        }
        posterior.share_above_one = above_one as f64 / DRAWS as f64;
        if kept.len() < LEAST_DRAWS {
            kept.extend(impossible.into_iter().map(|(cell, draw)| {
                let ceiling = draw.ceiling.clamp(0.0, 1.0);
                (cell, Draw { ceiling, floor: draw.floor.max(0.0), ..draw })
            }));
            kept.sort_by_key(|(_, draw)| draw.scale);
        }
        posterior.condition_drift(window, grid, &values, kept);
        posterior
    }

    /// alpha = V^-1 (R - f) for every draw; draws of one cell share their solves.
    fn condition_drift(
        &mut self,
        window: &Window,
        grid: &Grid,
        values: &[f64],
        kept: Vec<(usize, Draw)>,
    ) {
        let size = values.len();
        let trend: Vec<f64> = self.covariance.a.iter().map(|a| trend_weight(*a)).collect();
        self.alphas = Vec::with_capacity(kept.len().div_ceil(THINNED) * size);
        let mut alpha = Vec::with_capacity(size);
        let mut of_scale = (usize::MAX, Vec::new(), Vec::new());
        let mut of_cell = (usize::MAX, Vec::new());
        for (cell, mut draw) in kept {
            let scale = &self.scales[draw.scale];
            if of_scale.0 != draw.scale {
                let ones = scale.factor.solve(&vec![1.0; size]);
                of_scale = (draw.scale, scale.factor.solve(values), ones);
            }
            if of_cell.0 != cell {
                let shape = grid.shapes[cell % grid.shapes.len()];
                let shares: Vec<f64> =
                    window.unit.iter().map(|p| shape.share_at(p.compute)).collect();
                of_cell = (cell, scale.factor.solve(&shares));
            }
            let gain = draw.ceiling - draw.floor;
            let parts = of_scale.1.iter().zip(&of_scale.2).zip(&of_cell.1);
            alpha.clear();
            alpha.extend(parts.map(|((v, one), g)| v - draw.floor * one - gain * g));
            draw.trend = scale.tau.powi(2) * dot(&trend, &alpha);
            if self.draws.len().is_multiple_of(THINNED) {
                self.alphas.extend_from_slice(&alpha);
            }
            self.draws.push(draw);
        }
    }

    /// Floor R0.
    pub(crate) fn floor(&self) -> Estimate {
        estimate(self.draws.iter().map(|d| d.floor).collect())
    }

    /// Ceiling A, with a decade of drift in the interval.
    pub(crate) fn ceiling(&self) -> Estimate {
        let plain = estimate(self.draws.iter().map(|d| d.ceiling).collect());
        let drift = |d: &Draw| self.scales[d.scale].tau * CEILING_DRIFT.sqrt() * d.ceiling_drift;
        let drifted = estimate(self.draws.iter().map(|d| d.ceiling + drift(d)).collect());
        Estimate { value: plain.value, low: drifted.low.max(0.0), high: drifted.high.min(1.0) }
    }

    /// Steepness: the slope of the logit of g at half of the gain, which is B for the law.
    pub(crate) fn steepness(&self) -> Estimate {
        estimate(self.draws.iter().map(|d| d.spread[0]).collect())
    }

    /// The compute where half of the gain is reached, which is C_mid for the law.
    pub(crate) fn midpoint(&self) -> Estimate<Compute> {
        estimate(self.draws.iter().map(|d| d.spread[1]).collect()).map(Compute)
    }

    /// Sampling noise of one point.
    pub(crate) fn noise(&self) -> f64 {
        estimate(self.draws.iter().map(|d| self.scales[d.scale].noise).collect()).value
    }

    /// The mean curve without drift.
    pub(crate) fn mean_curve_at(&self, compute: Compute) -> f64 {
        let values = self.draws.iter().step_by(THINNED).map(|d| d.curve_at(compute));
        values.clone().sum::<f64>() / values.count() as f64
    }

    pub(crate) fn forecast(&self, compute: Compute) -> Forecast {
        let at = self.covariance.position(compute);
        let with_points: Vec<f64> =
            self.covariance.a.iter().map(|a| drift_between(at, *a)).collect();
        let spreads = self.drift_spreads(&with_points, drift_between(at, at));
        // Ahead of the last point only the trend carries on; inside the window all residuals speak.
        let level = |draw: &Draw, drift_mean: f64| {
            draw.curve_at(compute) + drift_mean + spreads[draw.scale] * draw.drift
        };
        let drawn: Vec<(&Draw, f64)> = if at >= 0.0 {
            self.draws.iter().map(|d| (d, level(d, trend_weight(at) * d.trend))).collect()
        } else {
            let alphas = self.alphas.chunks(self.covariance.size());
            let drift = |d: &Draw, alpha: &[f64]| {
                self.scales[d.scale].tau.powi(2) * dot(&with_points, alpha)
            };
            let thinned = self.draws.iter().step_by(THINNED).zip(alphas);
            thinned.map(|(d, alpha)| (d, level(d, drift(d, alpha)))).collect()
        };
        let measured = drawn.iter().map(|(d, v)| v + self.scales[d.scale].noise * d.noise);
        let measured = estimate(measured.collect());
        let curve = estimate(drawn.iter().map(|(_, value)| *value).collect());
        let inside = |value: f64| value.clamp(0.0, 1.0);
        Forecast {
            at: compute,
            value: inside(curve.value),
            // With the same draws a quantile can come out inside the other by chance.
            low: inside(measured.low.min(curve.low)),
            high: inside(measured.high.max(curve.high)),
            curve_low: inside(curve.low),
            curve_high: inside(curve.high),
        }
    }

    /// What multiplying the compute of the last point by `factor` (1 or more) buys, the curve
    /// alone.
    pub(crate) fn gain(&self, factor: f64) -> Estimate {
        let from = self.covariance.last_compute();
        let to = from * factor;
        let ahead = self.covariance.position(to);
        let trend = |a: &f64| (trend_weight(ahead) - trend_weight(0.0)) * trend_weight(*a);
        let with_points: Vec<f64> = self.covariance.a.iter().map(trend).collect();
        let own =
            drift_between(ahead, ahead) - 2.0 * drift_between(0.0, ahead) + drift_between(0.0, 0.0);
        let spreads = self.drift_spreads(&with_points, own);
        let gains = self.draws.iter().map(|draw| {
            let curve = draw.curve_at(to) - draw.curve_at(from);
            curve + ahead * draw.trend + spreads[draw.scale] * draw.drift
        });
        estimate(gains.collect())
    }

    /// Standard deviation of the drift (or a difference of drifts) given the points, per scale.
    fn drift_spreads(&self, with_points: &[f64], own: f64) -> Vec<f64> {
        let spread = |scale: &ScaleFactor| {
            let whitened = scale.factor.whiten(with_points);
            let tau2 = scale.tau.powi(2);
            (tau2 * (own - tau2 * dot(&whitened, &whitened))).max(0.0).sqrt()
        };
        self.scales.iter().map(spread).collect()
    }
}

/// Evenly spaced picks along the summed weights, in rising order.
fn pick(weights: &[f64]) -> Vec<usize> {
    let mut picked = Vec::with_capacity(DRAWS);
    let mut sum = 0.0;
    for (cell, weight) in weights.iter().enumerate() {
        sum += weight * DRAWS as f64;
        while (picked.len() as f64) + 0.5 < sum && picked.len() < DRAWS {
            picked.push(cell);
        }
    }
    picked
}

fn draw_cell(grid: &Grid, cell: usize, scale: usize, rng: &mut ChaCha12Rng) -> Draw {
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    let posterior = &grid.cells[cell];
    let shape = grid.shapes[cell % grid.shapes.len()];
    let [floor_variance, both, ceiling_variance] = posterior.covariance;
    let (first, second) = (normal(), normal());
    let floor_sd = floor_variance.sqrt();
    let slope = both / floor_sd;
    let rest = (ceiling_variance - slope * slope).max(0.0).sqrt();
    let (drift, ceiling_drift) = (normal(), normal());
    let student = StudentT::new(NOISE_FREEDOM).expect("positive freedom");
    let within = Uniform::new(-0.5, 0.5).expect("a range");
    let noise = student.sample(rng);
    let log_steepness = shape.log_steepness + shape.cell[0] * within.sample(rng);
    let log_midpoint = shape.log_midpoint + shape.cell[1] * within.sample(rng);
    Draw {
        floor: posterior.mean[0] + floor_sd * first,
        ceiling: posterior.mean[1] + slope * first + rest * second,
        steepness: shape.log_steepness.exp(),
        log_midpoint: shape.log_midpoint,
        tail: shape.tail,
        scale,
        spread: as_of_the_law(log_steepness.exp(), log_midpoint, shape.tail),
        drift,
        noise,
        ceiling_drift,
        trend: 0.0,
    }
}

/// Steepness and midpoint of a tailed shape in the law's terms: logit slope and compute at half
/// of the gain.
fn as_of_the_law(steepness: f64, log_midpoint: f64, tail: f64) -> [f64; 2] {
    let half = 2.0_f64.powf(1.0 / tail) - 1.0;
    let slope = 2.0 * tail * steepness * half / (1.0 + half);
    [slope, (log_midpoint + half.ln() / steepness).exp()]
}

/// Median and 5/95 % quantiles.
fn estimate(mut values: Vec<f64>) -> Estimate {
    let mut at = |share: f64| {
        let index = (share * (values.len() - 1) as f64).round() as usize;
        *values.select_nth_unstable_by(index, f64::total_cmp).1
    };
    Estimate { value: at(0.5), low: at(0.05), high: at(0.95) }
}
