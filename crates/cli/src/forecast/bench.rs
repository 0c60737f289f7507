//! `scalerl bench fit`: how long fits take, each method on the same points.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Result;
use scalerl_curve::{Fit, FitOptions, FloorChoice, Method};
use serde::Serialize;

use super::options::CurveOptions;
use super::{history, output, runs};
use scalerl_report::table;

/// A method is timed for about this long.
const BUDGET: Duration = Duration::from_millis(1500);
const FEWEST: u32 = 5;

/// Options of `scalerl bench fit`; `--method` is not used, all are timed.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    curve: CurveOptions,
}

#[derive(Debug, Serialize)]
struct Timed {
    run: String,
    points: usize,
    method: Method,
    /// Median time of one fit with all its intervals.
    milliseconds: f64,
    repeats: usize,
    /// Finished runs that it learned from.
    history: usize,
    ceiling: f64,
    steepness: f64,
    midpoint: f64,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let loaded = runs::load(&args.curve)?;
    let history = history::load(&args.curve)?;
    let mut rows = Vec::new();
    for run in &loaded {
        for method in Method::ALL {
            let options = with_method(args.curve.fit_options(&history), method);
            let fit = || scalerl_curve::fit(&run.series, &options);
            if let Ok(found) = fit() {
                let (milliseconds, repeats) = median_time(|| drop(fit()));
                rows.push(timed(&run.run.name, &found, milliseconds, repeats));
            }
        }
    }
    if args.curve.json {
        return output::json(out, &rows);
    }
    let mut lines = vec![table::row(["run", "points", "method", "history", "ms a fit"])];
    lines.extend(rows.iter().map(|row| {
        vec![
            row.run.clone(),
            row.points.to_string(),
            row.method.to_string(),
            row.history.to_string(),
            format!("{:.3}", row.milliseconds),
        ]
    }));
    table::write(out, &lines)?;
    Ok(())
}

/// The paper's method has no free floor.
fn with_method(options: FitOptions<'_>, method: Method) -> FitOptions<'_> {
    let floor = match (method, options.floor) {
        (Method::Paper, Some(FloorChoice::Fit)) => None,
        (_, floor) => floor,
    };
    FitOptions { method, floor, ..options }
}

fn timed(run: &str, fit: &Fit, milliseconds: f64, repeats: usize) -> Timed {
    Timed {
        run: run.to_owned(),
        points: fit.used.len(),
        method: fit.method,
        milliseconds,
        repeats,
        history: fit.history.len(),
        ceiling: fit.ceiling.value,
        steepness: fit.steepness.value,
        midpoint: fit.midpoint.value.0,
    }
}

fn median_time(mut work: impl FnMut()) -> (f64, usize) {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < BUDGET || times.len() < FEWEST as usize {
        let one = Instant::now();
        work();
        times.push(one.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times.len())
}
