//! Least squares with profile-likelihood intervals, for the sigmoid and the power law.
//!
//! Both laws are linear in two levels once the shape is known:
//!
//! ```text
//! R = R0 (1 - s) + A s
//! sigmoid     s = 1 / (1 + (C_mid/C)^B)
//! power law   s = 1 - (C/c1)^-B           (R0 is then the value at c1, the first compute)
//! ```
//!
//! so the search is over shapes only: a grid over the stated bounds, shrunk three times around
//! what the data allow, then polished from several starts. Every number of interest (ceiling,
//! forecast, gain) is linear in (R0, A), so its profile is an envelope of parabolas and its
//! interval needs no further search.
//!
//! Plain least-squares intervals are far too narrow on these curves. Three things widen them: the
//! noise is the larger of residual and sampling noise, correlated residuals count for fewer
//! points, and forecasts and ceiling carry a drift of [`DRIFT`] per root e-fold of compute.
//!
//! Bounds: B in [0.1, 10] (power law [0.01, 10]), C_mid in [c1/10, 100 C_n], and, sigmoid only,
//! floor and ceiling inside the range of the values.

use crate::compute::Compute;
use crate::fit::{Estimate, Solved};
use crate::forecast::{Forecast, Predictor};
use crate::law::Sigmoid;
use crate::noise::Noise;
use crate::options::FitOptions;
use crate::points::Point;
use crate::window::Window;

/// Misspecification and between-run drift, per square root of an e-fold of compute: the paper's
/// ±0.02 on A over three to four e-folds.
const DRIFT: f64 = 0.01;
/// Widens the allowed region: without it the steepness of well-behaved simulated runs was covered
/// in 85 % of cases, not 90 (`docs/results/calibration.md`).
const MISFIT: f64 = 1.2;
/// 95 % point of the standard normal.
const Z: f64 = 1.645;
const GRID: (usize, usize) = (28, 36);
const ROUNDS: usize = 3;
const STARTS: usize = 4;
/// Polishing ends when its steps in log shape are this small.
const POLISHED: f64 = 1e-7;
/// A move that lowers the squares by less than this share is none.
const LEAST_PROGRESS: f64 = 1e-12;
/// Or after this many moves: on a flat bottom there is nothing to find.
const MOST_MOVES: usize = 200;

/// Which law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Sigmoid,
    PowerLaw,
}

/// The shape parameters in logarithms; the power law has no midpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    log_steepness: f64,
    log_midpoint: f64,
}

/// The problem: points, weights, and what is held.
#[derive(Debug, Clone)]
struct Problem {
    family: Family,
    log_compute: Vec<f64>,
    values: Vec<f64>,
    weights: Vec<f64>,
    floor: Option<f64>,
    /// A measurement of the floor: one more point, at share 0.
    measured_floor: Option<f64>,
    ceiling: Option<f64>,
    log_first: f64,
    log_last: f64,
}

/// Best levels for one shape: residual sum, (R0, A), and the inverse of their normal matrix.
#[derive(Debug, Clone, Copy)]
struct Levels {
    squares: f64,
    level: [f64; 2],
    inverse: [f64; 3],
}

/// The shapes that the data allow, ready to forecast.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    problem: Problem,
    allowed: Vec<(Shape, Levels)>,
    best: (Shape, Levels),
    /// A shape is allowed while its squares are below this.
    threshold: f64,
    /// Size of a grid cell in log steepness and log midpoint.
    cell: [f64; 2],
    /// Standard deviation of one point.
    noise: f64,
    /// Did the allowed region reach the edge of the midpoint's bounds from above?
    is_open: bool,
}

impl Problem {
    /// `relative`: standard deviation of each point over a typical one.
    fn new(
        points: &[Point],
        relative: &[f64],
        floor: Option<f64>,
        ceiling: Option<f64>,
        family: Family,
    ) -> Self {
        let log_compute: Vec<f64> = points.iter().map(|p| p.compute.ln()).collect();
        let log_first = log_compute.iter().copied().find(|x| x.is_finite()).unwrap_or(0.0);
        Self {
            family,
            log_last: log_compute[log_compute.len() - 1],
            log_first,
            log_compute,
            values: points.iter().map(|p| p.value).collect(),
            weights: relative.iter().map(|r| r.powi(-2)).collect(),
            // The power law's "floor" is its value at the first compute: never held.
            floor: floor.filter(|_| family == Family::Sigmoid),
            measured_floor: None,
            ceiling,
        }
    }

