//! `scalerl fit`: curves, verdicts and forecasts.
//!
//! Not here: how they are told (`show.rs`).

mod show;

use std::io::Write;

use anyhow::Result;
use scalerl_board::plots;
use scalerl_curve::{
    Ceiling, Compute, CutRow, Estimate, Fit, FitOptions, Floor, Forecast, HistoryEntry,
    HistoryShare, Method, MoreCompute, Resolution, Target, Twin, Verdict, Wait,
};
use scalerl_ingest::Axis;
use serde::Serialize;

pub use show::figure;
pub(crate) use show::{summary_rows, summary_table};

use super::options::{CurveOptions, compute, positive};
use super::runs::{Loaded, SkippedRun};
use super::{history, output, runs};
use scalerl_report::figures;
use scalerl_report::figures::Labels;

/// Forecast at these multiples of the compute spent when no compute is asked for.
const USUAL_FACTORS: [f64; 2] = [2.0, 10.0];
/// Runs drawn into one figure at most; more are a table.
pub(crate) const MOST_DRAWN: usize = 8;
/// The table of other cuts costs five fits a run, so many runs go without.
const MOST_WITH_CUTS: usize = 50;
/// Following futures until the ceiling is bounded costs about twenty.
const MOST_WITH_WAIT: usize = 8;
/// Fewer points than this, or less compute than twice the midpoint, is an early fit.
const EARLY_POINTS: usize = 8;

/// Options of `scalerl fit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    curve: CurveOptions,
    /// Forecast at this compute; may be repeated. Default: 2 and 10 times the compute spent.
    #[arg(long, value_name = "C", value_parser = compute)]
    at: Vec<Compute>,
    /// Compute needed for this value; may be repeated.
    #[arg(long, value_name = "R", allow_hyphen_values = true)]
    target: Vec<f64>,
    /// Say whether more compute buys more than this, on the scale of the values.
    #[arg(long, value_name = "GAIN", value_parser = positive, default_value_t = 0.01)]
    more_than: f64,
}

/// What is known of one run after its fit.
#[derive(Debug, Serialize)]
pub struct RunResult {
    pub(crate) name: String,
    pub(crate) points: usize,
    pub(crate) left_out: usize,
    pub(crate) x: String,
    pub(crate) axis: Axis,
    pub(crate) metric: String,
    pub(crate) method: Method,
    pub(crate) last_compute: Compute,
    pub(crate) warmup_cut: Compute,
    pub(crate) floor: Floor,
    pub(crate) ceiling: Ceiling,
    pub(crate) steepness: Estimate,
    pub(crate) midpoint: Estimate<Compute>,
    pub(crate) rmse: f64,
    pub(crate) noise: f64,
    /// What one evaluation resolves, where its samples are known.
    pub(crate) resolution: Option<Resolution>,
    pub(crate) verdict: Verdict,
    pub(crate) advice: &'static str,
    pub(crate) is_early: bool,
    pub(crate) gain_of_doubling: Estimate,
    pub(crate) more_compute: Vec<MoreCompute>,
    /// When the ceiling will be bounded, if it is not yet.
    pub(crate) until_bounded: Option<Wait>,
    pub(crate) forecasts: Vec<Forecast>,
    pub(crate) targets: Vec<Target>,
    /// Share of the forecasts that rests on finished runs, and on which.
    pub(crate) history_weight: f64,
    pub(crate) history: Vec<HistoryShare>,
    /// Runs of the same recipe with another seed, at the computes that are forecast.
    pub(crate) twins: Vec<Twin>,
    pub(crate) cuts: Vec<CutRow>,
    pub(crate) notes: Vec<String>,
    #[serde(skip)]
    pub(crate) drawn: Option<plots::RunCurve>,
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
pub struct Wanted<'a> {
    /// Forecasts at these computes; none are 2 and 10 times the compute spent.
    pub at: &'a [Compute],
    /// Compute needed for these values.
    pub targets: &'a [f64],
    /// Whether more compute buys more than this.
    pub more_than: Option<f64>,
    /// What a figure needs.
    pub is_drawn: bool,
    /// The ceiling under other warm-up cuts: five fits.
    pub has_cuts: bool,
    /// When an open ceiling will be bounded: about twenty fits.
    pub has_wait: bool,
}

