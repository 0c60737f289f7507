//! What is read off the cells: forecasts, gains, levels, shape; each a mixture of normals.
//!
//! Given a cell, everything that is asked for is linear in (R0, A) and the drift:
//!
//! ```text
//! Y = e1 R0 + e2 A + offset + N(0, variance),    cov(Y, A) = e1 v12 + e2 v22
//! ahead   e1 = 1-g*, e2 = g*, offset 0, variance tau^2 a*         the walk starts at the last row
//! inside  e1 = 1-g* - k'(1-g), e2 = g* - k'g, offset k'R,  k = V^-1 k*, variance tau^2 K** - k*'k
//! ```
//!
//! **History.** One branch more for each finished run j: "like run j up to its own floor and time
//! scale", A ~ N(A_j, S), q and ln B as that run had them. All branches reuse the cells:
//!
//! ```text
//! ln w_j = ln w + ln(pi/J) + ln N(mu2; A_j, v22+S) - ln N(A_j; .65, .4^2+S)
//!        + ln(p_jq / pi_q + 1e-3) + ln N(ln B; m_jq, b_jq^2+.12^2) - ln N(ln B; prior given q)
//! Y's mean += cov(Y, A) (A_j - mu2) / (v22+S),   variance -= cov(Y, A)^2 / (v22+S)
//! ```
//!
//! So a run that contradicts its history takes the weight back to the generic branch by itself.

use super::grid::{Cell, Grid, LEAST_LOG_WEIGHT, Shape};
use super::observed::{Observed, walk};
use super::settings::{Settings, TAIL_COUNT};
use crate::compute::Compute;
use crate::fit::Estimate;
use crate::fit::cholesky::dot;
use crate::forecast::Forecast;
use crate::normal::{Mixture, Normal};

/// Parts of the mixture below this weight are left out.
const LEAST_WEIGHT: f64 = 1e-6;
/// A history that never saw a tail does not forbid it.
const UNSEEN_TAIL: f64 = 1e-3;
/// The ceiling is a claim about a decade more compute, so a decade of drift belongs to it.
const CEILING_DRIFT: f64 = std::f64::consts::LN_10;
const LEAST_VARIANCE: f64 = 1e-8;
/// So far below the heaviest in log weight, not even all parts together carry weight.
const NOTHING: f64 = 30.0;

/// What one finished run says about a new one, on the unit scale.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    pub(crate) ceiling: f64,
    pub(crate) ceiling_sd: f64,
    pub(crate) tails: [TailSummary; TAIL_COUNT],
}

/// Posterior of one tail: its share, and ln B.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TailSummary {
    pub(crate) share: f64,
    pub(crate) log_steepness: f64,
    pub(crate) log_steepness_sd: f64,
}

/// One cell under one branch.
#[derive(Debug, Clone, Copy)]
struct Part {
    weight: f64,
    cell: u32,
    /// 0 is the generic branch, j the j-th finished run.
    branch: u32,
    /// (A_j - mu2) / (v22 + S) and 1 / (v22 + S); zero for the generic branch.
    pull: f64,
    tightening: f64,
}

/// A number that is linear in the levels of a cell and its drift.
#[derive(Debug, Clone, Copy, Default)]
struct Linear {
    floor: f64,
    ceiling: f64,
    offset: f64,
    variance: f64,
}

/// The posterior as weighted cells.
#[derive(Debug, Clone)]
pub(crate) struct Posterior {
    observed: Observed,
    grid: Grid,
    parts: Vec<Part>,
    /// Weight of the generic branch, then of each finished run.
    branch_weights: Vec<f64>,
    inflation: f64,
}

impl Posterior {
    pub(crate) fn new(
        observed: Observed,
        grid: Grid,
        history: &[Branch],
        settings: &Settings,
    ) -> Self {
        let (parts, branch_weights) = parts(&grid, history, settings);
        Self { observed, grid, parts, branch_weights, inflation: settings.inflation }
    }

    /// The same with at most so many parts, picked evenly along the summed weights: for curves that
    /// are drawn or walked along.
    pub(crate) fn thinned(&self, most: usize) -> Self {
        let total: f64 = self.parts.iter().map(|part| part.weight).sum();
        let (mut below, mut picked) = (0.0, 0);
        let mut parts = Vec::with_capacity(most);
        for part in &self.parts {
            below += part.weight * most as f64 / total;
            let due = (below - 0.5).ceil().max(0.0) as usize;
            if due > picked {
                let weight = (due - picked) as f64 / most as f64;
                parts.push(Part { weight, ..*part });
                picked = due;
            }
        }
        Self { parts, ..self.clone() }
    }

