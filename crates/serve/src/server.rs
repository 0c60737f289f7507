//! The server: a thread with a runtime of its own, so that it serves beside whatever else its
//! process does.
//!
//! ```text
//! Server --stop--> accept loop --one task per connection--> routes
//! ```
//! The loop takes a place for each connection before it accepts it: further ones wait in the
//! system's queue. Stopping closes the door, lets requests under way end for as long as `grace`, and
//! drops the rest.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use scalerl_rollout::Policy;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::chat_format::ChatFormat;
use crate::key;
use crate::metrics::Metrics;
use crate::patience::Patient;
use crate::routes;
use crate::session::{Session, Sessions};

/// Longest that a client may take to send the head of a request, or to send none.
const HEAD: Duration = Duration::from_mins(1);
/// Longest that a client may take no byte of its answer.
const STALL: Duration = Duration::from_mins(1);
/// After a connection could not be accepted: the process may have too many files open.
const PAUSE: Duration = Duration::from_millis(50);

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
        let wrong = |reason: String| StartError::Address { address: self.address.clone(), reason };
        let mut found = self.address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
        let address = found.next().ok_or_else(|| wrong("nothing has this name".to_owned()))?;
        let has_key = self.api_key.as_ref().is_some_and(|key| !key.is_empty());
        if !address.ip().is_loopback() && !has_key {
            return Err(StartError::NoKey { address });
        }
        Ok(address)
    }
}

/// Why a server did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StartError {
    #[error("{address} is not an address: {reason}")]
    Address { address: String, reason: String },
    #[error("{address} can be reached from other machines, and there is no API key")]
    NoKey { address: SocketAddr },
    #[error("cannot listen on {address}: {reason}")]
    Bind { address: SocketAddr, reason: io::Error },
    #[error("cannot start the server's thread: {0}")]
    Thread(io::Error),
}

impl StartError {
    /// What to try next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Address { .. } => "write it as HOST:PORT, such as 127.0.0.1:8000",
            Self::NoKey { .. } => {
                "give an API key (--api-key, or the variable SCALERL_API_KEY), or listen on 127.0.0.1"
            }
            Self::Bind { .. } => "choose another port, or stop what listens there",
            Self::Thread(_) => "the system may have run out of threads or files",
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
    address: SocketAddr,
    /// Says stop to the accept loop and to every connection.
    stop: watch::Sender<bool>,
    /// Ends after `stop`, within `grace`.
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts listening. Calls without a session's key go to `policy`; without one they are refused.
    pub fn start(
        options: ServerOptions,
        chat: Arc<dyn ChatFormat>,
        policy: Option<Arc<dyn Policy>>,
    ) -> Result<Self, StartError> {
        let (listener, address) = listen(&options)?;
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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("server")
            .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)))
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let theirs = app.clone();
        let thread = std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || {
                runtime.block_on(serve(listener, theirs, stopped));
                // Work that a client's leaving has not ended yet.
                runtime.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self { app, address, stop, thread: Some(thread) })
    }

    /// Where it listens: `http://HOST:PORT`, without `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A key of its own for a policy, until the session is dropped.
    pub fn open(&self, policy: Arc<dyn Policy>) -> io::Result<Session> {
        self.app.sessions.open(policy)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed, and there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

fn listen(options: &ServerOptions) -> Result<(TcpListener, SocketAddr), StartError> {
    let address = options.check()?;
    let failed = |reason| StartError::Bind { address, reason };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

async fn serve(listener: TcpListener, app: Arc<App>, mut stopped: watch::Receiver<bool>) {
    // It is non-blocking and the runtime is here: this cannot fail.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let limits = app.options.limits.clone();
    let router = routes::router(app);
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let accepted = async {
            let place = places.clone().acquire_owned().await.expect("never closed");
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            _ = stopped.wait_for(|is_stopped| *is_stopped) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection(stream, router.clone(), stopped.clone(), place));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    drop(listener);
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.grace, all).await.is_err() {
        tasks.shutdown().await;
    }
}

/// Ends with the client, or after the request under way once the server stops.
async fn connection(
    stream: TcpStream,
    router: Router,
    mut stopped: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    // Tokens are small and should not wait for more.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let stream = TokioIo::new(Patient::new(stream, STALL));
    let mut connection = pin!(builder.serve_connection(stream, service));
    // What goes wrong with a connection is its client's business.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
