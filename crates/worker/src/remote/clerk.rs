//! What the trainer does with Redis while the engine waits: two tasks beside each other.
//!
//! | task | waits for | does |
//! |---|---|---|
//! | reader | answers, a second at most | holds them against their requests and hands them over |
//! | clerk | something to send or a heartbeat | sends requests, acknowledges answered ones, sends again what Redis has lost, repeats the announcement, reads signs of life |
//!
//! Redis may be away at any moment: both go on when it is back. Both end with their generator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::streams::{StreamRangeReply, StreamReadReply};
use redis::{RedisError, cmd, pipe};
use scalerl_rollout::{Completion, GeneratorError, PolicyVersion, SampleRequest};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::session::{Announcement, KEPT, Kind, Session, announce};
use super::trainer::Signs;
use super::wire::{Ask, Beat, MOST_ANSWER, MOST_BEAT, MOST_MEMBERS, Outcome, Reply};
use super::{Broker, RemoteError};
use crate::channel::ChannelEvent;

/// How long the reader waits in Redis, milliseconds.
const BLOCK: u64 = 1000;
/// After Redis did not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// Answers to a request that may be of no use before it fails.
const ATTEMPTS: u32 = 3;
/// Lists for whoever watches; when nobody does, they do not grow.
const MOST_NOTES: usize = 1000;

type Answer = Result<Vec<Completion>, GeneratorError>;

struct Pending {
    /// Under the id of this attempt.
    ask: Arc<Ask>,
    /// Counts from 1; each has an id of its own, so that what answered one does not answer the next.
    attempt: u32,
    /// Its name in the stream, once it was sent.
    entry: Option<String>,
    reply: oneshot::Sender<Answer>,
}

#[derive(Default)]
struct Book {
    next: u64,
    /// By ticket.
    pending: BTreeMap<u64, Pending>,
    /// To be taken out of Redis: id, and name in the stream.
    settled: Vec<(String, String)>,
    floor: PolicyVersion,
    newest: PolicyVersion,
    signs: Signs,
    broken: Option<String>,
    why_gone: Option<String>,
}

/// What the engine's futures and the two tasks share.
pub(super) struct Desk {
    session: Session,
    nonce: String,
    book: Mutex<Book>,
    wake: Notify,
}

