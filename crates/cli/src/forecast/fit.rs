//! `scalerl fit`: curves, verdicts and forecasts.

use std::io::Write;

use anyhow::Result;
use scalerl_board::number::short;
use scalerl_board::plots;
use scalerl_board::{Block, Page, Section, Table};
use scalerl_curve::{
    Ceiling, CutRow, Estimate, Fit, FitOptions, Floor, Forecast, Method, Target, Verdict,
};
use scalerl_ingest::Axis;
use serde::Serialize;

use super::options::{CurveOptions, positive};
use super::runs::{Labels, Loaded, SkippedRun};
use super::{figures, output, runs, table, words};

/// Forecast at these multiples of the compute spent when no compute is asked for.
const USUAL_FACTORS: [f64; 2] = [2.0, 10.0];
/// Runs drawn into one figure at most; more are a table.
pub(crate) const MOST_DRAWN: usize = 8;
/// The table of other cuts costs five fits a run, so many runs go without.
const MOST_WITH_CUTS: usize = 50;
/// Fewer points than this, or less compute than twice the midpoint, is an early fit.
const EARLY_POINTS: usize = 8;

/// Options of `scalerl fit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    curve: CurveOptions,
    /// Forecast at this compute; may be repeated. Default: 2 and 10 times the compute spent.
    #[arg(long, value_name = "C", value_parser = positive)]
    at: Vec<f64>,
    /// Compute needed for this value; may be repeated.
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    target: Vec<f64>,
}

/// What is known of one run after its fit.
#[derive(Debug, Serialize)]
pub(crate) struct RunResult {
    pub(crate) name: String,
    pub(crate) points: usize,
    pub(crate) left_out: usize,
    pub(crate) x: String,
    pub(crate) axis: Axis,
    pub(crate) metric: String,
    pub(crate) method: Method,
    pub(crate) last_compute: f64,
    pub(crate) warmup_cut: f64,
    pub(crate) floor: Floor,
    pub(crate) ceiling: Ceiling,
    pub(crate) steepness: Estimate,
    pub(crate) midpoint: Estimate,
    pub(crate) rmse: f64,
    pub(crate) noise: f64,
    pub(crate) verdict: Verdict,
    pub(crate) advice: &'static str,
    pub(crate) is_early: bool,
    pub(crate) gain_of_doubling: Estimate,
    pub(crate) forecasts: Vec<Forecast>,
    pub(crate) targets: Vec<Target>,
    pub(crate) cuts: Vec<CutRow>,
    pub(crate) notes: Vec<String>,
    #[serde(skip)]
    pub(crate) drawn: Option<plots::Run>,
    #[serde(skip)]
    pub(crate) labels: Labels,
}

#[derive(Debug, Serialize)]
struct Output {
    runs: Vec<RunResult>,
    skipped: Vec<SkippedRun>,
}

/// What to work out beside the fit itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) at: &'a [f64],
    pub(crate) targets: &'a [f64],
    pub(crate) is_drawn: bool,
    pub(crate) has_cuts: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let loaded = runs::load(&args.curve)?;
    let options = args.curve.fit_options();
    let wanted = Wanted {
        at: &args.at,
        targets: &args.target,
        is_drawn: loaded.len() <= MOST_DRAWN || args.curve.report.is_some(),
        has_cuts: loaded.len() <= MOST_WITH_CUTS,
    };
    let work = |loaded: &Loaded| {
        let fit = scalerl_curve::fit(&loaded.series, &options).map_err(|e| loaded.skipped(&e))?;
        Ok(result(loaded, &fit, &options, wanted))
    };
    let (results, skipped) = runs::for_each("fitting", &loaded, work)?;
    output::skipped(&skipped);
    if args.curve.json {
        output::json(out, &Output { runs: results, skipped })?;
        return Ok(());
    }
    write_text(out, &results)?;
    if let Some(path) = &args.curve.plot {
        output::figure(path, &figure(&results))?;
    }
    if let Some(path) = &args.curve.report {
        output::page(path, page(&results))?;
    }
    Ok(())
}

