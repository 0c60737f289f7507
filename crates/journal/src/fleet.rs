//! The processes of a run beside the one that writes: what became of each, and a table of them.
//!
//! Changes are events of the journal; the table is `RUN/fleet.json`, written anew every few seconds
//! and for the moment only: nothing is rebuilt from it.

use std::fmt;
use std::path::Path;

use scalerl_rollout::PolicyVersion;
use serde::{Deserialize, Serialize};

use crate::durable::write_json;
use crate::error::JournalError;

/// In a run folder.
const TABLE: &str = "fleet.json";

/// How it stands with a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FleetState {
    /// It gives signs of life and may serve.
    Healthy,
    /// It has been silent for longer than it should.
    Suspect,
    /// It has been given up.
    Dead,
    /// It has been started again and has not been heard of.
    Restarting,
    /// It lives, and must take the current weights before it serves.
    Stale,
}

impl fmt::Display for FleetState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Suspect => "suspect",
            Self::Dead => "dead",
            Self::Restarting => "restarting",
            Self::Stale => "stale",
        })
    }
}

/// A process whose state has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetChange {
    /// What it calls itself.
    pub name: String,
    /// Where it runs, if that is known.
    pub host: String,
    /// `None` for a newcomer.
    pub from: Option<FleetState>,
    /// What it is now.
    pub to: FleetState,
    /// Why.
    pub reason: String,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetMember {
    /// What it calls itself.
    pub name: String,
    /// `trainer` or `generator`.
    pub role: String,
    /// Where it runs.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// How it stands.
    pub state: FleetState,
    /// The policy it has.
    pub version: Option<PolicyVersion>,
    /// Steps behind the newest policy.
    pub lag: Option<u64>,
    /// Tokens a second at the last sign of life.
    pub tokens_per_second: f64,
    /// Unix time of the last sign of life.
    pub heard_at: f64,
}

/// The processes of a run at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct FleetTable {
    /// Unix time.
    pub at: f64,
    /// Why the fleet cannot be seen at the moment.
    pub trouble: Option<String>,
    /// In order of their names.
    pub members: Vec<FleetMember>,
}

impl FleetTable {
    /// Puts the table into a run folder.
    pub fn write(&self, run: &Path) -> Result<(), JournalError> {
        write_json(&run.join(TABLE), self)
    }

    /// The last table of a run; `None` where it never had one.
    pub fn read(run: &Path) -> Option<Self> {
        serde_json::from_slice(
            &scalerl_files::read(&run.join(TABLE), scalerl_files::DOCUMENT).ok()?,
        )
        .ok()
    }
}
