//! What a study needs of a run: its points with their times, and one line about it.
//!
//! A record is read from a run folder, or from the small files that `export.rs` writes; both give
//! the same, so what is concluded from a run does not depend on whether its folder still exists.

use std::{fs, path::Path};

use scalerl_curve::{Compute, HistoryEntry, PointsError, Provenance, Series};
use scalerl_journal::{EvaluationPoint, ForecastReport, Ledger, Reading, Status, StopReason, What};
use scalerl_recipe::Axis;
use serde::{Deserialize, Serialize};

use crate::{StudyError, plan::is_of_sweep};

/// The status of a run that a race has paused.
const PAUSED: &str = "paused";

/// One run, as far as it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// What it is.
    pub meta: RunMeta,
    /// Evaluations of the primary set, by rising step.
    pub points: Vec<EvaluationPoint>,
}

/// One line about a run: a line of `runs.jsonl`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunMeta {
    /// The study it belongs to; empty for a run of its own.
    pub study: String,
    /// Its name.
    pub run: String,
    /// Its variant; empty for a run of its own.
    pub variant: String,
    /// Its seed.
    pub seed: u64,
    /// The compute axis of its curve.
    pub axis: Option<Axis>,
    /// What the sweep before it has chosen, as `key = value`.
    pub tuned: Option<String>,
    /// Has it ended as its recipe says?
    pub is_finished: bool,
    /// How it ended, or that it has not.
    pub status: String,
    /// Commit of the program that made it.
    pub commit: Option<String>,
    /// Release of the program.
    pub scalerl: String,
    /// What it ran on.
    pub devices: Vec<String>,
    /// Unix time of its start.
    pub started_at: f64,
    /// Device-hours held, evaluations included.
    pub device_hours: f64,
    /// The last forecast that the run itself has recorded within the first half of its compute.
    pub recorded: Option<ForecastReport>,
    /// The model it started from and how it was measured, where that is known: only runs that
    /// share both are history of each other.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl RunRecord {
    /// Reads a run folder.
    pub fn load(folder: &Path) -> Result<Self, StudyError> {
        let reading = Reading::load(folder)?;
        // Read as plain TOML: the recipe of an older release must not keep its points from being read.
        let recipe: toml::Table = reading.recipe.parse().unwrap_or_default();
        let axis = axis_of(&recipe);
        let points: Vec<EvaluationPoint> = reading
            .history
            .events
            .iter()
            .filter_map(|event| {
                let What::Evaluation { version, primary, sets, spent, .. } = &event.what else {
                    return None;
                };
                let set = sets.iter().find(|set| set.name == *primary)?;
                let point = EvaluationPoint::new(&reading.name, *version, spent, set);
                Some(EvaluationPoint { at: Some(event.at), ..point })
            })
            .collect();
        let mut status = reading.status();
        let last = reading.history.events.iter().rev().find_map(|event| match &event.what {
            What::Evaluation { version, spent, .. } => Some((version.0, spent)),
            _ => None,
        });
        if let (Status::Open, Some((step, spent))) = (&status, last)
            && let Some(reason) = spent_budget(&recipe, spent, step)
        {
            status = Status::Stopped { reason };
        }
        let half = points.last().map_or(0.0, |last| last.compute(axis) / 2.0);
        let recorded = reading
            .forecasts()
            .filter(|report| status.is_finished() && report.axis == axis && report.compute <= half)
            .last()
            .cloned();
        let environment = &reading.environment;
        let meta = RunMeta {
            run: reading.name.clone(),
            axis: Some(axis),
            is_finished: status.is_finished(),
            status: status_text(&status),
            commit: environment.commit.clone(),
            scalerl: environment.scalerl.clone(),
            devices: environment.devices.clone(),
            started_at: environment.started_at,
            device_hours: reading.history.ledger().device_hours(),
            seed: seed_of(&recipe),
            recorded,
            provenance: environment.provenance.clone(),
            ..RunMeta::default()
        };
        Ok(Self { meta, points })
    }

    /// The axis of its curve.
    pub fn axis(&self) -> Axis {
        self.meta.axis.unwrap_or(Axis::DeviceHours)
    }

    /// Its points as a series that can be fitted.
    pub fn series(&self, axis: Axis) -> Result<Series, PointsError> {
        EvaluationPoint::series(&self.points, axis)
    }
}

impl RunRecord {
    /// When its last evaluation was made.
    pub fn ended_at(&self) -> Option<f64> {
        self.points.last()?.at
    }

