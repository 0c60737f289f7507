//! A listener: a thread with a runtime of its own, so that it serves beside whatever else its
//! process does.
//!
//! ```text
//! Listener --stop--> accept loop --one task per connection--> router
//! ```
//! The loop takes a place for each connection before it accepts it: further ones wait in the
//! system's queue. Stopping closes the door, lets requests under way end for as long as `grace`, and
//! drops the rest.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::patience::Patient;

/// Longest that a client may take to send the head of a request, or to send none.
const HEAD: Duration = Duration::from_mins(1);
/// Longest that a client may take no byte of its answer.
const STALL: Duration = Duration::from_mins(1);
/// After a connection could not be accepted: the process may have too many files open.
const PAUSE: Duration = Duration::from_millis(50);

/// Where and how to listen.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// HOST:PORT; port 0 takes a free one.
    pub address: String,
    /// Whether clients must send a key. Needed wherever others than this machine can connect.
    pub is_keyed: bool,
    /// Connections at once; further ones wait.
    pub connections: usize,
    /// For requests under way when the listener stops.
    pub grace: Duration,
    /// Threads that serve.
    pub threads: usize,
    /// What the threads are called.
    pub name: &'static str,
}

impl ListenOptions {
    /// Whether a server may listen there; for those who want to know before they prepare anything.
    pub fn check(&self) -> Result<SocketAddr, StartError> {
        let wrong = |reason: String| StartError::Address { address: self.address.clone(), reason };
        let mut found = self.address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
        let address = found.next().ok_or_else(|| wrong("nothing has this name".to_owned()))?;
        if !address.ip().is_loopback() && !self.is_keyed {
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

/// A listener that runs. Dropping it stops it.
pub struct Listener {
    address: SocketAddr,
    /// Says stop to the accept loop and to every connection.
    stop: watch::Sender<bool>,
    /// Ends after `stop`, within `grace`.
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Starts listening.
    pub fn start(options: &ListenOptions, router: Router) -> Result<Self, StartError> {
        let (listener, address) = listen(options)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name(options.name)
            .worker_threads(options.threads.max(1))
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let (stop, stopped) = watch::channel(false);
        let (connections, grace) = (options.connections, options.grace);
        let thread = std::thread::Builder::new()
            .name(options.name.to_owned())
            .spawn(move || {
                runtime.block_on(serve(listener, router, connections, grace, stopped));
                // Work that a client's leaving has not ended yet.
                runtime.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens: `http://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed, and there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

fn listen(options: &ListenOptions) -> Result<(TcpListener, SocketAddr), StartError> {
    let address = options.check()?;
    let failed = |reason| StartError::Bind { address, reason };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

async fn serve(
    listener: TcpListener,
    router: Router,
    connections: usize,
    grace: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    // It is non-blocking and the runtime is here: this cannot fail.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(connections));
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
    if tokio::time::timeout(grace, all).await.is_err() {
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
    // Events are small and should not wait for more.
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
