//! Who the ranks of a team are and how it stands with them, for whoever watches from another thread.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use scalerl_rollout::PolicyVersion;

/// A rank's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankProcess {
    pub host: String,
    pub pid: u32,
}

/// How it stood at the last operation.
#[derive(Debug, Clone)]
pub struct RollState {
    /// When all ranks last did something together.
    pub heard: Instant,
    /// What they train.
    pub version: PolicyVersion,
    /// Why they can do nothing more.
    pub lost: Option<String>,
    /// Whether all of them were there to agree on that.
    pub has_agreed: bool,
}

/// All ranks of a team, rank 0 first.
#[derive(Debug)]
pub struct Roll {
    pub processes: Vec<RankProcess>,
    state: Mutex<RollState>,
}

impl Roll {
    /// From what each rank said of itself.
    pub(super) fn of(said: &[String]) -> Self {
        let read = |said: &String| {
            let (pid, host) = said.split_once(' ').unwrap_or(("0", said));
            RankProcess { host: host.to_owned(), pid: pid.parse().unwrap_or(0) }
        };
        let state = RollState {
            heard: Instant::now(),
            version: PolicyVersion(0),
            lost: None,
            has_agreed: false,
        };
        Self { processes: said.iter().map(read).collect(), state: Mutex::new(state) }
    }

    /// What this process says of itself.
    pub(super) fn own() -> String {
        format!("{} {}", std::process::id(), crate::host::host())
    }

    pub fn state(&self) -> RollState {
        self.lock().clone()
    }

    pub(super) fn hear(&self) {
        self.lock().heard = Instant::now();
    }

    pub(super) fn reach(&self, version: PolicyVersion) {
        self.lock().version = version;
    }

    pub(super) fn lose(&self, reason: &str, has_agreed: bool) {
        let mut state = self.lock();
        if state.lost.is_none() {
            (state.lost, state.has_agreed) = (Some(reason.to_owned()), has_agreed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, RollState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
