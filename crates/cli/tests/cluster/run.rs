//! A run that is alive: what can be seen of it, what can be done to it, and that nothing of it is
//! left behind however its test ends.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use scalerl_journal::{Event, FleetChange, FleetState, FleetTable, What, read_events};

use crate::bench::{Said, assert_none_skipped, audit, folder, reading, resume, train};
use crate::server::Redis;

/// Nothing here takes longer, however slow the machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(4);
/// Prompts of the small task that are trained on, with 16 held out.
pub(crate) const PROMPTS: u64 = 1200;
const STEPS_BEHIND: u64 = 3;

/// Small steps for as long as a test needs, and short deadlines.
pub(crate) const ENDLESS: [&str; 15] = [
    "pipeline.groups_per_step=4",
    "pipeline.group_size=4",
    "task.held_out=16",
    "evaluation.every_steps=20",
    "evaluation.generations=1",
    "output.checkpoint_every_steps=2",
    "objective.curriculum=\"none\"",
    // Or it ends where every group has become alike.
    "objective.filter=\"none\"",
    "objective.off_policy.steps_behind=3",
    "budget.axis=\"steps\"",
    "budget.steps=100000",
    "cluster.heartbeat_s=0.2",
    "cluster.suspect_s=1.0",
    "cluster.dead_s=3.0",
    "cluster.rank_deadline_s=20",
];

/// A process with its own group of processes.
pub(crate) struct Alive {
    name: String,
    child: Option<Child>,
}

impl Alive {
    pub(crate) fn start(name: &str, mut command: Command) -> Self {
        let log = |kind: &str| File::create(folder().join(format!("{name}.{kind}"))).unwrap();
        command.stdin(Stdio::null()).stdout(log("out")).stderr(log("err"));
        let child = command.process_group(0).spawn().unwrap();
        Self { name: name.to_owned(), child: Some(child) }
    }

    /// `scalerl train` with small steps, which starts everything else itself.
    pub(crate) fn endless(run: &str, redis: &Redis, set: &[&str]) -> Self {
        let mut command = train("scalerl", run, &[&ENDLESS[..], set].concat());
        command.env("SCALERL_REDIS", redis.url());
        Self::start(run, command)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, what: Signal) {
        signal(self.id(), what);
    }

    fn said(&self, code: Option<i32>) -> Said {
        let text = |kind: &str| {
            let bytes = fs::read(folder().join(format!("{}.{kind}", self.name))).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Said { code, out: text("out"), err: text("err") }
    }

    /// Waits until something is true, while it lives.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                panic!("{} ended before {what}: {:?}", self.name, self.said(status.code()));
            }
            let late = begun.elapsed() >= PATIENCE;
            assert!(!late, "{} waited in vain for {what}: {:?}", self.name, self.said(None));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for further steps of its run.
    pub(crate) fn go_on(&mut self, more: u64) {
        let (run, enough) = (self.name.clone(), steps(&self.name) + more);
        self.until("further steps", || steps(&run) >= enough);
    }

    /// Waits until each of these is healthy.
    pub(crate) fn until_healthy(&mut self, names: &[&str]) {
        let run = self.name.clone();
        self.until("all to be healthy", || {
            names.iter().all(|name| is_now(&run, name, FleetState::Healthy))
        });
    }

    /// Waits for its end and says what it said.
    pub(crate) fn end(mut self) -> Said {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                return self.said(status.code());
            }
            let late = begun.elapsed() >= PATIENCE;
            assert!(!late, "{} does not end: {:?}", self.name, self.said(None));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks it to stop, which it does in order; everything is then accounted for.
    pub(crate) fn stop_and_audit(self) {
        let run = self.name.clone();
        self.signal(Signal::TERM);
        let said = self.end();
        assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
        audit_run(&run);
    }
}