    /// The same problem with a held floor freed again, its value kept as one more measurement.
    fn with_measured_floor(&self) -> Self {
        Self { floor: None, measured_floor: self.floor, ..self.clone() }
    }

    fn bounds(&self) -> [(f64, f64); 2] {
        let ln10 = std::f64::consts::LN_10;
        match self.family {
            Family::Sigmoid => [(-ln10, ln10), (self.log_first - ln10, self.log_last + 2.0 * ln10)],
            Family::PowerLaw => [(-2.0 * ln10, ln10), (0.0, 0.0)],
        }
    }

    fn free_parameters(&self) -> usize {
        let levels = usize::from(self.floor.is_none()) + usize::from(self.ceiling.is_none());
        levels + if self.family == Family::Sigmoid { 2 } else { 1 }
    }

    fn share(&self, shape: Shape, log_compute: f64) -> f64 {
        let steepness = shape.log_steepness.exp();
        match self.family {
            Family::Sigmoid => 1.0 / (1.0 + (steepness * (shape.log_midpoint - log_compute)).exp()),
            Family::PowerLaw => 1.0 - (-steepness * (log_compute - self.log_first)).exp(),
        }
    }

    fn level_bounds(&self) -> (f64, f64) {
        match self.family {
            Family::Sigmoid => (0.0, 1.0),
            Family::PowerLaw => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// Weighted least squares of the levels for one shape.
    fn levels(&self, shape: Shape) -> Levels {
        let mut sums = [0.0; 6]; // ff, fs, ss, fy, sy, yy with f = 1 - s
        for ((x, y), w) in self.log_compute.iter().zip(&self.values).zip(&self.weights) {
            let s = self.share(shape, *x);
            let f = 1.0 - s;
            let terms = [f * f, f * s, s * s, f * y, s * y, y * y];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += w * term);
        }
        if let Some(floor) = self.measured_floor {
            sums[0] += 1.0;
            sums[3] += floor;
            sums[5] += floor * floor;
        }
        let [ff, fs, ss, fy, sy, yy] = sums;
        let squares_at = |floor: f64, ceiling: f64| {
            yy - 2.0 * (floor * fy + ceiling * sy)
                + floor * floor * ff
                + 2.0 * floor * ceiling * fs
                + ceiling * ceiling * ss
        };
        let (low, high) = self.level_bounds();
        let tiny = 1e-12;
        let (level, inverse) = match (self.floor, self.ceiling) {
            (Some(floor), Some(ceiling)) => ([floor, ceiling], [0.0; 3]),
            (Some(floor), None) => {
                let ceiling = ((sy - floor * fs) / ss.max(tiny)).clamp(low, high);
                ([floor, ceiling], [0.0, 0.0, 1.0 / ss.max(tiny)])
            }
            (None, Some(ceiling)) => {
                let floor = ((fy - ceiling * fs) / ff.max(tiny)).clamp(low, high);
                ([floor, ceiling], [1.0 / ff.max(tiny), 0.0, 0.0])
            }
            (None, None) => {
                let determinant = (ff * ss - fs * fs).max(tiny);
                let inverse = [ss / determinant, -fs / determinant, ff / determinant];
                let ceiling = (inverse[1] * fy + inverse[2] * sy).clamp(low, high);
                let floor = ((fy - ceiling * fs) / ff.max(tiny)).clamp(low, high);
                ([floor, ceiling], inverse)
            }
        };
        Levels { squares: squares_at(level[0], level[1]).max(0.0), level, inverse }
    }

    fn value_at(&self, shape: Shape, level: [f64; 2], log_compute: f64) -> f64 {
        let share = self.share(shape, log_compute);
        level[0] * (1.0 - share) + level[1] * share
    }

    fn residuals(&self, shape: Shape, levels: &Levels) -> Vec<f64> {
        let pairs = self.log_compute.iter().zip(&self.values);
        pairs.map(|(x, y)| y - self.value_at(shape, levels.level, *x)).collect()
    }

    fn grid(&self, bounds: [(f64, f64); 2]) -> Vec<(Shape, Levels)> {
        let rows = if bounds[1].0 < bounds[1].1 { GRID.1 } else { 1 };
        let columns = if rows == 1 { GRID.0 * 8 } else { GRID.0 };
        let at = |range: (f64, f64), i: usize, count: usize| {
            range.0 + (range.1 - range.0) * i as f64 / (count.max(2) - 1) as f64
        };
        (0..columns)
            .flat_map(|i| (0..rows).map(move |j| (i, j)))
            .map(|(i, j)| {
                let shape = Shape {
                    log_steepness: at(bounds[0], i, columns),
                    log_midpoint: at(bounds[1], j, rows),
                };
                (shape, self.levels(shape))
            })
            .collect()
    }

    /// Walks downhill from `start` with shrinking compass steps, inside the bounds.
    fn polish(&self, start: (Shape, Levels), mut step: [f64; 2]) -> (Shape, Levels) {
        let bounds = self.bounds();
        let mut best = start;
        for _ in 0..MOST_MOVES {
            if step[0].max(step[1]) <= POLISHED {
                break;
            }
            let moves =
                [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 1.0], [-1.0, -1.0]];
            let tried = moves.map(|[a, b]| {
                let clamp = |value: f64, range: (f64, f64)| value.clamp(range.0, range.1);
                let shape = Shape {
                    log_steepness: clamp(best.0.log_steepness + a * step[0], bounds[0]),
                    log_midpoint: clamp(best.0.log_midpoint + b * step[1], bounds[1]),
                };
                (shape, self.levels(shape))
            });
            let lowest = tried
                .into_iter()
                .min_by(|a, b| a.1.squares.total_cmp(&b.1.squares))
                .expect("six moves");
            if lowest.1.squares < best.1.squares * (1.0 - LEAST_PROGRESS) {
                best = lowest;
            } else {
                step = step.map(|s| s * 0.5);
            }
        }
        best
    }
}

