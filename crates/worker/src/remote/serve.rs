//! A generator's end: requests out of Redis, weights from the channel, answers back.
//!
//! | task or thread | waits for | what ends the wait |
//! |---|---|---|
//! | main ([`serve`]) | weights, requests, a finished one, the next tick | any of them |
//! | intake (`intake.rs`) | room, then a request in Redis, new or left lying by another | a request, or a second |
//! | work, one per request (`intake.rs`) | the request's version, the model, Redis | an answer sent; the request being another's |
//! | weights, a thread | the trainer | weights, a second, the trainer's end |
//!
//! What Redis lists as this consumer's is what it works on: a tick drops whatever was acknowledged,
//! given up or claimed by another, and renews the claim on the rest. Requests that still wait for
//! weights are not renewed, so a generator without weights does not keep them from others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::streams::StreamPendingCountReply;
use redis::{RedisError, cmd, pipe};
use scalerl_rollout::{Generator, GeneratorError, PolicyVersion, WeightHandle};
use scalerl_torch::collective::Token;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::broker::is_no_group;
use super::intake::{Claims, Floor, Job, make_group, take_requests, work};
use super::session::{Announcement, Found, GROUP, KEPT, Kind, Session, find, nonce};
use super::wire::Beat;
use super::{Broker, RemoteError};
use crate::channel::{Received, WeightMember};
use crate::generator::LocalGenerator;

/// Most requests that one look at Redis lists.
const LISTED: usize = 10_000;
/// Between two looks at what is still ours.
const TICK: Duration = Duration::from_millis(200);
/// How long the weights' thread waits before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(500);

/// What a generator process is made of.
pub struct ServeSetup {
    pub broker: Broker,
    /// The session's name, its token, and what was found under them.
    pub name: String,
    pub token: Token,
    pub announcement: Announcement,
    /// What this generator calls itself, and where it runs.
    pub own_name: String,
    pub host: String,
    /// Does the work.
    pub local: Arc<LocalGenerator>,
    /// Brings the weights, into the weight store that `local` takes them from.
    pub member: WeightMember,
    /// Most requests at once, whatever the trainer suggests.
    pub most_at_once: usize,
}

/// Why a generator stopped serving in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The run is over.
    Over,
    /// The trainer was started again, under the same name.
    Replaced,
    /// The trainer is gone. It may come back.
    TrainerGone { reason: String },
}

/// What was done until then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    pub ended: Ended,
    /// Requests answered.
    pub answered: u64,
}

/// What the weights' thread says.
enum News {
    /// Answered when the generator has them.
    Weights(WeightHandle, oneshot::Sender<()>),
    /// Nothing may be served until the next weights.
    Dropped,
    Gone(String),
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for weights, or has just come.
    Waiting,
    Writing,
    /// Sent; the trainer has not said that it has it.
    Answered,
}

/// A request of ours, by its name in the stream.
struct Held {
    stage: watch::Receiver<Stage>,
    task: AbortHandle,
}

/// Serves until the run is over or the trainer gone. An error means that this process cannot serve.
pub async fn serve(setup: ServeSetup) -> Result<Served, RemoteError> {
    let ServeSetup { broker, name, token, announcement, .. } = setup;
    let ServeSetup { own_name, host, local, member, most_at_once, .. } = setup;
    let session = Session::new(&name, &announcement.nonce, token);
    let (version, _) = watch::channel(None);
    let floor = Arc::new(Floor {
        consumer: format!("{own_name}-{}", nonce()),
        session,
        own_name,
        version,
        local,
        broker: Mutex::new(broker.another()),
    });
    let (tell, news) = mpsc::channel(1);
    let stop = StopOnDrop::default();
    listen(member, tell, stop.flag.clone())?;
    let at_once = (announcement.requests_at_once as usize).clamp(1, most_at_once.max(1));
    let room = Arc::new(Semaphore::new(at_once));
    let (hand_over, jobs) = mpsc::channel(1);
    let claims = Claims::new(announcement.claim);
    let intake = take_requests(floor.clone(), broker.another(), (room, claims), hand_over);
    // Dropped with everything in it when this ends.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        intake.await;
        Ok(())
    });
    let main = Main {
        heart: Heart { host, count: 0, next: Instant::now(), before: (Instant::now(), 0) },
        floor,
        broker,
        name,
        announcement,
        tasks,
        held: BTreeMap::new(),
        answered: 0,
        _stop: stop,
    };
    main.run(news, jobs).await
}

