//! The sum over shapes and scales: prior times marginal likelihood in every cell.
//!
//! ```text
//! g = 1 - (1 + u/q)^-q,  u = (C/c)^B
//! V = tau^2 Kd + lambda^2 Kw + (f s)^2 D + dips = L L'            for one triple of scales
//! ln weight = that of floor and ceiling (`fit/levels.rs`) - ln|L| + ln priors + ln cell area
//!             - nu ln(f s) - SS / (2 f^2 s^2) + ln P(0 < A < 1)
//! ```
//!
//! The (B, c) box of each tail is shrunk twice around the cells that carry weight, then every
//! triple of scales is summed. Not here: what is read off the cells (`posterior.rs`).

use super::Prior;
use super::observed::{Observed, walk};
use super::settings::{MIDPOINT_POINTS, STEEPNESS_POINTS, Settings, TAIL_COUNT};
use crate::compute::Compute;
use crate::fit::cholesky::{Cholesky, LANES};
use crate::fit::levels::{Base, Levels, PriorTerms, share_blocks};
use crate::normal;

const CELLS_PER_TAIL: usize = STEEPNESS_POINTS * MIDPOINT_POINTS;
const SHRINKINGS: usize = 2;
/// Cells below this share of their tail's weight are left out of the next, finer box.
const LEAST_CELL_SHARE: f64 = 3e-4;
/// A shrunk box keeps this many cells of margin.
const MARGIN_CELLS: f64 = 0.7;
/// Cells this far below the best in log weight are dropped.
pub(crate) const LEAST_LOG_WEIGHT: f64 = -14.0;
/// Exponents beyond these overflow or say nothing.
const EXPONENTS: (f64, f64) = (-700.0, 300.0);
const LEAST_INSIDE: f64 = 1e-12;
/// A ceiling so many standard deviations from 0 and 1 lies between them.
const SURELY_INSIDE: f64 = 8.0;

/// One shape and the size of its cell in log coordinates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) log_steepness: f64,
    pub(crate) log_midpoint: f64,
    /// Which of `Settings::tails`.
    pub(crate) tail: usize,
    pub(crate) q: f64,
    pub(crate) cell: [f64; 2],
    log_prior: f64,
}

impl Shape {
    /// Share of the gain reached, g.
    pub(crate) fn share_at(&self, compute: Compute) -> f64 {
        let exponent = self.log_steepness.exp() * (compute.ln() - self.log_midpoint);
        let u = exponent.clamp(EXPONENTS.0, EXPONENTS.1).exp();
        let base = 1.0 + u / self.q;
        // Three of the tails in use need no general power, which costs more than the rest.
        1.0 - match self.tail {
            1 => base.recip(),
            2 => (base * base * base.sqrt()).recip(),
            3 => base.powi(-6),
            _ => base.powf(-self.q),
        }
    }
}

/// One triple of scales.
#[derive(Debug, Clone)]
pub(crate) struct Scales {
    pub(crate) tau: f64,
    pub(crate) lambda: f64,
    /// Standard deviation of one row.
    pub(crate) noise: f64,
    log_prior: f64,
}

/// Posterior of (R0, A) in one cell, and the cell's weight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) log_weight: f64,
    pub(crate) scale: u16,
    pub(crate) shape: u16,
    pub(crate) mean: [f64; 2],
    /// Covariance: floor, both, ceiling.
    pub(crate) covariance: [f64; 3],
}

/// The refined grid: cells by rising scale and shape.
#[derive(Debug, Clone)]
pub(crate) struct Grid {
    pub(crate) shapes: Vec<Shape>,
    pub(crate) scales: Vec<Scales>,
    pub(crate) cells: Vec<Cell>,
}

/// A range of shapes, in logarithms.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    steepness: (f64, f64),
    midpoint: (f64, f64),
}

impl Grid {
    pub(crate) fn refine(observed: &Observed, prior: &Prior, settings: &Settings) -> Self {
        let whole = Bounds {
            steepness: ln(settings.steepness_range, 1.0),
            midpoint: ln(settings.midpoint_range, observed.last_compute.0),
        };
        let mut boxes = [whole; TAIL_COUNT];
        for _ in 0..SHRINKINGS {
            let work = Work::new(observed, prior, settings, &boxes);
            shrink(&mut boxes, &whole, &work.shapes, &work.shape_weights());
        }
        Work::new(observed, prior, settings, &boxes).cells()
    }
}

fn ln(range: (f64, f64), unit: f64) -> (f64, f64) {
    ((range.0 * unit).ln(), (range.1 * unit).ln())
}

