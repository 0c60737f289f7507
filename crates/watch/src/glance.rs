//! One run at a glance: what a list of hundreds needs, from the ends of its files.
//!
//! The points are in a small file of their own; step, spending, forecast and state are in the last
//! events. Nothing here grows with the journal.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use scalerl_files::open_own;
use scalerl_journal::{
    EvaluationPoint, Event, ForecastReport, Ledger, RunFolder, Status, What, kind_of,
};
use scalerl_recipe::{Axis, Recipe, Source};

/// Bytes of the end of a journal that are looked at first, and where that says too little.
const END: u64 = 64 << 10;
const MORE: u64 = 2 << 20;
/// Bytes of the points that are read.
const POINTS: u64 = 4 << 20;
/// Points kept for the small curve and for comparing.
const MOST_POINTS: usize = 512;

/// How a run stands.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// A process holds it.
    Alive,
    /// No end was recorded, and nobody holds it.
    Killed,
    /// It ended in order, as said.
    Ended(&'static str),
    /// It ended with an error.
    Failed(String),
    /// It cannot be read, for this reason.
    Unreadable(String),
}

impl State {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Killed => "killed",
            Self::Ended(_) => "ended",
            Self::Failed(_) => "failed",
            Self::Unreadable(_) => "unreadable",
        }
    }

    /// Of a recorded status.
    pub fn of(status: &Status, is_held: bool) -> Self {
        match status {
            Status::Open if is_held => Self::Alive,
            Status::Open => Self::Killed,
            Status::Stopped { reason } => Self::Ended(reason.description()),
            Status::Failed { error } => Self::Failed(error.clone()),
        }
    }
}

/// One run at a glance.
#[derive(Debug, Clone, PartialEq)]
pub struct Glance {
    /// The run's name.
    pub name: String,
    /// How it stands.
    pub state: State,
    /// Optimizer steps taken.
    pub version: u64,
    /// Steps of its budget.
    pub budget_steps: Option<u64>,
    /// What was spent.
    pub ledger: Ledger,
    /// Evaluations of the primary set, evenly spread where there are many.
    pub points: Vec<EvaluationPoint>,
    /// The last forecast.
    pub forecast: Option<ForecastReport>,
    /// Compute axis of its recipe.
    pub axis: Axis,
    /// Unix seconds of the last event.
    pub last_at: f64,
}

/// When the files of a run last changed; a glance is taken again when this differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    events: Option<(u64, SystemTime)>,
    points: Option<(u64, SystemTime)>,
    is_held: bool,
}

impl Stamp {
    pub(crate) fn of(folder: &RunFolder) -> Self {
        let look = |path: &Path| {
            let found = fs::symlink_metadata(path).ok()?;
            Some((found.len(), found.modified().ok()?))
        };
        let is_held = folder.is_held().unwrap_or(false);
        Self { events: look(&folder.events()), points: look(&folder.points(None)), is_held }
    }
}

/// Budget and axis of a run, which do not change often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) steps: Option<u64>,
    pub(crate) axis: Axis,
}

impl Plan {
    pub(crate) fn of(folder: &RunFolder) -> Self {
        let resolved = text(&folder.recipe()).and_then(|text| {
            let source = Source::Kept { name: "recipe.toml".into(), text };
            Recipe::load(&[source], &[]).ok()
        });
        Self {
            steps: resolved.as_ref().and_then(|recipe| recipe.budget.steps),
            axis: resolved.map_or(Axis::DeviceHours, |recipe| recipe.budget.axis),
        }
    }
}

/// A file of the folder itself, of reasonable size.
pub(crate) fn text(path: &Path) -> Option<String> {
    let file = open_own(path).ok()??;
    String::from_utf8(scalerl_files::read_whole(file, POINTS).ok()?).ok()
}

impl Glance {
    /// Looks.
    pub(crate) fn take(folder: &RunFolder, stamp: &Stamp, plan: Plan) -> Self {
        let mut glance = Self {
            name: folder.name(),
            state: State::Killed,
            version: 0,
            budget_steps: plan.steps,
            ledger: Ledger::default(),
            points: Vec::new(),
            forecast: None,
            axis: plan.axis,
            last_at: 0.0,
        };
        glance.points = points(&folder.points(None)).unwrap_or_default();
        let mut status = Status::Open;
        for reach in [END, MORE] {
            match end_of(&folder.events(), reach) {
                Ok(end) => {
                    if glance.read_backwards(&end, &mut status) {
                        break;
                    }
                }
                Err(error) => {
                    glance.state = State::Unreadable(error.to_string());
                    return glance;
                }
            }
        }
        glance.state = State::of(&status, stamp.is_held);
        glance
    }

    /// True when everything was found.
    fn read_backwards(&mut self, end: &[u8], status: &mut Status) -> bool {
        let (mut version, mut ledger, mut last, mut bound) = (None, None, true, u64::MAX);
        self.forecast = None;
        for line in end.rsplit(|byte| *byte == b'\n') {
            let kind = kind_of(line);
            if kind.is_none() || (!last && matches!(kind, Some(b"group" | b"adopted"))) {
                continue;
            }
            let Ok(event) = serde_json::from_slice::<Event>(line) else { continue };
            if std::mem::take(&mut last) {
                *status = Status::of(Some(&event.what));
                self.last_at = event.at;
            }
            match &event.what {
                // What stands before it may have been taken back, as far as it lies behind this step.
                What::Resumed { version, .. } => bound = bound.min(version.0),
                What::Step { report, .. } if report.version.0 <= bound => {
                    version.get_or_insert(report.version.0);
                }
                What::Forecast(report) if self.forecast.is_none() && report.version.0 <= bound => {
                    self.forecast = Some(report.clone());
                }
                _ => {}
            }
            let counts = version.is_some() || bound == u64::MAX;
            ledger = ledger.or(event.what.ledger().copied().filter(|_| counts));
            if version.is_some() && ledger.is_some() && self.forecast.is_some() {
                break;
            }
        }
        self.version = version.unwrap_or(if bound == u64::MAX { 0 } else { bound });
        self.ledger = ledger.unwrap_or_default();
        version.is_some() && (self.forecast.is_some() || self.points.len() < 3)
    }

    /// Share of the steps of its budget.
    pub fn done(&self) -> Option<f64> {
        self.budget_steps
            .filter(|steps| *steps > 0)
            .map(|steps| (self.version as f64 / steps as f64).clamp(0.0, 1.0))
    }
}

/// The last bytes of a file; less than a line may stand at their beginning.
fn end_of(path: &Path, reach: u64) -> io::Result<Vec<u8>> {
    let Some(mut file) = open_own(path)? else { return Ok(Vec::new()) };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(reach)))?;
    let mut end = Vec::new();
    file.take(reach).read_to_end(&mut end)?;
    if length > reach {
        let first = end.iter().position(|byte| *byte == b'\n').map_or(end.len(), |at| at + 1);
        end.drain(..first);
    }
    Ok(end)
}

fn points(path: &Path) -> io::Result<Vec<EvaluationPoint>> {
    let end = end_of(path, POINTS)?;
    let lines = end.split(|byte| *byte == b'\n');
    let all: Vec<EvaluationPoint> =
        lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    Ok(scalerl_report::figures::spread(&all, MOST_POINTS))
}
