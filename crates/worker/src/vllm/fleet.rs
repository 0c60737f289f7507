//! Which servers serve, with which weights, and who asks which.
//!
//! ```text
//! idle --weights--> serving --call or pulse fails--> away --health, current weights--> serving
//! ```
//! A [`Lease`] is the right to one request on one server. The least loaded server that serves is
//! taken; with all of them full, one waits. A server that goes away ends its leases at once
//! ([`Lease::lost`]), and is back only when it holds the weights that are current at that moment.
//! One that is [`Closed`] keeps its leases and gives no new ones.
//!
//! Only states are here, behind one lock that is never held across a wait; calls are made by
//! `exchange.rs` (weights, recovery, pulse) and `writing.rs` (completions).

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use scalerl_rollout::{GeneratorError, PolicyVersion};
use tokio::sync::{Notify, mpsc, watch};

use super::adapter::Form;
use super::client::Client;

/// A waiter that was told of a place it cannot use may have taken the word from one that can: all
/// look again this often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Something about a server that whoever watches a run should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named")]
pub enum Notice {
    /// It serves no more; its requests go elsewhere.
    Lost { url: String, reason: String },
    /// It took the current weights and serves again.
    Back { url: String, version: PolicyVersion, seconds: u64 },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost { reason, .. } => write!(f, "{reason}"),
            Self::Back { version, seconds, .. } => {
                write!(f, "it is back after {seconds} s, with {version}")
            }
        }
    }
}

/// Where a server stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It answers and has no weights of this run yet.
    Idle,
    /// It has these weights.
    Serving(PolicyVersion),
    /// It does not serve until it has answered and taken the current weights.
    Away { reason: String },
}

/// Weights that servers can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) version: PolicyVersion,
    pub(super) folder: String,
    pub(super) form: Form,
}

/// One server's load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLoad {
    pub url: String,
    pub state: ServerState,
    /// Requests under way.
    pub running: usize,
    /// Tokens it has written.
    pub tokens: u64,
    /// Since its last sign of life.
    pub silent_for: Duration,
}

pub(super) struct Server {
    pub(super) client: Client,
    /// Held while weights are exchanged: one exchange at a time.
    pub(super) exchange: tokio::sync::Mutex<()>,
    /// Counts its lives; leases of an earlier life are void.
    life: watch::Sender<u64>,
}

struct Entry {
    state: ServerState,
    /// What it serves, or served last.
    held: Option<Published>,
    is_closed: bool,
    running: usize,
    since: Instant,
    tokens: u64,
    heard: Instant,
}

struct States {
    entries: Vec<Entry>,
    current: Option<Published>,
    /// Since when none serves.
    none_since: Option<Instant>,
}

pub(super) struct Fleet {
    pub(super) servers: Vec<Server>,
    states: Mutex<States>,
    changed: Notify,
    at_once: usize,
    patience: Duration,
    notices: Option<mpsc::UnboundedSender<Notice>>,
}

/// Who may serve a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wish {
    /// This one and no other.
    pub(super) only: Option<usize>,
    /// This one, where it is not busier than others by much: it has the prefix in its cache.
    pub(super) preferred: Option<usize>,
    /// Weights at least as new: versions never go back within a completion.
    pub(super) at_least: PolicyVersion,
}

impl Fleet {
    pub(super) fn new(
        clients: Vec<Client>,
        at_once: usize,
        patience: Duration,
        notices: Option<mpsc::UnboundedSender<Notice>>,
    ) -> Self {
        let now = Instant::now();
        let entry = |_: &Client| Entry {
            state: ServerState::Idle,
            held: None,
            is_closed: false,
            running: 0,
            since: now,
            tokens: 0,
            heard: now,
        };
        let entries = clients.iter().map(entry).collect();
        let server = |client| Server {
            client,
            exchange: tokio::sync::Mutex::default(),
            life: watch::Sender::new(0),
        };
        Self {
            servers: clients.into_iter().map(server).collect(),
            states: Mutex::new(States { entries, current: None, none_since: Some(Instant::now()) }),
            changed: Notify::new(),
            at_once,
            patience,
            notices,
        }
    }