/// A request's place at the desk; dropping it gives the request up.
pub(super) struct Place {
    desk: Arc<Desk>,
    ticket: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Place {
    pub(super) async fn answer(&mut self) -> Result<Answer, oneshot::error::RecvError> {
        (&mut self.answer).await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut book = self.desk.book();
        // Not there any more when it was answered.
        if let Some(Pending { entry: Some(entry), ask, .. }) = book.pending.remove(&self.ticket) {
            book.settled.push((ask.id.clone(), entry));
            drop(book);
            self.desk.wake.notify_one();
        }
    }
}

impl Desk {
    pub(super) fn new(session: Session) -> Self {
        let nonce = super::session::nonce();
        Self { session, nonce, book: Mutex::default(), wake: Notify::new() }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a request, which the clerk will send.
    pub(super) fn enter(self: &Arc<Self>, request: SampleRequest) -> Result<Place, GeneratorError> {
        let mut book = self.book();
        if book.why_gone.is_some() {
            drop(book);
            return Err(self.gone());
        }
        book.next += 1;
        let (ticket, attempt) = (book.next, 1);
        let ask = Arc::new(Ask { id: self.id(ticket, attempt), floor: book.floor, request });
        let (reply, answer) = oneshot::channel();
        book.pending.insert(ticket, Pending { ask, attempt, entry: None, reply });
        drop(book);
        self.wake.notify_one();
        Ok(Place { desk: self.clone(), ticket, answer })
    }

    /// Unlike that of any other request, of this group or of this trainer before a restart.
    fn id(&self, ticket: u64, attempt: u32) -> String {
        format!("{}-{ticket}.{attempt}", self.nonce)
    }

    /// The request that an id is of, whichever attempt.
    fn ticket(&self, id: &str) -> Option<u64> {
        let (ticket, _) = id.strip_prefix(&self.nonce)?.strip_prefix('-')?.split_once('.')?;
        ticket.parse().ok()
    }

    pub(super) fn close(&self, reason: &str) {
        let mut book = self.book();
        book.why_gone.get_or_insert_with(|| reason.to_owned());
        book.pending.clear();
    }

    pub(super) fn gone(&self) -> GeneratorError {
        let reason = self.book().why_gone.clone();
        GeneratorError::Gone { reason: reason.unwrap_or_else(|| "its tasks have ended".to_owned()) }
    }

    pub(super) fn pending(&self) -> usize {
        self.book().pending.len()
    }

    pub(super) fn floor(&self) -> PolicyVersion {
        self.book().floor
    }

    pub(super) fn publish(&self, version: PolicyVersion) {
        let mut book = self.book();
        book.newest = book.newest.max(version);
    }

    pub(super) fn adopt(&self, version: PolicyVersion) {
        self.book().floor = version;
    }

    pub(super) fn note_events(&self, events: Vec<ChannelEvent>) {
        let mut book = self.book();
        for event in events {
            if let ChannelEvent::Broken { reason } = &event {
                book.broken = Some(reason.clone());
            }
            if book.signs.channel.len() < MOST_NOTES {
                book.signs.channel.push(event);
            }
        }
    }

    /// Why no more weights can be sent.
    pub(super) fn broken(&self) -> Option<String> {
        self.book().broken.clone()
    }

    pub(super) fn take_signs(&self) -> Signs {
        let mut book = self.book();
        let (channel, refused) =
            (std::mem::take(&mut book.signs.channel), std::mem::take(&mut book.signs.refused));
        let had_trouble = book.signs.had_trouble.take();
        Signs { channel, refused, had_trouble, ..book.signs.clone() }
    }

    /// Takes an answer; those that nobody waits for are duplicates, were given up, or are to an
    /// earlier attempt. What is not signed is nobody's and changes nothing.
    fn settle(&self, bytes: &[u8]) {
        let reply: Reply = match self.session.open(Kind::Answer, bytes, MOST_ANSWER) {
            Ok(reply) => reply,
            Err(error) => return self.complain(format!("from somebody: {error}")),
        };
        let Some(ticket) = self.ticket(&reply.id) else { return };
        let mut book = self.book();
        let newest = book.newest;
        let Some(pending) = book.pending.get_mut(&ticket) else { return };
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
                book.settled.extend(before.map(|entry| (reply.id, entry)));
                drop(book);
                self.complain(format!("from {}: {error}", short(&reply.from)));
                return self.wake.notify_one();
            }
        };
        if let Some(Pending { entry, reply: waiting, .. }) = book.pending.remove(&ticket) {
            book.settled.extend(entry.map(|entry| (reply.id, entry)));
            // Given up in this moment: nobody wants it.
            let _ = waiting.send(answer);
        }
        drop(book);
        self.wake.notify_one();
    }

    fn complain(&self, reason: String) {
        let mut book = self.book();
        if book.signs.refused.len() < MOST_NOTES {
            book.signs.refused.push(reason);
        }
    }

    fn note_trouble(&self, trouble: String) {
        let mut book = self.book();
        book.signs.had_trouble.get_or_insert_with(|| trouble.clone());
        book.signs.trouble = Some(trouble);
    }