    /// Weight of each finished run, in the order they were given.
    pub(crate) fn history_weights(&self) -> &[f64] {
        &self.branch_weights[1..]
    }

    fn cell(&self, part: &Part) -> &Cell {
        &self.grid.cells[part.cell as usize]
    }

    fn shape(&self, part: &Part) -> &Shape {
        &self.grid.shapes[self.cell(part).shape as usize]
    }

    fn tau(&self, part: &Part) -> f64 {
        self.grid.scales[self.cell(part).scale as usize].tau
    }

    fn noise_of(&self, part: &Part) -> f64 {
        self.grid.scales[self.cell(part).scale as usize].noise
    }

    /// Mean and variance of a linear number in one part.
    fn moments(&self, part: &Part, linear: &Linear) -> (f64, f64) {
        let Cell { mean: [floor, ceiling], covariance: [v11, v12, v22], .. } = *self.cell(part);
        let (e1, e2) = (linear.floor, linear.ceiling);
        let with_ceiling = e1 * v12 + e2 * v22;
        let mean = e1 * floor + e2 * ceiling + linear.offset;
        let variance = e1 * e1 * v11 + 2.0 * e1 * e2 * v12 + e2 * e2 * v22 + linear.variance;
        if part.branch == 0 {
            return (mean, variance);
        }
        let tightened = variance - with_ceiling * with_ceiling * part.tightening;
        (mean + with_ceiling * part.pull, tightened.max(LEAST_VARIANCE))
    }

    /// The mixture of a linear number; `inflation` of every standard deviation, noise included.
    fn mixture(
        &self,
        linear: &mut dyn FnMut(&Part) -> Linear,
        noise_share: f64,
        inflation: f64,
    ) -> Mixture {
        let normal = |part: &Part| {
            let (mean, variance) = self.moments(part, &linear(part));
            let noise = self.noise_of(part).powi(2) * noise_share;
            Normal { weight: part.weight, mean, sd: inflation * (variance + noise).sqrt() }
        };
        Mixture::new(self.parts.iter().map(normal).collect())
    }

    /// The mean of the curve over `at`, with the noise of so many measurements (0: none).
    pub(crate) fn at(&self, at: &[Compute], noise_share: f64) -> Mixture {
        let mut linear = self.linear_at(at);
        self.mixture(&mut linear, noise_share, self.inflation)
    }

    pub(crate) fn forecast(&self, at: &[Compute]) -> Forecast {
        let curve = self.at(at, 0.0);
        let (curve_low, curve_high) = (curve.quantile(0.05), curve.quantile(0.95));
        let measured = self.at(at, 1.0 / at.len() as f64).estimate();
        let inside = |value: f64| value.clamp(0.0, 1.0);
        Forecast {
            at: at[0],
            value: inside(measured.value),
            // Noise spreads every part, and yet may move half of a narrow one out of the tail.
            low: inside(measured.low.min(curve_low)),
            high: inside(measured.high.max(curve_high)),
            curve_low: inside(curve_low),
            curve_high: inside(curve_high),
        }
    }

    /// What multiplying the compute of the last row by `factor` (1 or more) buys, the curve alone.
    pub(crate) fn gain(&self, factor: f64) -> Mixture {
        let from = self.observed.last_compute;
        let ahead = self.observed.position_of(from * factor).max(0.0);
        let gained: Vec<f64> = self
            .grid
            .shapes
            .iter()
            .map(|shape| shape.share_at(from * factor) - shape.share_at(from))
            .collect();
        let mut linear = |part: &Part| {
            let share = gained[self.cell(part).shape as usize];
            let variance = self.tau(part).powi(2) * ahead;
            Linear { floor: -share, ceiling: share, offset: 0.0, variance }
        };
        self.mixture(&mut linear, 0.0, self.inflation)
    }

    /// Floor R0.
    pub(crate) fn floor(&self) -> Mixture {
        self.mixture(&mut |_| Linear { floor: 1.0, ..Linear::default() }, 0.0, 1.0)
    }

    /// Ceiling A, with a decade of drift.
    pub(crate) fn ceiling(&self) -> Mixture {
        let mut linear = |part: &Part| {
            let variance = self.tau(part).powi(2) * CEILING_DRIFT;
            Linear { ceiling: 1.0, variance, ..Linear::default() }
        };
        self.mixture(&mut linear, 0.0, 1.0)
    }

    /// Steepness: the slope of the logit of g at half of the gain, which is B for the law.
    pub(crate) fn steepness(&self) -> Estimate {
        self.shape_estimate(|shape| (as_of_the_law(shape).0, shape.cell[0]))
    }

