//! Which value of a sweep goes on: fair tuning, decided by the folders of its short runs.
//!
//! The best is the one with the highest measured end (mean of the last three evaluations). A
//! forecast to the full budget would be the better judge if it could be trusted at a fifth of the
//! compute, and it cannot. A run that failed has lost. Ties go to the value named first.

use std::path::Path;

use scalerl_journal::Status;
use serde::Serialize;

use crate::{
    Job, Purpose, StudyError, Variant,
    prediction::{Ending, FITTED_SHARE},
    record::RunRecord,
    state::glance,
};

/// One value and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tried {
    /// The value as TOML.
    pub value: String,
    /// Its run.
    pub run: String,
    /// Its measured end; `None` when it failed or measured too little.
    pub end: Option<f64>,
    /// Standard error of that by sampling.
    pub error: Option<f64>,
}

impl Tried {
    fn of(job: Job, ending: Option<Ending>) -> Option<Self> {
        let Purpose::Tune(value) = job.purpose else { return None };
        let end = ending.as_ref().map(|end| end.value);
        let error = ending.and_then(|end| end.error);
        Some(Self { value, run: job.name, end, error })
    }
}

/// Where a sweep stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sweep {
    /// The variant has none.
    None,
    /// Some of its runs have not ended.
    Open,
    /// This value goes on.
    Chosen {
        /// As TOML.
        value: String,
        /// What was tried.
        tried: Vec<Tried>,
    },
    /// Not one of its runs got anywhere.
    Failed,
}

impl Sweep {
    /// Looks at the short runs of a variant.
    pub fn look(variant: &Variant, runs: &Path) -> Result<Self, StudyError> {
        let jobs = variant.tuning()?;
        if jobs.is_empty() {
            return Ok(Self::None);
        }
        let mut tried = Vec::new();
        for job in jobs {
            let folder = runs.join(&job.name);
            let ending = match glance(&folder, job.budget)?.status {
                Some(status) if status.is_finished() => ending(&RunRecord::load(&folder)?),
                Some(Status::Failed { .. }) => None,
                _ => return Ok(Self::Open),
            };
            tried.extend(Tried::of(job, ending));
        }
        Ok(Self::choose(tried))
    }

    /// Looks at what was kept of the short runs of a variant.
    pub fn of_records(variant: &Variant, records: &[RunRecord]) -> Result<Self, StudyError> {
        let jobs = variant.tuning()?;
        if jobs.is_empty() {
            return Ok(Self::None);
        }
        let mut tried = Vec::new();
        for job in jobs {
            let Some(record) = records.iter().find(|record| record.meta.run == job.name) else {
                return Ok(Self::Open);
            };
            tried.extend(Tried::of(job, ending(record).filter(|_| record.meta.is_finished)));
        }
        Ok(Self::choose(tried))
    }

    fn choose(tried: Vec<Tried>) -> Self {
        let mut best: Option<(&Tried, f64)> = None;
        for one in &tried {
            if let Some(end) = one.end
                && best.is_none_or(|(_, highest)| end > highest)
            {
                best = Some((one, end));
            }
        }
        match best.map(|(one, _)| one.value.clone()) {
            Some(value) => Self::Chosen { value, tried },
            None => Self::Failed,
        }
    }

    /// The value that goes on.
    pub fn chosen(&self) -> Option<&str> {
        if let Self::Chosen { value, .. } = self { Some(value) } else { None }
    }
}

fn ending(record: &RunRecord) -> Option<Ending> {
    let series = record.series(record.axis()).ok()?;
    Ending::of(&series, series.last_compute() * FITTED_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, StudyFile, fake};

    #[test]
    fn the_best_end_goes_on_and_a_failed_value_has_lost() {
        let text = "base = \"scalerl\"\nbudget = { steps = 100 }\nevaluation.every_steps = 2\n\
                    tune = { key = \"optimizer.lr\", values = [5e-5, 5e-7, 1e-9], budget_share = 0.3 }";
        let plan = Plan::of(&StudyFile::parse("s.toml", text).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let look = || Sweep::look(plan.base(), folder.path()).unwrap();
        assert_eq!(look(), Sweep::Open);
        let jobs = plan.base().tuning().unwrap();
        for job in &jobs[..2] {
            fake::run(&folder.path().join(&job.name), Some(&job.recipe), || fake::Next::GoOn)
                .unwrap();
        }
        assert_eq!(look(), Sweep::Open);
        let third = folder.path().join(&jobs[2].name);
        fake::run(&third, Some(&jobs[2].recipe), || fake::Next::Break).unwrap_err();
        let sweep = look();
        assert_eq!(sweep.chosen(), Some("5e-7"));
        let Sweep::Chosen { tried, .. } = sweep else { panic!("{sweep:?}") };
        assert_eq!(tried.iter().filter(|one| one.end.is_none()).count(), 1);
    }
}
