//! The processes that a run has started on its own machine, and starts again when they die.
//!
//! A generator that ends is started again after a pause that doubles with every quick death. A
//! trainer rank is not: with it went a part of the optimizer, and the trainer says so itself. All end
//! with their owner, even where that is killed.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use scalerl_worker::ranks::{Launch, TOKEN};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

/// The process that a process ends with.
const OWNER: &str = "SCALERL_OWNER";
/// Before the first new start.
const PAUSE: Duration = Duration::from_secs(1);
/// Before any new start.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// A process that lived so long did not die of its start.
const LONG: Duration = Duration::from_mins(1);
/// Requests to end that come so close together are one.
const IN_A_ROW: Duration = Duration::from_secs(1);
/// For generators to go home when a run is over.
const LEAVE: Duration = Duration::from_secs(5);

/// What has become of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Ended { name: String, reason: String },
    Restarted { name: String, pid: u32 },
}

struct Generator {
    name: String,
    /// `None` between its death and its next start.
    child: Option<Child>,
    started: Instant,
    pause: Duration,
}

/// How to start a generator: its arguments but for its name, and variables.
struct Start {
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

/// Started processes; dropping it ends them.
#[derive(Default)]
pub(crate) struct Processes {
    ranks: Vec<Child>,
    generators: Vec<Generator>,
    start: Option<Start>,
}

fn program() -> Result<Command> {
    let mut command = Command::new(crate::launcher::program().context("where is this program?")?);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.env(OWNER, std::process::id().to_string());
    Ok(command)
}

/// Lets the first request to end this process pass: it is meant for all of a run, whose first
/// process then stops in order and tells the others. A later one ends it. Requests in a row are one:
/// a launcher that is killed sends one with each of its threads.
pub(crate) fn leave_signals_to_leader() -> Result<()> {
    let is_later = Arc::new(AtomicBool::new(false));
    let (mut asked, ask) = UnixStream::pair().context("cannot listen to signals")?;
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, is_later.clone())
            .and_then(|_| ask.try_clone())
            .and_then(|ask| pipe::register(signal, ask))
            .context("cannot listen to signals")?;
    }
    let arm = move || {
        if asked.read_exact(&mut [0]).is_ok() {
            std::thread::sleep(IN_A_ROW);
            is_later.store(true, Ordering::SeqCst);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(arm)?;
    Ok(())
}

/// Asks this process to end when a launcher that should have told it so is gone.
pub(crate) fn stop_with_launcher() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow the launcher")
}

/// Ends this process with the one that has started it for its run, however that ends.
pub(crate) fn end_with_owner() -> Result<()> {
    let Some(owner) = std::env::var_os(OWNER) else { return Ok(()) };
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the owner")?;
    // It may have ended before.
    let parent = getppid().map(Pid::as_raw_pid).unwrap_or_default().to_string();
    ensure!(owner.to_str() == Some(parent.as_str()), "the process that started this one is gone");
    leave_signals_to_leader()
}

/// CPU threads of each of so many processes on this machine.
pub(crate) fn threads_each(processes: usize) -> usize {
    (crate::train::environment::threads() / processes.max(1)).max(1)
}

impl Processes {
    /// Starts ranks 1 and up of `launch` on the run in a folder.
    pub(crate) fn start_ranks(
        &mut self,
        launch: &Launch,
        run: &Path,
        device: &str,
        threads: usize,
    ) -> Result<()> {
        for rank in 1..launch.world {
            let mut command = program()?;
            command.args(["train", "--device", device, "--resume"]).arg(run);
            command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
            command.env("WORLD_SIZE", launch.world.to_string());
            command.env("MASTER_ADDR", &launch.address);
            command.env("MASTER_PORT", launch.port.to_string());
            command.env("OMP_NUM_THREADS", threads.to_string());
            command.envs(launch.token.as_ref().map(|token| (TOKEN, token.secret())));
            let started = command.spawn();
            self.ranks.push(started.with_context(|| format!("cannot start trainer rank {rank}"))?);
        }
        Ok(())
    }

    /// Starts generators with these arguments, each with `--as NAME` and a device of its own.
    pub(crate) fn start_generators(
        &mut self,
        count: u32,
        arguments: Vec<String>,
        variables: Vec<(String, String)>,
    ) -> Result<()> {
        self.start = Some(Start { arguments, variables });
        for index in 0..count {
            let name = format!("generator-{index}");
            let child = Some(self.start(index as usize, &name)?);
            self.generators.push(Generator { name, child, started: Instant::now(), pause: PAUSE });
        }
        Ok(())
    }

    fn start(&self, index: usize, name: &str) -> Result<Child> {
        let Start { arguments, variables } = self.start.as_ref().context("nothing to start")?;
        let local_rank = (1 + self.ranks.len() + index).to_string();
        let mut command = program()?;
        command.args(arguments).args(["--as", name, "--local-rank", &local_rank]);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.spawn().with_context(|| format!("cannot start {name}"))
    }

    /// What has happened since the last call; starts again what has died.
    pub(crate) fn look(&mut self) -> Vec<Fate> {
        let mut fates = Vec::new();
        for index in 0..self.generators.len() {
            let generator = &mut self.generators[index];
            let status = generator.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = status {
                generator.child = None;
                let lived = generator.started.elapsed();
                generator.pause =
                    if lived >= LONG { PAUSE } else { (2 * generator.pause).min(LONGEST_PAUSE) };
                generator.started = Instant::now();
                let (name, reason) = (generator.name.clone(), ending(status));
                fates.push(Fate::Ended { name, reason });
            }
            if generator.child.is_none() && generator.started.elapsed() >= generator.pause / 2 {
                let name = generator.name.clone();
                let child = self.start(index, &name);
                let generator = &mut self.generators[index];
                generator.started = Instant::now();
                // Where that fails it is tried again after the pause.
                if let Ok(child) = child {
                    let pid = child.id();
                    generator.child = Some(child);
                    fates.push(Fate::Restarted { name, pid });
                }
            }
        }
        fates
    }

    /// The first trainer rank, from 1, that has ended, and how.
    pub(crate) fn dead_rank(&mut self) -> Option<(usize, String)> {
        let ended = |(index, child): (usize, &mut Child)| {
            let status = child.try_wait().ok().flatten()?;
            Some((index + 1, ending(status)))
        };
        self.ranks.iter_mut().enumerate().find_map(ended)
    }

    /// Lets processes go home before they are sent.
    pub(crate) fn leave(&mut self) {
        let until = Instant::now() + LEAVE;
        let generators = self.generators.iter_mut().filter_map(|one| one.child.as_mut());
        for child in generators.chain(&mut self.ranks) {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// How a process ended, in words.
fn ending(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("its process ended with code {code}"),
        (None, Some(signal)) => format!("its process was ended by signal {signal}"),
        (None, None) => "its process ended".to_owned(),
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let generators = self.generators.iter_mut().filter_map(|one| one.child.as_mut());
        for child in generators.chain(&mut self.ranks) {
            // Both fail where it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
