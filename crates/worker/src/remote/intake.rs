//! How a generator process takes a request and what it does with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::streams::{StreamAutoClaimReply, StreamId, StreamReadReply};
use redis::{RedisError, cmd};
use scalerl_rollout::{Generator, GeneratorError, PolicyVersion};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::sleep;

use super::Broker;
use super::broker::is_no_group;
use super::serve::Stage;
use super::session::{GROUP, KEPT, Kind, Session};
use super::wire::{Ask, MOST_REQUEST, Outcome, Reply};
use crate::generator::LocalGenerator;

/// How long the intake waits in Redis, milliseconds.
const BLOCK: u64 = 1000;
/// Before the first entry of a stream, and behind the last when a list is through.
const START: &str = "0-0";
/// After Redis did not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// What all tasks of a generator process work with.
pub(super) struct Floor {
    pub(super) session: Session,
    /// Another for every start of a process.
    pub(super) consumer: String,
    pub(super) own_name: String,
    /// What the model is; `None` while nothing may be served.
    pub(super) version: watch::Sender<Option<PolicyVersion>>,
    pub(super) local: Arc<LocalGenerator>,
    /// For bodies and answers.
    pub(super) broker: Mutex<Broker>,
}

/// A request as Redis lists it, with the room it takes.
pub(super) struct Job {
    pub(super) entry: String,
    pub(super) id: String,
    pub(super) permit: OwnedSemaphorePermit,
}

pub(super) async fn make_group(broker: &mut Broker, session: &Session) -> Result<(), RedisError> {
    let mut make = cmd("XGROUP");
    make.arg("CREATE").arg(session.requests()).arg(GROUP).arg("0").arg("MKSTREAM");
    match broker.ask::<()>(&make).await {
        Err(error) if error.code() == Some("BUSYGROUP") => {}
        made => made?,
    }
    // The trainer renews it; one that has just gone does not, and nobody else takes the key away.
    broker.ask(cmd("EXPIRE").arg(session.requests()).arg(KEPT.as_secs())).await
}

/// Looks, now and then, for requests that others have left lying.
pub(super) struct Claims {
    /// After which they are anybody's.
    idle: Duration,
    /// Where the look that is under way has come to in the list; `None` between two looks.
    place: Option<String>,
    next: Instant,
}

impl Claims {
    pub(super) fn new(idle: Duration) -> Self {
        Self { idle, place: None, next: Instant::now() }
    }

    /// One request that is ours now, as its entry in the stream.
    async fn take(
        &mut self,
        floor: &Floor,
        broker: &mut Broker,
    ) -> Result<Option<StreamId>, RedisError> {
        if self.place.is_none() && Instant::now() < self.next {
            return Ok(None);
        }
        loop {
            let from = self.place.clone().unwrap_or_else(|| START.to_owned());
            let mut claim = cmd("XAUTOCLAIM");
            claim.arg(floor.session.requests()).arg(GROUP).arg(&floor.consumer);
            claim.arg(self.idle.as_millis() as u64).arg(from).arg("COUNT").arg(1);
            let found: StreamAutoClaimReply = broker.ask(&claim).await?;
            let is_through = found.next_stream_id == START;
            self.place = (!is_through).then_some(found.next_stream_id);
            if is_through {
                self.next = Instant::now() + self.idle / 8;
            }
            let first = found.claimed.into_iter().next();
            if first.is_some() || is_through {
                return Ok(first);
            }
        }
    }
}

/// Takes requests while there is room and the model may serve: first what others have left lying.
pub(super) async fn take_requests(
    floor: Arc<Floor>,
    mut broker: Broker,
    (room, mut claims): (Arc<Semaphore>, Claims),
    hand_over: mpsc::Sender<Job>,
) {
    let mut read = cmd("XREADGROUP");
    read.arg("GROUP").arg(GROUP).arg(&floor.consumer).arg("COUNT").arg(1).arg("BLOCK").arg(BLOCK);
    read.arg("STREAMS").arg(floor.session.requests()).arg(">");
    let mut version = floor.version.subscribe();
    loop {
        // Never closed.
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        if version.wait_for(Option::is_some).await.is_err() {
            return;
        }
        let found = match claims.take(&floor, &mut broker).await {
            Ok(None) => broker.ask::<Option<StreamReadReply>>(&read).await.map(|found| {
                let keys = found.into_iter().flat_map(|found| found.keys);
                keys.flat_map(|key| key.ids).next()
            }),
            claimed => claimed,
        };
        match found {
            Ok(found) => {
                let Some(entry) = found else { continue };
                // An entry without an id is nobody's; it is left to be claimed and seen again.
                let Some(id) = entry.get("id") else { continue };
                if hand_over.send(Job { entry: entry.id, id, permit }).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                if !is_no_group(&error) || make_group(&mut broker, &floor.session).await.is_err() {
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// One request from Redis to its answer. An error is of the generator, which cannot go on.
pub(super) async fn work(
    floor: Arc<Floor>,
    job: Job,
    stage: watch::Sender<Stage>,
) -> Result<(), GeneratorError> {
    let body = loop {
        let mut broker = floor.broker.lock().await;
        let mut get = cmd("HGET");
        let got: Result<Option<Vec<u8>>, _> =
            broker.ask(get.arg(floor.session.bodies()).arg(&job.id)).await;
        drop(broker);
        match got {
            Ok(body) => break body,
            Err(_) => sleep(PAUSE).await,
        }
    };
    // Given up in the meantime, or lost with Redis, or not the trainer's words: it misses what is not
    // there any more, and sends it again.
    let read = |body: Vec<u8>| floor.session.open::<Ask>(Kind::Request, &body, MOST_REQUEST).ok();
    let Some(ask) = body.and_then(read).filter(|ask| ask.id == job.id) else {
        return forget(&floor, &job).await;
    };
    let mut version = floor.version.subscribe();
    let is_enough = |has: &Option<PolicyVersion>| has.is_some_and(|has| has >= ask.floor);
    // Ends with weights, or when the request is claimed by another.
    if version.wait_for(is_enough).await.is_err() {
        return Ok(());
    }
    stage.send_replace(Stage::Writing);
    let outcome = Outcome::of(floor.local.generate(ask.request).await)?;
    let reply = Reply { id: job.id.clone(), from: floor.own_name.clone(), outcome };
    let reply = floor.session.seal(Kind::Answer, &reply);
    let answers = floor.session.answers();
    let mut add = redis::pipe();
    add.cmd("XADD").arg(&answers).arg("*").arg("reply").arg(reply).ignore();
    add.cmd("EXPIRE").arg(&answers).arg(KEPT.as_secs()).ignore();
    loop {
        let sent = floor.broker.lock().await.ask_all::<()>(&add).await;
        if sent.is_ok() {
            break;
        }
        sleep(PAUSE).await;
    }
    stage.send_replace(Stage::Answered);
    drop(job.permit);
    Ok(())
}

async fn forget(floor: &Floor, job: &Job) -> Result<(), GeneratorError> {
    let requests = floor.session.requests();
    let mut forgetting = redis::pipe();
    forgetting.cmd("XACK").arg(&requests).arg(GROUP).arg(&job.entry).ignore();
    forgetting.cmd("XDEL").arg(&requests).arg(&job.entry).ignore();
    // What is left is claimed by somebody and forgotten then.
    let _ = floor.broker.lock().await.ask_all::<()>(&forgetting).await;
    Ok(())
}