impl Profile {
    /// `floor_is_measured`: a held floor is one noisy point, and intervals must say so.
    fn new(problem: Problem, noise: &Noise, floor_is_measured: bool) -> Self {
        if floor_is_measured && problem.floor.is_some() {
            let loose = Self::new(problem.with_measured_floor(), noise, false);
            let bounds = problem.bounds();
            let best = polish_best(&problem, &problem.grid(bounds), bounds);
            return Self { best, ..loose };
        }
        let limits = problem.bounds();
        let mut bounds = limits;
        let mut cells = problem.grid(bounds);
        let mut best = polish_best(&problem, &cells, bounds);
        for _ in 0..ROUNDS {
            let threshold = threshold(&problem, &best, noise);
            bounds = shrink(&cells, &best, threshold, bounds, limits);
            cells = problem.grid(bounds);
            best = cells.iter().copied().fold(best, lower);
        }
        best = problem.polish(best, bounds.map(|(low, high)| (high - low) / 30.0));
        let threshold = threshold(&problem, &best, noise);
        let mut allowed: Vec<_> =
            cells.into_iter().filter(|(_, levels)| levels.squares <= threshold).collect();
        allowed.push(best);
        let top = limits[1].1 - 1e-6;
        let is_open = problem.family == Family::Sigmoid
            && allowed.iter().any(|(shape, _)| shape.log_midpoint >= top);
        let noise = residual_sd(&problem, &best).max(noise.scale);
        let cell = cell_widths(bounds);
        Self { problem, allowed, best, threshold, cell, noise, is_open }
    }

    /// The same allowed shapes around another centre (the answer of `paper`).
    pub(crate) fn centred_on(mut self, curve: &Sigmoid) -> Self {
        let shape =
            Shape { log_steepness: curve.steepness.ln(), log_midpoint: curve.midpoint.ln() };
        let mut levels = self.problem.levels(shape);
        levels.level = [curve.floor, curve.ceiling];
        self.best = (shape, levels);
        self
    }

    /// Best value and allowed interval of a number that is linear in (R0, A), the two factors
    /// given per shape.
    fn linear(&self, factors: impl Fn(Shape) -> [f64; 2]) -> Estimate {
        let of = |shape: Shape, level: [f64; 2]| {
            let [floor, ceiling] = factors(shape);
            floor * level[0] + ceiling * level[1]
        };
        let value = of(self.best.0, self.best.1.level);
        let (mut low, mut high) = (value, value);
        for (shape, levels) in &self.allowed {
            let slack = (self.threshold - levels.squares).max(0.0);
            for sign in [-1.0, 1.0] {
                let level = self.farthest(levels, factors(*shape), sign, slack);
                let reached = of(*shape, level);
                low = low.min(reached);
                high = high.max(reached);
            }
        }
        Estimate { value, low, high }
    }

