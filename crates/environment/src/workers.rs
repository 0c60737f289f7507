//! Kept-alive worker processes that are spoken to in JSON lines, one object each way.
//!
//! A worker answers in the order it was asked. One that does not answer in time, or ends, is killed
//! with its whole process group and started again; whoever waited for it is told why. What a worker
//! prints goes into a file, never into the conversation: its own standard output is kept apart by the
//! script it runs.
//!
//! Not here: a worker that is asked many things at once (`shared_worker.rs`).

use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustix::process::Pid;
use scalerl_rollout::{EnvironmentError, Restart};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

/// Longest answer of a worker.
const LONGEST_LINE: usize = 64 << 20;

/// How a worker is started.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) command: Vec<String>,
    /// What it writes to standard error, and user code to standard output.
    pub(crate) log: PathBuf,
    /// Where it is written down that a worker ended before its time.
    pub(crate) restarts: Restarts,
}

/// Workers that ended before their time, of all drivers; [`Restarts::of`] names the data set.
#[derive(Debug, Clone, Default)]
pub(crate) struct Restarts {
    dataset: String,
    since: Arc<std::sync::Mutex<Vec<Restart>>>,
}

impl Restarts {
    pub(crate) fn of(&self, dataset: &str) -> Self {
        Self { dataset: dataset.to_owned(), since: self.since.clone() }
    }

    pub(crate) fn add(&self, reason: &str) {
        let restart = Restart { dataset: self.dataset.clone(), reason: reason.to_owned() };
        self.since.lock().unwrap_or_else(PoisonError::into_inner).push(restart);
    }

    /// Those since this was last asked.
    pub(crate) fn take(&self) -> Vec<Restart> {
        std::mem::take(&mut self.since.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Program {
    /// Starts a worker of its own for one question and waits for the answer: for what must be known
    /// before a run.
    pub(crate) fn ask_once(&self, question: &Value, limit: Duration) -> Result<Value, String> {
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| error.to_string())?;
            let worker = Worker::new(Arc::new(self.clone()));
            let answer = runtime.block_on(worker.ask(question, None, limit));
            answer.map(|answer| answer.value).map_err(|error| error.reason)
        };
        // A thread of its own: the caller may stand on a runtime already.
        std::thread::scope(|scope| {
            scope.spawn(ask).join().unwrap_or_else(|_| Err("asking it panicked".to_owned()))
        })
    }

    pub(crate) fn start(&self) -> Result<Process, EnvironmentError> {
        let Self { command, log, .. } = self;
        let failed =
            |what: &str, error: &io::Error| EnvironmentError::new(format!("{what}: {error}"));
        let errors = log_file(log).map_err(|error| failed(&log.display().to_string(), &error))?;
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&format!("cannot start {}", command[0]), &error))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            return Err(EnvironmentError::new("a worker without pipes"));
        };
        let life = next_life();
        Ok(Process { running: Running(child), input, output: BufReader::new(output), life })
    }

    /// The end of what it wrote, for an error.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
        let lines: Vec<&str> = tail.lines().rev().take(3).collect();
        let last: Vec<&str> = lines.into_iter().rev().collect();
        if last.is_empty() {
            String::new()
        } else {
            format!(" (its log ends: {})", last.join(" | "))
        }
    }
}

/// One worker; started when it is first asked.
pub(crate) struct Worker {
    program: Arc<Program>,
    slot: Slot,
}

/// The process, where it runs. Held over a question and its answer: one at a time.
type Slot = Arc<Mutex<Option<Process>>>;

/// A worker that runs.
pub(crate) struct Process {
    pub(crate) running: Running,
    pub(crate) input: ChildStdin,
    pub(crate) output: BufReader<ChildStdout>,
    /// Which life of the worker this is.
    life: u64,
}

