//! What the engine's futures and the trainer's two tasks share: requests that wait, and what becomes of
//! the answers to them.
//!
//! A request keeps its ticket until it is answered or given up; every attempt at it has an id of its own.
//! Only signed answers count, each for its own id: what somebody else writes, or has overheard, is
//! nobody's.
//!
//! Not here: Redis itself (`dispatcher.rs`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scalerl_rollout::{Completion, GeneratorError, PolicyVersion, SampleRequest};
use tokio::sync::{Notify, oneshot};

use super::session::{Kind, Session};
use super::trainer::Signs;
use super::wire::{Ask, MOST_ANSWER, Outcome, Reply};
use crate::channel::ChannelEvent;

/// Answers to a request that may be of no use before it fails.
const ATTEMPTS: u32 = 3;
/// Lists for whoever watches; when nobody does, they do not grow.
const MOST_NOTES: usize = 1000;

type Answer = Result<Vec<Completion>, GeneratorError>;

pub(super) struct Pending {
    /// Under the id of this attempt.
    pub(super) ask: Arc<Ask>,
    /// Counts from 1; each has an id of its own, so that what answered one does not answer the next.
    attempt: u32,
    /// Its name in the stream, once it was sent.
    pub(super) entry: Option<String>,
    reply: oneshot::Sender<Answer>,
}

#[derive(Default)]
pub(super) struct State {
    next: u64,
    /// By ticket.
    pub(super) pending: BTreeMap<u64, Pending>,
    /// To be taken out of Redis: id, and name in the stream.
    pub(super) settled: Vec<(String, String)>,
    floor: PolicyVersion,
    newest: PolicyVersion,
    pub(super) signs: Signs,
    broken: Option<String>,
    why_gone: Option<String>,
}

/// What the engine's futures and the two tasks share.
pub(super) struct Dispatch {
    pub(super) session: Session,
    nonce: String,
    state: Mutex<State>,
    pub(super) wake: Notify,
}

