//! A whole run, rebuilt from its folder while it is alive or after it has ended.

use std::{collections::BTreeMap, io::ErrorKind, path::Path};

use scalerl_files::DOCUMENT;
use scalerl_rollout::PolicyVersion;
use serde::Serialize;

use crate::{
    checkpoint::Checkpoint,
    error::JournalError,
    event::{Event, ForecastReport, StopReason, What},
    failures::FailureKinds,
    folder::{Environment, RunFolder},
    history::History,
    ledger::Ledger,
    log::read_events,
    points::EvaluationPoint,
};

/// Everything a folder says.
#[derive(Debug)]
pub struct Reading {
    /// The run's name.
    pub name: String,
    /// The resolved recipe, as TOML.
    pub recipe: String,
    /// What it ran on.
    pub environment: Environment,
    /// What happened, and what was undone.
    pub history: History,
    /// Whole checkpoints, oldest first.
    pub checkpoints: Vec<Checkpoint>,
}

/// Where a run stands, by its last event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum Status {
    /// No end was recorded: it is alive, or was killed.
    Open,
    /// It ended in order.
    Stopped { reason: StopReason },
    /// It ended with an error.
    Failed { error: String },
}

impl Status {
    /// What the last event says.
    pub fn of(last: Option<&What>) -> Self {
        match last {
            Some(What::Stopped { reason, .. }) => Self::Stopped { reason: *reason },
            Some(What::Failed { error, .. }) => Self::Failed { error: error.clone() },
            _ => Self::Open,
        }
    }

    /// Has it ended by its recipe, and not because somebody asked? Then nothing is left to do.
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Stopped { reason } if *reason != StopReason::Asked)
    }
}

/// A run in numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The run's name.
    pub run: String,
    /// Where it stands.
    #[serde(flatten)]
    pub status: Status,
    /// Optimizer steps taken.
    pub version: PolicyVersion,
    /// What was spent on them.
    pub ledger: Ledger,
    /// What was spent on work that kills have undone.
    pub lost: Ledger,
    /// Groups judged.
    pub groups: usize,
    /// Judged groups that no step could use.
    pub set_aside: usize,
    /// Completions whose verifier failed.
    pub verifier_failures: usize,
    /// The same by what went wrong.
    pub failures: FailureKinds,
    /// Processes of environments that ended before their time.
    pub environment_restarts: usize,
    /// Largest lag of a step.
    pub largest_lag: u64,
    /// The last evaluation of the primary set.
    pub pass_rate: Option<f64>,
}

impl Reading {
    /// What the run in a folder ran on, without the rest.
    pub fn environment_of(path: &Path) -> Result<Environment, JournalError> {
        let environment = RunFolder::open(path)?.environment();
        let bytes = match scalerl_files::read(&environment, DOCUMENT) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (path, missing) = (path.to_owned(), "environment.json");
                return Err(JournalError::NotARun { path, missing });
            }
            Err(error) => return Err(JournalError::io("read", environment)(error)),
        };
        serde_json::from_slice(&bytes).map_err(|error| JournalError::BadFile {
            path: environment,
            problem: error.to_string(),
        })
    }

    /// Reads a folder; a torn last line and unfinished checkpoints are passed over.
    pub fn load(path: &Path) -> Result<Self, JournalError> {
        let folder = RunFolder::open(path)?;
        let recipe = folder.recipe();
        let text = scalerl_files::read_to_string(&recipe, DOCUMENT)
            .map_err(JournalError::io("read", &recipe))?;
        let environment = Self::environment_of(path)?;
        Ok(Self {
            name: folder.name(),
            recipe: text,
            environment,
            history: History::of(read_events(&folder.events())?),
            checkpoints: folder.checkpoints().list()?,
        })
    }

    /// The evaluations of the primary set.
    pub fn points(&self) -> Vec<EvaluationPoint> {
        self.history.points_by_set(&self.name).remove(&None).unwrap_or_default()
    }

    /// The forecasts, in the order they were made.
    pub fn forecasts(&self) -> impl Iterator<Item = &ForecastReport> {
        self.history.events.iter().filter_map(|event| match &event.what {
            What::Forecast(report) => Some(report),
            _ => None,
        })
    }

    /// Where the run stands.
    pub fn status(&self) -> Status {
        Status::of(self.history.events.last().map(|event| &event.what))
    }

    /// The run in numbers.
    pub fn summary(&self) -> Summary {
        let mut summary = Summary {
            run: self.name.clone(),
            status: self.status(),
            version: PolicyVersion(0),
            ledger: self.history.ledger(),
            lost: self.history.lost,
            groups: 0,
            set_aside: 0,
            verifier_failures: 0,
            failures: FailureKinds::default(),
            environment_restarts: 0,
            largest_lag: 0,
            pass_rate: self.points().last().map(|point| point.pass_rate),
        };
        for event in &self.history.events {
            match &event.what {
                What::Group(_) => summary.groups += 1,
                What::SetAside { .. } => summary.set_aside += 1,
                What::VerifierFailed { reason, .. } => {
                    summary.verifier_failures += 1;
                    summary.failures.add(reason);
                }
                What::EnvironmentRestarted { .. } => summary.environment_restarts += 1,
                What::Step { lag, report, .. } => {
                    summary.version = report.version;
                    summary.largest_lag = summary.largest_lag.max(*lag);
                }
                _ => {}
            }
        }
        summary
    }
}

/// The points of each set, from the events that count.
pub(crate) fn points_by_set(
    run: &str,
    events: &[Event],
) -> BTreeMap<Option<String>, Vec<EvaluationPoint>> {
    let mut points: BTreeMap<Option<String>, Vec<EvaluationPoint>> = BTreeMap::new();
    for event in events {
        let What::Evaluation { version, primary, sets, spent, .. } = &event.what else { continue };
        for set in sets {
            let name = (set.name != *primary).then(|| set.name.clone());
            let point = EvaluationPoint::new(run, *version, spent, set);
            points.entry(name).or_default().push(point);
        }
    }
    points
}
