//! What the trainer does with Redis while the engine waits: two tasks beside each other.
//!
//! | task | waits for | does |
//! |---|---|---|
//! | reader | answers, a second at most | holds them against their requests and hands them over |
//! | dispatcher | something to send or a heartbeat | sends requests, acknowledges answered ones, sends again what Redis has lost, repeats the announcement, reads signs of life |
//!
//! Redis may be away at any moment: both go on when it is back. Both end with their generator.
//!
//! Not here: what an answer is worth (`dispatch.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::streams::{StreamRangeReply, StreamReadReply};
use redis::{RedisError, cmd, pipe};
use tokio::time::{Instant, sleep, timeout};

use super::dispatch::{Dispatch, Pending};
use super::session::{Announcement, KEPT, Kind, announce};
use super::wire::{Beat, MOST_BEAT, MOST_MEMBERS};
use super::{Broker, RemoteError};

/// How long the reader waits in Redis, milliseconds.
const BLOCK: u64 = 1000;
/// After Redis did not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// The reader. Answers are taken out of Redis once they are here, so it always reads from the start.
pub(super) async fn read_answers(dispatch: Arc<Dispatch>, mut broker: Broker) {
    let answers = dispatch.session.answers();
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
                Some(bytes) => dispatch.settle(&bytes),
                None => dispatch.complain("an entry without a reply".to_owned()),
            }
            forget.arg(&entry.id);
        }
        if !entries.is_empty() && broker.ask::<()>(&forget).await.is_err() {
            sleep(PAUSE).await;
        }
    }
}

/// The dispatcher.
pub(super) async fn keep(dispatch: Arc<Dispatch>, mut broker: Broker, own: (String, Announcement)) {
    let (name, announcement) = own;
    let mut next = Instant::now();
    loop {
        let mut done = send(&dispatch, &mut broker).await.map_err(RemoteError::from);
        if done.is_ok() {
            done = acknowledge(&dispatch, &mut broker).await.map_err(RemoteError::from);
        }
        if Instant::now() >= next {
            next = Instant::now() + announcement.heartbeat;
            if done.is_ok() {
                done = look_around(&dispatch, &mut broker, &name, &announcement).await;
            }
            if done.is_ok() {
                dispatch.note_health();
            }
        }
        if let Err(error) = done {
            dispatch.note_trouble(error.to_string());
            sleep(PAUSE).await;
        }
        // Somebody has something to send, or it is time.
        let _ =
            timeout(next.saturating_duration_since(Instant::now()), dispatch.wake.notified()).await;
    }
}

/// Sends what is not in Redis.
async fn send(dispatch: &Dispatch, broker: &mut Broker) -> Result<(), RedisError> {
    loop {
        let next = {
            let state = dispatch.state();
            let unsent = state.pending.values().find(|pending| pending.entry.is_none());
            unsent.map(|pending| pending.ask.clone())
        };
        let Some(ask) = next else { return Ok(()) };
        let mut sending = pipe();
        sending.atomic();
        let sealed = dispatch.session.seal(Kind::Request, &*ask);
        sending.cmd("HSET").arg(dispatch.session.bodies()).arg(&ask.id).arg(sealed).ignore();
        sending.cmd("XADD").arg(dispatch.session.requests()).arg("*").arg("id").arg(&ask.id);
        let (entry,): (String,) = broker.ask_all(&sending).await?;
        let mut state = dispatch.state();
        let mut pending =
            dispatch.ticket(&ask.id).and_then(|ticket| state.pending.get_mut(&ticket));
        match pending.take_if(|pending| pending.ask.id == ask.id) {
            Some(pending) => pending.entry = Some(entry),
            // Given up, or answered by a generator that had it from before.
            None => state.settled.push((ask.id.clone(), entry)),
        }
    }
}

/// Takes what is answered or given up out of Redis. Generators that work on it see that it is not
/// theirs any more and stop.
async fn acknowledge(dispatch: &Dispatch, broker: &mut Broker) -> Result<(), RedisError> {
    let settled = dispatch.state().settled.clone();
    if settled.is_empty() {
        return Ok(());
    }
    let (requests, bodies) = (dispatch.session.requests(), dispatch.session.bodies());
    let mut taking = pipe();
    taking.atomic();
    for (id, entry) in &settled {
        taking.cmd("XACK").arg(&requests).arg(super::session::GROUP).arg(entry).ignore();
        taking.cmd("XDEL").arg(&requests).arg(entry).ignore();
        taking.cmd("HDEL").arg(&bodies).arg(id).ignore();
    }
    broker.ask_all::<()>(&taking).await?;
    // What was settled meanwhile stands behind.
    dispatch.state().settled.drain(..settled.len());
    Ok(())
}

async fn look_around(
    dispatch: &Dispatch,
    broker: &mut Broker,
    name: &str,
    announcement: &Announcement,
) -> Result<(), RemoteError> {
    announce(broker, name, dispatch.session.token(), announcement).await?;
    let mut keeping = pipe();
    for key in dispatch.session.all() {
        keeping.cmd("EXPIRE").arg(key).arg(KEPT.as_secs()).ignore();
    }
    broker.ask_all::<()>(&keeping).await?;
    find_lost(dispatch, broker).await?;
    let beats: Vec<Vec<u8>> = broker.ask(cmd("HVALS").arg(dispatch.session.fleet())).await?;
    let read =
        |bytes: &Vec<u8>| dispatch.session.open::<Beat>(Kind::SignOfLife, bytes, MOST_BEAT).ok();
    dispatch.state().signs.beats = beats.iter().take(MOST_MEMBERS).filter_map(read).collect();
    Ok(())
}

/// Marks what Redis has forgotten, in a restart or otherwise, as not sent.
async fn find_lost(dispatch: &Dispatch, broker: &mut Broker) -> Result<(), RedisError> {
    // Before asking, so that what is sent meanwhile is not taken for lost.
    let sent: Vec<(String, String)> = {
        let state = dispatch.state();
        let entry = |pending: &Pending| Some((pending.ask.id.clone(), pending.entry.clone()?));
        state.pending.values().filter_map(entry).collect()
    };
    if sent.is_empty() {
        return Ok(());
    }
    let mut range = cmd("XRANGE");
    range.arg(dispatch.session.requests()).arg("-").arg("+");
    let found: StreamRangeReply = broker.ask(&range).await?;
    let bodies: BTreeSet<String> = broker.ask(cmd("HKEYS").arg(dispatch.session.bodies())).await?;
    let entries: BTreeSet<&str> = found.ids.iter().map(|entry| entry.id.as_str()).collect();
    let mut state = dispatch.state();
    for (id, entry) in sent {
        let is_there = entries.contains(entry.as_str()) && bodies.contains(&id);
        let pending = dispatch.ticket(&id).and_then(|ticket| state.pending.get_mut(&ticket));
        if let (false, Some(pending)) = (is_there, pending)
            && pending.ask.id == id
        {
            pending.entry = None;
        }
    }
    Ok(())
}
