//! One batch, prepared and stepped over, without the groups that no step can use.
//!
//! ```text
//! prepare --> step --> report
//!   '--------'--refused: its groups are taken out, the rest is prepared again
//! ```
//! A refusal changes nothing in the trainer and is about data (`TrainerError::BadSequence`,
//! `BadBatch`, a batch that cannot be prepared). It names a group where it can; where it cannot,
//! all groups of the batch go. Every round takes out at least one, so this ends.
//!
//! Not here: what becomes of groups that were taken out (`training.rs`), and failures that are not
//! about data (a device, a gradient that is not finite): those end the run.

use std::sync::Arc;

use scalerl_objective::prepare::{BatchCounts, PrepareError, PreparedBatch, prepare};
use scalerl_rollout::{GroupId, PolicyVersion, StepReport, TrainerError};

use super::training::in_time;
use crate::{
    error::EngineError,
    groups::{Formed, SavedGroup},
    meter::{Meter, Role},
    settings::Settings,
    trainer_handle::TrainerHandle,
};

/// What a batch became.
#[derive(Debug)]
pub(super) struct Stepped {
    pub(super) counts: BatchCounts,
    pub(super) lag: u64,
    /// `None` when nothing carried loss.
    pub(super) report: Option<StepReport>,
}

/// A group that was taken out of its batch, and why.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) group: SavedGroup,
    pub(super) reason: String,
}

/// What is left of a batch, what was taken out of it, and the step.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) formed: Formed,
    pub(super) refused: Vec<Refused>,
    pub(super) result: Result<Stepped, EngineError>,
}

/// How one try ended without a step.
enum Trouble {
    /// The data is at fault: which group, where that is known.
    Refused {
        group: Option<GroupId>,
        reason: String,
    },
    Failed(EngineError),
}

/// Takes the step from `version` over as much of a batch as can be trained on.
pub(super) async fn step_over<S: TrainerHandle>(
    trainer: &mut S,
    mut formed: Formed,
    version: PolicyVersion,
    settings: Arc<Settings>,
    meter: Meter,
) -> Attempt {
    let mut refused = Vec::new();
    loop {
        let (prepared, lag);
        (formed, prepared, lag) = prepare_batch(formed, version, settings.clone()).await;
        let (group, reason) = match try_step(trainer, prepared, lag, &settings, &meter).await {
            Ok(stepped) => return Attempt { formed, refused, result: Ok(stepped) },
            Err(Trouble::Failed(error)) => return Attempt { formed, refused, result: Err(error) },
            Err(Trouble::Refused { group, reason }) => (group, reason),
        };
        for group in formed.take_out(group) {
            refused.push(Refused { group, reason: reason.clone() });
        }
    }
}

/// Prepares on a thread of its own kind: a batch has millions of tokens.
async fn prepare_batch(
    formed: Formed,
    version: PolicyVersion,
    settings: Arc<Settings>,
) -> (Formed, Result<PreparedBatch, PrepareError>, u64) {
    let prepared = tokio::task::spawn_blocking(move || {
        let batch = formed.batch(version);
        let temperature = settings.recipe.sampling.temperature;
        let prepared = prepare(&settings.recipe.objective, temperature, &batch);
        (formed, prepared, batch.lag())
    });
    match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

async fn try_step<S: TrainerHandle>(
    trainer: &mut S,
    prepared: Result<PreparedBatch, PrepareError>,
    lag: u64,
    settings: &Settings,
    meter: &Meter,
) -> Result<Stepped, Trouble> {
    let PreparedBatch { train, groups, counts } = prepared.map_err(|error| Trouble::Refused {
        group: Some(error.group()),
        reason: error.to_string(),
    })?;
    if train.sequences.is_empty() {
        return Ok(Stepped { counts, lag, report: None });
    }
    let _busy = meter.busy(Role::Train);
    match in_time(settings, "a step", trainer.step(train)).await {
        Ok(report) => Ok(Stepped { counts, lag, report: Some(report) }),
        Err(EngineError::Training(error)) => Err(trouble(error, &groups)),
        Err(error) => Err(Trouble::Failed(error)),
    }
}

fn trouble(error: TrainerError, groups: &[GroupId]) -> Trouble {
    let group = match &error {
        TrainerError::BadSequence { sequence, .. } => groups.get(*sequence).copied(),
        TrainerError::BadBatch { .. } => None,
        _ => return Trouble::Failed(error.into()),
    };
    Trouble::Refused { group, reason: error.to_string() }
}
