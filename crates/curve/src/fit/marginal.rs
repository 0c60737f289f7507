//! A posterior over a grid with a local trend, read off random draws: kept to compare with.
//!
//! ```text
//! R_i = f(C_i) + d(C_i) + w(C_i) + e_i
//! f(C) = R0 (1-g) + A g,   g = 1 - (1 + (C/C_mid)^B)^(-q)       q = 1 is the law itself
//! d    drift of the run: misspecification, seeds, correlated evaluation noise
//! w    distrust of the warm-up, as large as the data ask for
//! e    sampling noise
//! ```
//!
//! Everything is Gaussian given the shape (B, C_mid, q) and the scales (tau of d, lambda of w,
//! sigma of e), so floor and ceiling are integrated out exactly and the rest is a weighted sum
//! over a grid; there is no optimiser to get stuck. The (B, C_mid) box is shrunk twice around the
//! cells that carry weight. 4,000 draws from the result give every interval.
//!
//! What each ingredient buys, and where the method fails: `docs/forecasting.md`.
//!
//! Not here: covariances (`covariance.rs`), the sum over the grid (`grid.rs`), draws and
//! forecasts (`posterior.rs`).

mod covariance;
mod grid;
mod posterior;

pub(crate) use posterior::Posterior;

use covariance::Covariance;
use grid::{Grid, Prior};

use crate::fit::levels::{GainPrior, LevelPrior};
use crate::fit::{Estimate, Solved};
use crate::forecast::Predictor;
use crate::options::FitOptions;
use crate::window::Window;

/// A floor or ceiling that is held: as good as exact beside any sampling noise.
const HELD_SD: f64 = 1e-4;
/// Prior of floor and ceiling: weak, centred on the first point and on the paper's ceilings.
const LEVEL_SD: f64 = 0.3;
const USUAL_CEILING: f64 = 0.65;
/// Untruncated posterior probability of a ceiling above 1 that a bounded ceiling may have.
const MOST_ABOVE_ONE: f64 = 0.05;

pub(crate) fn solve(window: &Window, options: &FitOptions) -> Solved {
    let prior = prior(window, options);
    let covariance = Covariance::new(window);
    let grid = Grid::refine(window, &covariance, &prior);
    let posterior = Posterior::draw(window, &covariance, &grid);

    let ceiling = posterior.ceiling();
    let is_below_one = posterior.share_above_one < MOST_ABOVE_ONE;
    let fitted = window.unit.iter().map(|p| posterior.mean_curve_at(p.compute)).collect();
    Solved {
        floor: match window.floor {
            Some(value) => Estimate { value, low: value, high: value },
            None => posterior.floor(),
        },
        ceiling,
        steepness: posterior.steepness(),
        midpoint: posterior.midpoint(),
        can_be_bounded: is_below_one && window.has_moved(),
        fitted,
        noise: posterior.noise(),
        history: Vec::new(),
        predictor: Predictor::Posterior(posterior),
    }
}

fn prior(window: &Window, options: &FitOptions) -> Prior {
    let held = HELD_SD.powi(-2);
    let weak = LEVEL_SD.powi(-2);
    let first = window.unit[0].value;
    let (floor, floor_precision) = match window.floor {
        Some(value) if window.floor_is_measured => (value, window.noise.scale.powi(-2)),
        Some(value) => (value, held),
        None => (first, weak),
    };
    let (ceiling, ceiling_precision) = match options.ceiling {
        Some(value) => (window.range.to_unit(value), held),
        None => (USUAL_CEILING, weak),
    };
    // What is still to be gained is of the order of what was gained so far, unless the ceiling is
    // known.
    let gain = (window.last_level() - first).max(0.0);
    let remaining_gain_sd = (0.05 + gain).min(0.2);
    let to_come = match options.ceiling {
        Some(_) => GainPrior::NONE,
        None => GainPrior { mean: 0.0, precision: remaining_gain_sd.powi(-2) },
    };
    let mean = [floor, ceiling];
    let precision = [floor_precision, ceiling_precision];
    Prior { levels: LevelPrior { mean, precision }, to_come }
}
