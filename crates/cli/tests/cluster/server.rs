//! A Redis server for one test, and what the tests ask of runs that are alive.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use scalerl_journal::{Event, FleetState, FleetTable, What, read_events};

use crate::bench::{Said, folder};

/// Nothing here takes longer, however slow the machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// A server that keeps nothing on disk: a restart forgets everything.
pub(crate) struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// `None`, with a word about it, where there is no server to start.
    pub(crate) fn start() -> Option<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let child = match serve(port) {
            Ok(child) => child,
            Err(error) => {
                let is_needed = std::env::var_os("SCALERL_REQUIRE_REDIS").is_some();
                assert!(!is_needed, "redis-server cannot be started: {error}");
                println!("skipped: redis-server cannot be started: {error}");
                return None;
            }
        };
        let redis = Self { child, port };
        redis.wait();
        Some(redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn wait(&self) {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the server; after `pause` another one, which knows nothing, is in its place.
    pub(crate) fn restart_after(&mut self, pause: Duration) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::thread::sleep(pause);
        self.child = serve(self.port).unwrap();
        self.wait();
    }
}

fn serve(port: u16) -> std::io::Result<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run that does not outlive its test.
pub(crate) struct Alive(pub(crate) Option<Child>);

impl Alive {
    pub(crate) fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// What it said, once it has ended.
    pub(crate) fn end(mut self) -> Said {
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// The process that a member of the fleet is at the moment.
pub(crate) fn pid_of(run: &str, name: &str) -> Option<u32> {
    let table = FleetTable::read(&folder().join(run))?;
    table.members.iter().find(|member| member.name == name).map(|member| member.pid)
}

/// What a member of the fleet has been, in order.
pub(crate) fn states(run: &str, name: &str) -> Vec<FleetState> {
    let events: Vec<Event> =
        read_events(&folder().join(run).join("events.jsonl")).unwrap_or_default();
    let state = |event: Event| match event.what {
        What::Fleet(change) if change.name == name => Some(change.to),
        _ => None,
    };
    events.into_iter().filter_map(state).collect()
}

/// Steps of a run so far.
pub(crate) fn steps(run: &str) -> u64 {
    let events: Vec<Event> =
        read_events(&folder().join(run).join("events.jsonl")).unwrap_or_default();
    let version = |event: &Event| match &event.what {
        What::Step { report, .. } => Some(report.version.0),
        _ => None,
    };
    events.iter().rev().find_map(version).unwrap_or(0)
}

/// Trainer ranks that a process has started: their pids.
pub(crate) fn ranks_of(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        // After the name, which may hold anything: state, then the parent.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let is_child = after.split_whitespace().nth(1) == Some(parent.to_string().as_str());
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        if is_child && line.split('\0').any(|word| word == "--resume") {
            found.push(pid);
        }
    }
    found
}
