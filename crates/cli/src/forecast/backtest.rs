//! `scalerl backtest`: how good forecasts would have been on runs that are over.

use std::io::Write;

use anyhow::Result;
use scalerl_board::number::short;
use scalerl_board::plots;
use scalerl_board::{Block, Page, Section};
use scalerl_curve::{Backtest, Compute, FitOptions, Rival, Verdict};
use serde::Serialize;

use super::options::{CurveOptions, positive};
use super::runs::{Loaded, SkippedRun};
use super::{history, output, runs};
use scalerl_report::figures::Labels;
use scalerl_report::table::block_table;
use scalerl_report::{figures, table, words};

/// Options of `scalerl backtest`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    curve: CurveOptions,
    /// Shares of the final compute to fit on.
    #[arg(long, value_name = "F,…", value_delimiter = ',', value_parser = fraction, default_values_t = [0.1, 0.25, 0.5, 0.75])]
    fractions: Vec<f64>,
    /// Forecast this many times as far as was fitted; the end of the run, where that is nearer.
    #[arg(long, value_name = "N", value_parser = positive, default_value_t = 2.0)]
    horizon: f64,
}

fn fraction(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| *value > 0.0 && *value < 1.0)
        .ok_or_else(|| format!("`{text}` is not between 0 and 1"))
}

#[derive(Debug, Serialize)]
struct NamedBacktest {
    name: String,
    #[serde(flatten)]
    test: Backtest,
    /// Share of the forecast that rests on finished runs.
    history_weight: f64,
    rivals: Vec<RivalForecast>,
}

/// What another way of forecasting said on the same points.
#[derive(Debug, Serialize)]
struct RivalForecast {
    rival: Rival,
    predicted: f64,
    error: f64,
}

/// One rival over all forecasts, beside ours on the same ones.
#[derive(Debug, Serialize)]
struct RivalSummary {
    rival: Rival,
    forecasts: usize,
    mean_absolute_error: f64,
    /// Ours on those that the rival could make.
    ours: f64,
}

/// A fraction that could not be tested.
#[derive(Debug, Serialize)]
struct SkippedFraction {
    name: String,
    fraction: f64,
    reason: String,
}

/// All forecasts together, or those of the fits that call their ceiling bounded.
#[derive(Debug, Serialize)]
struct Summary {
    forecasts: usize,
    mean_absolute_error: Option<f64>,
    covered: Option<f64>,
    mean_width: Option<f64>,
}

/// Every forecast beside what came, and how good they were together.
#[derive(Debug, Serialize)]
pub struct Output {
    backtests: Vec<NamedBacktest>,
    summary: Summary,
    bounded: Summary,
    rivals: Vec<RivalSummary>,
    skipped: Vec<SkippedFraction>,
}

/// One run's forecasts.
#[derive(Debug)]
pub struct Tested {
    tests: Vec<NamedBacktest>,
    skipped: Vec<SkippedFraction>,
    figure: scalerl_board::Figure,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let loaded = runs::load(&args.curve)?;
    let history = history::load(&args.curve)?;
    let options = args.curve.fit_options(&history);
    let work =
        |run: &Loaded| Ok::<_, SkippedRun>(tested(run, &options, &args.fractions, args.horizon));
    let (tested, _) = runs::for_each("backtesting", &loaded, work)?;
    let (output, mut drawn) = Output::of(tested);
    if args.curve.json {
        return output::json(out, &output);
    }
    write_text(out, &output)?;
    for line in words::run_notes(loaded.iter().map(|run| (&run.run.name[..], &run.run.notes[..]))) {
        writeln!(out, "  {line}")?;
    }
    if drawn.len() > 1 {
        drawn.insert(0, agreement(&output, &loaded[0].labels()));
    }
    if output.backtests.is_empty() {
        return Ok(());
    }
    output::chart(out, &drawn[0])?;
    if let Some(path) = &args.curve.plot {
        output::figure(path, &drawn[0])?;
    }
    if let Some(path) = &args.curve.report {
        output::page(path, page(&output, drawn))?;
    }
    Ok(())
}