/// Ends, with all that it has started, with its owner.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Kills it with its group.
    pub(crate) fn end(&self) {
        let id = self.0.id().and_then(|id| i32::try_from(id).ok());
        end_group(id.and_then(Pid::from_raw));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Kills the group that a process leads. A process that was reaped has no number any more, so nobody
/// else's group is hit.
pub(crate) fn end_group(leader: Option<Pid>) {
    if let Some(leader) = leader {
        rustix::process::kill_process_group(leader, rustix::process::Signal::KILL).ok();
    }
}

/// An answer and the life of the worker that gave it. Sessions do not survive a worker.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) life: u64,
}

impl Worker {
    pub(crate) fn new(program: Arc<Program>) -> Self {
        Self { program, slot: Arc::default() }
    }

    /// Asks the worker; in its `life` where that matters. Dropping the future gives up the answer and
    /// nothing else: the worker holds more than one asker's sessions.
    pub(crate) async fn ask(
        &self,
        question: &Value,
        life: Option<u64>,
        limit: Duration,
    ) -> Result<Answer, EnvironmentError> {
        let mut slot = self.slot.clone().lock_owned().await;
        if life.is_some() && slot.as_ref().map(|process| process.life) != life {
            return Err(EnvironmentError::new("its worker ended in the middle of the episode"));
        }
        if slot.is_none() {
            *slot = Some(self.program.start()?);
        }
        // Ends with the answer, or after `limit`.
        let asked = tokio::spawn(exchange(slot, self.program.clone(), question.clone(), limit));
        asked.await.unwrap_or_else(|error| Err(EnvironmentError::new(error)))
    }

    /// Tells a worker that runs something whose answer nobody waits for.
    pub(crate) fn tell(&self, question: Value, limit: Duration) {
        let (slot, program) = (self.slot.clone(), self.program.clone());
        // Without a runtime the worker is at its end as well.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let slot = slot.lock_owned().await;
            if slot.is_some() {
                exchange(slot, program, question, limit).await.ok();
            }
        });
    }
}

/// A question and its answer. A worker that does not answer, or in time, is ended.
async fn exchange(
    mut slot: OwnedMutexGuard<Option<Process>>,
    program: Arc<Program>,
    question: Value,
    limit: Duration,
) -> Result<Answer, EnvironmentError> {
    // Taken out while it is asked: whatever ends this early must not leave an answer behind that would
    // come to the next question.
    let Some(mut process) = slot.take() else {
        return Err(EnvironmentError::new("its worker ended"));
    };
    let answer = match timeout(limit, process.exchange(&question)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("no answer within {} s; its worker was ended", limit.as_secs_f64())),
    };
    match answer {
        Ok(value) => {
            let life = process.life;
            *slot = Some(process);
            Ok(Answer { value, life })
        }
        Err(reason) => {
            let reason = format!("{reason}{}", program.last_words());
            program.restarts.add(&reason);
            Err(EnvironmentError::new(reason))
        }
    }
}

fn log_file(path: &PathBuf) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// Counts lives over all workers.
fn next_life() -> u64 {
    static LIVES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    LIVES.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

impl Process {
    async fn exchange(&mut self, question: &Value) -> Result<Value, String> {
        let ended = |error: io::Error| format!("its worker ended: {error}");
        let mut line = question.to_string();
        line.push('\n');
        self.input.write_all(line.as_bytes()).await.map_err(ended)?;
        self.input.flush().await.map_err(ended)?;
        match next_line(&mut self.output).await.map_err(ended)? {
            Some(answer) => understood(&answer),
            None => Err(format!(
                "its worker ended with {}",
                self.running.0.wait().await.map_err(ended)?
            )),
        }
    }
}

/// The next line, or `None` at the end.
pub(crate) async fn next_line(output: &mut BufReader<ChildStdout>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let part = output.fill_buf().await?;
        if part.is_empty() {
            return Ok(None);
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(part.len(), |end| end + 1);
        line.extend_from_slice(&part[..taken]);
        output.consume(taken);
        if line.len() > LONGEST_LINE {
            return Err(io::Error::other(format!("an answer of more than {LONGEST_LINE} bytes")));
        }
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

/// An answer as JSON.
pub(crate) fn understood(answer: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(answer).map_err(|error| format!("its worker's answer: {error}"))
}
