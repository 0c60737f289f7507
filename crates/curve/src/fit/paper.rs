//! The authors' procedure, exactly, so that published numbers can be checked.
//!
//! arXiv 2510.13786, appendix: A on {0.450, 0.455 … 0.800}, C_mid on 100 linearly spaced values in
//! [100, 40000], B by least squares for each pair, the smallest sum of squares wins; R0 is held.
//!
//! Trying all 7,100 pairs is what [`exhaustive`] does; it is the judge in the tests. [`search`]
//! gives the same answer some hundred times sooner: for each C_mid the best (A, B) with A free is
//! a lower bound on every pair of that C_mid, so most of them never need the grid of A.
//!
//! The authors give no intervals. Those of a fit are the ones of `profile` on the same points,
//! widened to hold this answer and, for A, the authors' margin of ±0.02.

use super::profile::{Family, profile};
use crate::compute::Compute;
use crate::fit::{Estimate, Solved};
use crate::law::Sigmoid;
use crate::options::FitOptions;
use crate::window::Window;

/// Margin on A: three runs of one recipe differed by up to 0.015 (section 3.1).
pub(crate) const CEILING_MARGIN: f64 = 0.02;
const CEILINGS: usize = 71;
const MIDPOINTS: usize = 100;
const MIDPOINT_RANGE: (f64, f64) = (100.0, 40_000.0);
/// Steepness is searched from these starts, inside these bounds.
const STARTS: [f64; 6] = [0.3, 0.7, 1.2, 2.0, 3.5, 7.0];
const STEEPNESS_RANGE: (f64, f64) = (1e-3, 30.0);
const NEWTON_STEPS: usize = 30;

pub(crate) fn solve(window: &Window, options: &FitOptions) -> Solved {
    let floor = window.floor.expect("checked when the window was chosen");
    let data = Data::new(window, floor);
    let curve = search(&data);
    let mut solved = profile(window, options, Family::Sigmoid).centred_on(&curve).solved(window);
    solved.ceiling = Estimate {
        value: curve.ceiling,
        low: solved.ceiling.low.min(curve.ceiling - CEILING_MARGIN),
        high: solved.ceiling.high.max(curve.ceiling + CEILING_MARGIN),
    };
    solved
}

/// Log compute and gain over the floor.
pub(crate) struct Data {
    log_compute: Vec<f64>,
    gain: Vec<f64>,
    floor: f64,
}

impl Data {
    fn new(window: &Window, floor: f64) -> Self {
        let points = window.unit.iter().filter(|p| p.compute.is_positive());
        let (log_compute, gain) = points.map(|p| (p.compute.ln(), p.value - floor)).unzip();
        Self { log_compute, gain, floor }
    }