struct Work<'a> {
    observed: &'a Observed,
    settings: &'a Settings,
    /// Widths of the gain still to come.
    gains: usize,
    shapes: Vec<Shape>,
    /// g at every point, [`LANES`] shapes side by side.
    blocks: Vec<Vec<[f64; LANES]>>,
    /// By shape, then by width of the gain.
    priors: Vec<PriorTerms>,
}

impl<'a> Work<'a> {
    fn new(
        observed: &'a Observed,
        prior: &'a Prior,
        settings: &'a Settings,
        boxes: &[Bounds; TAIL_COUNT],
    ) -> Self {
        let shapes = shapes(boxes, settings, observed.last_compute);
        let blocks = share_blocks(&observed.compute, &shapes, Shape::share_at);
        let last = |index: usize| blocks[index / LANES][observed.size() - 1][index % LANES];
        let terms = |shape: usize| {
            let left = 1.0 - last(shape);
            prior.to_come.iter().map(move |gain| prior.levels.terms(left, *gain))
        };
        let priors = (0..shapes.len()).flat_map(terms).collect();
        Self { observed, settings, gains: prior.to_come.len(), shapes, blocks, priors }
    }

    /// Weight of each shape over a coarse set of scales.
    fn shape_weights(&self) -> Vec<f64> {
        let scales = scales(self.settings, self.observed.noise_scale, true);
        let mut logs = Vec::with_capacity(scales.len() * self.priors.len());
        for scale in &scales {
            self.each_cell(scale, |_, solved| logs.push(solved.log_weight));
        }
        let highest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights = vec![0.0; self.shapes.len()];
        for row in logs.chunks(self.priors.len()) {
            for (weight, logs) in weights.iter_mut().zip(row.chunks(self.gains)) {
                *weight += logs.iter().map(|log| (log - highest).exp()).sum::<f64>();
            }
        }
        weights
    }

    /// Every cell that carries weight, over all scales.
    fn cells(self) -> Grid {
        let scales = scales(self.settings, self.observed.noise_scale, false);
        let mut cells = Vec::new();
        let mut highest = f64::NEG_INFINITY;
        for (index, scale) in scales.iter().enumerate() {
            self.each_cell(scale, |shape, solved| {
                // The chance of a ceiling inside (0, 1) only lowers the weight.
                if solved.log_weight <= highest + LEAST_LOG_WEIGHT {
                    return;
                }
                let log_weight = solved.log_weight + log_chance_inside(solved);
                highest = highest.max(log_weight);
                let Levels { mean, covariance, .. } = *solved;
                let (scale, shape) = (index as u16, shape as u16);
                cells.push(Cell { log_weight, scale, shape, mean, covariance });
            });
        }
        cells.retain(|cell| cell.log_weight > highest + LEAST_LOG_WEIGHT);
        let total: f64 = cells.iter().map(|cell| (cell.log_weight - highest).exp()).sum();
        for cell in &mut cells {
            cell.log_weight -= highest + total.ln();
        }
        Grid { shapes: self.shapes, scales, cells }
    }

    /// Solves every shape and width of the gain for one triple of scales.
    fn each_cell(&self, scale: &Scales, mut take: impl FnMut(usize, &Levels)) {
        let factor = self.observed.factor(scale);
        let base = Base::new(&factor, &self.observed.value);
        let (squares, freedom) = self.observed.scatter;
        let constant = scale.log_prior
            - factor.half_log_determinant()
            - freedom * scale.noise.ln()
            - 0.5 * squares / scale.noise.powi(2);
        let mut whitened = Vec::new();
        for (block, (index, shapes)) in
            self.blocks.iter().zip(self.shapes.chunks(LANES).enumerate())
        {
            whitened.clone_from(block);
            factor.whiten_lanes(&mut whitened);
            let products = base.products(&whitened);
            for (lane, shape) in shapes.iter().enumerate() {
                let place = index * LANES + lane;
                for prior in &self.priors[place * self.gains..][..self.gains] {
                    let mut solved = base.solve(&products, lane, prior);
                    solved.log_weight += constant + shape.log_prior;
                    take(place, &solved);
                }
            }
        }
    }
}

impl Observed {
    /// Factor of the covariance of drift, distrust, noise and dips.
    pub(crate) fn factor(&self, scale: &Scales) -> Cholesky {
        let size = self.size();
        let (tau2, lambda2) = (scale.tau.powi(2), scale.lambda.powi(2));
        let mut matrix = vec![0.0; size * size];
        for i in 0..size {
            for j in 0..=i {
                let drift = walk(self.position[i], self.position[j]);
                let distrust = self.distrust[i].min(self.distrust[j]);
                matrix[i * size + j] = tau2 * drift + lambda2 * distrust;
            }
            matrix[i * size + i] +=
                scale.noise.powi(2) * self.relative_variance[i] + self.dip_variance[i];
        }
        Cholesky::factor(matrix, size).expect("noise makes the covariance positive definite")
    }
}