    /// The compute where half of the gain is reached, which is C_mid for the law.
    pub(crate) fn midpoint(&self) -> Estimate {
        self.shape_estimate(|shape| (as_of_the_law(shape).1, shape.cell[1]))
    }

    /// Of a logarithm of the shape, each spread over its cell.
    fn shape_estimate(&self, of: impl Fn(&Shape) -> (f64, f64)) -> Estimate {
        let weights = self.weights_by(self.grid.shapes.len(), |cell| cell.shape);
        let normal = |(shape, weight): (&Shape, &f64)| {
            let (mean, cell) = of(shape);
            Normal { weight: *weight, mean, sd: cell / 12.0_f64.sqrt() }
        };
        let normals = self.grid.shapes.iter().zip(&weights).map(normal);
        Mixture::new(normals.collect()).estimate().map(f64::exp)
    }

    /// Sampling noise of one row: the middle of the posterior.
    pub(crate) fn noise(&self) -> f64 {
        let weights = self.weights_by(self.grid.scales.len(), |cell| cell.scale);
        let mut noises: Vec<(f64, f64)> =
            self.grid.scales.iter().map(|scale| scale.noise).zip(weights).collect();
        noises.sort_by(|a, b| a.0.total_cmp(&b.0));
        let half = 0.5 * noises.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut below = 0.0;
        let middle = noises.iter().find(|(_, weight)| {
            below += weight;
            below >= half
        });
        middle.map_or(self.observed.noise_scale, |(noise, _)| *noise)
    }

    /// Weights of all parts by an index of their cell.
    fn weights_by(&self, count: usize, index: impl Fn(&Cell) -> u16) -> Vec<f64> {
        let mut weights = vec![0.0; count];
        for part in &self.parts {
            weights[index(self.cell(part)) as usize] += part.weight;
        }
        weights
    }

    /// So many ways to go on, from the lowest ceilings to the highest, all equally likely.
    pub(crate) fn futures(&self, count: usize) -> Vec<Future> {
        let level = |part: &Part, floor: f64, ceiling: f64| {
            let linear = Linear { floor, ceiling, ..Linear::default() };
            self.moments(part, &linear).0
        };
        let mut parts: Vec<(f64, &Part)> =
            self.parts.iter().map(|part| (level(part, 0.0, 1.0), part)).collect();
        parts.sort_by(|a, b| a.0.total_cmp(&b.0));
        let total: f64 = parts.iter().map(|(_, part)| part.weight).sum();
        let pick = |index: usize| {
            let wanted = total * (index as f64 + 0.5) / count as f64;
            let mut below = 0.0;
            let found = parts.iter().find(|(_, part)| {
                below += part.weight;
                below >= wanted
            });
            let (ceiling, part) = found.unwrap_or(&parts[parts.len() - 1]);
            Future {
                floor: level(part, 1.0, 0.0),
                ceiling: *ceiling,
                shape: *self.shape(part),
                tau: self.tau(part),
                noise: self.noise_of(part),
            }
        };
        (0..count).map(pick).collect()
    }

    /// The mean curve without drift at each of `computes`.
    pub(crate) fn mean_curve(&self, computes: impl Iterator<Item = Compute>) -> Vec<f64> {
        // Linear in the levels, so those of one shape are added up first.
        let mut levels = vec![[0.0; 2]; self.grid.shapes.len()];
        let total: f64 = self.parts.iter().map(|part| part.weight).sum();
        for part in &self.parts {
            let level = |floor: f64, ceiling: f64| {
                let linear = Linear { floor, ceiling, ..Linear::default() };
                part.weight / total * self.moments(part, &linear).0
            };
            let sums = &mut levels[self.cell(part).shape as usize];
            sums[0] += level(1.0, 0.0);
            sums[1] += level(0.0, 1.0);
        }
        let shapes = self.grid.shapes.iter().zip(&levels);
        let value = |compute: Compute| -> f64 {
            let at = |(shape, [floor, ceiling]): (&Shape, &[f64; 2])| {
                let share = shape.share_at(compute);
                floor * (1.0 - share) + ceiling * share
            };
            shapes.clone().map(at).sum()
        };
        computes.map(value).collect()
    }

    /// Mean share over `at`, by shape.
    fn shares_at(&self, at: &[Compute]) -> Vec<f64> {
        let share = |shape: &Shape| at.iter().map(|c| shape.share_at(*c)).sum::<f64>();
        self.grid.shapes.iter().map(|shape| share(shape) / at.len() as f64).collect()
    }

