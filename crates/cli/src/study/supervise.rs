//! Runs the runs: one child process each, so many at a time, until all have ended or someone says
//! stop.
//!
//! What is left to do is asked of the run folders each time, never remembered. Children write their
//! words into logs (not a pipe: it would break under them if this process were killed) and sit in
//! process groups of their own, so that Ctrl-C reaches this process alone and is passed on once.
//!
//! The loop looks a few times a second: processes, folders and signals have no common thing to
//! wait for, and runs take minutes. It ends when nothing is running and nothing is left to start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use scalerl_journal::Status;
use scalerl_study::state;
use scalerl_study::{Job, Plan, Purpose};

use super::gpus::Gpus;
use super::outcome::Study;
use super::race::Race;
use super::show::Show;
use crate::forecast::output::say;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const SEARCH_EVERY: Duration = Duration::from_secs(2);
/// Tables on the way: not more often than this, and not more than a small part of the time.
const REFRESH_EVERY: Duration = Duration::from_mins(1);
const REFRESH_SHARE: u32 = 20;
/// Lines of a log that are shown when its process has failed without saying why.
const LOG_LINES: usize = 3;

/// How the runs have ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Runs that failed, and why.
    pub(crate) failures: BTreeMap<String, String>,
    /// Did someone ask to stop?
    pub(crate) was_stopped: bool,
}

pub(crate) struct Supervisor<'a> {
    study: &'a Study,
    plan: &'a Plan,
    program: PathBuf,
    at_once: usize,
    gpus: Gpus,
    children: Vec<Running>,
    /// Jobs that were started in this session: each is tried once.
    tried: BTreeSet<String>,
    ended: Ended,
    race: Option<Race<'a>>,
    signals: Arc<AtomicUsize>,
    passed_on: usize,
    /// Not before this is work looked for again, unless a run ends.
    search_at: Instant,
    refresh: Refresh,
}

struct Running {
    job: Job,
    process: Child,
    /// Which of the places for runs at the same time it has.
    place: usize,
    /// Was it asked to make room, or to wait for a decision?
    is_pausing: bool,
    /// How far it was allowed to go when it was last seen to be there.
    noticed: f64,
}

/// The thread that makes tables on the way.
struct Refresh {
    thread: Option<(Instant, JoinHandle<()>)>,
    due: Instant,
}

