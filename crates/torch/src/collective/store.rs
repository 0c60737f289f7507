//! Where processes meet: keys and values at one address, served by one of them.

#![expect(unsafe_code, reason = "this is the boundary to C++")]

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _, UdpSocket};
use std::os::fd::IntoRawFd as _;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::proxy::{AuthProxy, Token, knock};
use super::{CollectiveError, failure, milliseconds};
use crate::shim;

type Sink = extern "C" fn(*mut c_void, *const u8, usize);

unsafe extern "C" {
    fn scalerl_store_open(
        host: *const c_char,
        port: u16,
        listener: c_int,
        timeout_ms: i64,
        out: *mut *mut c_void,
    ) -> c_int;
    fn scalerl_store_drop(store: *mut c_void);
    fn scalerl_store_set(
        store: *mut c_void,
        key: *const c_char,
        bytes: *const u8,
        count: usize,
    ) -> c_int;
    fn scalerl_store_get(
        store: *mut c_void,
        key: *const c_char,
        timeout_ms: i64,
        sink: Sink,
        state: *mut c_void,
    ) -> c_int;
    fn scalerl_store_has(store: *mut c_void, key: *const c_char, found: *mut c_int) -> c_int;
    fn scalerl_store_add(
        store: *mut c_void,
        key: *const c_char,
        amount: i64,
        sum: *mut i64,
    ) -> c_int;
    fn scalerl_store_delete(store: *mut c_void, key: *const c_char) -> c_int;
}

/// The shim's store, on the thread that owns it.
struct Raw(*mut c_void);

// SAFETY: torch's TCPStore takes a lock of its own in every call.
unsafe impl Send for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: made by the shim, dropped once.
        unsafe { scalerl_store_drop(self.0) };
    }
}

type Job = Box<dyn FnOnce(*mut c_void) + Send>;

/// What a call to the shim gave, or its sentence about why it failed.
type Outcome<T> = Result<T, String>;

/// A connection to a store; with the server inside, where this process serves it.
///
/// torch's client waits without end for a server that is frozen or cut off, so a thread of our own
/// makes the calls. One that does not come back is left behind, and the store is of no further use.
#[derive(Debug)]
pub struct Store {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    is_stuck: Cell<bool>,
    server: SocketAddr,
    /// Where this process connects to reach it.
    dialled: SocketAddr,
    /// The address of this machine that others know it by, where this process serves.
    own: Option<IpAddr>,
    timeout: Duration,
    /// Stands before the server, or leads to it.
    proxy: Option<AuthProxy>,
}

/// What a call may take beyond its own timeout before it is given up.
pub(super) const GRACE: Duration = Duration::from_secs(4);

impl Store {
    /// Serves a store at `address:port`; port 0 takes one that is free. A loopback address is
    /// listened at alone; any other means every address of this machine, because names of machines
    /// often lead to an address that others cannot reach. With a token the store is behind a proxy.
    pub fn listen(
        address: &str,
        port: u16,
        token: Option<&Token>,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        let act = format!("listening at {address}:{port}");
        let failed = |error: io::Error| address_error(&act, &error);
        let (listened, own) = places(address, port, &act)?;
        let listener = TcpListener::bind(listened).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let Some(token) = token else {
            let near = if listened.ip().is_loopback() { listened.ip() } else { loopback(0).ip() };
            let server = SocketAddr::new(near, port);
            let mut store = Self::open(server, listener.into_raw_fd(), timeout)?;
            store.own = Some(own);
            return Ok(store);
        };
        let inner = TcpListener::bind(loopback(0)).map_err(failed)?;
        let near = inner.local_addr().map_err(failed)?;
        let mut store = Self::open(near, inner.into_raw_fd(), timeout)?;
        store.proxy = Some(AuthProxy::guard(listener, token.clone(), near).map_err(failed)?);
        (store.server, store.own) = (SocketAddr::new(own, port), Some(own));
        Ok(store)
    }

