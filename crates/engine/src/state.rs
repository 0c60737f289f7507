//! What a checkpoint keeps beside the trainer's own files: `state.json` and `groups.jsonl`.
//!
//! Taken by the conductor between two steps, in one go, so it is one moment of the run: the cursor
//! of the prompts, every group that is neither trained on nor dropped, and the counters.

use scalerl_journal::{Checkpoint, Ledger};
use scalerl_rollout::PolicyVersion;
use serde::{Deserialize, Serialize};

use crate::{error::EngineError, groups::SavedGroup, stability::Watch};

pub(crate) const TRAINER: &str = "trainer";
/// What every checkpoint has.
pub(crate) const PARTS: [&str; 3] = [STATE, GROUPS, TRAINER];
const STATE: &str = "state.json";
const GROUPS: &str = "groups.jsonl";

/// `state.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Steps taken.
    pub(crate) version: PolicyVersion,
    /// When it was taken, in Unix seconds.
    pub(crate) at: f64,
    /// Lines of `events.jsonl` that count at this moment.
    pub(crate) kept: usize,
    /// The next group's number.
    pub(crate) next_group: u64,
    /// The prompt source's own state.
    pub(crate) source: serde_json::Value,
    /// What was spent.
    pub(crate) ledger: Ledger,
    /// The stability watch.
    pub(crate) watch: Watch,
    /// This version is to be evaluated and was not yet; what had been spent when it was made.
    pub(crate) evaluation_due: Option<Ledger>,
    /// Device-hours without evaluations at the last evaluation.
    pub(crate) evaluated_at_hours: f64,
    /// Version of the last evaluation.
    pub(crate) evaluated: Option<PolicyVersion>,
    pub(crate) tally: Tally,
}

/// Counters of what came in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Groups examined for the batch that is being filled.
    pub(crate) examined: usize,
    /// Batches in a row without a step.
    pub(crate) empty_batches: usize,
    /// Groups in a row without a verdict.
    pub(crate) unjudged_groups: usize,
    /// Steps in a row that met a group which cannot be trained on. Counted anew after a resume: by
    /// then somebody has looked.
    #[serde(skip)]
    pub(crate) refused_steps: usize,
    /// Evaluations in a row without a verdict on the primary set. Counted anew after a resume, too.
    #[serde(skip)]
    pub(crate) unmeasured: usize,
    /// The source has nothing left.
    pub(crate) is_dry: bool,
}

/// A state as files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) version: PolicyVersion,
    state: Vec<u8>,
    groups: Vec<u8>,
}

impl Files {
    pub(crate) fn of(state: &State, groups: &[SavedGroup]) -> Result<Self, EngineError> {
        let version = state.version;
        let bad =
            |error: serde_json::Error| EngineError::BadState { version, reason: error.to_string() };
        let mut lines = Vec::new();
        for group in groups {
            serde_json::to_writer(&mut lines, group).map_err(bad)?;
            lines.push(b'\n');
        }
        let state = serde_json::to_vec_pretty(state).map_err(bad)?;
        Ok(Self { version, state, groups: lines })
    }

    pub(crate) fn write(&self, draft: &scalerl_journal::Draft) -> Result<(), EngineError> {
        draft.write(STATE, &self.state)?;
        draft.write(GROUPS, &self.groups)?;
        Ok(())
    }
}

/// Reads a checkpoint back.
pub(crate) fn load(checkpoint: &Checkpoint) -> Result<(State, Vec<SavedGroup>), EngineError> {
    let version = checkpoint.version;
    let bad = |name: &str, error: &dyn std::fmt::Display| EngineError::BadState {
        version,
        reason: format!("{name}: {error}"),
    };
    let state: State =
        serde_json::from_slice(&checkpoint.read(STATE)?).map_err(|error| bad(STATE, &error))?;
    let groups = serde_json::Deserializer::from_slice(&checkpoint.read(GROUPS)?)
        .into_iter::<SavedGroup>()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(GROUPS, &error))?;
    Ok((state, groups))
}