impl Output {
    /// All runs together, and the figure of each.
    pub fn of(tested: Vec<Tested>) -> (Self, Vec<scalerl_board::Figure>) {
        let (mut tests, mut skipped, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        for one in tested {
            tests.extend(one.tests);
            skipped.extend(one.skipped);
            drawn.push(one.figure);
        }
        let output = Self {
            summary: summary(tests.iter()),
            bounded: summary(tests.iter().filter(|t| t.test.verdict == Verdict::Bounded)),
            rivals: Rival::ALL.iter().filter_map(|rival| rival_summary(*rival, &tests)).collect(),
            backtests: tests,
            skipped,
        };
        (output, drawn)
    }
}

/// Fits each of the `fractions` of a run and forecasts `horizon` times as far.
pub fn tested(run: &Loaded, options: &FitOptions<'_>, fractions: &[f64], horizon: f64) -> Tested {
    let name = &run.run.name;
    let (mut tests, mut skipped, mut windows) = (Vec::new(), Vec::new(), Vec::new());
    let end = options.until.unwrap_or(Compute::UNLIMITED).min(run.series.last_compute());
    for fraction in fractions {
        match scalerl_curve::backtest(&run.series, options, *fraction, horizon) {
            Ok(test) => {
                let cut = FitOptions { until: Some(test.fitted_until), ..*options };
                let fit = scalerl_curve::fit(&run.series, &cut).ok();
                let window = fit.as_ref().map(|fit| figures::window(percent(*fraction), fit, end));
                windows.extend(window);
                tests.push(NamedBacktest {
                    name: name.clone(),
                    test,
                    history_weight: fit.map_or(0.0, |fit| fit.history_weight()),
                    rivals: rivals(run, &test),
                });
            }
            Err(reason) => {
                let reason = reason.to_string();
                skipped.push(SkippedFraction { name: name.clone(), fraction: *fraction, reason });
            }
        }
    }
    let captions = figures::captions(&run.labels(), name, "forecasts against what came".to_owned());
    let figure = plots::backtest(&figures::measured(&run.series), &windows, &captions);
    Tested { tests, skipped, figure }
}

fn rivals(run: &Loaded, test: &Backtest) -> Vec<RivalForecast> {
    let forecast = |rival: &Rival| {
        let entropy = &run.run.entropy;
        let predicted = rival.forecast(&run.series, test.fitted_until, test.at, entropy)?;
        Some(RivalForecast { rival: *rival, predicted, error: predicted - test.actual })
    };
    Rival::ALL.iter().filter_map(forecast).collect()
}

fn rival_summary(rival: Rival, tests: &[NamedBacktest]) -> Option<RivalSummary> {
    let errors: Vec<(f64, f64)> = tests
        .iter()
        .filter_map(|named| {
            let one = named.rivals.iter().find(|one| one.rival == rival)?;
            Some((one.error.abs(), named.test.error.abs()))
        })
        .collect();
    let count = errors.len() as f64;
    (!errors.is_empty()).then(|| RivalSummary {
        rival,
        forecasts: errors.len(),
        mean_absolute_error: errors.iter().map(|(error, _)| error).sum::<f64>() / count,
        ours: errors.iter().map(|(_, ours)| ours).sum::<f64>() / count,
    })
}

fn rival_rows(output: &Output) -> Vec<Vec<String>> {
    let mut rows = vec![table::row(["rival", "forecasts", "mean |error|", "ours on the same"])];
    rows.extend(output.rivals.iter().map(|summary| {
        vec![
            summary.rival.to_string(),
            summary.forecasts.to_string(),
            format!("{:.3}", summary.mean_absolute_error),
            format!("{:.3}", summary.ours),
        ]
    }));
    rows
}

fn percent(fraction: f64) -> String {
    format!("{} %", short(fraction * 100.0))
}

fn summary<'a>(tests: impl Iterator<Item = &'a NamedBacktest>) -> Summary {
    let tests: Vec<&Backtest> = tests.map(|named| &named.test).collect();
    let mean = |of: &dyn Fn(&Backtest) -> f64| {
        let count = tests.len() as f64;
        (!tests.is_empty()).then(|| tests.iter().map(|test| of(test)).sum::<f64>() / count)
    };
    Summary {
        forecasts: tests.len(),
        mean_absolute_error: mean(&|test| test.error.abs()),
        covered: mean(&|test| f64::from(u8::from(test.covered))),
        mean_width: mean(&|test| test.high - test.low),
    }
}