    /// The levels inside the allowed ellipse that push a linear number farthest.
    fn farthest(&self, levels: &Levels, factors: [f64; 2], sign: f64, slack: f64) -> [f64; 2] {
        let [a, b, c] = levels.inverse;
        let direction = [a * factors[0] + b * factors[1], b * factors[0] + c * factors[1]];
        let curvature = factors[0] * direction[0] + factors[1] * direction[1];
        if curvature <= 0.0 {
            return levels.level;
        }
        let reach = sign * (slack / curvature).sqrt();
        let (low, high) = self.problem.level_bounds();
        let moved = |i: usize| (levels.level[i] + reach * direction[i]).clamp(low, high);
        [moved(0), moved(1)]
    }

    /// Range of a logarithm of the shape over the allowed cells; the border lies on average half a
    /// cell beyond the last one inside.
    fn allowed_range(&self, of: impl Fn(Shape) -> f64, cell: f64) -> Estimate {
        let values = self.allowed.iter().map(|(shape, _)| of(*shape));
        let value = of(self.best.0);
        let low = values.clone().fold(value, f64::min) - cell / 2.0;
        let high = values.fold(value, f64::max) + cell / 2.0;
        Estimate { value, low, high }.map(f64::exp)
    }

    pub(crate) fn forecast(&self, compute: Compute) -> Forecast {
        let log_compute = compute.ln();
        let plain = self.linear(|shape| {
            let share = self.problem.share(shape, log_compute);
            [1.0 - share, share]
        });
        let ahead = (log_compute - self.problem.log_last).max(0.0);
        let curve = widened(plain, DRIFT * ahead.sqrt());
        let measured = widened(curve, self.noise);
        let (low, high) = self.problem.level_bounds();
        Forecast {
            at: compute,
            value: plain.value,
            low: measured.low.max(low),
            high: measured.high.min(high),
            curve_low: curve.low.max(low),
            curve_high: curve.high.min(high),
        }
    }

    pub(crate) fn gain(&self, factor: f64) -> Estimate {
        let from = self.problem.log_last;
        let to = from + factor.ln();
        let plain = self.linear(|shape| {
            let gained = self.problem.share(shape, to) - self.problem.share(shape, from);
            [-gained, gained]
        });
        widened(plain, DRIFT * (to - from).max(0.0).sqrt())
    }

    /// Standard deviation of the points around the best curve.
    pub(crate) fn residual_scale(&self) -> f64 {
        residual_sd(&self.problem, &self.best)
    }

    fn ceiling(&self) -> Estimate {
        let plain = self.linear(|_| [0.0, 1.0]);
        let wide = widened(plain, DRIFT * std::f64::consts::LN_10.sqrt());
        let (low, high) = self.problem.level_bounds();
        Estimate { value: wide.value, low: wide.low.max(low), high: wide.high.min(high) }
    }

    fn steepness(&self) -> Estimate {
        self.allowed_range(|shape| shape.log_steepness, self.cell[0])
    }

    fn midpoint(&self) -> Estimate<Compute> {
        match self.problem.family {
            Family::Sigmoid => {
                self.allowed_range(|shape| shape.log_midpoint, self.cell[1]).map(Compute)
            }
            Family::PowerLaw => {
                let Estimate { value, low, high } = self.steepness();
                let halved = |steepness: f64| {
                    Compute((self.problem.log_first + std::f64::consts::LN_2 / steepness).exp())
                };
                Estimate { value: halved(value), low: halved(high), high: halved(low) }
            }
        }
    }

    pub(crate) fn solved(self, window: &Window) -> Solved {
        let ceiling = self.ceiling();
        let can_be_bounded = ceiling.high < 1.0 && !self.is_open && window.has_moved();
        let floor = match window.floor {
            Some(value) => Estimate { value, low: value, high: value },
            None => self.linear(|_| [1.0, 0.0]),
        };
        let (shape, levels) = &self.best;
        let fitted = self.problem.log_compute.iter();
        let fitted = fitted.map(|x| self.problem.value_at(*shape, levels.level, *x)).collect();
        Solved {
            floor,
            ceiling,
            steepness: self.steepness(),
            midpoint: self.midpoint(),
            can_be_bounded,
            fitted,
            noise: self.noise,
            history: Vec::new(),
            predictor: Predictor::Profile(self),
        }
    }
}

pub(crate) fn profile(window: &Window, options: &FitOptions, family: Family) -> Profile {
    let ceiling = options.ceiling.map(|value| window.range.to_unit(value));
    let relative = &window.noise.relative;
    let problem = Problem::new(&window.unit, relative, window.floor, ceiling, family);
    Profile::new(problem, &window.noise, window.floor_is_measured)
}

/// The sigmoid's profile of points on the unit scale.
pub(crate) fn profile_of(points: &[Point], floor: Option<f64>, noise: &Noise) -> Profile {
    let problem = Problem::new(points, &noise.relative, floor, None, Family::Sigmoid);
    Profile::new(problem, noise, false)
}

