//! What a wrong history does: recorded runs forecast with other people's curves for a memory.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;
use scalerl_curve::{FitOptions, HistoryEntry, Series};
use scalerl_study::prediction::{Ending, FITTED_SHARE, Prediction, fit_until};
use scalerl_study::record;

use crate::real::Real;
use crate::{mean, percent};

/// A forecast and what came.
struct Outcome {
    error: f64,
    is_covered: bool,
    width: f64,
    weight: f64,
}

pub(crate) fn write(page: &mut String, folder: &Path, foreign: &[Real]) -> Result<()> {
    let entries: Vec<HistoryEntry> = foreign
        .par_iter()
        .filter_map(|run| HistoryEntry::summarise(&run.name, &run.series).ok())
        .collect();
    let records = record::find(folder)?;
    let series: Vec<Series> =
        records.iter().filter_map(|record| record.series(record.axis()).ok()).collect();
    let _ = write!(
        page,
        "\n## A wrong history\n\n\
         The {} recorded runs of this folder from half of their compute to the end, with the {} \
         series above as history: other models, other tasks. The run's own points must win.\n\n\
         | history | mean error | inside | width | weight of the history |\n|---|---|---|---|---|\n",
        series.len(),
        entries.len()
    );
    let by_ceiling = |wanted: fn(f64) -> bool| -> Vec<HistoryEntry> {
        entries.iter().filter(|entry| wanted(entry.ceiling)).cloned().collect()
    };
    let histories = [
        ("none", Vec::new()),
        ("other people's runs", entries.clone()),
        ("only those that end above 0.85", by_ceiling(|ceiling| ceiling > 0.85)),
        ("only those that end below 0.7", by_ceiling(|ceiling| ceiling < 0.7)),
    ];
    for (name, history) in histories {
        let outcomes: Vec<Outcome> =
            series.par_iter().filter_map(|series| outcome(series, &history)).collect();
        let line = format!(
            "| {name} ({}) | {:.4} | {} | {:.3} | {} |",
            history.len(),
            mean(&outcomes, |o| o.error.abs()),
            percent(mean(&outcomes, |o| f64::from(u8::from(o.is_covered)))),
            mean(&outcomes, |o| o.width),
            percent(mean(&outcomes, |o| o.weight)),
        );
        println!("{line}");
        let _ = writeln!(page, "{line}");
    }
    Ok(())
}

fn outcome(series: &Series, history: &[HistoryEntry]) -> Option<Outcome> {
    let cut = series.last_compute() * FITTED_SHARE;
    let ending = Ending::of(series, cut)?;
    let options = FitOptions { history, ..FitOptions::default() };
    let found = Prediction::read(&fit_until(series, &options, cut).ok()?, &ending.computes);
    Some(Outcome {
        error: found.value - ending.value,
        is_covered: found.covers(ending.value),
        width: found.high - found.low,
        weight: found.history_weight,
    })
}