impl Drop for Alive {
    /// Where the test has failed, everything is ended. Where it has not, what is left would show.
    fn drop(&mut self) {
        let is_over =
            self.child.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|it| it.is_some()));
        if is_over && !std::thread::panicking() {
            return;
        }
        if let Some(child) = &mut self.child {
            if let Some(group) = Pid::from_raw(child.id() as i32) {
                // Fails where all of it has ended.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = child.wait();
        }
        // Launchers put what they start into other groups.
        for pid in processes_of(&self.name) {
            let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
        }
    }
}

/// No prompt is lost, none is trained on twice, no lag is above its bound.
pub(crate) fn audit_run(run: &str) {
    let reading = reading(run);
    let places = audit(&reading, STEPS_BEHIND);
    assert_none_skipped(&places, PROMPTS);
    let (groups, largest) = (reading.summary().groups, reading.summary().largest_lag);
    println!(
        "{run}: {} steps, {groups} groups, largest lag {largest}; {} prompts handed out, \
         0 lost, 0 trained on twice",
        steps(run),
        places.len()
    );
}

/// Goes on with a run that has ended, for so many steps, and accounts for everything.
pub(crate) fn resume_and_audit(run: &str, redis: &Redis, more: u64, set: &[&str]) {
    let from = reading(run).checkpoints.last().unwrap().version.0;
    let budget = format!("budget.steps={}", from + more);
    let mut command = resume(run, &[&[budget.as_str()][..], set].concat());
    command.env("SCALERL_REDIS", redis.url());
    let said = Alive::start(run, command).end();
    assert_eq!(said.code, Some(0), "{}\n{}", said.out, said.err);
    assert_eq!(reading(run).summary().version.0, from + more);
    audit_run(run);
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// The process that a member of the fleet is at the moment.
pub(crate) fn pid_of(run: &str, name: &str) -> Option<u32> {
    let table = FleetTable::read(&folder().join(run))?;
    table.members.iter().find(|member| member.name == name).map(|member| member.pid)
}

fn is_now(run: &str, name: &str, state: FleetState) -> bool {
    let table = FleetTable::read(&folder().join(run)).unwrap_or_default();
    table.members.iter().any(|member| member.name == name && member.state == state)
}

fn journal(run: &str) -> Vec<Event> {
    read_events(&folder().join(run).join("events.jsonl")).unwrap_or_default()
}

/// What has become of a member of the fleet, in order.
pub(crate) fn changes(run: &str, name: &str) -> Vec<FleetChange> {
    let change = |event: Event| match event.what {
        What::Fleet(change) if change.name == name => Some(change),
        _ => None,
    };
    journal(run).into_iter().filter_map(change).collect()
}

pub(crate) fn states(run: &str, name: &str) -> Vec<FleetState> {
    changes(run, name).into_iter().map(|change| change.to).collect()
}

/// Steps of a run so far.
pub(crate) fn steps(run: &str) -> u64 {
    let version = |event: &Event| match &event.what {
        What::Step { report, .. } => Some(report.version.0),
        _ => None,
    };
    journal(run).iter().rev().find_map(version).unwrap_or(0)
}

/// Processes of this program that were started for a run, from all of the machine.
pub(crate) fn processes_of(run: &str) -> BTreeSet<u32> {
    let program = fs::canonicalize(env!("CARGO_BIN_EXE_scalerl")).unwrap();
    let is_ours = |pid: &u32| {
        let place = format!("/proc/{pid}");
        let words = fs::read(format!("{place}/cmdline")).unwrap_or_default();
        let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let is_of_run = |word: &str| word == run || word.starts_with(&format!("{run}-"));
        let names = words
            .iter()
            .any(|word| is_of_run(word) || word.rsplit('/').next().is_some_and(|last| last == run));
        names && fs::read_link(format!("{place}/exe")).is_ok_and(|exe| exe == program)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter(is_ours).collect()
}

/// Waits until no process of a run is left.
pub(crate) fn until_all_have_ended(run: &str) {
    let begun = Instant::now();
    while !processes_of(run).is_empty() {
        assert!(begun.elapsed() < PATIENCE, "left behind: {:?}", processes_of(run));
        std::thread::sleep(Duration::from_millis(20));
    }
}
