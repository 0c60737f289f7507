//! Where a run stands, from its folder alone.
//!
//! Looked at every few seconds while a study goes on, so only the ends of the files are read;
//! `record.rs` reads a run whole.

use std::{
    fs::{File, TryLockError},
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
};

use scalerl_journal::{EvaluationPoint, Event, Ledger, RunFolder, Status, StopReason, What};
use scalerl_recipe::{Axis, Recipe, Source, diff};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::{Budget, Job, StudyError};

/// More than enough for the last step and the groups after it.
const TAIL_BYTES: u64 = 256 * 1024;

/// A run at a glance.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Glance {
    /// Where it stands, by its last event; `None` where it has no folder yet.
    #[serde(flatten, serialize_with = "state")]
    pub status: Option<Status>,
    /// Optimizer steps taken.
    pub step: u64,
    /// Share of its budget that is spent, at most 1; 1 when finished.
    pub share: f64,
    /// Share of the way to the curve's end at the last evaluation; 1 when finished, and only then.
    pub measured_share: f64,
    /// The last evaluation of the primary set.
    pub pass_rate: Option<f64>,
    /// Evaluations so far.
    pub points: usize,
    /// Has it taken a step or measured something? Before that it may be warming up.
    pub is_under_way: bool,
}

impl Glance {
    /// Nothing is left to do.
    pub fn is_finished(&self) -> bool {
        self.status.as_ref().is_some_and(Status::is_finished)
    }
}

/// `state` and what belongs to it, as `scalerl study --json` prints them.
#[expect(clippy::ref_option, reason = "serde asks for a reference to the field")]
fn state<S: Serializer>(status: &Option<Status>, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    match status {
        None => map.serialize_entry("state", "waiting")?,
        Some(Status::Open) => map.serialize_entry("state", "open")?,
        Some(Status::Stopped { reason: StopReason::Asked }) => {
            map.serialize_entry("state", "interrupted")?;
        }
        Some(Status::Stopped { reason }) => {
            map.serialize_entry("state", "finished")?;
            map.serialize_entry("reason", reason)?;
        }
        Some(Status::Failed { error }) => {
            map.serialize_entry("state", "failed")?;
            map.serialize_entry("error", error)?;
        }
    }
    map.end()
}

/// Looks at a run folder that may not exist.
pub fn glance(folder: &Path, budget: Budget) -> Result<Glance, StudyError> {
    let mut glance = Glance {
        status: None,
        step: 0,
        share: 0.0,
        measured_share: 0.0,
        pass_rate: None,
        points: 0,
        is_under_way: false,
    };
    let Ok(run) = RunFolder::open(folder) else { return Ok(glance) };
    let points = points_so_far(&run)?;
    glance.points = points.len();
    glance.pass_rate = points.last().map(|point| point.pass_rate);
    let tail = tail(&run.events())?;
    // Newest first, and no further back than needed: a tail holds hundreds of groups.
    let mut newest = tail
        .rsplit(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Event>(line).ok())
        .peekable();
    glance.status = Some(Status::of(newest.peek().map(|event| &event.what)));
    glance.is_under_way = glance.points > 0;
    let (mut step, mut ledger) = (None, None);
    for event in newest {
        glance.is_under_way |= !event.what.is_of_session();
        ledger = ledger.or_else(|| event.what.ledger().copied());
        step = step.or(match &event.what {
            What::Step { report, .. } => Some(report.version.0),
            What::Stopped { version, .. } | What::Resumed { version, .. } => Some(version.0),
            _ => None,
        });
        if step.is_some() && ledger.is_some() {
            break;
        }
    }
    glance.step = step.or_else(|| points.last().map(|point| point.step)).unwrap_or(0);
    glance.share = ledger.map_or(0.0, |ledger| share(&ledger, glance.step, budget));
    let measured = match (budget.axis, points.last()) {
        (_, None) => 0.0,
        // A budget of device-time counts evaluations, a curve does not: what was spent stands for it.
        (Axis::DeviceHours, Some(_)) => glance.share,
        (axis, Some(last)) => last.compute(axis) / budget.amount,
    };
    glance.measured_share = measured.min(1.0 - f64::EPSILON);
    if glance.is_finished() {
        (glance.share, glance.measured_share) = (1.0, 1.0);
    }
    Ok(glance)
}

