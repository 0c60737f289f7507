//! The server of the page: what it is told, and what its connections share.
//!
//! It reads; with its token a run can be asked to stop. On another address than loopback a key is
//! needed for everything.

mod answer;
mod events;
mod guard;
mod routes;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use scalerl_http::{ListenOptions, Listener, StartError, key};
use tokio::sync::Semaphore;

use crate::room::{Reader, Room};

/// Connections at once; a browser has up to six.
const CONNECTIONS: usize = 256;
/// Pages that are told of changes at once.
const FOLLOWING: usize = 64;
/// Searches at once: each may read hundreds of megabytes.
const SEARCHES: usize = 2;
const GRACE: Duration = Duration::from_secs(1);

/// What a server is.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Runs, and folders of runs.
    pub folders: Vec<PathBuf>,
    /// HOST:PORT; port 0 takes a free one.
    pub address: String,
    /// What clients must send to read. Needed wherever others than this machine can connect.
    pub api_key: Option<String>,
}

impl ServerOptions {
    fn listen(&self) -> ListenOptions {
        ListenOptions {
            address: self.address.clone(),
            is_keyed: self.api_key.as_ref().is_some_and(|key| !key.is_empty()),
            connections: CONNECTIONS,
            grace: GRACE,
            threads: 1,
            name: "watch-page",
        }
    }
}

/// What all connections share.
pub(crate) struct App {
    pub(crate) room: Arc<Room>,
    pub(crate) api_key: Option<String>,
    /// What a stop needs.
    token: String,
    /// What a browser that has shown the key is known by.
    session: String,
    following: Arc<Semaphore>,
    searches: Arc<Semaphore>,
}

/// A server that runs. Dropping it stops it.
pub struct Server {
    app: Arc<App>,
    // Before the reader: nobody asks for what is not read any more.
    listener: Listener,
    _reader: Reader,
}

impl Server {
    /// Starts listening and, once somebody looks, reading.
    pub fn start(options: &ServerOptions) -> Result<Self, StartError> {
        let listen = options.listen();
        listen.check()?;
        let room = Room::new(&options.folders);
        let reader = room.start().map_err(StartError::Thread)?;
        let app = Arc::new(App {
            room,
            api_key: options.api_key.clone().filter(|key| !key.is_empty()),
            token: key::secret().map_err(StartError::Thread)?,
            session: key::secret().map_err(StartError::Thread)?,
            following: Arc::new(Semaphore::new(FOLLOWING)),
            searches: Arc::new(Semaphore::new(SEARCHES)),
        });
        let listener = Listener::start(&listen, routes::router(app.clone()))?;
        Ok(Self { app, listener, _reader: reader })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// What a stop needs.
    pub fn token(&self) -> &str {
        &self.app.token
    }

    /// Seconds that the reading thread has worked.
    pub fn worked_s(&self) -> f64 {
        self.app.room.worked_s()
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}
