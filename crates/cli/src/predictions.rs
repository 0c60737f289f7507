//! `scalerl predictions`: forecasts made at half of each run's compute, against what came.
//!
//! Reads run folders, study folders, and folders with the small files of studies (docs/results),
//! adds their rows to the ledger beside the page, and writes the page from the whole ledger.

use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use scalerl_board::plots::{self, Captions, Outcome};
use scalerl_board::{Size, save};
use scalerl_study::ledger::{self, CLOSE, NARROW, Row, Score};
use scalerl_study::{export, record};

use crate::failure::BadInput;
use crate::forecast::output::say;
use crate::forecast::table::{self, row};
use crate::forecast::words;
use crate::study::{bad_input, pipes};

/// Options of `scalerl predictions`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run folders, study folders, or folders with such inside.
    #[arg(value_name = "RUN_OR_STUDY", required = true)]
    paths: Vec<PathBuf>,
    /// The page; its rows are kept beside it as .csv, its figure as .png.
    #[arg(long, value_name = "OUT.md", default_value = "docs/results/predictions.md")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    if args.out.extension().is_none_or(|ending| ending != "md") {
        let message = format!("--out {}: the page is Markdown", args.out.display());
        return Err(BadInput::new(message).hint("end its name in .md").into());
    }
    let mut records = Vec::new();
    for path in &args.paths {
        records.extend(record::find(path).map_err(|error| bad_input(&error))?);
    }
    let (rows, left_out) = ledger::rows(&records);
    for one in &left_out {
        say(&format!("left out {}: {}", one.run, one.reason));
    }
    let csv = args.out.with_extension("csv");
    let known = ledger::read(&csv).map_err(|error| bad_input(&error))?;
    let rows = ledger::merge(known, rows);
    if rows.is_empty() {
        let hint = "give folders of runs that have ended; docs/studies.md says what is read";
        return Err(BadInput::new("no finished run among these").hint(hint).into());
    }
    ledger::write(&csv, &rows)?;
    let figure = args.out.with_extension("png");
    save(&agreement(&rows), Size::WIDE, &figure)?;
    let image = figure.file_name().unwrap_or_default().to_string_lossy().into_owned();
    export::replace(&args.out, page(&rows, &image).as_bytes())?;
    table::write(out, &scores(&rows))?;
    writeln!(out)?;
    for line in headlines(&rows) {
        writeln!(out, "  {line}")?;
    }
    say(&format!("wrote {}", args.out.display()));
    Ok(())
}

fn share(part: usize, whole: usize) -> String {
    format!("{part} of {whole} ({:.0} %)", 100.0 * part as f64 / whole.max(1) as f64)
}

fn headlines(rows: &[Row]) -> Vec<String> {
    let line = |which: &str, rows: &[&Row]| {
        let score = Score::of(rows.iter().map(|row| row.error))?;
        let inside = rows.iter().filter(|row| row.inside).count();
        let good = rows.iter().filter(|row| row.is_good()).count();
        let width = rows.iter().map(|row| row.high - row.low).sum::<f64>() / rows.len() as f64;
        Some(format!(
            "{which}: mean absolute error {:.3}; {} inside their 90 % interval, mean width \
             {width:.3}; {} within {CLOSE}, or inside an interval narrower than {NARROW}.",
            score.mean_error,
            share(inside, rows.len()),
            share(good, rows.len()),
        ))
    };
    let all: Vec<&Row> = rows.iter().collect();
    let whole: Vec<&Row> = rows.iter().filter(|row| !row.is_of_sweep()).collect();
    let bounded: Vec<&Row> = rows.iter().filter(|row| row.bounded).collect();
    let runs = |count: usize| if count == 1 { "1 run".into() } else { format!("{count} runs") };
    let mut lines = Vec::new();
    lines.extend(line(&format!("All, {}", runs(all.len())), &all));
    if whole.len() < all.len() {
        let which = format!("Without the short runs of sweeps, {}", runs(whole.len()));
        lines.extend(line(&which, &whole));
    }
    match line(&format!("Called bounded, {}", runs(bounded.len())), &bounded) {
        Some(text) => lines.push(text),
        None => lines.push("No run was called bounded at half of its compute.".into()),
    }
    lines
}

/// What one method forecast for a run.
type Forecast = fn(&Row) -> Option<f64>;