fn sentence(summary: &Summary, which: &str) -> Option<String> {
    let (error, covered) = (summary.mean_absolute_error?, summary.covered?);
    Some(format!(
        "{} {which}: mean absolute error {error:.3}, {:.0} % inside their 90 % interval, mean \
         width {:.3}.",
        summary.forecasts,
        covered * 100.0,
        summary.mean_width?
    ))
}

fn sentences(output: &Output) -> Vec<String> {
    let all = sentence(&output.summary, "forecasts");
    let bounded = sentence(&output.bounded, "of them from fits called bounded");
    all.into_iter().chain(bounded).collect()
}

fn write_text(out: &mut dyn Write, output: &Output) -> Result<()> {
    table::write(out, &rows(output))?;
    writeln!(out)?;
    for line in sentences(output) {
        writeln!(out, "  {line}")?;
    }
    if !output.rivals.is_empty() {
        writeln!(out)?;
        table::write(out, &rival_rows(output))?;
        writeln!(out)?;
    }
    for skipped in &output.skipped {
        let fraction = percent(skipped.fraction);
        writeln!(out, "  not tested: {} at {fraction}: {}", skipped.name, skipped.reason)?;
    }
    Ok(())
}

fn rows(output: &Output) -> Vec<Vec<String>> {
    let heading =
        ["run", "fitted", "until", "at", "forecast", "measured", "error", "inside", "verdict"];
    let mut rows = vec![table::row(heading)];
    rows.extend(output.backtests.iter().map(|NamedBacktest { name, test, .. }| {
        vec![
            name.clone(),
            percent(test.fraction),
            short(test.fitted_until.0),
            short(test.at.0),
            words::interval(test.predicted, test.low, test.high),
            format!("{:.3}", test.actual),
            format!("{:+.3}", test.error),
            if test.covered { "yes" } else { "no" }.to_owned(),
            test.verdict.to_string(),
        ]
    }));
    rows
}

/// Forecast against measured, one group a fraction.
fn agreement(output: &Output, labels: &Labels) -> scalerl_board::Figure {
    let mut groups: Vec<(String, Vec<plots::Outcome>)> = Vec::new();
    for NamedBacktest { name, test, .. } in &output.backtests {
        let group = format!("fitted on {}", percent(test.fraction));
        let outcome = plots::Outcome {
            name: name.clone(),
            predicted: test.predicted,
            low: test.low,
            high: test.high,
            actual: test.actual,
        };
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, outcomes)) => outcomes.push(outcome),
            None => groups.push((group, vec![outcome])),
        }
    }
    let subtitle = sentences(output).first().cloned().unwrap_or_default();
    plots::agreement(&groups, &figures::captions(labels, "Forecasts and what came", subtitle))
}

fn page(output: &Output, drawn: Vec<scalerl_board::Figure>) -> Page {
    let figures = drawn.into_iter().map(Block::figure).collect();
    Page {
        title: "Backtest".to_owned(),
        subtitle: "Early parts of finished runs fitted, the rest forecast".to_owned(),
        sections: vec![
            Section {
                heading: "How good the forecasts were".to_owned(),
                blocks: vec![
                    Block::Headlines(sentences(output)),
                    block_table("90 % intervals for one measurement", rows(output)),
                    block_table("Other ways to forecast, on the same points", rival_rows(output)),
                ],
            },
            Section { heading: "Runs".to_owned(), blocks: figures },
        ],
    }
}
