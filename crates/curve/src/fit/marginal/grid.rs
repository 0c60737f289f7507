//! The sum over shapes and scales: prior times marginal likelihood in every cell.
//!
//! | what | grid | prior | why |
//! |---|---|---|---|
//! | B | 8 log points, .4 to 6 | log-normal(log 1.6, .5) | the paper's table has 1.09 to 2.44, spread doubled |
//! | C_mid | 14 log points, .1 c1 to 4 C_n | log-uniform | a small C_mid with a free floor is a power law |
//! | q | 1, .5, 4 | .45, .35, .20 | the law; a heavier tail; a thinner one |
//! | tau | 5 values per sqrt(e-fold) | log-normal(log .01, .8) | the paper's ±.02 on A over 3-4 e-folds |
//! | lambda | .03 .1 .3 1 | equal | scale unknown, the data choose |
//! | sigma | 5 factors of the noise scale | log-normal(0, .5) | fixed prompts are below binomial, correlation above |
//!
//! Floor and ceiling are integrated out in every cell: `fit/levels.rs`.

use super::covariance::Covariance;
use crate::compute::Compute;
use crate::fit::cholesky::LANES;
use crate::fit::levels::{Base, GainPrior, LevelPrior, Levels, share_blocks};
use crate::window::Window;

const STEEPNESS_POINTS: usize = 8;
const MIDPOINT_POINTS: usize = 14;
const CELLS_PER_TAIL: usize = STEEPNESS_POINTS * MIDPOINT_POINTS;
const STEEPNESS_RANGE: (f64, f64) = (0.4, 6.0);
/// In units of the first and of the last compute.
const MIDPOINT_RANGE: (f64, f64) = (0.1, 4.0);
const TAILS: [(f64, f64); 3] = [(1.0, 0.45), (0.5, 0.35), (4.0, 0.20)];
const TAUS: [f64; 5] = [0.002, 0.0045, 0.01, 0.022, 0.05];
const LAMBDAS: [f64; 4] = [0.03, 0.1, 0.3, 1.0];
const SIGMAS: [f64; 5] = [0.5, 0.8, 1.25, 2.0, 3.2];
/// Cells and scales below these shares of the weight are left out of the next, finer round.
const LEAST_CELL_SHARE: f64 = 1e-4;
const LEAST_SCALE_SHARE: f64 = 1e-4;
/// A shrunk box keeps this many cells of margin.
const MARGIN_CELLS: f64 = 0.7;
const REFINEMENTS: usize = 2;
/// Beyond it e^x is infinite, and infinity over infinity is not a share.
const LARGEST_EXPONENT: f64 = 700.0;

/// Prior of floor, ceiling and of the gain still to come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prior {
    pub(crate) levels: LevelPrior,
    pub(crate) to_come: GainPrior,
}

/// One triple of scales.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scales {
    pub(crate) tau: f64,
    pub(crate) lambda: f64,
    pub(crate) sigma: f64,
    log_prior: f64,
}

/// One shape and the size of its cell in log coordinates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) log_steepness: f64,
    pub(crate) log_midpoint: f64,
    pub(crate) tail: f64,
    pub(crate) cell: [f64; 2],
    log_prior: f64,
}

impl Shape {
    /// Share of the gain reached, g.
    pub(crate) fn share_at(&self, compute: Compute) -> f64 {
        share(self.log_steepness.exp(), self.log_midpoint, self.tail, compute)
    }
}

/// g = 1 - (1 + (C/C_mid)^B)^(-q).
pub(crate) fn share(steepness: f64, log_midpoint: f64, tail: f64, compute: Compute) -> f64 {
    if !compute.is_positive() {
        return 0.0;
    }
    let ratio = (steepness * (compute.ln() - log_midpoint)).min(LARGEST_EXPONENT).exp();
    // The tails in use need no general power, which costs more than the rest of the fit.
    if (tail - 1.0).abs() < 1e-9 {
        ratio / (1.0 + ratio)
    } else if (tail - 0.5).abs() < 1e-9 {
        1.0 - (1.0 + ratio).sqrt().recip()
    } else if (tail - 4.0).abs() < 1e-9 {
        1.0 - (1.0 + ratio).powi(-4)
    } else {
        1.0 - (1.0 + ratio).powf(-tail)
    }
}

/// The refined grid.
#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) scales: Vec<Scales>,
    pub(crate) shapes: Vec<Shape>,
    /// scales.len() × shapes.len().
    pub(crate) cells: Vec<Levels>,
}

impl Grid {
    pub(crate) fn refine(window: &Window, covariance: &Covariance, prior: &Prior) -> Self {
        let midpoints = (
            (window.first_compute() * MIDPOINT_RANGE.0).ln(),
            (window.last_compute() * MIDPOINT_RANGE.1).ln(),
        );
        let whole = Box { steepness: STEEPNESS_RANGE.map(f64::ln), midpoint: midpoints };
        let mut boxes = [whole; TAILS.len()];
        let mut scales = all_scales();
        let mut refinement = 0;
        loop {
            let shapes = shapes(&boxes, &whole);
            let cells = evaluate(window, covariance, prior, &scales, &shapes);
            let grid = Self { scales, shapes, cells };
            if refinement == REFINEMENTS {
                return grid;
            }
            refinement += 1;
            (boxes, scales) = grid.shrink(boxes, &whole);
        }
    }

