//! One pass over a run's events: what happened, by step, by evaluation and by session.
//!
//! Everything a report says is taken from here, so that page, terminal and JSON cannot differ.
//! Only events that count are read for series; what a kill has undone shows up in sessions and in
//! the ledger's `lost` alone.
//!
//! Not here: fits (`halftime`, `curve`), drawing, words.

use std::{collections::HashMap, path::Path};

use scalerl_journal::{
    BadSign, BatchReport, Checkpoint, Environment, EvaluationPoint, Event, FailureKinds, Fate,
    ForecastReport, GroupReport, History, JournalError, Ledger, Reading, RunFolder, SetReport,
    Status, What,
};
use scalerl_recipe::{Axis, Recipe, Resolved, Source};
use scalerl_rollout::{GroupId, PolicyVersion, StepReport};
use serde::Serialize;

/// Everything that is known of a run.
#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) folder: RunFolder,
    pub(crate) name: String,
    pub(crate) environment: Environment,
    /// As it stands in the folder.
    pub(crate) recipe_text: String,
    /// The recipe as this release reads it, or why it cannot.
    pub(crate) recipe: Result<Resolved, String>,
    /// The compute axis of the curve.
    pub(crate) axis: Axis,
    pub(crate) status: Status,
    /// Does a process hold the folder?
    pub(crate) is_held: bool,
    /// Whole checkpoints, oldest first.
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// What was spent on the steps that count.
    pub(crate) ledger: Ledger,
    /// What was spent on work that kills have undone.
    pub(crate) lost: Ledger,
    /// Devices held.
    pub(crate) devices: f64,
    pub(crate) steps: Vec<StepRow>,
    pub(crate) empty_batches: usize,
    pub(crate) evaluations: Vec<Evaluation>,
    /// The evaluations of the primary set.
    pub(crate) points: Vec<EvaluationPoint>,
    /// The live forecasts, in the order they were made.
    pub(crate) forecasts: Vec<ForecastReport>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) unmeasured: Vec<Unmeasured>,
    pub(crate) verifier_failures: Vec<VerifierFailure>,
    /// The same by what went wrong.
    pub(crate) failures: FailureKinds,
    pub(crate) environment_restarts: usize,
    pub(crate) set_aside: Vec<SetAside>,
    pub(crate) damaged: Vec<Damage>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) generator_retries: usize,
}

/// One optimizer step.
#[derive(Debug, Clone)]
pub(crate) struct StepRow {
    /// The version it made.
    pub(crate) version: u64,
    pub(crate) lag: u64,
    /// Mean over the groups of the batch, each by its oldest token.
    pub(crate) mean_lag: Option<f64>,
    /// Groups dropped for want of variance, those replaced by others included, among all that
    /// were judged for this step.
    pub(crate) zero_variance_share: f64,
    pub(crate) batch: BatchReport,
    pub(crate) report: StepReport,
    pub(crate) ledger: Ledger,
}

/// All sets, measured with one version.
#[derive(Debug, Clone)]
pub(crate) struct Evaluation {
    pub(crate) version: PolicyVersion,
    pub(crate) primary: String,
    pub(crate) spent: Ledger,
    pub(crate) sets: Vec<SetReport>,
}

/// A bad sign that lasted.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Warning {
    pub(crate) step: u64,
    pub(crate) sign: BadSign,
    pub(crate) value: f64,
    pub(crate) threshold: f64,
    pub(crate) steps: u32,
}

/// An evaluation set without a verdict.
#[derive(Debug, Clone)]
pub(crate) struct Unmeasured {
    pub(crate) step: u64,
    pub(crate) set: String,
    pub(crate) failed: u64,
    pub(crate) reason: String,
}

/// A completion that left its group.
#[derive(Debug, Clone)]
pub(crate) struct VerifierFailure {
    pub(crate) group: u64,
    pub(crate) completion: u32,
    pub(crate) reason: String,
}

/// A group that no step could use.
#[derive(Debug, Clone)]
pub(crate) struct SetAside {
    pub(crate) step: u64,
    pub(crate) group: u64,
    pub(crate) reason: String,
    pub(crate) file: Option<String>,
}

/// Something in the folder that was not what had been written.
#[derive(Debug, Clone)]
pub(crate) struct Damage {
    pub(crate) found: String,
    pub(crate) reason: String,
    pub(crate) kept_as: String,
}

/// One process that worked on the run.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Session {
    /// Unix seconds.
    pub(crate) at: f64,
    /// The step it went on from; `None` for the first.
    pub(crate) resumed_from: Option<u64>,
    /// Device-hours of work that its resume has taken back.
    pub(crate) lost_hours: f64,
    pub(crate) buffered_groups: usize,
}

