//! Runs that follow the law: each row of the paper's Table 1, many seeds.

use std::fmt::Write as _;

use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Binomial, Distribution};
use rayon::prelude::*;
use scalerl_curve::{
    Compute, Fit, FitOptions, FloorChoice, Method, Point, Series, Sigmoid, Verdict, fit,
};

use crate::{mean, percent};

/// Rows of Table 1 of arXiv 2510.13786: name, C_mid, B, A; the floor is that of Figure 1 (Scout's
/// is read off its own figure).
const TABLE: [(&str, f64, f64, f64, f64); 10] = [
    ("8B, batch 768, 14k tokens", 2542.0, 1.92, 0.610, 0.40),
    ("generation length 32k", 11272.0, 1.89, 0.645, 0.40),
    ("8 generations", 2542.0, 2.44, 0.585, 0.40),
    ("24 generations", 3054.0, 2.22, 0.590, 0.40),
    ("32 generations", 2936.0, 2.07, 0.595, 0.40),
    ("Scout MoE", 4242.0, 1.65, 0.710, 0.51),
    ("batch 512", 2818.0, 1.77, 0.605, 0.40),
    ("batch 2048", 10909.0, 1.70, 0.645, 0.40),
    ("math + code: math", 2896.0, 2.05, 0.595, 0.40),
    ("math + code: code", 1675.0, 1.09, 0.615, 0.40),
];
const POINTS: u32 = 75;
const SAMPLES: u64 = 16_000;
const METHODS: [(Method, Option<FloorChoice>); 3] =
    [(Method::Mixture, None), (Method::Marginal, None), (Method::Profile, Some(FloorChoice::Fit))];

/// Whether an interval holds the truth, and how wide it is.
#[derive(Clone, Copy, Default)]
struct Tally {
    covered: f64,
    width: f64,
}

struct Trial {
    tallies: [Tally; 6],
    error: f64,
    is_bounded: bool,
}

pub(crate) fn write(page: &mut String, seeds: u64) {
    let _ = write!(
        page,
        "\n## Simulated runs that follow the law\n\n\
         Each row of the paper's Table 1, {POINTS} points to 4·C_mid, binomial noise of 1,000 \
         prompts × 16, {seeds} seeds. Cells: share of the intervals that hold the truth, then \
         their mean width (of B and C_mid relative to the truth). The forecast is at twice the \
         compute; `one measurement` is whether a new evaluation there falls into its interval.\n"
    );
    for (method, floor) in METHODS {
        let _ = write!(
            page,
            "\n`{method}`\n\n| row | R0 | A | B | C_mid | forecast | one measurement | error at \
             2× | bounded |\n|---|---|---|---|---|---|---|---|---|\n"
        );
        for row in TABLE {
            let line = line(row, &FitOptions { method, floor, ..FitOptions::default() }, seeds);
            println!("{method} {line}");
            page.push_str(&line);
            page.push('\n');
        }
    }
}

fn line(
    (name, midpoint, steepness, ceiling, floor): (&str, f64, f64, f64, f64),
    options: &FitOptions<'_>,
    seeds: u64,
) -> String {
    let truth = Sigmoid { floor, ceiling, steepness, midpoint: Compute(midpoint) };
    let trials: Vec<Trial> =
        (0..seeds).into_par_iter().map(|seed| trial(&truth, options, seed)).collect();
    let mut line = format!("| {name} |");
    for item in 0..6 {
        let covered = mean(&trials, |t| t.tallies[item].covered);
        let width = mean(&trials, |t| t.tallies[item].width);
        let _ = write!(line, " {} ({width:.3}) |", percent(covered));
    }
    let bounded = mean(&trials, |t| f64::from(u8::from(t.is_bounded)));
    let _ = write!(line, " {:.4} | {} |", mean(&trials, |t| t.error), percent(bounded));
    line
}

fn trial(truth: &Sigmoid, options: &FitOptions<'_>, seed: u64) -> Trial {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut measure = |compute: Compute| {
        let passes = Binomial::new(SAMPLES, truth.value_at(compute)).expect("a rate");
        passes.sample(&mut rng) as f64 / SAMPLES as f64
    };
    let points = (1..=POINTS).map(|i| {
        let compute = truth.midpoint * (4.0 * f64::from(i) / f64::from(POINTS));
        Point::new(compute, measure(compute)).with_samples(SAMPLES as f64)
    });
    let series = Series::try_new(points.collect()).expect("rates");
    let at = truth.midpoint * 8.0;
    let measured = measure(at);
    let found = fit(&series, options).expect("75 points");
    judged(&found, truth, at, measured)
}

fn judged(found: &Fit, truth: &Sigmoid, at: Compute, measured: f64) -> Trial {
    let forecast = found.forecast(at);
    let value = truth.value_at(at);
    let tally = |low: f64, high: f64, wanted: f64, unit: f64| Tally {
        covered: f64::from(u8::from(low <= wanted && wanted <= high)),
        width: (high - low) / unit,
    };
    let (floor, ceiling, middle) = (found.floor, found.ceiling, found.midpoint.map(|c| c.0));
    let tallies = [
        tally(floor.low, floor.high, truth.floor, 1.0),
        tally(ceiling.low, ceiling.high.unwrap_or(1.0), truth.ceiling, 1.0),
        tally(found.steepness.low, found.steepness.high, truth.steepness, truth.steepness),
        tally(middle.low, middle.high, truth.midpoint.0, truth.midpoint.0),
        tally(forecast.curve_low, forecast.curve_high, value, 1.0),
        tally(forecast.low, forecast.high, measured, 1.0),
    ];
    let error = (forecast.value - value).abs();
    Trial { tallies, error, is_bounded: found.verdict == Verdict::Bounded }
}