    fn states(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn load(&self) -> Vec<ServerLoad> {
        let states = self.states();
        let pairs = self.servers.iter().zip(&states.entries);
        pairs
            .map(|(server, entry)| ServerLoad {
                url: server.client.url().to_owned(),
                state: entry.state.clone(),
                running: entry.running,
                tokens: entry.tokens,
                silent_for: entry.heard.elapsed(),
            })
            .collect()
    }

    /// A sign of life, with so many tokens.
    pub(super) fn hear(&self, index: usize, tokens: usize) {
        let entry = &mut self.states().entries[index];
        entry.tokens += tokens as u64;
        entry.heard = Instant::now();
    }

    pub(super) fn state(&self, index: usize) -> ServerState {
        self.states().entries[index].state.clone()
    }

    pub(super) fn current(&self) -> Option<Published> {
        self.states().current.clone()
    }

    /// Makes these the weights that every server must have; returns those before.
    pub(super) fn set_current(&self, weights: &Published) -> Option<Published> {
        self.states().current.replace(weights.clone())
    }

    /// Whether a server serves these weights.
    pub(super) fn serves(&self, index: usize, weights: &Published) -> bool {
        let entry = &self.states().entries[index];
        matches!(entry.state, ServerState::Serving(_)) && entry.held.as_ref() == Some(weights)
    }

    /// Requests under way on a server.
    pub(super) fn running(&self, index: usize) -> usize {
        self.states().entries[index].running
    }

    /// Gives no new leases on a server as long as the answer lives.
    pub(super) fn close(&self, index: usize) -> Closed<'_> {
        self.states().entries[index].is_closed = true;
        Closed { fleet: self, index }
    }

    /// Whether the server has been closed or has taken other weights since the lease was given.
    pub(super) fn has_moved_on(&self, lease: &Lease<'_>) -> bool {
        let entry = &self.states().entries[lease.index];
        entry.is_closed || entry.state != ServerState::Serving(lease.weights.version)
    }

    /// The server has taken these weights. False where they are no longer the current ones: then it
    /// must take those first.
    pub(super) fn serve(&self, index: usize, weights: &Published) -> bool {
        let mut states = self.states();
        if states.current.as_ref() != Some(weights) {
            return false;
        }
        states.none_since = None;
        let entry = &mut states.entries[index];
        let was_away = matches!(entry.state, ServerState::Away { .. });
        let seconds = entry.since.elapsed().as_secs();
        entry.state = ServerState::Serving(weights.version);
        entry.held = Some(weights.clone());
        entry.since = Instant::now();
        drop(states);
        if was_away {
            let url = self.servers[index].client.url().to_owned();
            self.tell(Notice::Back { url, version: weights.version, seconds });
        }
        self.changed.notify_waiters();
        true
    }

    /// Takes a server out of service. True for the first to say so, who must see to its recovery.
    pub(super) fn lose(&self, index: usize, reason: &str) -> bool {
        let mut states = self.states();
        let entry = &mut states.entries[index];
        if matches!(entry.state, ServerState::Away { .. }) {
            return false;
        }
        entry.state = ServerState::Away { reason: reason.to_owned() };
        entry.since = Instant::now();
        if !states.entries.iter().any(|e| matches!(e.state, ServerState::Serving(_))) {
            states.none_since.get_or_insert_with(Instant::now);
        }
        self.servers[index].life.send_modify(|life| *life += 1);
        drop(states);
        let url = self.servers[index].client.url().to_owned();
        self.tell(Notice::Lost { url, reason: reason.to_owned() });
        self.changed.notify_waiters();
        true
    }

    /// Resolves when a server is lost from now on.
    pub(super) fn lost(&self, index: usize) -> impl Future<Output = ()> + Send + use<> {
        let mut life = self.servers[index].life.subscribe();
        async move {
            // An error means that the fleet is gone, and its servers with it.
            let _ = life.changed().await;
        }
    }

    /// Why it is still away, for whoever waits.
    pub(super) fn still_away(&self, index: usize, reason: &str) {
        if let ServerState::Away { reason: said } = &mut self.states().entries[index].state {
            reason.clone_into(said);
        }
    }

    fn tell(&self, notice: Notice) {
        if let Some(notices) = &self.notices {
            // Nobody may be listening any more.
            let _ = notices.send(notice);
        }
    }

