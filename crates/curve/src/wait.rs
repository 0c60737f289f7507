//! How long until the ceiling is bounded, if the run goes on as now?
//!
//! A few futures are taken from the posterior, spread evenly over what it thinks possible; each is
//! measured as the run was so far (same spacing, same noise, same drift), and fitted again at
//! growing compute until the fit calls its ceiling bounded. The random numbers have a fixed seed,
//! so the answer repeats.
//!
//! Not here: whether it is worth the wait ([`crate::Fit::more_compute`]).

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, StandardNormal};
use serde::Serialize;

use crate::compute::Compute;
use crate::fit::mixture::Future;
use crate::fit::{Fit, fit};
use crate::forecast::Predictor;
use crate::options::FitOptions;
use crate::points::{Point, Series};

/// Futures that are followed.
const FUTURES: usize = 5;
/// Times the compute of the last point at which each is looked at.
const LOOKS: [f64; 9] = [1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0];
/// Evaluations of one future at most; a denser run is averaged.
const MOST_EVALUATIONS: usize = 400;
const SEED: u64 = 0x5ca1_e71d;

/// When the ceiling will be bounded. `None` is: not within sixteen times the compute.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Wait {
    /// In the luckiest of the futures.
    pub earliest: Option<Compute>,
    /// In half of them.
    pub likely: Option<Compute>,
}

/// Follows futures of a run that `found`, its default fit, calls not bounded. `None` for other
/// methods, which have no posterior to take them from.
pub fn until_bounded(series: &Series, found: &Fit, options: &FitOptions) -> Option<Wait> {
    let Predictor::Mixture(posterior) = &found.predictor else { return None };
    let until = found.last_compute();
    let past = series.until(until)?.averaged(MOST_EVALUATIONS / 2);
    let mut rng = ChaCha12Rng::seed_from_u64(SEED);
    let mut waits: Vec<usize> = posterior
        .futures(FUTURES)
        .iter()
        .map(|future| {
            let points = measured(&past, future, &mut rng);
            looks_needed(&past, &points, options)
        })
        .collect();
    waits.sort_unstable();
    let compute = |look: usize| LOOKS.get(look).map(|factor| until * *factor);
    Some(Wait { earliest: compute(waits[0]), likely: compute(waits[FUTURES / 2]) })
}

/// What would be measured after the past, up to the last look.
fn measured(past: &Series, future: &Future, rng: &mut ChaCha12Rng) -> Vec<Point> {
    let points = past.points();
    let (last, count) = (points[points.len() - 1], points.len());
    let recent = &points[count - (count / 4).max(2)..];
    let spacing = (last.compute.0 - recent[0].compute.0) / (recent.len() - 1) as f64;
    let end = last.compute.0 * LOOKS[LOOKS.len() - 1];
    // Fewer and more exact evaluations where there would be very many.
    let step = spacing.max((end - last.compute.0) / MOST_EVALUATIONS as f64);
    let exactness = step / spacing;
    let range = past.range();
    let mut normal = || -> f64 { StandardNormal.sample(rng) };
    let (mut compute, mut drift) = (last.compute, 0.0);
    let mut after = Vec::new();
    while compute.0 + step <= end {
        let next = Compute(compute.0 + step);
        drift += future.tau * (next / compute).ln().sqrt() * normal();
        let noise = future.noise / exactness.sqrt() * normal();
        let value = (future.value_at(next) + drift + noise).clamp(0.0, 1.0);
        let samples = last.samples.map(|samples| samples * exactness);
        after.push(Point { compute: next, value: range.from_unit(value), samples });
        compute = next;
    }
    after
}

/// The first of [`LOOKS`] at which the fit is bounded; their number where none is. Bisection: once
/// bounded, a run that goes on as it did stays so.
fn looks_needed(past: &Series, after: &[Point], options: &FitOptions) -> usize {
    let last = past.last_compute();
    let is_bounded = |look: usize| {
        let until = last * (LOOKS[look] * (1.0 + 1e-9));
        let seen = after.iter().take_while(|p| p.compute <= until);
        let points = past.points().iter().chain(seen).copied().collect();
        let series = Series::try_with_range(points, past.range()).ok();
        let options = FitOptions { until: None, ..*options };
        series.and_then(|series| fit(&series, &options).ok()).is_some_and(|f| f.ceiling.bounded)
    };
    let (mut low, mut high) = (0, LOOKS.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if is_bounded(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
