//! `scalerl compare`: who leads at equal compute, and whether by its ceiling or on the way.

use std::io::Write;

use anyhow::Result;
use rayon::prelude::*;
use scalerl_board::plots;
use scalerl_board::{Block, Page, Section};
use scalerl_curve::{Compute, Estimate, Fit, FitOptions, Pair, Separation, SharedFit};
use serde::Serialize;

use super::fit::{MOST_DRAWN, RunResult, Wanted, result, summary_rows, summary_table};
use super::options::CurveOptions;
use super::runs::{Loaded, SkippedRun};
use super::{history, output, runs};
use crate::failure::BadInput;
use scalerl_report::table::block_table;
use scalerl_report::{figures, table, words};

/// With more runs than this, each is compared with the first one only.
const MOST_ALL_PAIRS: usize = 8;

/// Options of `scalerl compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    curve: CurveOptions,
    /// Compare every run with this one; otherwise all pairs (the first run, if there are many).
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct NamedPair {
    a: String,
    b: String,
    #[serde(flatten)]
    pair: Pair,
}

/// A row of the leave-one-out table.
#[derive(Debug, Serialize)]
pub struct SharedRow {
    name: String,
    steepness: Estimate,
    midpoint: Estimate<Compute>,
}

/// What is printed for programs.
#[derive(Debug, Serialize)]
pub struct Output {
    runs: Vec<RunResult>,
    pairs: Vec<NamedPair>,
    shared_ceiling: f64,
    at_shared_ceiling: Vec<SharedRow>,
    skipped: Vec<SkippedRun>,
}

/// Everything that was compared.
#[derive(Debug)]
pub struct Compared {
    results: Vec<RunResult>,
    pairs: Vec<NamedPair>,
    shared_ceiling: f64,
    shared: Vec<(String, SharedFit)>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let loaded = runs::load(&args.curve)?;
    let history = history::load(&args.curve)?;
    let options = args.curve.fit_options(&history);
    let work = |loaded: &Loaded| {
        scalerl_curve::fit(&loaded.series, &options).map_err(|e| loaded.skipped(&e))
    };
    let fit = |run: &Loaded| work(run).map(|fit| (run.run.name.clone(), fit));
    let (fits, skipped) = runs::for_each("fitting", &loaded, fit)?;
    output::skipped(&skipped);
    let loaded: Vec<Loaded> = loaded
        .into_iter()
        .filter(|run| !skipped.iter().any(|skipped| skipped.name == run.run.name))
        .collect();
    let fits: Vec<Fit> = fits.into_iter().map(|(_, fit)| fit).collect();
    if loaded.len() < 2 {
        let message = format!("{} run to compare, at least two are needed", loaded.len());
        let hint = "give more files, or the column that tells runs apart with --by";
        return Err(BadInput::new(message).hint(hint).into());
    }
    let is_drawn = loaded.len() <= MOST_DRAWN || args.curve.plot.is_some();
    let both: Vec<(&Loaded, &Fit)> = loaded.iter().zip(&fits).collect();
    let compared = compared(&both, args.baseline.as_deref(), &options, is_drawn)?;
    if args.curve.json {
        return output::json(out, &compared.into_output(skipped));
    }
    write_text(out, &compared)?;
    if let Some(path) = &args.curve.plot {
        output::figure(path, &curves_figure(&compared))?;
        output::figure(&output::beside(path, "slopes"), &slopes_figure(&compared))?;
    }
    if let Some(path) = &args.curve.report {
        output::page(path, page(&compared))?;
    }
    Ok(())
}

/// Compares runs that were fitted alike, each with `baseline` where one is named.
pub fn compared(
    runs: &[(&Loaded, &Fit)],
    baseline: Option<&str>,
    options: &FitOptions<'_>,
    is_drawn: bool,
) -> Result<Compared, BadInput> {
    let name = |i: usize| runs[i].0.run.name.clone();
    let pairs: Result<Vec<NamedPair>, SkippedRun> = pairs_of(runs.len(), place(baseline, runs)?)
        .into_par_iter()
        .map(|(a, b)| {
            let of = |i: usize| (&runs[i].0.series, runs[i].1);
            let pair = scalerl_curve::compare(of(a), of(b), options)
                .map_err(|error| runs[a].0.skipped(&error))?;
            Ok(NamedPair { a: name(a), b: name(b), pair })
        })
        .collect();
    let pairs = pairs.map_err(|s| BadInput::new(s.reason).hint(s.hint))?;
    let both: Vec<_> = runs.iter().map(|(run, fit)| (&run.series, *fit)).collect();
    let (shared_ceiling, shared) = scalerl_curve::share_ceiling(&both, options)
        .map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    let wanted = Wanted::of_comparison(is_drawn);
    let results = runs.iter().map(|(run, fit)| result(run, fit, options, wanted)).collect();
    let names = (0..runs.len()).map(name);
    Ok(Compared { results, pairs, shared_ceiling, shared: names.zip(shared).collect() })
}

fn place(baseline: Option<&str>, runs: &[(&Loaded, &Fit)]) -> Result<Option<usize>, BadInput> {
    let Some(name) = baseline else { return Ok(None) };
    let found = runs.iter().position(|(run, _)| run.run.name == *name);
    found.map(Some).ok_or_else(|| {
        let names: Vec<&str> = runs.iter().map(|(run, _)| run.run.name.as_str()).collect();
        BadInput::new(format!("--baseline {name}: no run of that name"))
            .hint(format!("the runs are: {}", names.join(", ")))
    })
}