    /// The mean of curve and drift over `at`.
    fn linear_at(&self, at: &[Compute]) -> impl FnMut(&Part) -> Linear {
        let count = at.len() as f64;
        let positions: Vec<f64> = at.iter().map(|c| self.observed.position_of(*c)).collect();
        let shares = self.shares_at(at);
        let own = positions.iter().flat_map(|a| positions.iter().map(|b| walk(*a, *b)));
        let own = own.sum::<f64>() / (count * count);
        let with_points: Vec<f64> = self
            .observed
            .position
            .iter()
            .map(|p| positions.iter().map(|a| walk(*p, *a)).sum::<f64>() / count)
            .collect();
        // Ahead of the last row the walk knows nothing of the points.
        let is_inside = with_points.iter().any(|covariance| *covariance > 0.0);
        let mut drift = Drift::default();
        move |part: &Part| {
            let share = shares[self.cell(part).shape as usize];
            let variance = self.tau(part).powi(2) * own;
            let ahead = Linear { floor: 1.0 - share, ceiling: share, offset: 0.0, variance };
            if !is_inside {
                return ahead;
            }
            self.drift_inside(part, &with_points, &mut drift);
            Linear {
                floor: ahead.floor - (drift.of_ones - drift.of_shares),
                ceiling: ahead.ceiling - drift.of_shares,
                offset: drift.of_values,
                variance: (variance - drift.explained).max(0.0),
            }
        }
    }

    /// Makes `drift` that of the part's scale and shape.
    fn drift_inside(&self, part: &Part, with_points: &[f64], drift: &mut Drift) {
        let cell = self.cell(part);
        if drift.scale != Some(cell.scale) {
            let scale = &self.grid.scales[cell.scale as usize];
            let covariance: Vec<f64> = with_points.iter().map(|k| scale.tau.powi(2) * k).collect();
            drift.gains = self.observed.factor(scale).solve(&covariance);
            drift.explained = dot(&drift.gains, &covariance);
            drift.of_ones = drift.gains.iter().sum();
            drift.of_values = dot(&drift.gains, &self.observed.value);
            (drift.scale, drift.shape) = (Some(cell.scale), None);
        }
        if drift.shape != Some(cell.shape) {
            let shape = &self.grid.shapes[cell.shape as usize];
            let shares = self.observed.compute.iter().map(|c| shape.share_at(*c));
            drift.of_shares = shares.zip(&drift.gains).map(|(share, gain)| share * gain).sum();
            drift.shape = Some(cell.shape);
        }
    }
}

/// One way the run could go on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Future {
    floor: f64,
    ceiling: f64,
    shape: Shape,
    /// Drift per root e-fold.
    pub(crate) tau: f64,
    /// Standard deviation of one evaluation.
    pub(crate) noise: f64,
}

impl Future {
    /// The curve without drift, on the unit scale.
    pub(crate) fn value_at(&self, compute: Compute) -> f64 {
        let share = self.shape.share_at(compute);
        self.floor * (1.0 - share) + self.ceiling * share
    }
}

/// What the points tell of the drift at the target, for one scale and shape.
#[derive(Debug, Default)]
struct Drift {
    scale: Option<u16>,
    shape: Option<u16>,
    /// V^-1 k*.
    gains: Vec<f64>,
    explained: f64,
    of_ones: f64,
    of_values: f64,
    of_shares: f64,
}

/// Every cell under every branch, by rising cell, so that neighbours share their scale and shape;
/// and the weights of the branches, the generic one first.
fn parts(grid: &Grid, history: &[Branch], settings: &Settings) -> (Vec<Part>, Vec<f64>) {
    let alone = if history.is_empty() { 1.0 } else { 1.0 - settings.history_weight };
    let prior = settings.history_weight / history.len() as f64;
    let branches: Vec<Pull> =
        history.iter().map(|branch| Pull::new(branch, prior, grid, settings)).collect();
    let mut parts = Vec::new();
    let mut branch_weights = vec![0.0; history.len() + 1];
    let (mut total, mut heaviest) = (0.0, f64::NEG_INFINITY);
    // What is light beside the sum so far is light beside the whole sum.
    let mut keep = |part: Part| {
        total += part.weight;
        branch_weights[part.branch as usize] += part.weight;
        if part.weight > LEAST_WEIGHT * total {
            parts.push(part);
        }
    };
    for (index, cell) in grid.cells.iter().enumerate() {
        if cell.log_weight <= LEAST_LOG_WEIGHT {
            continue;
        }
        let (weight, cell_index) = (alone * cell.log_weight.exp(), index as u32);
        keep(Part { weight, cell: cell_index, branch: 0, pull: 0.0, tightening: 0.0 });
        for (branch, one) in branches.iter().enumerate() {
            let tightening = (cell.covariance[2] + one.spread).recip();
            let distance = one.ceiling - cell.mean[1];
            let log_weight = cell.log_weight + one.by_shape[cell.shape as usize]
                - 0.5 * distance * distance * tightening;
            if log_weight < heaviest - NOTHING {
                continue;
            }
            heaviest = heaviest.max(log_weight);
            keep(Part {
                weight: log_weight.exp() * tightening.sqrt(),
                cell: cell_index,
                branch: branch as u32 + 1,
                pull: distance * tightening,
                tightening,
            });
        }
    }
    parts.retain(|part| part.weight > LEAST_WEIGHT * total);
    for weight in parts.iter_mut().map(|part| &mut part.weight).chain(&mut branch_weights) {
        *weight /= total;
    }
    (parts, branch_weights)
}

