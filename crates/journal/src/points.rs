//! Evaluations as points of a curve, and the plain file that `scalerl fit` reads.
//!
//! `points.jsonl` has one object per evaluation of the primary set: `run, step, gpu_hours, tokens,
//! flops, pass_rate, samples`, any of the middle four a compute axis. It is made from the events
//! and says nothing that they do not; a resume makes it anew.

use std::{fs::OpenOptions, io::Write as _, path::Path};

use scalerl_curve::{Compute, Point, PointsError, Series};
use scalerl_recipe::Axis;
use scalerl_rollout::PolicyVersion;
use serde::{Deserialize, Serialize};

use crate::{
    durable::{json_lines, write_whole},
    error::JournalError,
    event::SetReport,
    ledger::Ledger,
};

/// One line of `points.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvaluationPoint {
    /// The run's name.
    pub run: String,
    /// Optimizer steps taken.
    pub step: u64,
    /// Device-hours without evaluations.
    pub gpu_hours: f64,
    /// Tokens generated for training.
    pub tokens: u64,
    /// Operations of the model in generating and training.
    pub flops: f64,
    /// Mean pass rate of the set.
    pub pass_rate: f64,
    /// Judged completions behind it.
    pub samples: u64,
    /// Unix time of the evaluation, where it is known; `points.jsonl` leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
}

impl EvaluationPoint {
    /// The point of one set in one evaluation; `spent` is the ledger when the version was made.
    pub fn new(run: &str, version: PolicyVersion, spent: &Ledger, set: &SetReport) -> Self {
        Self {
            run: run.to_owned(),
            step: version.0,
            gpu_hours: spent.training_hours(),
            tokens: spent.tokens_generated,
            flops: spent.flops,
            pass_rate: set.pass_rate,
            samples: set.samples,
            at: None,
        }
    }

    /// Its compute on an axis.
    pub fn compute(&self, axis: Axis) -> f64 {
        match axis {
            Axis::DeviceHours => self.gpu_hours,
            Axis::Tokens => self.tokens as f64,
            Axis::Flops => self.flops,
            Axis::Steps => self.step as f64,
        }
    }

    /// Points as a checked series that can be fitted.
    pub fn series(points: &[Self], axis: Axis) -> Result<Series, PointsError> {
        let point = |point: &Self| Point {
            compute: Compute(point.compute(axis)),
            value: point.pass_rate,
            samples: Some(point.samples as f64),
        };
        Series::try_new(points.iter().map(point).collect())
    }
}

/// Appends one point.
pub(crate) fn append_point(path: &Path, point: &EvaluationPoint) -> Result<(), JournalError> {
    let line = json_lines(path, [point])?;
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(JournalError::io("open", path))?;
    file.write_all(&line).map_err(JournalError::io("append to", path))
}

/// Writes all points anew.
pub(crate) fn write_points(path: &Path, points: &[EvaluationPoint]) -> Result<(), JournalError> {
    write_whole(path, &json_lines(path, points)?)
}