    fn note_health(&self) {
        self.book().signs.trouble = None;
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

/// The reader. Answers are taken out of Redis once they are here, so it always reads from the start.
pub(super) async fn read_answers(desk: Arc<Desk>, mut broker: Broker) {
    let answers = desk.session.answers();
    let mut read = cmd("XREAD");
    read.arg("COUNT").arg(16).arg("BLOCK").arg(BLOCK).arg("STREAMS").arg(&answers).arg("0");
    loop {
        let Ok(found) = broker.ask::<Option<StreamReadReply>>(&read).await else {
            sleep(PAUSE).await;
            continue;
        };
        let entries: Vec<_> =
            found.into_iter().flat_map(|found| found.keys).flat_map(|key| key.ids).collect();
        let mut forget = cmd("XDEL");
        forget.arg(&answers);
        for entry in &entries {
            match entry.get::<Vec<u8>>("reply") {
                Some(bytes) => desk.settle(&bytes),
                None => desk.complain("an entry without a reply".to_owned()),
            }
            forget.arg(&entry.id);
        }
        if !entries.is_empty() && broker.ask::<()>(&forget).await.is_err() {
            sleep(PAUSE).await;
        }
    }
}

/// The clerk.
pub(super) async fn keep(desk: Arc<Desk>, mut broker: Broker, own: (String, Announcement)) {
    let (name, announcement) = own;
    let mut next = Instant::now();
    loop {
        let mut done = send(&desk, &mut broker).await.map_err(RemoteError::from);
        if done.is_ok() {
            done = acknowledge(&desk, &mut broker).await.map_err(RemoteError::from);
        }
        if Instant::now() >= next {
            next = Instant::now() + announcement.heartbeat;
            if done.is_ok() {
                done = look_around(&desk, &mut broker, &name, &announcement).await;
            }
            if done.is_ok() {
                desk.note_health();
            }
        }
        if let Err(error) = done {
            desk.note_trouble(error.to_string());
            sleep(PAUSE).await;
        }
        // Somebody has something to send, or it is time.
        let _ = timeout(next.saturating_duration_since(Instant::now()), desk.wake.notified()).await;
    }
}

/// Sends what is not in Redis.
async fn send(desk: &Desk, broker: &mut Broker) -> Result<(), RedisError> {
    loop {
        let next = {
            let book = desk.book();
            let unsent = book.pending.values().find(|pending| pending.entry.is_none());
            unsent.map(|pending| pending.ask.clone())
        };
        let Some(ask) = next else { return Ok(()) };
        let mut sending = pipe();
        sending.atomic();
        let sealed = desk.session.seal(Kind::Request, &*ask);
        sending.cmd("HSET").arg(desk.session.bodies()).arg(&ask.id).arg(sealed).ignore();
        sending.cmd("XADD").arg(desk.session.requests()).arg("*").arg("id").arg(&ask.id);
        let (entry,): (String,) = broker.ask_all(&sending).await?;
        let mut book = desk.book();
        let mut pending = desk.ticket(&ask.id).and_then(|ticket| book.pending.get_mut(&ticket));
        match pending.take_if(|pending| pending.ask.id == ask.id) {
            Some(pending) => pending.entry = Some(entry),
            // Given up, or answered by a generator that had it from before.
            None => book.settled.push((ask.id.clone(), entry)),
        }
    }
}

/// Takes what is answered or given up out of Redis. Generators that work on it see that it is not
/// theirs any more and stop.
async fn acknowledge(desk: &Desk, broker: &mut Broker) -> Result<(), RedisError> {
    let settled = desk.book().settled.clone();
    if settled.is_empty() {
        return Ok(());
    }
    let (requests, bodies) = (desk.session.requests(), desk.session.bodies());
    let mut taking = pipe();
    taking.atomic();
    for (id, entry) in &settled {
        taking.cmd("XACK").arg(&requests).arg(super::session::GROUP).arg(entry).ignore();
        taking.cmd("XDEL").arg(&requests).arg(entry).ignore();
        taking.cmd("HDEL").arg(&bodies).arg(id).ignore();
    }
    broker.ask_all::<()>(&taking).await?;
    // What was settled meanwhile stands behind.
    desk.book().settled.drain(..settled.len());
    Ok(())
}

async fn look_around(
    desk: &Desk,
    broker: &mut Broker,
    name: &str,
    announcement: &Announcement,
) -> Result<(), RemoteError> {
    announce(broker, name, desk.session.token(), announcement).await?;
    let mut keeping = pipe();
    for key in desk.session.all() {
        keeping.cmd("EXPIRE").arg(key).arg(KEPT.as_secs()).ignore();
    }
    broker.ask_all::<()>(&keeping).await?;
    find_lost(desk, broker).await?;
    let beats: Vec<Vec<u8>> = broker.ask(cmd("HVALS").arg(desk.session.fleet())).await?;
    let read = |bytes: &Vec<u8>| desk.session.open::<Beat>(Kind::SignOfLife, bytes, MOST_BEAT).ok();
    desk.book().signs.beats = beats.iter().take(MOST_MEMBERS).filter_map(read).collect();
    Ok(())
}

/// Marks what Redis has forgotten, in a restart or otherwise, as not sent.
async fn find_lost(desk: &Desk, broker: &mut Broker) -> Result<(), RedisError> {
    // Before asking, so that what is sent meanwhile is not taken for lost.
    let sent: Vec<(String, String)> = {
        let book = desk.book();
        let entry = |pending: &Pending| Some((pending.ask.id.clone(), pending.entry.clone()?));
        book.pending.values().filter_map(entry).collect()
    };
    if sent.is_empty() {
        return Ok(());
    }
    let mut range = cmd("XRANGE");
    range.arg(desk.session.requests()).arg("-").arg("+");
    let found: StreamRangeReply = broker.ask(&range).await?;
    let bodies: BTreeSet<String> = broker.ask(cmd("HKEYS").arg(desk.session.bodies())).await?;
    let entries: BTreeSet<&str> = found.ids.iter().map(|entry| entry.id.as_str()).collect();
    let mut book = desk.book();
    for (id, entry) in sent {
        let is_there = entries.contains(entry.as_str()) && bodies.contains(&id);
        let pending = desk.ticket(&id).and_then(|ticket| book.pending.get_mut(&ticket));
        if let (false, Some(pending)) = (is_there, pending)
            && pending.ask.id == id
        {
            pending.entry = None;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