pub(crate) fn result(
    loaded: &Loaded,
    fit: &Fit,
    options: &FitOptions,
    wanted: Wanted<'_>,
) -> RunResult {
    let last = fit.last_compute();
    let usual = USUAL_FACTORS.map(|factor| factor * last);
    let at = if wanted.at.is_empty() { &usual[..] } else { wanted.at };
    let forecasts: Vec<Forecast> = at.iter().map(|compute| fit.forecast(*compute)).collect();
    let name = &loaded.run.name;
    RunResult {
        name: name.clone(),
        points: fit.used.len(),
        left_out: fit.left_out.len(),
        x: loaded.run.x.clone(),
        axis: loaded.run.axis,
        metric: loaded.run.metric.clone(),
        method: fit.method,
        last_compute: last,
        warmup_cut: fit.warmup_cut,
        floor: fit.floor,
        ceiling: fit.ceiling,
        steepness: fit.steepness,
        midpoint: fit.midpoint,
        rmse: fit.rmse,
        noise: fit.noise,
        verdict: fit.verdict,
        advice: fit.verdict.advice(),
        is_early: fit.used.len() < EARLY_POINTS || last < 2.0 * fit.midpoint.value,
        gain_of_doubling: fit.gain(2.0),
        targets: wanted.targets.iter().map(|target| fit.compute_for(*target)).collect(),
        cuts: if wanted.has_cuts {
            scalerl_curve::other_cuts(&loaded.series, options)
        } else {
            Vec::new()
        },
        notes: loaded.run.notes.clone(),
        drawn: wanted.is_drawn.then(|| figures::run(name, fit, &forecasts)),
        labels: loaded.labels(),
        forecasts,
    }
}

/// The sentences to read first.
pub(crate) fn headlines(run: &RunResult) -> Vec<String> {
    let unit = run.axis.unit();
    let mut lines = vec![words::gain(2.0, &run.gain_of_doubling)];
    let early = if run.is_early { " It is early: the curve has not shown its bend." } else { "" };
    lines.push(format!("Verdict: {}. {}{early}", run.verdict, run.advice));
    lines.extend(run.targets.iter().map(|target| format!("{}.", words::target(target, unit))));
    lines
}

fn write_text(out: &mut dyn Write, results: &[RunResult]) -> Result<()> {
    if let [run] = results {
        write_run(out, run)?;
    } else {
        table::write(out, &summary_rows(results))?;
        for run in results.iter().take(MOST_DRAWN) {
            writeln!(out, "\n{}", run.name)?;
            for line in headlines(run) {
                writeln!(out, "  {line}")?;
            }
        }
    }
    if results.len() <= MOST_DRAWN {
        output::chart(out, &figure(results))?;
    }
    Ok(())
}

fn write_run(out: &mut dyn Write, run: &RunResult) -> Result<()> {
    let unit = run.axis.unit();
    writeln!(
        out,
        "{}: {} by {}, {} points to {} {unit}{}\n",
        run.name,
        run.metric,
        run.x,
        run.points,
        short(run.last_compute),
        if run.left_out > 0 { format!(", {} left out", run.left_out) } else { String::new() },
    )?;
    let mut rows: Vec<Vec<String>> =
        parameters(run).into_iter().map(|(key, value)| vec![key, value]).collect();
    for forecast in &run.forecasts {
        let factor = forecast.at / run.last_compute;
        rows.push(vec![
            format!("at {} ({}×)", short(forecast.at), short(factor)),
            words::interval(forecast.value, forecast.low, forecast.high),
        ]);
    }
    table::write(out, &rows)?;
    writeln!(out)?;
    for line in headlines(run).iter().chain(&run.notes) {
        writeln!(out, "  {line}")?;
    }
    if !run.cuts.is_empty() {
        writeln!(out, "\n  ceiling with other warm-up cuts")?;
        table::write(out, &cut_rows(run))?;
    }
    Ok(())
}

/// Names and values of what a fit found.
pub(crate) fn parameters(run: &RunResult) -> Vec<(String, String)> {
    let floor = format!("{:.3} ({})", run.floor.value, run.floor.source);
    let pairs = [
        ("ceiling", words::ceiling(&run.ceiling)),
        ("steepness", words::interval(run.steepness.value, run.steepness.low, run.steepness.high)),
        ("midpoint", words::computes(&run.midpoint)),
        ("floor", floor),
        ("fit", format!("{}, rmse {:.4}", run.method, run.rmse)),
    ];
    pairs.map(|(key, value)| (key.to_owned(), value)).to_vec()
}

