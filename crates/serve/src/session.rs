//! Sessions: a key of its own for a policy, such as one episode of a run.
//!
//! Keys look like `session-NUMBER-SECRET`: the number finds the session, the secret opens it. What
//! a number below the next one has no session for is closed.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scalerl_rollout::Policy;
use tokio::sync::watch;

use crate::conversation::Turn;
use crate::error::ApiError;
use scalerl_http::key;

const PREFIX: &str = "session-";

/// Turns that a session remembers, the latest of them.
const TURNS: usize = 64;

/// What calls with one key share.
pub(crate) struct SessionState {
    secret: String,
    pub(crate) policy: Arc<dyn Policy>,
    /// A lock, because calls of one agent may overlap; held only to look and to add.
    turns: Mutex<Vec<Arc<Turn>>>,
    /// True once the session is closed; calls under way wait for it.
    pub(crate) is_closed: watch::Sender<bool>,
}

impl SessionState {
    fn locked(&self) -> MutexGuard<'_, Vec<Arc<Turn>>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was said so far.
    pub(crate) fn turns(&self) -> Vec<Arc<Turn>> {
        self.locked().clone()
    }

    pub(crate) fn remember(&self, turn: Turn) {
        let mut turns = self.locked();
        if turns.len() == TURNS {
            turns.remove(0);
        }
        turns.push(Arc::new(turn));
    }
}

#[derive(Default)]
struct Open {
    next: u64,
    by_number: BTreeMap<u64, Arc<SessionState>>,
}

/// Every session that is open.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<Open>);

impl Sessions {
    fn locked(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(self: &Arc<Self>, policy: Arc<dyn Policy>) -> io::Result<Session> {
        let secret = key::secret()?;
        let state = SessionState {
            secret: secret.clone(),
            policy,
            turns: Mutex::default(),
            is_closed: watch::Sender::new(false),
        };
        let mut open = self.locked();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::new(state));
        drop(open);
        let api_key = format!("{PREFIX}{number}-{secret}");
        Ok(Session { number, api_key, sessions: self.clone() })
    }

    /// `None` where the key is not a session's at all.
    pub(crate) fn find(&self, api_key: &str) -> Option<Result<Arc<SessionState>, ApiError>> {
        let (number, secret) = api_key.strip_prefix(PREFIX)?.split_once('-')?;
        let number: u64 = number.parse().ok()?;
        let open = self.locked();
        Some(match open.by_number.get(&number) {
            Some(state) if key::is_same(secret, &state.secret) => Ok(state.clone()),
            None if number < open.next => Err(ApiError::closed()),
            _ => Err(ApiError::no_key()),
        })
    }

    fn close(&self, number: u64) {
        if let Some(state) = self.locked().by_number.remove(&number) {
            // Calls under way are given up.
            state.is_closed.send_replace(true);
        }
    }
}

/// An open session. Dropping it closes it: calls under way are given up, later ones refused.
pub struct Session {
    number: u64,
    api_key: String,
    sessions: Arc<Sessions>,
}

impl Session {
    /// The key that leads to the session's policy.
    pub fn api_key(&self) -> &str {
        &self.api_key
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its key.
        f.debug_struct("Session").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.sessions.close(self.number);
    }
}