/// One finished run as it weighs cells.
struct Pull {
    ceiling: f64,
    /// S: how far the new run's ceiling may lie from it.
    spread: f64,
    /// What its prior, its shape and its ceiling's add to a cell's log weight.
    by_shape: Vec<f64>,
}

impl Pull {
    fn new(branch: &Branch, prior: f64, grid: &Grid, settings: &Settings) -> Self {
        let spread = settings.ceiling_spread.powi(2) + branch.ceiling_sd.powi(2);
        let generic = settings.ceiling.sd.powi(2) + spread;
        let distance = branch.ceiling - settings.ceiling.mean;
        let constant = prior.ln() + 0.5 * (distance * distance / generic + generic.ln());
        let by_shape = |shape: &Shape| constant + log_shape_ratio(shape, branch, settings);
        Self {
            ceiling: branch.ceiling,
            spread,
            by_shape: grid.shapes.iter().map(by_shape).collect(),
        }
    }
}

/// How much more likely a shape is after run j than by the generic prior.
fn log_shape_ratio(shape: &Shape, branch: &Branch, settings: &Settings) -> f64 {
    let summary = &branch.tails[shape.tail];
    let prior = settings.steepness_given(shape.q);
    let variance = summary.log_steepness_sd.powi(2) + settings.steepness_spread.powi(2);
    let share = settings.tail_shares()[shape.tail];
    (summary.share / share + UNSEEN_TAIL).ln()
        - 0.5 * variance.ln()
        - 0.5 * (shape.log_steepness - summary.log_steepness).powi(2) / variance
        + prior.sd.ln()
        - prior.log_density(shape.log_steepness)
}

/// What a finished run teaches: its ceiling, and its shape by tail.
pub(crate) fn summarise(grid: &Grid) -> Branch {
    let weighted = || grid.cells.iter().map(|cell| (cell.log_weight.exp(), cell));
    let ceiling: f64 = weighted().map(|(weight, cell)| weight * cell.mean[1]).sum();
    let spread = |cell: &Cell| cell.covariance[2] + (cell.mean[1] - ceiling).powi(2);
    let variance: f64 = weighted().map(|(weight, cell)| weight * spread(cell)).sum();
    let tails = std::array::from_fn(|tail| {
        let of_tail = || {
            weighted()
                .map(|(weight, cell)| (weight, &grid.shapes[cell.shape as usize]))
                .filter(|(_, shape)| shape.tail == tail)
        };
        let share: f64 = of_tail().map(|(weight, _)| weight).sum();
        if share < LEAST_WEIGHT {
            return TailSummary { share: LEAST_WEIGHT, log_steepness: 0.0, log_steepness_sd: 1.0 };
        }
        let mean = of_tail().map(|(w, s)| w * s.log_steepness).sum::<f64>() / share;
        let squares = of_tail().map(|(w, s)| w * (s.log_steepness - mean).powi(2)).sum::<f64>();
        TailSummary { share, log_steepness: mean, log_steepness_sd: (squares / share).sqrt() }
    });
    Branch { ceiling, ceiling_sd: variance.sqrt(), tails }
}

/// Logarithms of steepness and midpoint in the law's terms: logit slope and compute at half of
/// the gain.
fn as_of_the_law(shape: &Shape) -> (f64, f64) {
    let half = 2.0_f64.powf(shape.q.recip());
    let slope = 2.0 * shape.q * (1.0 - half.recip());
    let u = shape.q * (half - 1.0);
    (shape.log_steepness + slope.ln(), shape.log_midpoint + u.ln() / shape.log_steepness.exp())
}