    /// Connects to a store that is, or within `timeout` will be, served at `address:port`, with a
    /// token where it is behind a proxy.
    pub fn connect(
        address: &str,
        port: u16,
        token: Option<&Token>,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        let act = format!("connecting to {address}:{port}");
        let named = resolve(address, port, &act)?;
        let Some(token) = token else { return Self::open(named, -1, timeout) };
        let started = Instant::now();
        knock(named, token, timeout).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => address_error(&act, &error),
            _ => failure(act.clone(), timeout, started, &error.to_string()),
        })?;
        let way = AuthProxy::way(token.clone(), named);
        let way = way.map_err(|error| address_error(&act, &error))?;
        let mut store = Self::open(way.address(), -1, timeout)?;
        (store.server, store.proxy) = (named, Some(way));
        Ok(store)
    }

    fn open(server: SocketAddr, listener: i32, timeout: Duration) -> Result<Self, CollectiveError> {
        let (jobs, queue) = channel::<Job>();
        let (ready, opened) = channel();
        let act = || format!("opening the store at {server}");
        let started = Instant::now();
        // Ends when `jobs` is dropped, after the call under way.
        let thread = std::thread::spawn(move || {
            let raw = open_raw(server, listener, timeout);
            let outcome = raw.as_ref().map(|_| ()).map_err(Clone::clone);
            // Nobody waits any more: then nobody will send a job either.
            let _ = ready.send(outcome);
            let Ok(raw) = raw else { return };
            for job in &queue {
                job(raw.0);
            }
        });
        match opened.recv_timeout(timeout + GRACE) {
            Ok(Ok(())) => {}
            Ok(Err(reason)) => return Err(failure(act(), timeout, started, &reason)),
            Err(_) => return Err(failure(act(), timeout, started, NO_ANSWER)),
        }
        let is_stuck = Cell::new(false);
        let (jobs, thread) = (Some(jobs), Some(thread));
        let (dialled, own, proxy) = (server, None, None);
        Ok(Self { jobs, thread, is_stuck, server, dialled, own, timeout, proxy })
    }

    /// Another connection to the same server, for calls that may not come back.
    pub fn another(&self) -> Result<Self, CollectiveError> {
        let mut store = Self::open(self.dialled, -1, self.timeout)?;
        (store.server, store.own) = (self.server, self.own);
        Ok(store)
    }

    /// Makes a call on the store's thread and waits for it for `timeout` and a bit.
    pub(super) fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> String,
        timeout: Duration,
        patience: Duration,
        job: impl FnOnce(*mut c_void) -> (c_int, T) + Send + 'static,
    ) -> Result<T, CollectiveError> {
        if self.is_stuck.get() {
            let reason = "an earlier call has not come back".to_owned();
            return Err(CollectiveError::Failed { act: act(), reason });
        }
        let (reply, answer) = channel::<Outcome<T>>();
        let started = Instant::now();
        let job: Job = Box::new(move |raw| {
            let (code, value) = job(raw);
            // Nobody waits any more: the value is dropped.
            let _ = reply.send(if code == 0 { Ok(value) } else { Err(shim::last_error()) });
        });
        let jobs = self.jobs.as_ref().expect("there until dropped");
        jobs.send(job).expect("the thread ends after the last sender");
        match answer.recv_timeout(patience) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(reason)) => Err(failure(act(), timeout, started, &reason)),
            Err(_) => {
                self.is_stuck.set(true);
                Err(failure(act(), timeout, started, NO_ANSWER))
            }
        }
    }

    fn ask<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> String,
        job: impl FnOnce(*mut c_void) -> (c_int, T) + Send + 'static,
    ) -> Result<T, CollectiveError> {
        self.call(act, self.timeout, self.timeout + GRACE, job)
    }

    /// Where it is served, as seen from here.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// The address of this machine where peers find us: what the server was named, or what its
    /// machine sees of us.
    pub fn own_address(&self) -> Result<IpAddr, CollectiveError> {
        if let Some(own) = self.own {
            return Ok(own);
        }
        let act = format!("finding the way to {}", self.server);
        towards(self.server).map_err(|error| address_error(&act, &error))
    }

    /// Writes a value for all to see.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), CollectiveError> {
        let (name, value) = (text(key), value.to_vec());
        self.ask(
            || format!("writing `{key}`"),
            // SAFETY: key and value outlive the call.
            move |raw| unsafe {
                (scalerl_store_set(raw, name.as_ptr(), value.as_ptr(), value.len()), ())
            },
        )
    }

    /// Waits until somebody has written the key, and reads it.
    pub fn get(&self, key: &str, timeout: Duration) -> Result<Vec<u8>, CollectiveError> {
        extern "C" fn keep(state: *mut c_void, bytes: *const u8, count: usize) {
            // SAFETY: `state` is the vector below; the shim lends `count` bytes.
            unsafe {
                let value = &mut *state.cast::<Vec<u8>>();
                if count > 0 {
                    value.extend_from_slice(std::slice::from_raw_parts(bytes, count));
                }
            }
        }
        let name = text(key);
        let act = || format!("waiting for `{key}`");
        self.call(act, timeout, timeout + GRACE, move |raw| {
            let mut value = Vec::<u8>::new();
            let (wait, state) = (milliseconds(timeout), (&raw mut value).cast());
            // SAFETY: key and vector outlive the call, and `keep` is called within it.
            let code = unsafe { scalerl_store_get(raw, name.as_ptr(), wait, keep, state) };
            (code, value)
        })
    }

    /// Whether the key has been written.
    pub fn has(&self, key: &str) -> Result<bool, CollectiveError> {
        let name = text(key);
        self.ask(
            || format!("looking for `{key}`"),
            move |raw| {
                let mut found = 0;
                // SAFETY: key and target outlive the call.
                let code = unsafe { scalerl_store_has(raw, name.as_ptr(), &raw mut found) };
                (code, found != 0)
            },
        )
    }

    /// Adds to a number, 0 at first, and returns the sum. No two callers get the same one.
    pub fn add(&self, key: &str, amount: i64) -> Result<i64, CollectiveError> {
        let name = text(key);
        self.ask(
            || format!("adding to `{key}`"),
            move |raw| {
                let mut sum = 0;
                // SAFETY: key and target outlive the call.
                let code = unsafe { scalerl_store_add(raw, name.as_ptr(), amount, &raw mut sum) };
                (code, sum)
            },
        )
    }

    /// Forgets a key, so that a long run does not fill the server's memory.
    pub fn delete(&self, key: &str) -> Result<(), CollectiveError> {
        let name = text(key);
        self.ask(
            || format!("deleting `{key}`"),
            // SAFETY: the key outlives the call.
            move |raw| unsafe { (scalerl_store_delete(raw, name.as_ptr()), ()) },
        )
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // A call that does not come back keeps its thread; there is nothing to wait for.
        if let Some(thread) = self.thread.take().filter(|_| !self.is_stuck.get()) {
            // A panic in it has been printed.
            let _ = thread.join();
        }
    }
}