fn pairs_of(count: usize, baseline: Option<usize>) -> Vec<(usize, usize)> {
    match baseline {
        Some(base) => (0..count).filter(|i| *i != base).map(|i| (i, base)).collect(),
        None if count > MOST_ALL_PAIRS => (1..count).map(|i| (i, 0)).collect(),
        None => (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b))).collect(),
    }
}

impl Compared {
    /// The comparison as it is printed for programs.
    pub fn into_output(self, skipped: Vec<SkippedRun>) -> Output {
        let row = |(name, fit): (String, SharedFit)| SharedRow {
            name,
            steepness: fit.steepness,
            midpoint: fit.midpoint,
        };
        Output {
            runs: self.results,
            pairs: self.pairs,
            shared_ceiling: self.shared_ceiling,
            at_shared_ceiling: self.shared.into_iter().map(row).collect(),
            skipped,
        }
    }

    /// A sentence a pair.
    pub fn sentences(&self) -> Vec<String> {
        self.pairs.iter().map(|p| words::pair(&p.a, &p.b, &p.pair)).collect()
    }

    /// All curves in one figure.
    pub fn figure(&self) -> scalerl_board::Figure {
        curves_figure(self)
    }
}

fn write_text(out: &mut dyn Write, compared: &Compared) -> Result<()> {
    for sentence in compared.sentences() {
        writeln!(out, "  {sentence}")?;
    }
    writeln!(out)?;
    table::write(out, &summary_rows(&compared.results))?;
    writeln!(out, "\n  at the shared ceiling {:.3}", compared.shared_ceiling)?;
    table::write(out, &shared_rows(compared))?;
    let notes = compared.results.iter().map(|run| (&run.name[..], &run.notes[..]));
    for line in words::run_notes(notes) {
        writeln!(out, "  {line}")?;
    }
    if compared.results.len() <= MOST_DRAWN {
        output::chart(out, &curves_figure(compared))?;
    }
    Ok(())
}

fn shared_rows(compared: &Compared) -> Vec<Vec<String>> {
    let mut rows = vec![table::row(["run", "steepness", "midpoint"])];
    rows.extend(compared.shared.iter().map(|(name, fit)| {
        let steepness = fit.steepness;
        vec![
            name.clone(),
            words::interval(steepness.value, steepness.low, steepness.high),
            words::computes(&fit.midpoint),
        ]
    }));
    rows
}

fn pair_rows(compared: &Compared) -> Vec<Vec<String>> {
    let heading = [
        "a",
        "b",
        "lead now",
        "lead ahead",
        "a ahead",
        "verdict",
        "ceiling a − b",
        "steepness a − b",
        "midpoint a / b",
    ];
    let mut rows = vec![table::row(heading)];
    rows.extend(compared.pairs.iter().map(|NamedPair { a, b, pair }| {
        let cell = |e: &Estimate| words::interval(e.value, e.low, e.high);
        vec![
            a.clone(),
            b.clone(),
            cell(&pair.now.difference),
            cell(&pair.ahead.difference),
            format!("{:.0} %", 100.0 * pair.ahead.chance),
            pair.verdict.to_string(),
            cell(&pair.ceiling_difference),
            cell(&pair.steepness_difference),
            cell(&pair.midpoint_ratio),
        ]
    }));
    rows
}

fn curves_figure(compared: &Compared) -> scalerl_board::Figure {
    let differing =
        compared.pairs.iter().filter(|p| p.pair.verdict != Separation::Indistinguishable);
    let subtitle =
        format!("{} of {} pairs can be told apart", differing.count(), compared.pairs.len());
    let drawn: Vec<plots::RunCurve> =
        compared.results.iter().filter_map(|run| run.drawn.clone()).collect();
    let labels = &compared.results[0].labels;
    plots::compare(&drawn, &figures::captions(labels, "Runs compared", subtitle))
}

fn slopes_figure(compared: &Compared) -> scalerl_board::Figure {
    let slopes: Vec<plots::Slope> =
        compared.shared.iter().map(|(name, fit)| figures::slope(name, fit)).collect();
    let mut captions = figures::captions(
        &compared.results[0].labels,
        "Leave-one-out: the slope is the steepness",
        format!("F(R) at the shared ceiling {:.3}", compared.shared_ceiling),
    );
    "F(R)".clone_into(&mut captions.value);
    plots::slopes(&slopes, &captions)
}

fn page(compared: &Compared) -> Page {
    let section =
        |heading: &str, blocks: Vec<Block>| Section { heading: heading.to_owned(), blocks };
    Page {
        title: format!("{} runs compared", compared.results.len()),
        subtitle: String::new(),
        sections: vec![
            section("What separates them", vec![Block::Headlines(compared.sentences())]),
            section(
                "Curves",
                vec![Block::figure(curves_figure(compared)), summary_table(&compared.results)],
            ),
            section("Pairs", vec![block_table("90 % intervals", pair_rows(compared))]),
            section(
                "At a shared ceiling",
                vec![
                    Block::figure(slopes_figure(compared)),
                    block_table("", shared_rows(compared)),
                ],
            ),
        ],
    }
}