impl Wanted<'_> {
    /// Only what a comparison shows of each run.
    pub fn of_comparison(is_drawn: bool) -> Self {
        Self { at: &[], targets: &[], more_than: None, is_drawn, has_cuts: false, has_wait: false }
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let loaded = runs::load(&args.curve)?;
    let history = history::load(&args.curve)?;
    let options = args.curve.fit_options(&history);
    let wanted = Wanted {
        at: &args.at,
        targets: &args.target,
        more_than: Some(args.more_than),
        is_drawn: loaded.len() <= MOST_DRAWN || args.curve.report.is_some(),
        has_cuts: loaded.len() <= MOST_WITH_CUTS,
        has_wait: loaded.len() <= MOST_WITH_WAIT,
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
    show::write(out, &results)?;
    if let Some(path) = &args.curve.plot {
        output::figure(path, &show::figure(&results))?;
    }
    if let Some(path) = &args.curve.report {
        output::page(path, show::page(&results))?;
    }
    Ok(())
}

/// Everything that is said of one fit.
pub fn result(
    loaded: &Loaded,
    fit: &Fit,
    options: &FitOptions<'_>,
    wanted: Wanted<'_>,
) -> RunResult {
    let last = fit.last_compute();
    let usual = USUAL_FACTORS.map(|factor| last * factor);
    let at = if wanted.at.is_empty() { &usual[..] } else { wanted.at };
    let forecasts: Vec<Forecast> = at.iter().map(|compute| fit.forecast(*compute)).collect();
    let (name, series) = (&loaded.run.name, &loaded.series);
    let gains = wanted.more_than.map(|gain| USUAL_FACTORS.map(|f| fit.more_compute(f, gain)));
    let can_wait = wanted.has_wait && fit.verdict == Verdict::NotBounded;
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
        resolution: resolution(loaded, fit),
        verdict: fit.verdict,
        advice: fit.verdict.advice(),
        is_early: fit.used.len() < EARLY_POINTS || last < fit.midpoint.value * 2.0,
        gain_of_doubling: fit.gain(2.0),
        more_compute: gains.map(|gains| gains.to_vec()).unwrap_or_default(),
        until_bounded: can_wait
            .then(|| scalerl_curve::until_bounded(series, fit, options))
            .flatten(),
        targets: wanted.targets.iter().map(|target| fit.compute_for(*target)).collect(),
        history_weight: fit.history_weight(),
        history: fit.history.clone(),
        twins: twins(options.history, loaded, &forecasts),
        cuts: if wanted.has_cuts && fit.verdict != Verdict::Flat {
            scalerl_curve::other_cuts(series, options)
        } else {
            Vec::new()
        },
        notes: loaded.run.notes.clone(),
        drawn: wanted.is_drawn.then(|| figures::run(name, fit, &forecasts)),
        labels: loaded.labels(),
        forecasts,
    }
}

/// Of a pass rate whose samples are known; other rewards are not counted.
fn resolution(loaded: &Loaded, fit: &Fit) -> Option<Resolution> {
    let last = fit.used.last()?;
    let is_rate = loaded.series.range() == scalerl_curve::ValueRange::default();
    last.samples.filter(|_| is_rate).map(|samples| Resolution::of(samples, last.value))
}

fn twins(history: &[HistoryEntry], loaded: &Loaded, forecasts: &[Forecast]) -> Vec<Twin> {
    let at = |forecast: &Forecast| {
        scalerl_curve::twins(history, &loaded.run.name, &loaded.series, forecast.at)
    };
    forecasts.iter().flat_map(at).collect()
}