const NO_ANSWER: &str = "the store does not answer";

fn open_raw(server: SocketAddr, listener: i32, timeout: Duration) -> Outcome<Raw> {
    let host = CString::new(server.ip().to_string()).expect("an address has no zero byte");
    let mut raw = std::ptr::null_mut();
    // SAFETY: the host outlives the call; the socket, where there is one, is handed over.
    let code = unsafe {
        let wait = milliseconds(timeout);
        scalerl_store_open(host.as_ptr(), server.port(), listener, wait, &raw mut raw)
    };
    if code == 0 { Ok(Raw(raw)) } else { Err(shim::last_error()) }
}

pub(super) fn text(key: &str) -> CString {
    CString::new(key).expect("keys and prefixes have no zero byte")
}

fn address_error(act: &str, error: &std::io::Error) -> CollectiveError {
    CollectiveError::Address { act: act.to_owned(), reason: error.to_string() }
}

/// This machine's address on the way to another.
fn towards(other: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if other.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    // Connecting a datagram socket sends nothing; it only picks the route.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

/// Where to listen, and as what others know this machine, by the address it was named.
fn places(address: &str, port: u16, act: &str) -> Result<(SocketAddr, IpAddr), CollectiveError> {
    let named = resolve(address, port, act)?;
    let is_literal = address.parse::<IpAddr>().is_ok() || address == "localhost";
    let everywhere = SocketAddr::from(([0, 0, 0, 0], port));
    Ok(match (named.ip().is_loopback(), is_literal) {
        (true, true) => (named, named.ip()),
        // Many machines know their own name by a loopback address, which nobody else does.
        // 192.0.2.1 is nobody's (RFC 5737): the way there is the way out.
        (true, false) => {
            let out = towards(SocketAddr::from(([192, 0, 2, 1], 9)));
            (everywhere, out.unwrap_or(named.ip()))
        }
        (false, _) => (everywhere, named.ip()),
    })
}

/// IPv4 first: Gloo binds to the address we name, and hosts without IPv6 still resolve to it.
fn resolve(address: &str, port: u16, act: &str) -> Result<SocketAddr, CollectiveError> {
    let found = (address, port).to_socket_addrs().map_err(|error| address_error(act, &error))?;
    let found: Vec<SocketAddr> = found.collect();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().ok_or_else(|| CollectiveError::Address {
        act: act.to_owned(),
        reason: "the name leads to no address".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[test]
    fn what_one_process_writes_another_reads() {
        let server = Store::listen("127.0.0.1", 0, None, SOON).unwrap();
        let port = server.server().port();
        let reader = std::thread::spawn(move || {
            let client = Store::connect("localhost", port, None, SOON).unwrap();
            (client.get("a", SOON).unwrap(), client.add("n", 2).unwrap())
        });
        server.set("a", &[0, 1, 255]).unwrap();
        let (value, sum) = reader.join().unwrap();
        assert_eq!((value, sum), (vec![0, 1, 255], 2));
        assert!(server.has("a").unwrap());
        server.delete("a").unwrap();
        assert!(!server.has("a").unwrap());
        assert!(server.own_address().unwrap().is_loopback());
    }

    #[test]
    fn a_key_that_nobody_writes_is_an_error_in_time() {
        let server = Store::listen("127.0.0.1", 0, None, SOON).unwrap();
        let error = server.get("never", Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, CollectiveError::Late { .. }), "{error}");
        assert!(error.to_string().contains("`never`: not done within 0.3 s"), "{error}");
    }

    #[test]
    fn addresses_that_cannot_be_used_are_named() {
        let server = Store::listen("127.0.0.1", 0, None, SOON).unwrap();
        let taken = server.server().port();
        let error = Store::listen("127.0.0.1", taken, None, SOON).unwrap_err();
        assert!(matches!(error, CollectiveError::Address { .. }), "{error}");
        assert!(error.to_string().contains(&format!("127.0.0.1:{taken}")), "{error}");
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let error =
            Store::connect("127.0.0.1", nobody, None, Duration::from_millis(400)).unwrap_err();
        assert!(error.to_string().contains(&nobody.to_string()), "{error}");
    }
}