pub(crate) fn solve(window: &Window, options: &FitOptions, family: Family) -> Solved {
    profile(window, options, family).solved(window)
}

/// The least-squares sigmoid and the scale of its residuals.
pub(crate) fn best_sigmoid(
    points: &[Point],
    floor: Option<f64>,
    relative: &[f64],
) -> (Sigmoid, f64) {
    let problem = Problem::new(points, relative, floor, None, Family::Sigmoid);
    let bounds = problem.bounds();
    let best = polish_best(&problem, &problem.grid(bounds), bounds);
    let curve = Sigmoid {
        floor: best.1.level[0],
        ceiling: best.1.level[1],
        steepness: best.0.log_steepness.exp(),
        midpoint: Compute(best.0.log_midpoint.exp()),
    };
    (curve, residual_sd(&problem, &best))
}

fn lower(a: (Shape, Levels), b: (Shape, Levels)) -> (Shape, Levels) {
    if b.1.squares < a.1.squares { b } else { a }
}

fn polish_best(
    problem: &Problem,
    cells: &[(Shape, Levels)],
    bounds: [(f64, f64); 2],
) -> (Shape, Levels) {
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by(|a, b| cells[*a].1.squares.total_cmp(&cells[*b].1.squares));
    let step = bounds.map(|(low, high)| (high - low) / 30.0);
    let polished = order.iter().take(STARTS).map(|cell| problem.polish(cells[*cell], step));
    polished.reduce(lower).expect("a grid has cells")
}

fn residual_sd(problem: &Problem, best: &(Shape, Levels)) -> f64 {
    let freedom = (problem.values.len().saturating_sub(problem.free_parameters())).max(1);
    (best.1.squares / freedom as f64).sqrt()
}

/// The squares up to which a shape belongs to the 90 % region.
fn threshold(problem: &Problem, best: &(Shape, Levels), noise: &Noise) -> f64 {
    let freedom = (problem.values.len().saturating_sub(problem.free_parameters())).max(1) as f64;
    let floor = if noise.is_binomial { noise.scale } else { noise.scale * 0.5 };
    let sd = MISFIT * residual_sd(problem, best).max(floor);
    let residuals = problem.residuals(best.0, &best.1);
    let correlation = lag_one_correlation(&residuals);
    let fewer_points = (1.0 + correlation) / (1.0 - correlation);
    let student = Z
        + (Z.powi(3) + Z) / (4.0 * freedom)
        + (5.0 * Z.powi(5) + 16.0 * Z.powi(3) + 3.0 * Z) / (96.0 * freedom.powi(2));
    best.1.squares + (sd * student).powi(2) * fewer_points
}

/// Correlation of neighbouring residuals, in [0, 0.9].
pub(crate) fn lag_one_correlation(residuals: &[f64]) -> f64 {
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    let products: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if squares > 0.0 { (products / squares).clamp(0.0, 0.9) } else { 0.0 }
}

fn shrink(
    cells: &[(Shape, Levels)],
    best: &(Shape, Levels),
    threshold: f64,
    bounds: [(f64, f64); 2],
    limits: [(f64, f64); 2],
) -> [(f64, f64); 2] {
    let widths = cell_widths(bounds);
    let mut shrunk =
        [(best.0.log_steepness, best.0.log_steepness), (best.0.log_midpoint, best.0.log_midpoint)];
    for (shape, levels) in cells {
        if levels.squares <= threshold {
            for (range, value) in shrunk.iter_mut().zip([shape.log_steepness, shape.log_midpoint]) {
                *range = (range.0.min(value), range.1.max(value));
            }
        }
    }
    std::array::from_fn(|i| {
        let (low, high) = shrunk[i];
        ((low - widths[i]).max(limits[i].0), (high + widths[i]).min(limits[i].1))
    })
}

fn cell_widths(bounds: [(f64, f64); 2]) -> [f64; 2] {
    [
        (bounds[0].1 - bounds[0].0) / (GRID.0 - 1) as f64,
        (bounds[1].1 - bounds[1].0) / (GRID.1 - 1) as f64,
    ]
}

/// Adds an independent normal error to an interval.
fn widened(estimate: Estimate, sd: f64) -> Estimate {
    let extra = Z * sd;
    let value = estimate.value;
    Estimate {
        value,
        low: value - (value - estimate.low).hypot(extra),
        high: value + (estimate.high - value).hypot(extra),
    }
}
