//! Dense noisy series: 30 to 120 evaluations of 64 fresh samples each, early and late risers.

use std::fmt::Write as _;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Binomial, Distribution, StandardNormal, Uniform};
use rayon::prelude::*;
use scalerl_curve::{Compute, FitOptions, Method, Point, Series, Sigmoid, fit};
use scalerl_study::ledger::Paired;

use crate::{mean, percent};

const SAMPLES: u64 = 64;
const COUNTS: [u32; 3] = [30, 60, 120];
/// Midpoints in units of the compute that is fitted when half of the run is.
const MIDPOINTS: [f64; 5] = [0.1, 0.25, 0.5, 1.0, 2.0];
const FRACTIONS: [f64; 2] = [0.5, 0.75];
/// Drift of the truth per root e-fold.
const DRIFT: f64 = 0.005;
const METHODS: [Method; 2] = [Method::Mixture, Method::Marginal];
/// Seeds apart from those of the runs that follow the law.
const SEED: u64 = 1_000_000;

/// A simulated run: what was measured, and the truth at its end.
struct Simulated {
    series: Series,
    truth: f64,
}

/// A forecast of its end.
struct Outcome {
    error: f64,
    is_covered: bool,
    width: f64,
}

pub(crate) fn write(page: &mut String, seeds: u64) {
    let _ = write!(
        page,
        "\n## Simulated dense noisy series\n\n\
         {COUNTS:?} evaluations of {SAMPLES} fresh samples each, counts known for every second \
         series; floor 0.1 to 0.5, gain 0.1 to 0.4, B 0.9 to 3, drift {DRIFT} per root e-fold; \
         {seeds} seeds for each row. Cells: mean error against the truth at the end, mean signed \
         error, share of the measurements at the end inside their interval, its mean width. In the \
         last column how much more the mixture errs than `marginal` on the same series, with its \
         standard error.\n\n\
         | fitted | midpoint | mixture | marginal | mixture − marginal |\n|---|---|---|---|---|\n"
    );
    for fraction in FRACTIONS {
        let mut all = METHODS.map(|_| Vec::new());
        for midpoint in MIDPOINTS {
            let runs: Vec<Simulated> =
                (0..seeds).into_par_iter().map(|seed| simulate(midpoint, seed)).collect();
            let outcomes = METHODS.map(|method| -> Vec<Outcome> {
                runs.par_iter().map(|run| outcome(run, method, fraction)).collect()
            });
            let line = line(fraction, &format!("{midpoint} of half"), &outcomes);
            println!("{line}");
            let _ = writeln!(page, "{line}");
            for (all, outcomes) in all.iter_mut().zip(outcomes) {
                all.extend(outcomes);
            }
        }
        let _ = writeln!(page, "{}", line(fraction, "all", &all));
    }
}

fn line(fraction: f64, midpoint: &str, [ours, marginal]: &[Vec<Outcome>; 2]) -> String {
    let more = |(ours, theirs): (&Outcome, &Outcome)| ours.error.abs() - theirs.error.abs();
    let differences: Vec<f64> = ours.iter().zip(marginal).map(more).collect();
    let difference = Paired::of(&differences).map_or("–".into(), |paired| paired.to_string());
    let fitted = percent(fraction);
    format!("| {fitted} | {midpoint} | {} | {} | {difference} |", cell(ours), cell(marginal))
}

fn cell(outcomes: &[Outcome]) -> String {
    let error = mean(outcomes, |o| o.error.abs());
    let signed = mean(outcomes, |o| o.error);
    let covered = mean(outcomes, |o| f64::from(u8::from(o.is_covered)));
    let width = mean(outcomes, |o| o.width);
    format!("{error:.4} ({signed:+.3}), {}, {width:.3}", percent(covered))
}

fn simulate(midpoint: f64, seed: u64) -> Simulated {
    let mut rng = ChaCha12Rng::seed_from_u64(SEED + seed);
    let count = COUNTS[(seed % 3) as usize];
    let mut uniform =
        |low: f64, high: f64| -> f64 { Uniform::new(low, high).expect("a range").sample(&mut rng) };
    let floor = uniform(0.1, 0.5);
    let ceiling = floor + uniform(0.1, 0.4);
    let steepness = uniform(0.9_f64.ln(), 3.0_f64.ln()).exp();
    let half = f64::from(count) / 2.0;
    let law = Sigmoid { floor, ceiling, steepness, midpoint: Compute(midpoint * half) };
    let mut drift = 0.0;
    let mut truth = floor;
    let mut points = Vec::new();
    for i in 1..=count {
        let (compute, before) = (f64::from(i), f64::from(i - 1).max(0.5));
        let step: f64 = StandardNormal.sample(&mut rng);
        drift += DRIFT * (compute / before).ln().sqrt() * step;
        truth = (law.value_at(Compute(compute)) + drift).clamp(0.0, 1.0);
        let passes = Binomial::new(SAMPLES, truth).expect("a rate").sample(&mut rng) as f64;
        let point = Point::new(Compute(compute), passes / SAMPLES as f64);
        points.push(if seed.is_multiple_of(2) {
            point.with_samples(SAMPLES as f64)
        } else {
            point
        });
    }
    Simulated { series: Series::try_new(points).expect("rates"), truth }
}

fn outcome(run: &Simulated, method: Method, fraction: f64) -> Outcome {
    let last = run.series.points()[run.series.points().len() - 1];
    let until = Some(last.compute * fraction);
    let options = FitOptions { method, until, ..FitOptions::default() };
    let forecast = fit(&run.series, &options).expect("15 points").forecast(last.compute);
    Outcome {
        error: forecast.value - run.truth,
        is_covered: forecast.low <= last.value && last.value <= forecast.high,
        width: forecast.high - forecast.low,
    }
}