fn scales(settings: &Settings, noise_scale: f64, is_coarse: bool) -> Vec<Scales> {
    let step = if is_coarse { 2 } else { 1 };
    let skip = usize::from(is_coarse);
    let mut scales = Vec::new();
    for tau in settings.taus.iter().step_by(step) {
        for (lambda, log_lambda) in &settings.lambdas {
            for factor in settings.factors.iter().skip(skip).step_by(step) {
                let log_prior = settings.tau.log_density(tau.ln())
                    + log_lambda
                    + settings.factor.log_density(factor.ln());
                scales.push(Scales {
                    tau: *tau,
                    lambda: *lambda,
                    noise: factor * noise_scale,
                    // The coarse rounds look for shapes that any scale could like.
                    log_prior: if is_coarse { 0.0 } else { log_prior },
                });
            }
        }
    }
    scales
}

fn shapes(boxes: &[Bounds; TAIL_COUNT], settings: &Settings, last_compute: Compute) -> Vec<Shape> {
    let at = |range: (f64, f64), index: usize, count: usize| {
        range.0 + (range.1 - range.0) * index as f64 / (count - 1) as f64
    };
    let width = |range: (f64, f64), count: usize| (range.1 - range.0) / (count - 1) as f64;
    let mut shapes = Vec::with_capacity(TAIL_COUNT * CELLS_PER_TAIL);
    for (tail, (bounds, q)) in boxes.iter().zip(settings.tails).enumerate() {
        let cell =
            [width(bounds.steepness, STEEPNESS_POINTS), width(bounds.midpoint, MIDPOINT_POINTS)];
        for i in 0..STEEPNESS_POINTS {
            for j in 0..MIDPOINT_POINTS {
                let log_steepness = at(bounds.steepness, i, STEEPNESS_POINTS);
                let log_midpoint = at(bounds.midpoint, j, MIDPOINT_POINTS);
                let log_prior = (cell[0] * cell[1]).ln()
                    + settings.onset.log_density(log_steepness)
                    + settings.tail.log_density(log_steepness + q.ln())
                    + settings.midpoint.log_density(log_midpoint - last_compute.ln());
                shapes.push(Shape { log_steepness, log_midpoint, tail, q, cell, log_prior });
            }
        }
    }
    shapes
}

/// Boxes around the cells that carry weight.
fn shrink(boxes: &mut [Bounds; TAIL_COUNT], whole: &Bounds, shapes: &[Shape], weights: &[f64]) {
    let by_tail = shapes.chunks(CELLS_PER_TAIL).zip(weights.chunks(CELLS_PER_TAIL));
    for (bounds, (shapes, weights)) in boxes.iter_mut().zip(by_tail) {
        let total: f64 = weights.iter().sum();
        let kept: Vec<&Shape> = shapes
            .iter()
            .zip(weights)
            .filter(|(_, weight)| **weight > LEAST_CELL_SHARE * total)
            .map(|(shape, _)| shape)
            .collect();
        if kept.is_empty() {
            continue;
        }
        let margin = kept[0].cell.map(|width| MARGIN_CELLS * width);
        let span = |of: &dyn Fn(&Shape) -> f64, margin: f64, limit: (f64, f64)| {
            let low = kept.iter().map(|s| of(s)).fold(f64::INFINITY, f64::min);
            let high = kept.iter().map(|s| of(s)).fold(f64::NEG_INFINITY, f64::max);
            ((low - margin).max(limit.0), (high + margin).min(limit.1))
        };
        bounds.steepness = span(&|s| s.log_steepness, margin[0], whole.steepness);
        bounds.midpoint = span(&|s| s.log_midpoint, margin[1], whole.midpoint);
    }
}

/// ln P(0 < A < 1).
fn log_chance_inside(solved: &Levels) -> f64 {
    let (mean, sd) = (solved.mean[1], solved.covariance[2].sqrt());
    // Nearly every cell; the chance outside is then below 1e-14.
    if mean > SURELY_INSIDE * sd && 1.0 - mean > SURELY_INSIDE * sd {
        return 0.0;
    }
    let inside = normal::cdf((1.0 - mean) / sd) - normal::cdf(-mean / sd);
    inside.clamp(LEAST_INSIDE, 1.0).ln()
}