    /// Sum of squares, and its derivatives' pieces: s's, s'y, d's, d'y, d'd with d = ds/dB.
    fn sums(&self, log_midpoint: f64, steepness: f64) -> [f64; 5] {
        let mut sums = [0.0; 5];
        for (x, y) in self.log_compute.iter().zip(&self.gain) {
            let distance = log_midpoint - x;
            let s = 1.0 / (1.0 + (steepness * distance).exp());
            let d = -s * (1.0 - s) * distance;
            let terms = [s * s, s * y, d * s, d * y, d * d];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
        sums
    }

    fn squares_of_gain(&self) -> f64 {
        self.gain.iter().map(|y| y * y).sum()
    }

    /// Best B for a held gain A - R0: Gauss-Newton with halving, from `start`.
    fn steepness_for(&self, log_midpoint: f64, gain: f64, start: f64) -> (f64, f64) {
        let total = self.squares_of_gain();
        let squares = |sums: &[f64; 5]| total - 2.0 * gain * sums[1] + gain * gain * sums[0];
        let mut steepness = start;
        let mut sums = self.sums(log_midpoint, steepness);
        let mut lowest = squares(&sums);
        for _ in 0..NEWTON_STEPS {
            let curvature = gain * gain * sums[4];
            if curvature <= 0.0 {
                break;
            }
            let mut step = (gain * sums[3] - gain * gain * sums[2]) / curvature;
            let mut is_lower = false;
            for _ in 0..20 {
                let tried = (steepness + step).clamp(STEEPNESS_RANGE.0, STEEPNESS_RANGE.1);
                let tried_sums = self.sums(log_midpoint, tried);
                let reached = squares(&tried_sums);
                if reached < lowest {
                    is_lower = (steepness - tried).abs() > 1e-10 * steepness;
                    (steepness, sums, lowest) = (tried, tried_sums, reached);
                    break;
                }
                step *= 0.5;
            }
            if !is_lower {
                break;
            }
        }
        (steepness, lowest)
    }

    /// Best (B, squares) for one C_mid with A free inside the grid's range: a lower bound.
    fn relaxed(&self, log_midpoint: f64) -> (f64, f64, f64) {
        let total = self.squares_of_gain();
        let range = (ceiling(0) - self.floor, ceiling(CEILINGS - 1) - self.floor);
        let of = |steepness: f64| {
            let sums = self.sums(log_midpoint, steepness);
            let gain = (sums[1] / sums[0].max(1e-300)).clamp(range.0, range.1);
            (total - 2.0 * gain * sums[1] + gain * gain * sums[0], gain)
        };
        let start = STARTS
            .into_iter()
            .min_by(|a, b| of(*a).0.total_cmp(&of(*b).0))
            .expect("there are starts");
        let (mut left, mut right) = (start / 2.0, start * 2.0);
        // Golden section on B, with A solved inside.
        let golden = 0.618_033_988_749_894_8;
        let mut points = [right - golden * (right - left), left + golden * (right - left)];
        let mut values = points.map(|b| of(b).0);
        for _ in 0..24 {
            if values[0] < values[1] {
                right = points[1];
                points = [right - golden * (right - left), points[0]];
                values = [of(points[0]).0, values[0]];
            } else {
                left = points[0];
                points = [points[1], left + golden * (right - left)];
                values = [values[1], of(points[1]).0];
            }
        }
        let steepness = f64::midpoint(left, right);
        let (squares, gain) = of(steepness);
        (squares, steepness, gain)
    }
}

fn ceiling(index: usize) -> f64 {
    0.45 + 0.005 * index as f64
}

fn midpoint(index: usize) -> f64 {
    let (low, high) = MIDPOINT_RANGE;
    low + (high - low) * index as f64 / (MIDPOINTS - 1) as f64
}

/// The grid's winner by bounding: see the header.
pub(crate) fn search(data: &Data) -> Sigmoid {
    let mut bounds: Vec<(usize, (f64, f64, f64))> =
        (0..MIDPOINTS).map(|index| (index, data.relaxed(midpoint(index).ln()))).collect();
    bounds.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
    let mut best = (f64::INFINITY, None);
    for (index, (bound, steepness, gain)) in bounds {
        // The bound is a minimum found to about 1e-9; the margin keeps the comparison safe.
        if bound * (1.0 - 1e-6) > best.0 {
            break;
        }
        let nearest = ((gain + data.floor - ceiling(0)) / 0.005).round();
        let nearest = (nearest.max(0.0) as usize).min(CEILINGS - 1);
        let mut walk = |indices: &mut dyn Iterator<Item = usize>| {
            let mut start = steepness;
            for ceiling_index in indices {
                let held = ceiling(ceiling_index) - data.floor;
                let (found, squares) = data.steepness_for(midpoint(index).ln(), held, start);
                start = found;
                if squares < best.0 {
                    best = (squares, Some((ceiling_index, index, found)));
                } else if squares > best.0 * (1.0 + 1e-9) {
                    return;
                }
            }
        };
        walk(&mut (0..=nearest).rev());
        walk(&mut (nearest + 1..CEILINGS));
    }
    let (ceiling_index, index, steepness) = best.1.expect("the first bound is finite");
    sigmoid(data, ceiling_index, index, steepness)
}

fn sigmoid(data: &Data, ceiling_index: usize, midpoint_index: usize, steepness: f64) -> Sigmoid {
    Sigmoid {
        floor: data.floor,
        ceiling: ceiling(ceiling_index),
        steepness,
        midpoint: Compute(midpoint(midpoint_index)),
    }
}

/// Every pair, every start: the plain procedure that judges [`search`].
#[cfg(test)]
pub(crate) fn exhaustive(data: &Data) -> Sigmoid {
    let mut best = (f64::INFINITY, (0, 0, 1.0));
    for midpoint_index in 0..MIDPOINTS {
        for ceiling_index in 0..CEILINGS {
            let gain = ceiling(ceiling_index) - data.floor;
            for start in STARTS {
                let (steepness, squares) =
                    data.steepness_for(midpoint(midpoint_index).ln(), gain, start);
                if squares < best.0 {
                    best = (squares, (ceiling_index, midpoint_index, steepness));
                }
            }
        }
    }
    let (ceiling_index, midpoint_index, steepness) = best.1;
    sigmoid(data, ceiling_index, midpoint_index, steepness)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn data(curve: &Sigmoid, last: Compute, wiggle: &[f64]) -> Data {
        let points = wiggle.iter().enumerate().map(|(i, noise)| {
            let compute = last * ((i + 1) as f64 / wiggle.len() as f64);
            (compute.ln(), curve.value_at(compute) + noise - curve.floor)
        });
        let (log_compute, gain) = points.unzip();
        Data { log_compute, gain, floor: curve.floor }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn the_bounded_search_finds_the_winner_of_the_whole_grid(
            ceiling in 0.5..0.75_f64, steepness in 0.8..3.0_f64, midpoint in 500.0..20_000.0_f64,
            reach in 0.7..6.0_f64, wiggle in prop::collection::vec(-0.006..0.006_f64, 20),
        ) {
            let midpoint = Compute(midpoint);
            let curve = Sigmoid { floor: 0.4, ceiling, steepness, midpoint };
            let data = data(&curve, midpoint * reach, &wiggle);
            let (fast, slow) = (search(&data), exhaustive(&data));
            prop_assert!((fast.ceiling - slow.ceiling).abs() < 1e-12);
            prop_assert!((fast.midpoint.0 - slow.midpoint.0).abs() < 1e-9);
            prop_assert!((fast.steepness - slow.steepness).abs() < 1e-4);
        }
    }
}
