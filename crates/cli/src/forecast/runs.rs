//! From files to checked series, and over them in parallel.

use anyhow::Result;
use rayon::prelude::*;
use scalerl_curve::{Series, ValueRange};
use scalerl_ingest::{Axis, IngestError, Run};
use scalerl_report::figures::Labels;
use serde::Serialize;

use super::options::CurveOptions;
use crate::failure::BadInput;
use crate::progress::Progress;

/// One run, checked.
#[derive(Debug)]
pub struct Loaded {
    /// As it was read.
    pub run: Run,
    /// Its points, as every fit can trust them.
    pub series: Series,
}

/// A run that could not be used, and why.
#[derive(Debug, Clone, Serialize)]
pub struct SkippedRun {
    pub(crate) name: String,
    pub(crate) reason: String,
    #[serde(skip)]
    pub(crate) hint: String,
}

pub(crate) fn load(options: &CurveOptions) -> Result<Vec<Loaded>> {
    options.check()?;
    let bad = |error: IngestError| BadInput::new(&error).hint(error.hint());
    let runs = scalerl_ingest::read(&options.files, &options.reading.request()).map_err(bad)?;
    let range = options.reading.range.unwrap_or_default();
    let loaded: Result<Vec<Loaded>, BadInput> =
        runs.into_iter().map(|run| Loaded::try_new(run, range)).collect();
    Ok(loaded?)
}

/// Does `work` on every run on all cores, with progress; runs that fail are set aside, and are an
/// error only when none is left.
pub(crate) fn for_each<T: Send>(
    label: &'static str,
    loaded: &[Loaded],
    work: impl Fn(&Loaded) -> Result<T, SkippedRun> + Sync,
) -> Result<(Vec<T>, Vec<SkippedRun>)> {
    let progress = Progress::new(label, loaded.len());
    let outcomes: Vec<Result<T, SkippedRun>> = loaded
        .par_iter()
        .map(|loaded| {
            let outcome = work(loaded);
            progress.tick();
            outcome
        })
        .collect();
    progress.finish();
    let (mut done, mut skipped) = (Vec::new(), Vec::new());
    for outcome in outcomes {
        match outcome {
            Ok(result) => done.push(result),
            Err(reason) => skipped.push(reason),
        }
    }
    if done.is_empty() {
        let first = skipped.first();
        let message = first.map_or("no runs".to_owned(), |s| format!("{}: {}", s.name, s.reason));
        let hint = first.map(|s| s.hint.clone()).unwrap_or_default();
        return Err(BadInput::new(message).hint(hint).into());
    }
    Ok((done, skipped))
}

impl Loaded {
    /// Checks the points of a run whose values lie in `range`.
    pub fn try_new(run: Run, range: ValueRange) -> Result<Self, BadInput> {
        let series = Series::try_with_range(run.points.clone(), range).map_err(|error| {
            let message = format!("{} ({} by {}): {error}", run.name, run.metric, run.x);
            BadInput::new(message).hint(error.hint())
        })?;
        Ok(Self { run, series })
    }

    pub(crate) fn skipped(&self, error: &scalerl_curve::FitError) -> SkippedRun {
        SkippedRun {
            name: self.run.name.clone(),
            reason: error.to_string(),
            hint: error.hint().to_owned(),
        }
    }

    /// What the axes of its figures are called.
    pub fn labels(&self) -> Labels {
        let compute = match self.run.axis {
            Axis::Other => self.run.x.clone(),
            axis => axis.label().to_owned(),
        };
        Labels { compute, value: self.run.metric.clone() }
    }
}
