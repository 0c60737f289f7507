//! Which policy: the number of optimizer steps behind it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of optimizer steps a policy has taken; 0 is the model the run started from.
///
/// Made by the trainer, carried by every sampled token. Lag is counted in these.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct PolicyVersion(pub u64);

impl PolicyVersion {
    /// The version after one more step.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Steps between `older` and this version; 0 when `older` is in fact newer.
    pub fn steps_since(self, older: Self) -> u64 {
        self.0.saturating_sub(older.0)
    }
}

impl fmt::Display for PolicyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}