    /// When the last evaluation up to `compute` was made.
    pub fn measured_at(&self, axis: Axis, compute: Compute) -> Option<f64> {
        self.points.iter().rfind(|point| Compute(point.compute(axis)) <= compute)?.at
    }

    /// What it teaches later runs; `None` before its end, or with too few points.
    pub fn history_entry(&self) -> Option<HistoryEntry> {
        let meta = &self.meta;
        let series = self.series(self.axis()).ok().filter(|_| meta.is_finished)?;
        let entry = HistoryEntry::summarise(&self.name(), &series).ok()?;
        let entry = entry.with_provenance(meta.provenance.clone());
        let entry = match self.ended_at() {
            Some(at) => entry.with_end(at),
            None => entry,
        };
        Some(match self.recipe() {
            Some(recipe) => entry.with_recipe(recipe, meta.seed),
            None => entry,
        })
    }

    /// What it shares with runs that differ in their seed only: study and variant. Runs of a sweep
    /// share a variant and differ in more.
    pub fn recipe(&self) -> Option<String> {
        let RunMeta { study, variant, run, .. } = &self.meta;
        let is_shared = !variant.is_empty() && !is_of_sweep(run);
        is_shared.then(|| format!("{study}/{variant}"))
    }

    /// Marks a run that a race has paused.
    pub fn pause(&mut self) {
        PAUSED.clone_into(&mut self.meta.status);
    }

    /// Did a race pause it?
    pub fn is_paused(&self) -> bool {
        self.meta.status == PAUSED
    }

    /// Study and run.
    pub fn name(&self) -> String {
        let RunMeta { study, run, .. } = &self.meta;
        if study.is_empty() { run.clone() } else { format!("{study}/{run}") }
    }
}

/// Is this the folder of a run?
pub fn is_run(folder: &Path) -> bool {
    folder.join("recipe.toml").is_file() && folder.join("events.jsonl").is_file()
}

fn status_text(status: &Status) -> String {
    match status {
        Status::Open => "not ended".into(),
        Status::Stopped { reason: StopReason::Asked } => "interrupted".into(),
        Status::Failed { error } => format!("failed: {error}"),
        Status::Stopped { reason } => {
            let word = serde_json::to_value(reason).ok();
            word.and_then(|word| word.as_str().map(Into::into)).unwrap_or_default()
        }
    }
}

fn budget<'a>(recipe: &'a toml::Table, key: &str) -> Option<&'a toml::Value> {
    recipe.get("budget").and_then(|budget| budget.get(key))
}

fn axis_of(recipe: &toml::Table) -> Axis {
    let name = budget(recipe, "axis").and_then(toml::Value::as_str);
    name.and_then(Axis::named).unwrap_or_default()
}

/// The budget that was spent when the last evaluation was asked for. A run that was killed after
/// that, while it wrote its last checkpoint, has an end to hold a forecast against.
fn spent_budget(recipe: &toml::Table, spent: &Ledger, step: u64) -> Option<StopReason> {
    let is_spent = |key, amount: f64| {
        let limit = budget(recipe, key);
        let limit = limit.and_then(|one| one.as_float().or(one.as_integer().map(|n| n as f64)));
        limit.is_some_and(|limit| amount >= limit)
    };
    let budgets = [
        (is_spent("steps", step as f64), StopReason::Steps),
        (is_spent("device_hours", spent.device_hours()), StopReason::DeviceHours),
        (is_spent("tokens", spent.tokens_generated as f64), StopReason::Tokens),
    ];
    budgets.into_iter().find_map(|(is_spent, reason)| is_spent.then_some(reason))
}

fn seed_of(recipe: &toml::Table) -> u64 {
    let seed = recipe.get("seed").and_then(toml::Value::as_integer);
    seed.and_then(|n| n.try_into().ok()).unwrap_or(0)
}

/// Every record that a path stands for: a run folder, a folder with the files of `export.rs` (a
/// study's folder has them), or a folder with such folders inside, at any depth.
pub fn find(path: &Path) -> Result<Vec<RunRecord>, StudyError> {
    if is_run(path) {
        return Ok(vec![RunRecord::load(path)?]);
    }
    if crate::export::is_export(path) {
        return crate::export::read(path);
    }
    let entries = fs::read_dir(path).map_err(StudyError::io("read", path))?;
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry.map_err(StudyError::io("read", path))?;
        if entry.path().is_dir() && !entry.file_name().to_string_lossy().starts_with('.') {
            folders.push(entry.path());
        }
    }
    folders.sort();
    let mut found = Vec::new();
    for folder in folders {
        found.extend(find(&folder)?);
    }
    Ok(found)
}