/// A request that waits for its answer; dropping it gives the request up.
pub(super) struct Waiting {
    dispatch: Arc<Dispatch>,
    ticket: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Waiting {
    pub(super) async fn answer(&mut self) -> Result<Answer, oneshot::error::RecvError> {
        (&mut self.answer).await
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.dispatch.state();
        // Not there any more when it was answered.
        if let Some(Pending { entry: Some(entry), ask, .. }) = state.pending.remove(&self.ticket) {
            state.settled.push((ask.id.clone(), entry));
            drop(state);
            self.dispatch.wake.notify_one();
        }
    }
}

impl Dispatch {
    pub(super) fn new(session: Session) -> Self {
        let nonce = super::session::nonce();
        Self { session, nonce, state: Mutex::default(), wake: Notify::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request, which the dispatcher will send.
    pub(super) fn enter(
        self: &Arc<Self>,
        request: SampleRequest,
    ) -> Result<Waiting, GeneratorError> {
        let mut state = self.state();
        if state.why_gone.is_some() {
            drop(state);
            return Err(self.gone());
        }
        state.next += 1;
        let (ticket, attempt) = (state.next, 1);
        let ask = Arc::new(Ask { id: self.id(ticket, attempt), floor: state.floor, request });
        let (reply, answer) = oneshot::channel();
        state.pending.insert(ticket, Pending { ask, attempt, entry: None, reply });
        drop(state);
        self.wake.notify_one();
        Ok(Waiting { dispatch: self.clone(), ticket, answer })
    }

    /// Unlike that of any other request, of this group or of this trainer before a restart.
    fn id(&self, ticket: u64, attempt: u32) -> String {
        format!("{}-{ticket}.{attempt}", self.nonce)
    }

    /// The request that an id is of, whichever attempt.
    pub(super) fn ticket(&self, id: &str) -> Option<u64> {
        let (ticket, _) = id.strip_prefix(&self.nonce)?.strip_prefix('-')?.split_once('.')?;
        ticket.parse().ok()
    }

    pub(super) fn close(&self, reason: &str) {
        let mut state = self.state();
        state.why_gone.get_or_insert_with(|| reason.to_owned());
        state.pending.clear();
    }

    pub(super) fn gone(&self) -> GeneratorError {
        let reason = self.state().why_gone.clone();
        GeneratorError::Gone { reason: reason.unwrap_or_else(|| "its tasks have ended".to_owned()) }
    }

    pub(super) fn pending(&self) -> usize {
        self.state().pending.len()
    }

    pub(super) fn floor(&self) -> PolicyVersion {
        self.state().floor
    }

    pub(super) fn publish(&self, version: PolicyVersion) {
        let mut state = self.state();
        state.newest = state.newest.max(version);
    }

    pub(super) fn adopt(&self, version: PolicyVersion) {
        self.state().floor = version;
    }

    pub(super) fn note_events(&self, events: Vec<ChannelEvent>) {
        let mut state = self.state();
        for event in events {
            if let ChannelEvent::Broken { reason } = &event {
                state.broken = Some(reason.clone());
            }
            if state.signs.channel.len() < MOST_NOTES {
                state.signs.channel.push(event);
            }
        }
    }

    /// Why no more weights can be sent.
    pub(super) fn broken(&self) -> Option<String> {
        self.state().broken.clone()
    }

    pub(super) fn take_signs(&self) -> Signs {
        let mut state = self.state();
        let (channel, refused) =
            (std::mem::take(&mut state.signs.channel), std::mem::take(&mut state.signs.refused));
        let had_trouble = state.signs.had_trouble.take();
        Signs { channel, refused, had_trouble, ..state.signs.clone() }
    }

    /// Takes an answer; those that nobody waits for are duplicates, were given up, or are to an
    /// earlier attempt. What is not signed is nobody's and changes nothing.
    pub(super) fn settle(&self, bytes: &[u8]) {
        let reply: Reply = match self.session.open(Kind::Answer, bytes, MOST_ANSWER) {
            Ok(reply) => reply,
            Err(error) => return self.complain(format!("from somebody: {error}")),
        };
        let Some(ticket) = self.ticket(&reply.id) else { return };
        let mut state = self.state();
        let newest = state.newest;
        let Some(pending) = state.pending.get_mut(&ticket) else { return };
        if pending.ask.id != reply.id {
            return;
        }
        let is_last = pending.attempt == ATTEMPTS;
        let answer = match (judge(&pending.ask, reply.outcome, newest), is_last) {
            (Ok(completions), _) => Ok(completions),
            (Err(error), true) => Err(error),
            (Err(error), false) => {
                let before = std::mem::take(&mut pending.entry);
                pending.attempt += 1;
                let id = self.id(ticket, pending.attempt);
                pending.ask = Arc::new(Ask { id, ..(*pending.ask).clone() });
                state.settled.extend(before.map(|entry| (reply.id, entry)));
                drop(state);
                self.complain(format!("from {}: {error}", short(&reply.from)));
                return self.wake.notify_one();
            }
        };
        if let Some(Pending { entry, reply: waiting, .. }) = state.pending.remove(&ticket) {
            state.settled.extend(entry.map(|entry| (reply.id, entry)));
            // Given up in this moment: nobody wants it.
            let _ = waiting.send(answer);
        }
        drop(state);
        self.wake.notify_one();
    }

    pub(super) fn complain(&self, reason: String) {
        let mut state = self.state();
        if state.signs.refused.len() < MOST_NOTES {
            state.signs.refused.push(reason);
        }
    }

    pub(super) fn note_trouble(&self, trouble: String) {
        let mut state = self.state();
        state.signs.had_trouble.get_or_insert_with(|| trouble.clone());
        state.signs.trouble = Some(trouble);
    }

    pub(super) fn note_health(&self) {
        self.state().signs.trouble = None;
    }
}

/// What an answer is worth. A generator that refuses is believed like one that errs: another may serve
/// the request, until so many have said so that it is the request.
fn judge(ask: &Ask, outcome: Outcome, newest: PolicyVersion) -> Answer {
    match outcome {
        Outcome::Completions(completions) => {
            let checked = ask.check_versions(&completions, newest);
            // The generator's fault, not the request's.
            checked.map_err(|error| GeneratorError::Gone { reason: error.to_string() })?;
            Ok(completions)
        }
        Outcome::TooLong { asked, limit } => Err(GeneratorError::TooLong { asked, limit }),
        Outcome::Refused { reason } => Err(GeneratorError::Refused { reason }),
    }
}

/// What somebody else calls himself, for a line.
fn short(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests;
