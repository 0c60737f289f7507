//! A Redis server for one test: plain, with a password, with a disk, behind TLS.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::bench::folder;
use crate::run::PATIENCE;

/// Every server here has it.
pub(crate) const PASSWORD: &str = "a-secret-of-this-test";

/// Whether the redis-server on the path speaks TLS; a word about it where not.
pub(crate) fn speaks_tls() -> bool {
    let mut probe = Command::new("redis-server");
    // One that does not know the option says so before it does anything.
    let told = probe.args(["--tls-port", "0", "--port", "0", "--daemonize", "no"]);
    let said = told.arg("--save").arg("").arg("--unknown-option-to-end-it").output();
    let said =
        said.map(|said| String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned());
    let speaks = said.is_ok_and(|said| !said.contains("tls-port"));
    if !speaks {
        println!("SKIPPED: this redis-server was built without TLS");
    }
    speaks
}

/// What a server has beside a password.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kind {
    /// Writes everything down, so that a restart forgets nothing.
    pub(crate) is_durable: bool,
    /// Folder with `ca.pem`, `server.pem` and `server.key`; no plain port then.
    pub(crate) tls: Option<PathBuf>,
    /// Words before the program: in which network it runs, and its address there.
    pub(crate) network: Option<(Vec<String>, String)>,
}

pub(crate) struct Redis {
    child: Child,
    port: u16,
    kind: Kind,
}

impl Redis {
    /// `None`, with a word about it, where no server was asked for.
    pub(crate) fn start() -> Option<Self> {
        Self::of(Kind::default())
    }

    pub(crate) fn of(kind: Kind) -> Option<Self> {
        if std::env::var_os("SCALERL_REQUIRE_REDIS").is_none() {
            println!("SKIPPED: `make test-cluster` runs this, with a Redis server");
            return None;
        }
        let port = free_port();
        let child = serve(port, &kind).expect("redis-server is on the path");
        let mut redis = Self { child, port, kind };
        redis.wait();
        Some(redis)
    }

    fn host(&self) -> &str {
        self.kind.network.as_ref().map_or("127.0.0.1", |(_, address)| address)
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.kind.tls.is_some() { "rediss" } else { "redis" };
        // Certificates are of names.
        let host = if self.kind.tls.is_some() { "localhost" } else { self.host() };
        format!("{scheme}://:{PASSWORD}@{host}:{}", self.port)
    }

    /// Until it listens; in another network that is found out by who connects.
    fn wait(&mut self) {
        let begun = Instant::now();
        while self.kind.network.is_none() && TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(self.child.try_wait().unwrap().is_none(), "redis-server has ended");
            assert!(begun.elapsed() < PATIENCE, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Another process at the same address; it knows what its kind has kept.
    pub(crate) fn start_again(&mut self) {
        self.child = serve(self.port, &self.kind).unwrap();
        self.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    // Below those that the system gives out by itself: no connection takes it before it is used.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 60) as u16 * 200;
    std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 200)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

fn serve(port: u16, kind: &Kind) -> std::io::Result<Child> {
    let (words, address) =
        kind.network.clone().unwrap_or_else(|| (Vec::new(), "127.0.0.1".to_owned()));
    let words: Vec<String> = words.into_iter().chain(["redis-server".to_owned()]).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["--bind", &address, "--requirepass", PASSWORD, "--save", ""]);
    let place = folder().join(format!("redis-{port}"));
    std::fs::create_dir_all(&place)?;
    command.arg("--dir").arg(&place);
    // The plain port is taken away where there is TLS.
    let number = port.to_string();
    match &kind.tls {
        None => command.args(["--port", &number]),
        Some(keys) => command
            .args(["--port", "0", "--tls-port", &number, "--tls-auth-clients", "no"])
            .arg("--tls-cert-file")
            .arg(keys.join("server.pem"))
            .arg("--tls-key-file")
            .arg(keys.join("server.key"))
            .arg("--tls-ca-cert-file")
            .arg(keys.join("ca.pem")),
    };
    let appends = if kind.is_durable { "yes" } else { "no" };
    command.args(["--appendonly", appends, "--appendfsync", "always"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
