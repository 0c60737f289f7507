//! How far the forecasts can be trusted: simulated curves with known truth, and real curves whose
//! end is known. Writes docs/results/calibration.md; run by scripts/results/calibration.sh.
//!
//! Arguments: output folder, seeds per simulated row, then real logs as `FILE[:GPUS[:Y]]`.

#![expect(clippy::print_stdout, reason = "a study prints as it goes")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Binomial, Distribution};
use rayon::prelude::*;
use scalerl_board::plots::{Captions, Outcome, agreement};
use scalerl_curve::{
    Fit, FitOptions, FloorChoice, Method, Point, Series, Sigmoid, Verdict, Warmup, backtest, fit,
};
use scalerl_ingest::{Request, read};

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
const FRACTIONS: [f64; 3] = [0.25, 0.5, 0.75];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().context("an output folder")?);
    let seeds: u64 = arguments.next().context("a number of seeds")?.parse()?;
    let mut page = String::from(
        "# Calibration: are the intervals honest, is the forecast better than its rivals?\n\n\
         Made by `scripts/results/calibration.sh`. Intervals are 90 %.\n",
    );
    simulated(&mut page, seeds);
    let real: Vec<String> = arguments.collect();
    if !real.is_empty() {
        real_curves(&mut page, &folder, &real)?;
    }
    let path = folder.join("calibration.md");
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(())
}

/// A share of the trials and a sum of widths.
#[derive(Clone, Copy, Default)]
struct Tally {
    covered: f64,
    width: f64,
}

fn simulated(page: &mut String, seeds: u64) {
    let _ = write!(
        page,
        "\n## Simulated curves with known truth\n\n\
         Each row of the paper's Table 1, {POINTS} points to 4·C_mid, binomial noise of 1,000 \
         prompts × 16, {seeds} seeds. Cells: share of the intervals that hold the truth, then \
         their mean width (of B and C_mid relative to the truth). The forecast is at twice the \
         compute; `one measurement` is whether a new evaluation there falls into its interval.\n"
    );
    for (method, floor) in [(Method::Marginal, None), (Method::Profile, Some(FloorChoice::Fit))] {
        let _ = write!(
            page,
            "\n`{method}`\n\n| row | R0 | A | B | C_mid | forecast | one measurement | error at \
             2× | bounded |\n|---|---|---|---|---|---|---|---|---|\n"
        );
        for row in TABLE {
            let line = simulated_row(row, method, floor, seeds);
            println!("{method} {line}");
            page.push_str(&line);
            page.push('\n');
        }
    }
}

fn simulated_row(
    (name, midpoint, steepness, ceiling, floor_value): (&str, f64, f64, f64, f64),
    method: Method,
    floor: Option<FloorChoice>,
    seeds: u64,
) -> String {
    let truth = Sigmoid { floor: floor_value, ceiling, steepness, midpoint };
    let options = FitOptions { method, floor, ..FitOptions::default() };
    let at = 8.0 * midpoint;
    let trials: Vec<([Tally; 6], f64, bool)> = (0..seeds)
        .into_par_iter()
        .map(|seed| {
            let mut rng = ChaCha12Rng::seed_from_u64(seed);
            let mut measure = |compute: f64| {
                let passes = Binomial::new(SAMPLES, truth.value_at(compute)).expect("a rate");
                passes.sample(&mut rng) as f64 / SAMPLES as f64
            };
            let points = (1..=POINTS).map(|i| {
                let compute = 4.0 * midpoint * f64::from(i) / f64::from(POINTS);
                Point { compute, value: measure(compute), samples: Some(SAMPLES as f64) }
            });
            let series = Series::try_new(points.collect()).expect("rates");
            let measured = measure(at);
            let found = fit(&series, &options).expect("75 points");
            trial(&found, &truth, at, measured)
        })
        .collect();
    let count = seeds as f64;
    let mut line = format!("| {name} |");
    for item in 0..6 {
        let covered: f64 = trials.iter().map(|t| t.0[item].covered).sum();
        let width: f64 = trials.iter().map(|t| t.0[item].width).sum();
        let _ = write!(line, " {:.0} % ({:.3}) |", 100.0 * covered / count, width / count);
    }
    let error: f64 = trials.iter().map(|t| t.1).sum();
    let bounded = trials.iter().filter(|t| t.2).count();
    let _ = write!(line, " {:.4} | {:.0} % |", error / count, 100.0 * bounded as f64 / count);
    line
}

fn trial(found: &Fit, truth: &Sigmoid, at: f64, measured: f64) -> ([Tally; 6], f64, bool) {
    let forecast = found.forecast(at);
    let value = truth.value_at(at);
    let tally = |low: f64, high: f64, wanted: f64, unit: f64| Tally {
        covered: f64::from(u8::from(low <= wanted && wanted <= high)),
        width: (high - low) / unit,
    };
    let (floor, ceiling) = (found.floor, found.ceiling);
    let tallies = [
        tally(floor.low, floor.high, truth.floor, 1.0),
        tally(ceiling.low, ceiling.high.unwrap_or(1.0), truth.ceiling, 1.0),
        tally(found.steepness.low, found.steepness.high, truth.steepness, truth.steepness),
        tally(found.midpoint.low, found.midpoint.high, truth.midpoint, truth.midpoint),
        tally(forecast.curve_low, forecast.curve_high, value, 1.0),
        tally(forecast.low, forecast.high, measured, 1.0),
    ];
    (tallies, (forecast.value - value).abs(), found.verdict == Verdict::Bounded)
}