fn share(ledger: &Ledger, step: u64, budget: Budget) -> f64 {
    let spent = match budget.axis {
        Axis::DeviceHours => ledger.device_hours(),
        Axis::Tokens => ledger.tokens_generated as f64,
        Axis::Flops => ledger.flops,
        Axis::Steps => step as f64,
    };
    (spent / budget.amount).clamp(0.0, 1.0)
}

pub(crate) fn points_so_far(run: &RunFolder) -> Result<Vec<EvaluationPoint>, StudyError> {
    let path = run.points(None);
    let text = match scalerl_files::read_to_string(&path, scalerl_files::TABLE) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StudyError::io("read", path)(error)),
    };
    // A line that is being written is not whole yet.
    let points = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    // Earlier releases wrote a line for an evaluation without a verdict.
    Ok(points.filter(|point: &EvaluationPoint| point.samples > 0).collect())
}

/// The last part of a file; its first and last line may be torn.
fn tail(path: &Path) -> Result<Vec<u8>, StudyError> {
    let mut file = match scalerl_files::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(StudyError::io("read", path)(error)),
    };
    let mut bytes = Vec::new();
    let length = file.metadata().map_err(StudyError::io("read", path))?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
        .and_then(|_| file.read_to_end(&mut bytes))
        .map_err(StudyError::io("read", path))?;
    Ok(bytes)
}

/// Is a process writing this run at the moment? The operating system frees the lock with the
/// process, however that ended.
pub fn is_being_written(folder: &Path) -> bool {
    let Ok(lock) = File::open(folder.join("run.lock")) else { return false };
    matches!(lock.try_lock(), Err(TryLockError::WouldBlock))
}

/// Refuses to go on with a folder that holds another recipe than the study asks for.
pub fn check_recipe(folder: &Path, job: &Job) -> Result<(), StudyError> {
    let path = folder.join("recipe.toml");
    let Ok(text) = scalerl_files::read_to_string(&path, scalerl_files::DOCUMENT) else {
        return Ok(());
    };
    let source = Source::Kept { name: path.display().to_string(), text };
    let own = Recipe::load(&[source], &[])
        .map_err(|error| StudyError::BadFile { path: path.clone(), problem: error.to_string() })?;
    // Where a run lies is no part of what it is.
    let found = diff(&own, &job.recipe).into_iter().find(|one| one.key != "output.folder");
    match found {
        None => Ok(()),
        Some(one) => {
            let difference =
                format!("`{}` was {}, the study now has {}", one.key, one.left, one.right);
            Err(StudyError::Changed { path: folder.to_owned(), difference })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_state_are_those_that_scripts_read() {
        let stopped = |reason| Some(Status::Stopped { reason });
        for (status, expected) in [
            (None, r#"{"state":"waiting""#),
            (Some(Status::Open), r#"{"state":"open""#),
            (stopped(StopReason::Asked), r#"{"state":"interrupted""#),
            (stopped(StopReason::WallHours), r#"{"state":"finished","reason":"wall-hours""#),
            (Some(Status::Failed { error: "no".into() }), r#"{"state":"failed","error":"no""#),
        ] {
            let glance = Glance {
                status,
                step: 3,
                share: 0.5,
                measured_share: 0.5,
                pass_rate: None,
                points: 1,
                is_under_way: true,
            };
            let json = serde_json::to_string(&glance).unwrap();
            assert!(json.starts_with(&format!("{expected},\"step\":3,")), "{json}");
        }
    }
}
