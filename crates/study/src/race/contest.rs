//! A variant in a race: its runs, and what their points up to a rung say about its end.

use std::path::Path;

use scalerl_curve::{Compute, FitOptions, HistoryEntry, Series};
use scalerl_journal::{EvaluationPoint, RunFolder};
use scalerl_recipe::Axis;

use super::{LEAST_POINTS, Outlook};
use crate::prediction::{Ending, FITTED_SHARE, fit_until};
use crate::state::{glance, points_so_far};
use crate::{Budget, StudyError};

/// One run of a contestant.
#[derive(Debug, Clone)]
pub struct RacingRun {
    /// Its points, as far as it has come.
    pub series: Series,
    /// The compute at which it will end.
    pub end: Compute,
    /// Finished runs that its forecast may learn from.
    pub history: Vec<HistoryEntry>,
}

/// A variant in a race.
#[derive(Debug, Clone)]
pub struct Contestant {
    /// Its name.
    pub name: String,
    /// Its runs; one without any is out of the race.
    pub runs: Vec<RacingRun>,
}

impl Contestant {
    /// Where it may end, by its points up to a share of the compute; its measured end from 1 on.
    /// `None` where some run has too few points or cannot be fitted, and without a run.
    pub fn outlook(&self, share: f64) -> Option<Outlook> {
        let runs: Option<Vec<Outlook>> = self.runs.iter().map(|run| run.outlook(share)).collect();
        runs.filter(|runs| !runs.is_empty()).map(|runs| Outlook::mean_of(&runs))
    }
}

impl RacingRun {
    /// A run as far as it has come; `None` before its first evaluation.
    pub fn load(
        folder: &Path,
        budget: Budget,
        history: Vec<HistoryEntry>,
    ) -> Result<Option<Self>, StudyError> {
        let glance = glance(folder, budget)?;
        let Ok(run) = RunFolder::open(folder) else { return Ok(None) };
        let points = points_so_far(&run)?;
        let Ok(series) = EvaluationPoint::series(&points, budget.axis) else { return Ok(None) };
        let last = series.last_compute();
        let end = match budget.axis {
            _ if glance.is_finished() => last,
            // Evaluations are paid for and are not on the curve: the part that is goes on as it was.
            Axis::DeviceHours => last * (1.0 / glance.share.max(f64::MIN_POSITIVE)),
            _ => Compute(budget.amount),
        };
        Ok(Some(Self { series, end, history }))
    }

    fn outlook(&self, share: f64) -> Option<Outlook> {
        if share >= 1.0 {
            let ending = Ending::of(&self.series, self.series.last_compute() * FITTED_SHARE)?;
            return Some(Outlook::measured(ending.value));
        }
        let until = self.end * share;
        let seen = self.series.until(until)?;
        if seen.points().len() < LEAST_POINTS {
            return None;
        }
        let options = FitOptions { history: &self.history, ..FitOptions::default() };
        let fit = fit_until(&self.series, &options, until).ok()?;
        Some(Outlook::of(&fit, self.end))
    }

    /// The latest value up to a share of the compute.
    pub(super) fn value_at(&self, share: f64) -> Option<f64> {
        Some(self.series.until(self.end * share)?.points().last()?.value)
    }
}