    /// Waits for a place. Fails when no server has served for as long as patience lasts.
    pub(super) async fn take(&self, wish: Wish) -> Result<Lease<'_>, GeneratorError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if let Some(lease) = self.try_take(wish) {
                return Ok(lease);
            }
            self.check_patience(wish.only)?;
            // Ends with a change, or soon.
            let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
        }
    }

    /// Waits until some server serves these weights or newer ones.
    pub(super) async fn serving(&self, version: PolicyVersion) -> Result<(), GeneratorError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let is_there = |e: &Entry| matches!(e.state, ServerState::Serving(v) if v >= version);
            if self.states().entries.iter().any(is_there) {
                return Ok(());
            }
            self.check_patience(None)?;
            let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
        }
    }

    /// Fails when none has served for as long as patience lasts, or the only one that is wanted.
    fn check_patience(&self, only: Option<usize>) -> Result<(), GeneratorError> {
        let states = self.states();
        let without = match only.map(|index| &states.entries[index]) {
            Some(Entry { state: ServerState::Serving(_), .. }) => None,
            Some(entry) => Some(entry.since),
            None => states.none_since,
        };
        if without.is_none_or(|since| since.elapsed() < self.patience) {
            return Ok(());
        }
        let why = |(server, entry): (&Server, &Entry)| match &entry.state {
            ServerState::Away { reason } => format!("{}: {reason}", server.client.url()),
            _ => format!("{} has no weights yet", server.client.url()),
        };
        let all = self.servers.iter().zip(&states.entries).enumerate();
        let wanted = all.filter(|(index, _)| only.is_none_or(|only| only == *index));
        let reasons: Vec<String> = wanted.map(|(_, pair)| why(pair)).collect();
        let (seconds, reasons) = (self.patience.as_secs(), reasons.join("; "));
        let who = if only.is_some() { "a vLLM server has not" } else { "no vLLM server has" };
        let reason = format!("{who} served for {seconds} s; {reasons}");
        Err(GeneratorError::Gone { reason })
    }

    fn try_take(&self, wish: Wish) -> Option<Lease<'_>> {
        let mut states = self.states();
        let can_serve = |index: usize, entry: &Entry| {
            let is_wanted = wish.only.is_none_or(|only| only == index);
            let is_new = matches!(entry.state, ServerState::Serving(v) if v >= wish.at_least);
            is_wanted && is_new && !entry.is_closed && entry.running < self.at_once
        };
        // A prefix in the cache is worth a few places in the queue.
        let burden = |index: usize, entry: &Entry| {
            entry.running * 2 + if wish.preferred == Some(index) { 0 } else { self.at_once / 8 + 1 }
        };
        let (index, entry) = (states.entries.iter_mut().enumerate())
            .filter(|(index, entry)| can_serve(*index, entry))
            .min_by_key(|(index, entry)| burden(*index, entry))?;
        entry.running += 1;
        let held = entry.held.as_ref().expect("a server that serves holds weights");
        let weights = held.clone();
        // Under the lock, so that no loss falls between the two.
        let life = self.servers[index].life.subscribe();
        drop(states);
        Some(Lease { fleet: self, index, weights, life })
    }
}

/// The right to one request on a server. Dropping it frees the place.
pub(super) struct Lease<'a> {
    fleet: &'a Fleet,
    pub(super) index: usize,
    /// The server's when the lease was given.
    pub(super) weights: Published,
    life: watch::Receiver<u64>,
}

impl Lease<'_> {
    /// Resolves when the server is lost.
    pub(super) async fn lost(&self) {
        let mut life = self.life.clone();
        // The sender lives as long as the fleet.
        let _ = life.changed().await;
    }

    /// Whether the server has been lost since.
    pub(super) fn is_void(&self) -> bool {
        self.life.has_changed().unwrap_or(true)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.fleet.states().entries[self.index].running -= 1;
        self.fleet.changed.notify_one();
    }
}