impl Story {
    /// Reads a folder.
    pub(crate) fn load(path: &Path, axis: Option<Axis>) -> Result<Self, JournalError> {
        let folder = RunFolder::open(path)?;
        let reading = Reading::load(path)?;
        let status = reading.status();
        let is_held = status == Status::Open && folder.is_held()?;
        let source = Source::Kept { name: "recipe.toml".into(), text: reading.recipe.clone() };
        let recipe = Recipe::load(&[source], &[]).map_err(|error| error.to_string());
        let recipe_axis = recipe.as_ref().map_or(Axis::DeviceHours, |recipe| recipe.budget.axis);
        let points = reading.points();
        let ledger = reading.history.ledger();
        let History { events, undone, lost } = reading.history;
        let mut story = Self {
            folder,
            name: reading.name,
            environment: reading.environment,
            recipe_text: reading.recipe,
            recipe,
            axis: axis.unwrap_or(recipe_axis),
            status,
            is_held,
            checkpoints: reading.checkpoints,
            ledger,
            lost,
            devices: f64::NAN,
            steps: Vec::new(),
            empty_batches: 0,
            evaluations: Vec::new(),
            points,
            forecasts: Vec::new(),
            warnings: Vec::new(),
            unmeasured: Vec::new(),
            verifier_failures: Vec::new(),
            failures: FailureKinds::default(),
            environment_restarts: 0,
            set_aside: Vec::new(),
            damaged: Vec::new(),
            sessions: sessions(&events, &undone),
            generator_retries: 0,
        };
        story.tell(events);
        Ok(story)
    }

    /// The primary set's name; empty before the first evaluation.
    pub(crate) fn primary(&self) -> &str {
        self.evaluations.last().map_or("", |evaluation| &evaluation.primary)
    }

    /// Steps taken.
    pub(crate) fn version(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.version)
    }

    fn tell(&mut self, events: Vec<Event>) {
        let mut waiting = Waiting::default();
        for event in events {
            match event.what {
                What::Started { devices, .. } => self.devices = devices,
                What::Group(group) => waiting.add(&group),
                What::VerifierFailed { group, completion, reason } => {
                    let group = group.0;
                    self.failures.add(&reason);
                    self.verifier_failures.push(VerifierFailure { group, completion, reason });
                }
                What::NotMeasured { version, set, failed, reason } => {
                    self.unmeasured.push(Unmeasured { step: version.0, set, failed, reason });
                }
                What::EnvironmentRestarted { .. } => self.environment_restarts += 1,
                What::Step { lag, batch, report, ledger } => {
                    let (mean_lag, zero_variance_share) = waiting.take(&batch, report.version);
                    let version = report.version.0;
                    self.steps.push(StepRow {
                        version,
                        lag,
                        mean_lag,
                        zero_variance_share,
                        batch,
                        report,
                        ledger,
                    });
                }
                What::SetAside { version, group, reason, file, .. } => {
                    let (step, group) = (version.0, group.0);
                    self.set_aside.push(SetAside { step, group, reason, file });
                }
                What::Damaged { found, reason, kept_as } => {
                    self.damaged.push(Damage { found, reason, kept_as });
                }
                What::EmptyBatch { .. } => self.empty_batches += 1,
                What::Evaluation { version, primary, sets, spent, .. } => {
                    self.evaluations.push(Evaluation { version, primary, spent, sets });
                }
                What::Forecast(report) => self.forecasts.push(report),
                What::Warning { version, sign, value, threshold, steps } => {
                    let step = version.0;
                    self.warnings.push(Warning { step, sign, value, threshold, steps });
                }
                What::GeneratorRetried { .. } => self.generator_retries += 1,
                _ => {}
            }
        }
    }
}

/// Judged groups on their way to a step.
#[derive(Default)]
struct Waiting {
    oldest: HashMap<GroupId, PolicyVersion>,
    /// Groups without variance that another has replaced since the last step.
    replaced: usize,
}

impl Waiting {
    fn add(&mut self, group: &GroupReport) {
        match (group.fate, group.versions) {
            (Fate::Batch, Some((oldest, _))) => {
                self.oldest.insert(group.group, oldest);
            }
            (Fate::ZeroVariance, _) => self.replaced += 1,
            _ => {}
        }
    }

    /// Mean lag of a batch, and its share of groups without variance.
    fn take(&mut self, batch: &BatchReport, made: PolicyVersion) -> (Option<f64>, f64) {
        let from = made.0.saturating_sub(1);
        let (mut sum, mut count) = (0.0, 0.0);
        for oldest in batch.groups.iter().filter_map(|group| self.oldest.remove(group)) {
            sum += from.saturating_sub(oldest.0) as f64;
            count += 1.0;
        }
        let replaced = std::mem::take(&mut self.replaced);
        let judged = (batch.groups.len() + replaced).max(1);
        let share = (batch.zero_variance.len() + replaced) as f64 / judged as f64;
        ((count > 0.0).then_some(sum / count), share)
    }
}

/// Every process that worked on the run, those included whose beginnings a later resume took back.
fn sessions(events: &[Event], undone: &[Event]) -> Vec<Session> {
    let session = |event: &Event| match &event.what {
        What::Started { .. } => {
            Some(Session { at: event.at, resumed_from: None, lost_hours: 0.0, buffered_groups: 0 })
        }
        What::Resumed { version, lost, buffered_groups, .. } => Some(Session {
            at: event.at,
            resumed_from: Some(version.0),
            lost_hours: lost.device_hours(),
            buffered_groups: *buffered_groups,
        }),
        _ => None,
    };
    let mut found: Vec<Session> = events.iter().chain(undone).filter_map(session).collect();
    found.sort_by(|a, b| a.at.total_cmp(&b.at));
    found
}