/// The methods on the same runs: only runs that all of them could forecast are compared.
fn scores(rows: &[Row]) -> Vec<Vec<String>> {
    let common: Vec<&Row> = rows
        .iter()
        .filter(|row| row.paper.is_some() && row.power_law.is_some() && row.last_value.is_some())
        .collect();
    let bounded: Vec<&Row> = common.iter().copied().filter(|row| row.bounded).collect();
    let mut lines = vec![row([
        "method",
        "runs",
        "mean |error|",
        "median |error|",
        "within 0.02",
        "bounded: mean |error|",
    ])];
    let methods: [(&str, Forecast); 4] = [
        ("marginal (ours)", |row| Some(row.forecast)),
        ("authors' grid fit", |row| row.paper),
        ("power law", |row| row.power_law),
        ("last value", |row| row.last_value),
    ];
    for (name, of) in methods {
        let errors = |rows: &[&Row]| {
            Score::of(rows.iter().filter_map(|row| of(row).map(|value| value - row.measured)))
        };
        let Some(score) = errors(&common) else { continue };
        lines.push(vec![
            name.to_owned(),
            score.runs.to_string(),
            format!("{:.4}", score.mean_error),
            format!("{:.4}", score.median_error),
            share(score.close, score.runs),
            errors(&bounded).map_or("–".into(), |score| format!("{:.4}", score.mean_error)),
        ]);
    }
    lines
}

fn page(rows: &[Row], image: &str) -> String {
    let mut text = String::from(
        "# Predictions\n\nMade by `scalerl predictions`; do not edit. For every run: the forecast \
         from the points of the first half of its compute, and what was measured at its end (mean \
         of the last three evaluations, with its sampling error; the forecast is read at their \
         mean compute, its 90 % interval is for such a mean).\n\n",
    );
    for line in headlines(rows) {
        let _ = writeln!(text, "- {line}");
    }
    let _ = write!(text, "\n{}\n![forecast against measured]({image})\n\n", pipes(&scores(rows)));
    let _ = write!(text, "{}", pipes(&list(rows)));
    let _ = write!(
        text,
        "\n\"Could be made from\" is when the last point of the first half was measured (UTC); \
         \"recorded then\" is what the run itself wrote down at that moment for twice the compute. \
         The rivals, computes and devices are in the CSV beside this page.\n"
    );
    text
}

fn list(rows: &[Row]) -> Vec<Vec<String>> {
    let mut lines = vec![row([
        "run",
        "commit",
        "could be made from",
        "points",
        "forecast",
        "recorded then",
        "measured",
        "error",
        "inside",
        "fit",
    ])];
    lines.extend(rows.iter().map(|one| {
        let error = one.measured_error.map(|error| format!(" ± {error:.3}")).unwrap_or_default();
        vec![
            one.name(),
            short_commit(&one.commit),
            one.forecast_from.clone(),
            one.points.to_string(),
            words::interval(one.forecast, one.low, one.high),
            one.recorded.map_or("–".into(), |value| format!("{value:.3}")),
            format!("{:.3}{error}", one.measured),
            format!("{:+.3}", one.error),
            if one.inside { "yes" } else { "no" }.to_owned(),
            one.verdict.clone(),
        ]
    }));
    lines
}

/// The first letters, and whether the tree had changes beside it.
fn short_commit(commit: &str) -> String {
    let (commit, mark) = commit.split_once('+').map_or((commit, ""), |(commit, _)| (commit, "+"));
    commit.chars().take(9).chain(mark.chars()).collect()
}

fn agreement(rows: &[Row]) -> scalerl_board::Figure {
    let outcomes = |is_chosen: &dyn Fn(&Row) -> bool| -> Vec<Outcome> {
        let chosen = rows.iter().filter(|row| is_chosen(row));
        let outcome = |row: &Row| Outcome {
            name: row.name(),
            predicted: row.forecast,
            low: row.low,
            high: row.high,
            actual: row.measured,
        };
        chosen.map(outcome).collect()
    };
    // The rarest last, so that they lie on top.
    let kinds = [
        ("not bounded", outcomes(&|row| !row.bounded && !row.is_of_sweep())),
        ("short run of a sweep", outcomes(&|row| !row.bounded && row.is_of_sweep())),
        ("called bounded", outcomes(&|row| row.bounded)),
    ];
    let groups: Vec<(String, Vec<Outcome>)> = kinds
        .into_iter()
        .filter(|(_, outcomes)| !outcomes.is_empty())
        .map(|(name, outcomes)| (name.to_owned(), outcomes))
        .collect();
    let captions = Captions {
        title: "Forecasts at half of the compute, and what came".into(),
        subtitle: headlines(rows).first().cloned().unwrap_or_default(),
        value: "pass rate".into(),
        interval: "90 %".into(),
        ..Captions::default()
    };
    plots::agreement(&groups, &captions)
}