/// What can be done next.
enum Next {
    Start(Box<Job>),
    /// Something is left, or may be, and must wait.
    Wait,
    Nothing,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        study: &'a Study,
        plan: &'a Plan,
        program: PathBuf,
        at_once: usize,
        race: Option<Race<'a>>,
    ) -> Result<Self> {
        let signals = Arc::new(AtomicUsize::new(0));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let count = Arc::clone(&signals);
            // The flag of signal-hook is a number that is set; here every signal must count.
            signal_hook::flag::register_usize(signal, count, signal as usize)
                .context("cannot listen for signals")?;
        }
        let refresh = Refresh { thread: None, due: Instant::now() + REFRESH_EVERY };
        let gpus = Gpus::of_this_machine();
        if gpus.are_taken_in_turns(at_once) {
            say(
                "note: runs that share a GPU take turns unless NVIDIA's MPS is there: nvidia-cuda-mps-control -d",
            );
        }
        Ok(Self {
            study,
            plan,
            program,
            at_once,
            gpus,
            children: Vec::new(),
            tried: BTreeSet::new(),
            ended: Ended::default(),
            race,
            signals,
            passed_on: 0,
            search_at: Instant::now(),
            refresh,
        })
    }

    /// Runs everything that is left.
    pub(crate) fn run(mut self) -> Result<Ended> {
        let mut show = Show::new(self.study, self.plan)?;
        loop {
            self.pass_signals_on();
            self.reap(&mut show)?;
            match self.next_if_due()? {
                Next::Start(job) => self.start(*job, &mut show)?,
                Next::Nothing if self.children.is_empty() => break,
                Next::Nothing | Next::Wait => {
                    show.look(self.children.iter().map(|running| running.job.name.as_str()))?;
                    self.refresh.look(self.study);
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        }
        show.finish();
        self.refresh.join();
        Ok(self.ended)
    }

    /// The first signal asks the children to save and end; each further one is passed on as well.
    fn pass_signals_on(&mut self) {
        let signal = self.signals.swap(0, Ordering::SeqCst);
        if signal == 0 {
            return;
        }
        self.ended.was_stopped = true;
        self.passed_on += 1;
        if self.passed_on == 1 && !self.children.is_empty() {
            say("stopping: runs finish their step and save");
        }
        let is_interrupt = signal == signal_hook::consts::SIGINT as usize;
        let signal = if is_interrupt { Signal::INT } else { Signal::TERM };
        // A run that the race has asked already would take a second signal for impatience.
        let is_first = self.passed_on == 1;
        for running in self.children.iter().filter(|one| !(is_first && one.is_pausing)) {
            running.send(signal);
        }
    }

    /// Has a run just come as far as it may? That is looked for more often than work is.
    fn is_someone_there(&mut self) -> Result<bool> {
        let Some(race) = &self.race else { return Ok(false) };
        for running in &mut self.children {
            let until = race.until(&running.job);
            if running.noticed < until && race.is_there(&running.job)? {
                running.noticed = until;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Decides what can be decided, and asks runs to stop that have come as far as they may.
    fn race(&mut self) -> Result<()> {
        let Some(race) = &mut self.race else { return Ok(()) };
        race.look(&self.ended.failures)?;
        let has_place = self.children.len() < self.at_once;
        let others_wait = !has_place && matches!(self.next()?, Next::Start(_));
        let Some(race) = &self.race else { return Ok(()) };
        for running in self.children.iter_mut().filter(|running| !running.is_pausing) {
            if race.is_to_pause(&running.job, others_wait)? {
                running.is_pausing = true;
                running.send(Signal::INT);
                // One place is enough for the one that waits.
                if others_wait {
                    break;
                }
            }
        }
        Ok(())
    }

    fn reap(&mut self, show: &mut Show<'_>) -> Result<()> {
        let mut index = 0;
        while index < self.children.len() {
            let Some(exit) = self.children[index].process.try_wait()? else {
                index += 1;
                continue;
            };
            let Running { job, is_pausing, .. } = self.children.remove(index);
            let folder = self.study.runs().join(&job.name);
            let glance = state::glance(&folder, job.budget)?;
            let reason = match glance.status {
                Some(status) if status.is_finished() => None,
                // Another study of this folder was faster: its work counts.
                _ if state::is_being_written(&folder) => {
                    self.tried.remove(&job.name);
                    None
                }
                Some(Status::Failed { error }) => Some(error),
                _ if self.ended.was_stopped => None,
                Some(Status::Stopped { .. }) if is_pausing => {
                    self.tried.remove(&job.name);
                    None
                }
                Some(Status::Stopped { .. }) => Some("was stopped by somebody else".to_owned()),
                Some(Status::Open) | None => Some(format!("{exit}: {}", self.last_words(&job))),
            };
            show.ended(&job.name, reason.as_deref());
            if let Some(reason) = reason {
                self.ended.failures.insert(job.name, reason);
            }
            self.refresh.due = Instant::now();
            self.search_at = Instant::now();
        }
        Ok(())
    }

    fn last_words(&self, job: &Job) -> String {
        let path = self.study.log(&job.name);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        if last.is_empty() { format!("see {}", path.display()) } else { last.join(" | ") }
    }

    /// Looks for work when there is a place for it, and not more often than folders can be read.
    fn next_if_due(&mut self) -> Result<Next> {
        if self.ended.was_stopped {
            return Ok(Next::Nothing);
        }
        if Instant::now() < self.search_at && !self.is_someone_there()? {
            return Ok(Next::Wait);
        }
        self.race()?;
        let next = if self.children.len() < self.at_once { self.next()? } else { Next::Wait };
        if !matches!(next, Next::Start(_)) {
            self.search_at = Instant::now() + SEARCH_EVERY;
        }
        Ok(next)
    }

    /// The first job that has not ended and can be started now.
    fn next(&self) -> Result<Next> {
        let (mut is_left, mut found) = (false, None);
        'search: for variant in &self.plan.variants {
            let is_tuning = self.children.iter().any(|running| {
                running.job.variant == variant.name && running.job.purpose != Purpose::Run
            });
            for job in self.study.open_jobs(variant)? {
                if self.tried.contains(&job.name) || is_tuning && job.purpose == Purpose::Run {
                    continue;
                }
                if let Some(race) = &self.race
                    && !race.may_run(&job)?
                {
                    continue;
                }
                if state::is_being_written(&self.study.runs().join(&job.name)) {
                    // A process of an earlier session that outlived it: its work counts.
                    is_left = true;
                    continue;
                }
                found = Some(job);
                break 'search;
            }
        }
        Ok(match found {
            Some(job) => Next::Start(Box::new(job)),
            None if is_left => Next::Wait,
            None => Next::Nothing,
        })
    }

    fn start(&mut self, job: Job, show: &mut Show<'_>) -> Result<()> {
        let folder = self.study.runs().join(&job.name);
        let recipe = self.study.write_recipe(&job)?;
        let mut command = Command::new(&self.program);
        command.arg("train");
        let is_new = state::glance(&folder, job.budget)?.status.is_none();
        if is_new {
            command.arg(&recipe).arg("--run").arg(&folder);
        } else {
            command.arg("--resume").arg(&folder);
        }
        let path = self.study.log(&job.name);
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("cannot write {}", path.display()))?;
        let is_free = |place: &usize| self.children.iter().all(|other| other.place != *place);
        let place = (0..self.at_once).find(is_free).unwrap_or_default();
        command.envs(self.gpus.for_place(place, self.at_once));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let process =
            command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        show.started(&job.name, is_new);
        self.tried.insert(job.name.clone());
        self.children.push(Running { job, process, place, is_pausing: false, noticed: 0.0 });
        Ok(())
    }
}

impl Running {
    fn send(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        // A child that has just ended needs no signal.
        let _ = id.map(|id| kill_process(id, signal));
    }
}

impl Refresh {
    /// Makes the tables in a thread of its own when it is time, so that signals do not wait.
    fn look(&mut self, study: &Study) {
        if let Some((start, thread)) = self.thread.take() {
            if !thread.is_finished() {
                self.thread = Some((start, thread));
                return;
            }
            let pause = (start.elapsed() * REFRESH_SHARE).max(REFRESH_EVERY);
            self.due = self.due.max(start + pause);
            // A panic in it shows up again in the last refresh, which is made in this thread.
            let _ = thread.join();
        }
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + REFRESH_EVERY;
        let study = study.clone();
        let work = move || {
            if let Err(error) = study.refresh() {
                say(&format!("no table this time: {error:#}"));
            }
        };
        self.thread = Some((Instant::now(), std::thread::spawn(work)));
    }

    fn join(&mut self) {
        if let Some((_, thread)) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
