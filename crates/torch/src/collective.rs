//! Processes that compute together: a store to meet at, groups to talk in (torch's c10d).
//!
//! ```text
//! Store   keys and values at one address: who is there, where the others listen
//! ProcessGroup   collectives among `size` processes: Gloo on the CPU, NCCL between GPUs
//! ```
//! Nothing waits for ever. Every call ends with its result or, after its timeout, with
//! [`CollectiveError::Late`]; a peer whose process has ended is [`CollectiveError::Failed`] at once,
//! because its connections close. A group that has failed once is of no further use: drop it and
//! form another under a new name.
//!
//! c10d asks nobody who they are. A store that others reach stands behind a proxy that wants the run's
//! token (`proxy.rs`); without one it belongs on the loopback address. What is sent is not encrypted.
//!
//! Not here: what is said in a group (`scalerl_worker::ranks`, `scalerl_worker::channel`).

mod group;
mod proxy;
mod store;

use std::time::{Duration, Instant};

use thiserror::Error;

use crate::shim;

pub use group::{Parcels, ProcessGroup, Record, Reduce, Transport, Underway};
pub use proxy::Token;
pub use store::Store;

/// Why processes could not do something together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CollectiveError {
    /// Somebody is frozen, cut off, or did not take part.
    #[error("{act}: not done within {seconds:.1} s: {reason}")]
    Late { act: String, seconds: Seconds, reason: String },
    /// Somebody is gone, or the call was wrong.
    #[error("{act}: {reason}")]
    Failed { act: String, reason: String },
    /// The address cannot be listened at or reached at all.
    #[error("{act}: {reason}")]
    Address { act: String, reason: String },
}

/// Seconds in a message; whole milliseconds, so that errors can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(u64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (self.0 as f64 / 1000.0).fmt(formatter)
    }
}

impl CollectiveError {
    /// Whether this process had no room for what the operation takes: nobody else is to blame.
    pub fn is_for_want_of_memory(&self) -> bool {
        matches!(self, Self::Failed { reason, .. } if reason.contains("out of memory"))
    }

    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Late { .. } => {
                "look whether every process was started and runs, and whether the hosts reach each other"
            }
            Self::Failed { .. } => "a process has ended: its own output says why",
            Self::Address { .. } => {
                "check the address and the port (MASTER_ADDR, MASTER_PORT) and that nobody else listens there"
            }
        }
    }
}

fn milliseconds(timeout: Duration) -> i64 {
    i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1)
}

/// Calls the shim and says what failed, and whether time had run out by then.
fn timed(
    act: impl FnOnce() -> String,
    timeout: Duration,
    call: impl FnOnce() -> i32,
) -> Result<(), CollectiveError> {
    let started = Instant::now();
    if call() == 0 {
        return Ok(());
    }
    Err(failure(act(), timeout, started, &shim::last_error()))
}

/// Tells time that ran out from everything else.
fn failure(act: String, timeout: Duration, started: Instant, reason: &str) -> CollectiveError {
    let reason = first_line(reason);
    // Timers end a moment early or late: the last tenth counts as time run out.
    if started.elapsed() >= timeout.mul_f64(0.9) {
        let seconds = Seconds(timeout.as_millis() as u64);
        return CollectiveError::Late { act, seconds, reason };
    }
    CollectiveError::Failed { act, reason }
}

/// torch appends traces and advice, and Gloo begins with where in its source it was.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim();
    let told = line.strip_prefix('[').and_then(|line| line.split_once("] "));
    told.filter(|(place, _)| place.contains(".cc:")).map_or(line, |(_, told)| told).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_without_places_in_the_source() {
        let told = "[/a/gloo/pair.cc:538] Read error [127.0.0.1]:1: Connection reset\nframe #0: …";
        assert_eq!(first_line(told), "Read error [127.0.0.1]:1: Connection reset");
        assert_eq!(first_line("[x] y"), "[x] y");
    }
}