/// One backtest of one real curve, ours and its rivals'.
struct Case {
    run: String,
    fraction: f64,
    verdict: Verdict,
    predicted: f64,
    low: f64,
    high: f64,
    actual: f64,
    /// Ours, naive sigmoid, power law, last value.
    errors: [f64; 4],
    /// Ceiling of the naive sigmoid.
    naive_ceiling: f64,
}

fn real_curves(page: &mut String, folder: &Path, sources: &[String]) -> Result<()> {
    let mut cases = Vec::new();
    for source in sources {
        let mut parts = source.splitn(3, ':');
        let file = PathBuf::from(parts.next().context("a file")?);
        let gpus = parts.next().filter(|text| !text.is_empty()).map(str::parse).transpose()?;
        let y = parts.next().map(str::to_owned);
        let suffix = y.as_ref().map(|y| format!(" ({y})")).unwrap_or_default();
        for run in read(&[file], &Request { gpus, y, ..Request::default() })? {
            let series = Series::try_new(run.points)?;
            let name = format!("{}{suffix}", run.name);
            cases.extend(FRACTIONS.iter().filter_map(|f| case(&name, &series, *f)));
        }
    }
    write_real(page, &cases);
    let groups = FRACTIONS
        .iter()
        .map(|fraction| {
            let of = cases.iter().filter(|case| (case.fraction - fraction).abs() < 1e-9);
            let outcomes = of.map(|case| Outcome {
                name: case.run.clone(),
                predicted: case.predicted,
                low: case.low,
                high: case.high,
                actual: case.actual,
            });
            (format!("fitted on {} %", fraction * 100.0), outcomes.collect())
        })
        .collect::<Vec<_>>();
    let figure = agreement(
        &groups,
        &Captions {
            title: "Forecasts at 2× on real curves".to_owned(),
            value: "pass rate".to_owned(),
            interval: "90 %".to_owned(),
            ..Captions::default()
        },
    );
    let path = folder.join("calibration.png");
    scalerl_board::save(&figure, scalerl_board::Size::WIDE, &path)?;
    page.push_str("\n![forecast against measured](calibration.png)\n");
    Ok(())
}

fn case(run: &str, series: &Series, fraction: f64) -> Option<Case> {
    let test = backtest(series, &FitOptions::default(), fraction, 2.0).ok()?;
    let until = Some(test.fitted_until);
    let rival = |method: Method| {
        let warmup = Warmup::Before(0.0);
        fit(series, &FitOptions { method, warmup, until, ..FitOptions::default() }).ok()
    };
    let naive = rival(Method::Profile)?;
    let power = rival(Method::PowerLaw)?;
    let last = series.until(test.fitted_until)?.points().last()?.value;
    let error = |predicted: f64| (predicted - test.actual).abs();
    Some(Case {
        run: run.to_owned(),
        fraction,
        verdict: test.verdict,
        predicted: test.predicted,
        low: test.low,
        high: test.high,
        actual: test.actual,
        errors: [
            error(test.predicted),
            error(naive.forecast(test.at).value),
            error(power.forecast(test.at).value),
            error(last),
        ],
        naive_ceiling: naive.ceiling.value,
    })
}

fn write_real(page: &mut String, cases: &[Case]) {
    page.push_str(
        "\n## Real curves\n\n\
         Every evaluation series at hand, fitted on 25, 50 and 75 % of its compute and asked for \
         the measurement nearest to twice that compute (or its last one). Rivals on the same \
         points: least squares with the first point as floor, the power law, and \"it stays where \
         it is\". The data are not part of this repository; they are the digitised 8B run of \
         Figure 1 of arXiv 2510.13786 and public logs of verl, GPG and Qwen3 runs.\n\n\
         | run | fitted | forecast | measured | inside | verdict | error | sigmoid | power law | \
         last value | naive A |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for case in cases {
        let inside = if case.low <= case.actual && case.actual <= case.high { "yes" } else { "no" };
        let [ours, naive, power, last] = case.errors;
        let _ = writeln!(
            page,
            "| {} | {:.0} % | {:.3} [{:.3}, {:.3}] | {:.3} | {inside} | {} | {ours:.3} | \
             {naive:.3} | {power:.3} | {last:.3} | {:.2} |",
            case.run,
            case.fraction * 100.0,
            case.predicted,
            case.low,
            case.high,
            case.actual,
            case.verdict,
            case.naive_ceiling
        );
    }
    page.push_str(
        "\nMean absolute errors and coverage:\n\n| cases | n | ours | sigmoid | power law | last \
         value | inside | mean width |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut line = |name: &str, keep: &dyn Fn(&Case) -> bool| {
        let kept: Vec<&Case> = cases.iter().filter(|case| keep(case)).collect();
        if kept.is_empty() {
            return;
        }
        let mean = |of: &dyn Fn(&Case) -> f64| {
            kept.iter().map(|case| of(case)).sum::<f64>() / kept.len() as f64
        };
        let errors = [0, 1, 2, 3].map(|i| format!("{:.4}", mean(&|c: &Case| c.errors[i])));
        let inside = mean(&|c: &Case| f64::from(u8::from(c.low <= c.actual && c.actual <= c.high)));
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {:.0} % | {:.3} |",
            kept.len(),
            errors.join(" | "),
            inside * 100.0,
            mean(&|c: &Case| c.high - c.low)
        );
    };
    for fraction in FRACTIONS {
        let name = format!("fitted on {} %", fraction * 100.0);
        line(&name, &|case| (case.fraction - fraction).abs() < 1e-9);
    }
    line("all", &|_| true);
    line("verdict bounded", &|case| case.verdict == Verdict::Bounded);
}
