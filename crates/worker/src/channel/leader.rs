//! The trainer's end: weights are handed over and sent by a thread of the channel's own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use scalerl_rollout::PolicyVersion;
use scalerl_torch::collective::{Store, Token};

use super::round::Rounds;
use super::{ChannelError, ChannelOptions};
use crate::weight_store::Weights;

/// How often the thread looks for newcomers while there is nothing to send.
const LOOK: Duration = Duration::from_millis(100);

/// What happened in a channel, for the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum ChannelEvent {
    /// Somebody took a number.
    Joined { member: u64 },
    /// `members` have these weights now.
    Delivered { version: PolicyVersion, members: usize, seconds: f64 },
    /// A broadcast failed and is repeated with whoever is left.
    Failed { version: PolicyVersion, reason: String },
    /// A member is no longer waited for; it may come back under a new number.
    Dropped { member: u64, reason: String },
    /// The channel itself is broken: no further weights are sent.
    Broken { reason: String },
}

/// A member as the fleet's table shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberStatus {
    pub member: u64,
    /// What it calls itself, once it has answered.
    pub name: Option<String>,
    /// What it has, once it has anything.
    pub version: Option<PolicyVersion>,
}

#[derive(Default)]
struct Seen {
    members: Vec<MemberStatus>,
    events: Vec<ChannelEvent>,
}

/// The trainer's end of a channel. Dropping it ends it for all members.
pub struct WeightChannel {
    port: u16,
    /// Dropped to end the thread.
    sender: Option<Sender<Weights>>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

impl WeightChannel {
    /// Opens a channel whose members meet at `address:port`; port 0 takes one that is free.
    /// Who does not know the token is not let in.
    pub fn open(
        address: &str,
        port: u16,
        token: &Token,
        options: ChannelOptions,
    ) -> Result<Self, ChannelError> {
        let store = Store::listen(address, port, Some(token), options.meeting)?;
        let port = store.server().port();
        let seen = Arc::<Mutex<Seen>>::default();
        let (sender, inbox) = channel();
        let rounds = Rounds::new(store, options);
        let shared = Arc::clone(&seen);
        // Ends when the sender is dropped, after the delivery under way.
        let thread = std::thread::spawn(move || serve(rounds, &inbox, &shared));
        Ok(Self { port, sender: Some(sender), seen, thread: Some(thread) })
    }

    /// Where members meet.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Hands weights over and returns at once. They are held until newer ones have been handed over
    /// and nobody is being sent them.
    pub fn publish(&self, weights: Weights) {
        let sender = self.sender.as_ref().expect("there until dropped");
        // A thread that has ended has left a `Broken` event.
        let _ = sender.send(weights);
    }

    /// Who is there, and with which weights.
    pub fn members(&self) -> Vec<MemberStatus> {
        lock(&self.seen).members.clone()
    }

    /// What has happened since the last call.
    pub fn take_events(&self) -> Vec<ChannelEvent> {
        std::mem::take(&mut lock(&self.seen).events)
    }
}

impl Drop for WeightChannel {
    fn drop(&mut self) {
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed; there is nothing left to save.
            let _ = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().expect("nothing panics while it holds the list")
}

fn serve(mut rounds: Rounds, inbox: &Receiver<Weights>, seen: &Mutex<Seen>) {
    let mut current: Option<Weights> = None;
    loop {
        match inbox.recv_timeout(LOOK) {
            // Only the newest is worth sending.
            Ok(weights) => current = inbox.try_iter().last().or(Some(weights)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let outcome = rounds.admit().and_then(|()| match &current {
            Some(weights) => rounds.deliver(weights),
            None => Ok(()),
        });
        if let Err(error) = &outcome {
            rounds.events.push(ChannelEvent::Broken { reason: error.to_string() });
        }
        show(&mut rounds, seen);
        if outcome.is_err() {
            return;
        }
    }
}

fn show(rounds: &mut Rounds, seen: &Mutex<Seen>) {
    let status = |member: &super::round::Member| MemberStatus {
        member: member.id,
        name: member.name.clone(),
        version: member.version,
    };
    let mut seen = lock(seen);
    seen.members = rounds.members.iter().map(status).collect();
    seen.events.append(&mut rounds.events);
}