/// A server that gives no new leases. Dropping it opens the server.
pub(super) struct Closed<'a> {
    fleet: &'a Fleet,
    index: usize,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.fleet.states().entries[self.index].is_closed = false;
        self.fleet.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    fn fleet(servers: usize, at_once: usize) -> Fleet {
        let client = |n| Client::new(&format!("http://127.0.0.1:{n}"), None).unwrap();
        Fleet::new((0..servers).map(client).collect(), at_once, Duration::from_secs(5), None)
    }

    fn handle(version: u64) -> Published {
        let folder = format!("/w/{version}");
        Published { version: PolicyVersion(version), folder, form: Form::Whole }
    }

    fn serve_all(fleet: &Fleet, version: u64) {
        let _ = fleet.set_current(&handle(version));
        for index in 0..fleet.servers.len() {
            assert!(fleet.serve(index, &handle(version)));
        }
    }

    #[tokio::test]
    async fn requests_are_spread_and_wait_when_all_servers_are_full() {
        let fleet = fleet(2, 2);
        serve_all(&fleet, 1);
        let mut leases = Vec::new();
        for _ in 0..4 {
            leases.push(fleet.take(Wish::default()).await.unwrap());
        }
        assert_eq!(leases.iter().filter(|lease| lease.index == 0).count(), 2);
        assert!(tokio::time::timeout(SOON, fleet.take(Wish::default())).await.is_err());
        leases.pop();
        assert!(tokio::time::timeout(SOON, fleet.take(Wish::default())).await.is_ok());
        drop(leases);
        assert!(fleet.load().iter().all(|one| one.running == 0), "every place is free again");
    }

    #[tokio::test]
    async fn a_lost_server_voids_its_leases_and_comes_back_with_current_weights_only() {
        let fleet = fleet(2, 4);
        serve_all(&fleet, 1);
        let wish = Wish { only: Some(0), ..Wish::default() };
        let lease = fleet.take(wish).await.unwrap();
        assert!(fleet.lose(0, "killed") && !fleet.lose(0, "again"), "told once");
        assert!(lease.is_void());
        assert!(tokio::time::timeout(SOON, lease.lost()).await.is_ok());
        assert!(tokio::time::timeout(SOON, fleet.take(wish)).await.is_err());
        let _ = fleet.set_current(&handle(2));
        assert!(!fleet.serve(0, &handle(1)), "those are not current any more");
        assert!(fleet.serve(0, &handle(2)));
        assert!(!fleet.take(wish).await.unwrap().is_void(), "a new life");
    }

    #[tokio::test]
    async fn a_completion_goes_on_where_its_version_is_known() {
        let fleet = fleet(2, 4);
        serve_all(&fleet, 1);
        let _ = fleet.set_current(&handle(2));
        assert!(fleet.serve(1, &handle(2)));
        let wish = Wish { at_least: PolicyVersion(2), ..Wish::default() };
        for _ in 0..3 {
            assert_eq!(fleet.take(wish).await.unwrap().index, 1);
        }
        let wish = Wish { preferred: Some(0), ..Wish::default() };
        assert_eq!(fleet.take(wish).await.unwrap().index, 0);
    }

    #[tokio::test]
    async fn a_closed_server_keeps_its_leases_and_gives_no_new_ones() {
        let fleet = fleet(1, 4);
        serve_all(&fleet, 1);
        let lease = fleet.take(Wish::default()).await.unwrap();
        assert!(!fleet.has_moved_on(&lease));
        let closed = fleet.close(0);
        assert!(!lease.is_void() && fleet.has_moved_on(&lease));
        assert!(tokio::time::timeout(SOON, fleet.take(Wish::default())).await.is_err());
        assert_eq!(fleet.running(0), 1);
        serve_all(&fleet, 2);
        let waiting = async { fleet.take(Wish::default()).await.unwrap().weights.version };
        let (version, ()) = tokio::join!(waiting, async { drop(closed) });
        assert_eq!(version, PolicyVersion(2), "whoever waited gets the weights of the exchange");
        assert!(fleet.has_moved_on(&lease), "of the weights before");
    }

    #[tokio::test]
    async fn weights_of_the_same_version_from_another_folder_are_others() {
        let fleet = fleet(1, 1);
        serve_all(&fleet, 0);
        let again = Published { folder: "/w/again".to_owned(), ..handle(0) };
        assert!(fleet.serves(0, &handle(0)) && !fleet.serves(0, &again));
        assert!(fleet.lose(0, "killed") && !fleet.serves(0, &handle(0)));
    }

    #[tokio::test]
    async fn patience_ends_with_the_reasons() {
        let mut fleet = fleet(1, 1);
        fleet.patience = SOON;
        serve_all(&fleet, 1);
        assert!(fleet.lose(0, "connection refused"));
        let Err(error) = fleet.take(Wish::default()).await else { panic!("nobody serves") };
        assert!(error.is_retryable());
        assert!(error.to_string().contains("127.0.0.1:0: connection refused"), "{error}");
    }
}
