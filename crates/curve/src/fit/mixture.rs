//! The default method: an exact mixture of normals over a grid, which can learn from finished runs.
//!
//! ```text
//! R_i = f(C_i) + d(C_i) + w(C_i) + e_i
//! f(C) = R0 (1-g) + A g,   g = 1 - (1 + u/q)^-q,  u = (C/c)^B        q = 1 is the law itself
//! d    drift of the run: a walk in log compute to both sides of the last point
//! w    distrust of the warm-up, as large as the data ask for
//! e    sampling noise, with dips below
//! ```
//!
//! Given the shape (B, c, q) and the scales (of d, w, e) everything is Gaussian, so floor and
//! ceiling are integrated out exactly and the rest is a weighted sum over a grid. What is asked
//! for is then a mixture of normals: no optimiser to get stuck, no random draws, no seed.
//!
//! Finished runs of the same model and evaluation enter as branches of the prior
//! (`posterior.rs`). What each ingredient buys and where it fails:
//! `docs/design/forecast-method.md`.
//!
//! Not here: assumptions (`settings.rs`), points, bins and noise (`observed.rs`), the sum
//! (`grid.rs`), what is read off it (`posterior.rs`).

mod grid;
mod observed;
mod posterior;
mod settings;
#[cfg(test)]
mod tests;

pub(crate) use posterior::{Branch, Future, Posterior, TailSummary};

use grid::Grid;
use observed::Observed;
use settings::{Bell, Settings};

use crate::compute::Compute;
use crate::fit::levels::{GainPrior, LevelPrior};
use crate::fit::{Estimate, HistoryShare, Solved};
use crate::forecast::Predictor;
use crate::history::MOST_HISTORY;
use crate::options::FitOptions;
use crate::points::Point;
use crate::window::Window;

/// The tails that a finished run is summarised by.
pub(crate) const TAILS: [f64; settings::TAIL_COUNT] = Settings::SHIPPED.tails;

/// A floor or ceiling that is held: as good as exact beside any sampling noise.
const HELD_SD: f64 = 1e-4;

/// Prior of floor, ceiling and of the gain still to come, the latter with several widths.
#[derive(Debug, Clone)]
pub(crate) struct Prior {
    levels: LevelPrior,
    to_come: Vec<GainPrior>,
}

impl Prior {
    fn generic(observed: &Observed, settings: &Settings) -> Self {
        let mean = [observed.value[0], settings.ceiling.mean];
        let precision = [settings.floor_sd.powi(-2), settings.ceiling.sd.powi(-2)];
        let gain = |bell: &Bell| GainPrior { mean: bell.mean, precision: bell.sd.powi(-2) };
        let to_come = settings.gains.iter().map(gain).collect();
        Self { levels: LevelPrior { mean, precision }, to_come }
    }

    fn of(window: &Window, options: &FitOptions, observed: &Observed, settings: &Settings) -> Self {
        let mut prior = Self::generic(observed, settings);
        if let Some(value) = window.floor {
            let sd = if window.floor_is_measured { window.noise.scale } else { HELD_SD };
            prior.levels.mean[0] = value;
            prior.levels.precision[0] = sd.powi(-2);
        }
        if let Some(value) = options.ceiling {
            prior.levels.mean[1] = window.range.to_unit(value);
            prior.levels.precision[1] = HELD_SD.powi(-2);
            prior.to_come = vec![GainPrior::NONE];
        }
        prior
    }
}

pub(crate) fn solve(window: &Window, options: &FitOptions) -> Solved {
    let settings = Settings::SHIPPED;
    let observed = Observed::new(&window.rows, &settings);
    let prior = Prior::of(window, options, &observed, &settings);
    let grid = Grid::refine(&observed, &prior, &settings);
    let (names, branches) = branches(window, options);
    let posterior = Posterior::new(observed, grid, &branches, &settings);
    let ceiling = posterior.ceiling().estimate();
    let fitted = posterior.mean_curve(window.unit.iter().map(|p| p.compute));
    let shares = names.into_iter().zip(posterior.history_weights());
    let mut history: Vec<HistoryShare> =
        shares.map(|(name, weight)| HistoryShare { name, weight: *weight }).collect();
    history.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    Solved {
        floor: match window.floor {
            Some(value) => Estimate { value, low: value, high: value },
            None => posterior.floor().estimate().map(|level| level.clamp(0.0, 1.0)),
        },
        ceiling: ceiling.map(|level| level.clamp(0.0, 1.0)),
        steepness: posterior.steepness(),
        midpoint: posterior.midpoint().map(Compute),
        can_be_bounded: ceiling.high < 1.0 && window.has_moved(),
        fitted,
        noise: posterior.noise(),
        history,
        predictor: Predictor::Mixture(Box::new(posterior)),
    }
}

/// Names and branches of the latest finished runs to learn from: not the run itself, and none where
/// the ceiling is held.
fn branches(window: &Window, options: &FitOptions) -> (Vec<String>, Vec<Branch>) {
    let history = if options.ceiling.is_some() { &[] } else { options.history };
    let others = history.iter().rev().filter(|entry| !entry.holds(&window.used));
    let branches = others.filter_map(|entry| Some((entry.name.clone(), entry.branch()?)));
    branches.take(MOST_HISTORY).unzip()
}

/// What a finished run teaches, from all its points on the unit scale.
pub(crate) fn summarise(points: &[Point]) -> Branch {
    summarise_with(points, &Settings::SHIPPED)
}

fn summarise_with(points: &[Point], settings: &Settings) -> Branch {
    let observed = Observed::new(points, settings);
    let prior = Prior::generic(&observed, settings);
    posterior::summarise(&Grid::refine(&observed, &prior, settings))
}