    /// Normalised weights of the cells.
    pub(crate) fn weights(&self) -> Vec<f64> {
        let highest = self.cells.iter().map(|c| c.log_weight).fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> =
            self.cells.iter().map(|c| (c.log_weight - highest).exp()).collect();
        let total: f64 = weights.iter().sum();
        for weight in &mut weights {
            *weight /= total;
        }
        weights
    }

    /// Boxes around the cells that carry weight, and the scales that do.
    fn shrink(&self, mut boxes: [Box; TAILS.len()], whole: &Box) -> ([Box; 3], Vec<Scales>) {
        let weights = self.weights();
        let mut by_shape = vec![0.0; self.shapes.len()];
        let mut scales = Vec::new();
        for (scale, row) in self.scales.iter().zip(weights.chunks(self.shapes.len())) {
            if row.iter().sum::<f64>() > LEAST_SCALE_SHARE {
                scales.push(*scale);
            }
            by_shape.iter_mut().zip(row).for_each(|(sum, w)| *sum += w);
        }
        for (tail, bounds) in boxes.iter_mut().enumerate() {
            let cells = tail * CELLS_PER_TAIL..(tail + 1) * CELLS_PER_TAIL;
            let total: f64 = by_shape[cells.clone()].iter().sum();
            let kept: Vec<&Shape> = cells
                .filter(|cell| by_shape[*cell] > LEAST_CELL_SHARE * total)
                .map(|cell| &self.shapes[cell])
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
        (boxes, scales)
    }
}

/// A range of shapes, in logarithms.
#[derive(Debug, Clone, Copy)]
struct Box {
    steepness: (f64, f64),
    midpoint: (f64, f64),
}

trait MapPair {
    fn map(self, change: impl Fn(f64) -> f64) -> Self;
}

impl MapPair for (f64, f64) {
    fn map(self, change: impl Fn(f64) -> f64) -> Self {
        (change(self.0), change(self.1))
    }
}

fn all_scales() -> Vec<Scales> {
    let bell = |log_ratio: f64, sd: f64| -0.5 * (log_ratio / sd).powi(2);
    let mut scales = Vec::with_capacity(TAUS.len() * LAMBDAS.len() * SIGMAS.len());
    for tau in TAUS {
        for lambda in LAMBDAS {
            for sigma in SIGMAS {
                let log_prior = bell((tau / 0.01_f64).ln(), 0.8) + bell(sigma.ln(), 0.5);
                scales.push(Scales { tau, lambda, sigma, log_prior });
            }
        }
    }
    scales
}

fn shapes(boxes: &[Box; TAILS.len()], whole: &Box) -> Vec<Shape> {
    let mut shapes = Vec::with_capacity(TAILS.len() * CELLS_PER_TAIL);
    let midpoint_density = -(whole.midpoint.1 - whole.midpoint.0).ln();
    for (bounds, (tail, tail_prior)) in boxes.iter().zip(TAILS) {
        let at = |range: (f64, f64), index: usize, count: usize| {
            range.0 + (range.1 - range.0) * index as f64 / (count - 1) as f64
        };
        let width = |range: (f64, f64), count: usize| (range.1 - range.0) / (count - 1) as f64;
        let cell =
            [width(bounds.steepness, STEEPNESS_POINTS), width(bounds.midpoint, MIDPOINT_POINTS)];
        for i in 0..STEEPNESS_POINTS {
            for j in 0..MIDPOINT_POINTS {
                let log_steepness = at(bounds.steepness, i, STEEPNESS_POINTS);
                let log_midpoint = at(bounds.midpoint, j, MIDPOINT_POINTS);
                let bell = -0.5 * ((log_steepness - 1.6_f64.ln()) / 0.5).powi(2);
                let log_prior =
                    bell + midpoint_density + tail_prior.ln() + (cell[0] * cell[1]).ln();
                shapes.push(Shape { log_steepness, log_midpoint, tail, cell, log_prior });
            }
        }
    }
    shapes
}

fn evaluate(
    window: &Window,
    covariance: &Covariance,
    prior: &Prior,
    scales: &[Scales],
    shapes: &[Shape],
) -> Vec<Levels> {
    let values: Vec<f64> = window.unit.iter().map(|p| p.value).collect();
    let computes: Vec<Compute> = window.unit.iter().map(|p| p.compute).collect();
    let blocks = share_blocks(&computes, shapes, Shape::share_at);
    let mut cells = Vec::with_capacity(scales.len() * shapes.len());
    let mut whitened = Vec::new();
    for scale in scales {
        let factor = covariance.factor(scale.tau, scale.lambda, scale.sigma);
        let base = Base::new(&factor, &values);
        let log_scale = scale.log_prior - factor.half_log_determinant();
        for (block, shapes) in blocks.iter().zip(shapes.chunks(LANES)) {
            whitened.clone_from(block);
            factor.whiten_lanes(&mut whitened);
            let products = base.products(&whitened);
            for (lane, shape) in shapes.iter().enumerate() {
                let last_share = block[block.len() - 1][lane];
                let terms = prior.levels.terms(1.0 - last_share, prior.to_come);
                let mut cell = base.solve(&products, lane, &terms);
                cell.log_weight += log_scale + shape.log_prior;
                cells.push(cell);
            }
        }
    }
    cells
}