fn cut_rows(run: &RunResult) -> Vec<Vec<String>> {
    let mut rows = vec![table::row(["points from", "points", "ceiling"])];
    rows.extend(
        run.cuts
            .iter()
            .map(|cut| vec![short(cut.cut), cut.points.to_string(), words::ceiling(&cut.ceiling)]),
    );
    rows
}

/// One row a run.
pub(crate) fn summary_rows(results: &[RunResult]) -> Vec<Vec<String>> {
    let heading = ["run", "points", "ceiling", "steepness", "midpoint", "at 2×", "verdict"];
    let mut rows = vec![table::row(heading)];
    rows.extend(results.iter().map(|run| {
        let doubled = run.forecasts.iter().find(|f| (f.at / run.last_compute - 2.0).abs() < 1e-6);
        vec![
            run.name.clone(),
            run.points.to_string(),
            words::ceiling(&run.ceiling),
            words::interval(run.steepness.value, run.steepness.low, run.steepness.high),
            words::computes(&run.midpoint),
            doubled.map_or_else(String::new, |f| words::interval(f.value, f.low, f.high)),
            run.verdict.to_string(),
        ]
    }));
    rows
}

/// One run in full, or several in one figure.
pub(crate) fn figure(results: &[RunResult]) -> scalerl_board::Figure {
    let labels = &results[0].labels;
    if let [run] = results {
        let subtitle =
            format!("{} Verdict: {}.", words::gain(2.0, &run.gain_of_doubling), run.verdict);
        let captions = figures::captions(labels, &run.name, subtitle);
        return run.drawn.as_ref().map(|drawn| plots::fit(drawn, &captions)).unwrap_or_default();
    }
    let drawn: Vec<plots::Run> =
        results.iter().filter_map(|run| run.drawn.clone()).take(MOST_DRAWN).collect();
    let subtitle = if results.len() > drawn.len() {
        format!("the first {} of {} runs", drawn.len(), results.len())
    } else {
        String::new()
    };
    plots::compare(&drawn, &figures::captions(labels, "Fitted curves", subtitle))
}

fn page(results: &[RunResult]) -> Page {
    let mut sections = Vec::new();
    if results.len() > 1 {
        sections.push(Section {
            heading: "All runs".to_owned(),
            blocks: vec![summary_table(results), Block::figure(figure(results))],
        });
    }
    sections.extend(results.iter().map(run_section));
    let title = match results {
        [run] => format!("Forecast for {}", run.name),
        runs => format!("Forecasts for {} runs", runs.len()),
    };
    let labels = &results[0].labels;
    Page { title, subtitle: format!("{} by {}", labels.value, labels.compute), sections }
}

/// The summary table as a block of a page.
pub(crate) fn summary_table(results: &[RunResult]) -> Block {
    block_table("", summary_rows(results))
}

/// A table whose first row is its heading.
pub(crate) fn block_table(caption: &str, mut rows: Vec<Vec<String>>) -> Block {
    let columns = rows.remove(0);
    Block::Table(Table { caption: caption.to_owned(), columns, rows })
}

fn run_section(run: &RunResult) -> Section {
    let mut forecast_rows = vec![table::row(["compute", "times", "forecast"])];
    forecast_rows.extend(run.forecasts.iter().map(|f| {
        vec![
            short(f.at),
            format!("{}×", short(f.at / run.last_compute)),
            words::interval(f.value, f.low, f.high),
        ]
    }));
    let mut blocks = vec![
        Block::Headlines(headlines(run)),
        Block::figure(figure(std::slice::from_ref(run))),
        Block::KeyValues(parameters(run)),
        block_table("Forecasts, 90 % intervals for one measurement", forecast_rows),
    ];
    if !run.cuts.is_empty() {
        blocks.push(block_table("Ceiling with other warm-up cuts", cut_rows(run)));
    }
    if !run.notes.is_empty() {
        blocks.push(Block::Prose(run.notes.join("\n\n")));
    }
    Section { heading: run.name.clone(), blocks }
}
