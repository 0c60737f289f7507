//! The server: what it is told, what its connections share. It listens on a thread of its own
//! (`scalerl_http`), beside whatever else its process does.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scalerl_http::{ListenOptions, Listener, StartError, key};
use scalerl_rollout::Policy;
use tokio::sync::Semaphore;

use crate::chat_format::ChatFormat;
use crate::metrics::Metrics;
use crate::routes;
use crate::session::{Session, Sessions};

/// Bounds on what clients may ask for.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Connections at once; further ones wait.
    pub connections: usize,
    /// Requests under way at once; further ones are refused with 429.
    pub requests: usize,
    /// Choices (`n`) of one request.
    pub choices: u32,
    /// Prompts of one request to /v1/completions.
    pub prompts: usize,
    /// Tokens of one answer; `None`: what the model's length leaves.
    pub max_tokens: Option<u32>,
    /// From a request to its last token.
    pub deadline: Duration,
    /// For requests under way when the server stops.
    pub grace: Duration,
    /// Least time between two events of a stream: tokens that are drawn within it share an event.
    /// The first token goes out at once, and so does the end.
    pub stream_window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 16 << 20,
            connections: 2048,
            requests: 1024,
            choices: 128,
            prompts: 1024,
            max_tokens: None,
            deadline: Duration::from_mins(10),
            grace: Duration::from_secs(10),
            stream_window: Duration::from_millis(10),
        }
    }
}

/// How busy the generator behind a server is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Load {
    /// Sequences being written.
    pub running: usize,
    /// Sequences that wait for room.
    pub waiting: usize,
    /// Share of the KV cache in use, 0 to 1.
    pub cache_usage: f64,
    /// Why it does not work any more, if so.
    pub why_gone: Option<String>,
}

/// Tells the load of the moment.
pub type LoadOf = Arc<dyn Fn() -> Load + Send + Sync>;

/// What a server is.
#[derive(Clone)]
pub struct ServerOptions {
    /// HOST:PORT; port 0 takes a free one.
    pub address: String,
    /// What clients must send. Needed wherever others than this machine can connect.
    pub api_key: Option<String>,
    /// The model's name, as clients write it.
    pub model: String,
    /// Most tokens of a prompt and its answer together.
    pub max_model_len: u32,
    /// For `/metrics` and `/health`.
    pub load: Option<LoadOf>,
    /// Bounds.
    pub limits: Limits,
}

impl ServerOptions {
    /// Whether a server may listen there; for those who want to know before they load a model.
    pub fn check(&self) -> Result<SocketAddr, StartError> {
        self.listen().check()
    }

    fn listen(&self) -> ListenOptions {
        ListenOptions {
            address: self.address.clone(),
            is_keyed: self.api_key.as_ref().is_some_and(|key| !key.is_empty()),
            connections: self.limits.connections,
            grace: self.limits.grace,
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)),
            name: "server",
        }
    }
}

/// What all connections share.
pub(crate) struct App {
    pub(crate) options: ServerOptions,
    pub(crate) chat: Arc<dyn ChatFormat>,
    pub(crate) policy: Option<Arc<dyn Policy>>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) places: Arc<Semaphore>,
    /// Of this server alone; part of the names of its answers.
    name: String,
    next: AtomicU64,
}

impl App {
    /// A name for an answer or a call that no other has.
    pub(crate) fn name(&self, kind: &str) -> String {
        format!("{kind}-{}{:06x}", &self.name[..16], self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// For a request that brings none: every one differs.
    pub(crate) fn fresh_seed(&self) -> u64 {
        let base = u64::from_str_radix(&self.name[..16], 16).unwrap_or_default();
        // Far apart, since choice i of a request has the seed + i.
        let step = self.next.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        base.wrapping_add(step)
    }

    pub(crate) fn under_way(&self) -> usize {
        self.options.limits.requests - self.places.available_permits()
    }
}

/// A server that runs. Dropping it stops it.
pub struct Server {
    app: Arc<App>,
    listener: Listener,
}

impl Server {
    /// Starts listening. Calls without a session's key go to `policy`; without one they are refused.
    pub fn start(
        options: ServerOptions,
        chat: Arc<dyn ChatFormat>,
        policy: Option<Arc<dyn Policy>>,
    ) -> Result<Self, StartError> {
        let listen = options.listen();
        let app = Arc::new(App {
            places: Arc::new(Semaphore::new(options.limits.requests)),
            options,
            chat,
            policy,
            sessions: Arc::default(),
            metrics: Arc::default(),
            name: key::secret().map_err(StartError::Thread)?,
            next: AtomicU64::new(0),
        });
        let listener = Listener::start(&listen, routes::router(app.clone()))?;
        Ok(Self { app, listener })
    }

    /// Where it listens: `http://HOST:PORT`, without `/v1`.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// A key of its own for a policy, until the session is dropped.
    pub fn open(&self, policy: Arc<dyn Policy>) -> io::Result<Session> {
        self.app.sessions.open(policy)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}
