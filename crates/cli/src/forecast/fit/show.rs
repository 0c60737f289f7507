//! Fits told: tables, headlines, figures, the page.

use std::io::Write;

use anyhow::Result;
use scalerl_board::number::short;
use scalerl_board::plots;
use scalerl_board::{Block, Page, Section};
use scalerl_curve::Verdict;

use super::{MOST_DRAWN, RunResult};
use crate::forecast::output;
use scalerl_report::{figures, table, words};

/// A history that carries less than this does not fit the run.
const CONTRADICTED: f64 = 0.3;
/// Finished runs named in one line.
const NAMED_RUNS: usize = 3;

/// The sentences to read first.
pub(crate) fn headlines(run: &RunResult) -> Vec<String> {
    let unit = run.axis.unit();
    let mut lines = vec![words::gain(2.0, &run.gain_of_doubling)];
    lines.extend(words::more_compute(&run.more_compute));
    let is_open = run.verdict == Verdict::NotBounded;
    let early = if run.is_early && is_open {
        " It is early: the curve has not shown its bend."
    } else {
        ""
    };
    lines.push(format!("Verdict: {}. {}{early}", run.verdict, run.advice));
    lines.extend(run.until_bounded.iter().map(|wait| words::wait(wait, run.last_compute, unit)));
    let targets = run.targets.iter();
    lines.extend(targets.map(|target| format!("{}.", words::target(target, &run.ceiling, unit))));
    lines.extend(history(run));
    lines.extend(run.twins.iter().map(words::twin));
    lines.extend(run.resolution.iter().map(words::resolution));
    lines
}

/// How much of the forecast rests on finished runs, and on which.
fn history(run: &RunResult) -> Option<String> {
    if run.history.is_empty() {
        return None;
    }
    let weight = run.history_weight;
    let named: Vec<String> = run
        .history
        .iter()
        .take(NAMED_RUNS)
        .filter(|share| share.weight >= 0.005)
        .map(|share| format!("{} {:.0} %", share.name, 100.0 * share.weight))
        .collect();
    let on = if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) };
    let warning = if weight < CONTRADICTED {
        " The run contradicts its history, which has hardly a say: is it the same model and \
         evaluation?"
    } else {
        ""
    };
    let runs = match run.history.len() {
        1 => "1 finished run".to_owned(),
        count => format!("{count} finished runs"),
    };
    Some(format!("{:.0} % of the forecast rests on {runs}{on}.{warning}", 100.0 * weight))
}

pub(crate) fn write(out: &mut dyn Write, results: &[RunResult]) -> Result<()> {
    if let [run] = results {
        write_run(out, run)?;
    } else {
        table::write(out, &summary_rows(results))?;
        let (told, rest) = results.split_at(results.len().min(MOST_DRAWN));
        for run in told {
            writeln!(out, "\n{}", run.name)?;
            for line in headlines(run).iter().chain(&run.notes) {
                writeln!(out, "  {line}")?;
            }
        }
        let notes = rest.iter().map(|run| (&run.name[..], &run.notes[..]));
        for line in words::run_notes(notes) {
            writeln!(out, "  {line}")?;
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
        short(run.last_compute.0),
        if run.left_out > 0 { format!(", {} left out", run.left_out) } else { String::new() },
    )?;
    let mut rows: Vec<Vec<String>> =
        parameters(run).into_iter().map(|(key, value)| vec![key, value]).collect();
    for forecast in &run.forecasts {
        let factor = forecast.at / run.last_compute;
        rows.push(vec![
            format!("at {} ({}×)", short(forecast.at.0), short(factor)),
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

/// A run that has not moved shows no ceiling.
fn stated_ceiling(run: &RunResult) -> String {
    match run.verdict {
        Verdict::Flat => format!("none to be seen: flat at {:.3}", run.ceiling.low),
        _ => words::ceiling(&run.ceiling),
    }
}

/// Names and values of what a fit found.
fn parameters(run: &RunResult) -> Vec<(String, String)> {
    let floor = format!("{:.3} ({})", run.floor.value, run.floor.source);
    let pairs = [
        ("ceiling", stated_ceiling(run)),
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
        run.cuts.iter().map(|cut| {
            vec![short(cut.cut.0), cut.points.to_string(), words::ceiling(&cut.ceiling)]
        }),
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
            stated_ceiling(run),
            words::interval(run.steepness.value, run.steepness.low, run.steepness.high),
            words::computes(&run.midpoint),
            doubled.map_or_else(String::new, |f| words::interval(f.value, f.low, f.high)),
            run.verdict.to_string(),
        ]
    }));
    rows
}

/// One run in full, or several in one figure.
pub fn figure(results: &[RunResult]) -> scalerl_board::Figure {
    let labels = &results[0].labels;
    if let [run] = results {
        let subtitle =
            format!("{} Verdict: {}.", words::gain(2.0, &run.gain_of_doubling), run.verdict);
        let captions = figures::captions(labels, &run.name, subtitle);
        return run.drawn.as_ref().map(|drawn| plots::fit(drawn, &captions)).unwrap_or_default();
    }
    let drawn: Vec<plots::RunCurve> =
        results.iter().filter_map(|run| run.drawn.clone()).take(MOST_DRAWN).collect();
    let subtitle = if results.len() > drawn.len() {
        format!("the first {} of {} runs", drawn.len(), results.len())
    } else {
        String::new()
    };
    plots::compare(&drawn, &figures::captions(labels, "Fitted curves", subtitle))
}

pub(crate) fn page(results: &[RunResult]) -> Page {
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
    table::block_table("", summary_rows(results))
}

fn run_section(run: &RunResult) -> Section {
    let mut forecast_rows = vec![table::row(["compute", "times", "forecast"])];
    forecast_rows.extend(run.forecasts.iter().map(|f| {
        vec![
            short(f.at.0),
            format!("{}×", short(f.at / run.last_compute)),
            words::interval(f.value, f.low, f.high),
        ]
    }));
    let mut blocks = vec![
        Block::Headlines(headlines(run)),
        Block::figure(figure(std::slice::from_ref(run))),
        Block::KeyValues(parameters(run)),
        table::block_table("Forecasts, 90 % intervals for one measurement", forecast_rows),
    ];
    if !run.cuts.is_empty() {
        blocks.push(table::block_table("Ceiling with other warm-up cuts", cut_rows(run)));
    }
    if !run.notes.is_empty() {
        blocks.push(Block::Prose(run.notes.join("\n\n")));
    }
    Section { heading: run.name.clone(), blocks }
}