/// Ends the weights' thread with the main task, however that ends.
#[derive(Default)]
struct StopOnDrop {
    flag: Arc<AtomicBool>,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

/// Starts the weights' thread.
fn listen(
    mut member: WeightMember,
    tell: mpsc::Sender<News>,
    stop: Arc<AtomicBool>,
) -> Result<(), RemoteError> {
    let listening = move || {
        while !stop.load(Ordering::Relaxed) {
            let told = match member.receive(LOOK) {
                Ok(Received::Nothing) => Ok(()),
                Ok(Received::Dropped { .. }) => tell.blocking_send(News::Dropped),
                Ok(Received::Weights(handle)) => {
                    let (done, adopted) = oneshot::channel();
                    let told = tell.blocking_send(News::Weights(handle, done));
                    // The weight store keeps them until the ones after the next: not sooner.
                    let _ = adopted.blocking_recv();
                    told
                }
                Err(error) => {
                    let _ = tell.blocking_send(News::Gone(error.to_string()));
                    return;
                }
            };
            if told.is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("weights".to_owned()).spawn(listening);
    thread.map(drop).map_err(RemoteError::Thread)
}

/// What a sign of life is made of.
struct Heart {
    host: String,
    count: u64,
    next: Instant,
    /// When tokens were counted last, and how many there were.
    before: (Instant, u64),
}

struct Main {
    floor: Arc<Floor>,
    heart: Heart,
    broker: Broker,
    name: String,
    announcement: Announcement,
    tasks: JoinSet<Result<(), GeneratorError>>,
    held: BTreeMap<String, Held>,
    answered: u64,
    _stop: StopOnDrop,
}

impl Main {
    async fn run(
        mut self,
        mut news: mpsc::Receiver<News>,
        mut jobs: mpsc::Receiver<Job>,
    ) -> Result<Served, RemoteError> {
        let mut ticks = interval(TICK.min(self.announcement.claim / 4));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = loop {
            tokio::select! {
                Some(news) = news.recv() => if let Some(ended) = self.hear(news).await? {
                    break ended;
                },
                Some(job) = jobs.recv() => self.start(job),
                Some(done) = self.tasks.join_next() => match done {
                    // Intake never ends by itself, so this is a request's.
                    Ok(answered) => {
                        answered?;
                        self.answered += 1;
                    }
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                _ = ticks.tick() => {
                    match self.tick().await {
                        Ok(Some(ended)) => break ended,
                        Err(RemoteError::Redis(error)) if is_no_group(&error) => {
                            // Fails where Redis is away; the next tick tries again.
                            let _ = make_group(&mut self.broker, &self.floor.session).await;
                        }
                        // Redis is away: what is being written goes on.
                        Ok(None) | Err(RemoteError::Redis(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        };
        Ok(Served { ended, answered: self.answered })
    }

    async fn hear(&mut self, news: News) -> Result<Option<Ended>, RemoteError> {
        match news {
            News::Weights(handle, done) => {
                self.floor.local.adopt(&handle).await?;
                self.floor.version.send_replace(Some(handle.version));
                // The thread waits for this, unless it has ended.
                let _ = done.send(());
                Ok(None)
            }
            News::Dropped => {
                self.floor.version.send_replace(None);
                Ok(None)
            }
            News::Gone(reason) => Ok(Some(Ended::TrainerGone { reason })),
        }
    }

    fn start(&mut self, job: Job) {
        let is_under_way = |held: &Held| *held.stage.borrow() != Stage::Answered;
        if self.held.get(&job.entry).is_some_and(is_under_way) {
            return;
        }
        let entry = job.entry.clone();
        let (tell, stage) = watch::channel(Stage::Waiting);
        let task = self.tasks.spawn(work(self.floor.clone(), job, tell));
        self.held.insert(entry, Held { stage, task });
    }

    async fn tick(&mut self) -> Result<Option<Ended>, RemoteError> {
        self.keep_ours().await?;
        if Instant::now() >= self.heart.next {
            self.heart.next = Instant::now() + self.announcement.heartbeat;
            self.beat().await?;
            let token = self.floor.session.token().clone();
            return Ok(match find(&mut self.broker, &self.name, &token).await? {
                Found::Over { nonce } if nonce == self.announcement.nonce => Some(Ended::Over),
                Found::Session(found) if found.nonce != self.announcement.nonce => {
                    Some(Ended::Replaced)
                }
                // Redis may have been restarted, or somebody else has written there; the weights'
                // thread knows when the trainer is gone.
                _ => None,
            });
        }
        Ok(None)
    }

    /// Drops what is not ours any more, and says that we are still at work on the rest.
    async fn keep_ours(&mut self) -> Result<(), RedisError> {
        // Before asking, so that what comes meanwhile is not taken for lost.
        let known: Vec<String> = self.held.keys().cloned().collect();
        if known.is_empty() {
            return Ok(());
        }
        let (requests, consumer) = (self.floor.session.requests(), &self.floor.consumer);
        let mut list = cmd("XPENDING");
        list.arg(&requests).arg(GROUP).arg("-").arg("+").arg(LISTED).arg(consumer);
        let ours: StreamPendingCountReply = self.broker.ask(&list).await?;
        let mut renew = cmd("XCLAIM");
        renew.arg(&requests).arg(GROUP).arg(consumer).arg(0);
        let mut renewed = 0;
        for entry in known {
            if !ours.ids.iter().any(|listed| listed.id == entry) {
                if let Some(held) = self.held.remove(&entry) {
                    held.task.abort();
                }
            } else if *self.held[&entry].stage.borrow() == Stage::Writing {
                renew.arg(entry);
                renewed += 1;
            }
        }
        if renewed > 0 {
            self.broker.ask::<redis::Value>(renew.arg("JUSTID")).await?;
        }
        Ok(())
    }

    async fn beat(&mut self) -> Result<(), RedisError> {
        let tokens = self.floor.local.stats().tokens;
        let (at, before) = self.heart.before;
        let seconds = at.elapsed().as_secs_f64().max(1e-3);
        self.heart.before = (Instant::now(), tokens);
        self.heart.count += 1;
        let version: Option<PolicyVersion> = *self.floor.version.borrow();
        let beat = Beat {
            name: self.floor.own_name.clone(),
            role: "generator".to_owned(),
            host: self.heart.host.clone(),
            pid: std::process::id(),
            count: self.heart.count,
            version,
            tokens,
            tokens_per_second: (tokens - before) as f64 / seconds,
            requests: self.held.len() as u32,
        };
        let fleet = self.floor.session.fleet();
        let mut beating = pipe();
        let sealed = self.floor.session.seal(Kind::SignOfLife, &beat);
        beating.cmd("HSET").arg(&fleet).arg(&self.floor.own_name).arg(sealed).ignore();
        beating.cmd("EXPIRE").arg(&fleet).arg(KEPT.as_secs()).ignore();
        self.broker.ask_all::<()>(&beating).await
    }
}
