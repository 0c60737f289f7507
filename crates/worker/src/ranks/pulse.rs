//! Between steps rank 0 makes sure that everybody is still there.
//!
//! Steps can be minutes apart. A thread says "nothing to do" every few seconds while rank 0 does
//! nothing else with its ranks; a rank that is gone is found then, not when the next batch is ready,
//! and the others know that rank 0 lives.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;

use super::command::{CommandError, Order, give};
use super::team::Team;

/// The team, and what has become of it.
pub(super) struct Watched {
    pub(super) team: Team,
    /// Why no further operation makes sense.
    pub(super) lost: Option<String>,
}

impl Watched {
    /// Gives an order; whatever fails between ranks is the end of the team.
    pub(super) fn give(&mut self, order: Order<'_>) -> Result<(), CommandError> {
        let given = give(&self.team.ranks, order);
        match &given {
            Ok(()) => self.team.roll.hear(),
            Err(error) => self.lose(error.to_string(), false),
        }
        given
    }

    /// Nothing more is tried; whether all ranks were there to agree on that.
    pub(super) fn lose(&mut self, reason: String, has_agreed: bool) {
        self.team.roll.lose(&reason, has_agreed);
        self.lost = Some(reason);
    }
}

/// Shares the team with the thread that keeps its pulse.
pub(super) struct Pulse {
    watched: Arc<Mutex<Watched>>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    pub(super) fn start(team: Team) -> Self {
        let every = team.deadlines.pulse;
        let watched = Arc::new(Mutex::new(Watched { team, lost: None }));
        let (stop, stopped) = channel::<()>();
        let shared = Arc::clone(&watched);
        // Ends when `stop` is dropped, or once the team is lost.
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                match shared.try_lock() {
                    Ok(mut watched) if watched.lost.is_none() => {
                        // What went wrong is kept and told to the next caller.
                        let _ = watched.give(Order::Wait);
                    }
                    // A step is under way, which is a sign of life.
                    Err(TryLockError::WouldBlock) => {}
                    Ok(_) | Err(TryLockError::Poisoned(_)) => return,
                }
            }
        });
        Self { watched, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn team(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(|poisoned| {
            let mut watched = poisoned.into_inner();
            // Wherever it was, the others are somewhere else by now.
            watched.lost.get_or_insert_with(|| "a panic in the middle of an operation".to_owned());
            watched
        })
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It holds nothing that a panic could have broken.
            let _ = thread.join();
        }
    }
}
