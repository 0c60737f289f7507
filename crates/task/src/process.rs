//! Runs child processes that must end: bounded in time and in what they may print.
//!
//! A child gets a process group of its own, and the whole group is killed when it overstays or
//! floods. Output beyond the bound is not read. Input goes in from a thread, so a child that does
//! not read cannot block us.
//!
//! Not here: how a child is started, and that it inherits nothing (`spawn.rs`).

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::spawn::{Child, Spawn};

/// How a child came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited,
    /// It did not say in time that it has begun.
    NotStarted,
    OutOfTime,
    OutOfMemory,
    TooMuchOutput,
    /// Nobody needed it any longer.
    Dismissed,
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// The line on standard error by which a child says that it has begun; its time counts from there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) mark: &'static [u8],
    pub(crate) within: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) time: Duration,
    pub(crate) output_bytes: usize,
    /// Without it the time counts from the beginning.
    pub(crate) start: Option<Start>,
}

/// Where a child's input comes from and its output goes. Standard error is always collected.
#[derive(Debug)]
pub(crate) enum Streams<'a> {
    /// These bytes in, and output collected.
    Collected(&'a [u8]),
    /// To another child.
    Connected { stdin: OwnedFd, stdout: OwnedFd },
}

/// Runs a program to its end, however it comes.
pub(crate) fn run(program: &Spawn, input: &[u8], bounds: Bounds) -> io::Result<Finished> {
    let mut running = Running::start(program, Streams::Collected(input), bounds)?;
    until(|| running.poll())?;
    running.finish()
}

/// Asks again and again, ever less often, until it is so.
pub(crate) fn until(mut is_over: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let mut pause = Duration::from_millis(1);
    while !is_over()? {
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    Ok(())
}

/// A child that is being watched. Dropped, it is killed with its group.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    stdout: Option<Collected>,
    stderr: Collected,
    bounds: Bounds,
    /// When it must have begun, or ended.
    deadline: Instant,
    has_started: bool,
    end: Option<(Ending, ExitStatus)>,
}

impl Running {
    /// Starts a program and the threads that read what it says.
    pub(crate) fn start(program: &Spawn, streams: Streams<'_>, bounds: Bounds) -> io::Result<Self> {
        let (errors, stderr) = io::pipe()?;
        let mut output = None;
        let (stdin, stdout) = match streams {
            Streams::Collected(input) => {
                let (stdin, to_child) = io::pipe()?;
                let (from_child, stdout) = io::pipe()?;
                output = Some(from_child);
                feed(to_child, input);
                (stdin.into(), stdout.into())
            }
            Streams::Connected { stdin, stdout } => (stdin, stdout),
        };
        let child = program.start([stdin, stdout, stderr.into()])?;
        let stdout = output.map(|stream| Collected::read(stream, bounds.output_bytes));
        let stderr = Collected::read(errors, bounds.output_bytes);
        let first = bounds.start.map_or(bounds.time, |start| start.within);
        Ok(Self {
            child,
            stdout,
            stderr,
            bounds,
            deadline: Instant::now() + first,
            has_started: bounds.start.is_none(),
            end: None,
        })
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it had said so when it was last looked at.
    pub(crate) fn has_started(&self) -> bool {
        self.has_started
    }

    /// Whether it has ended, by itself or because it broke a bound just now.
    pub(crate) fn poll(&mut self) -> io::Result<bool> {
        if self.end.is_some() {
            return Ok(true);
        }
        if self.child.has_exited()? {
            self.stop(Ending::Exited)?;
            return Ok(true);
        }
        self.notice_start();
        if self.is_flooding() {
            self.stop(Ending::TooMuchOutput)?;
        } else if Instant::now() >= self.deadline {
            self.stop(if self.has_started { Ending::OutOfTime } else { Ending::NotStarted })?;
        }
        Ok(self.end.is_some())
    }

    /// Kills it with its group, unless that is done.
    pub(crate) fn stop(&mut self, ending: Ending) -> io::Result<()> {
        if self.end.is_none() {
            self.end = Some((ending, self.child.end()?));
        }
        Ok(())
    }

    /// What is left of it; kills it where it still runs.
    pub(crate) fn finish(mut self) -> io::Result<Finished> {
        self.stop(Ending::Dismissed)?;
        let stdout = self.stdout.as_ref().map(Collected::bytes).unwrap_or_default();
        let is_over = self.is_flooding();
        let stderr = self.stderr.bytes();
        let is_started = self.bounds.start.is_none_or(|start| contains(&stderr, start.mark));
        let Some((ending, status)) = self.end else {
            return Err(io::Error::other("a stopped child has no end"));
        };
        let ending = match ending {
            Ending::Exited if is_over => Ending::TooMuchOutput,
            Ending::Exited | Ending::Dismissed if !is_started => Ending::NotStarted,
            other => other,
        };
        Ok(Finished { ending, status, stdout, stderr })
    }

    fn notice_start(&mut self) {
        if let Some(start) = self.bounds.start
            && !self.has_started
            && contains(&self.stderr.stream().bytes, start.mark)
        {
            self.has_started = true;
            self.deadline = Instant::now() + self.bounds.time;
        }
    }

    fn is_flooding(&self) -> bool {
        self.stderr.is_over() || self.stdout.as_ref().is_some_and(Collected::is_over)
    }
}

fn feed(mut stdin: impl Write + Send + 'static, input: &[u8]) {
    let input = input.to_owned();
    // Ends when the child reads all or goes away; a broken pipe is the child's business.
    thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
}

/// How long a stream may stay open after the child's end: a grandchild that left the group may
/// hold it for ever.
const PATIENCE: Duration = Duration::from_millis(500);

/// What a reader thread has read so far of one stream.
#[derive(Debug, Clone, Default)]
struct Collected(Arc<(Mutex<Stream>, Condvar)>);

#[derive(Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    is_over: bool,
    is_done: bool,
}

impl Collected {
    fn read(mut stream: impl Read + Send + 'static, limit: usize) -> Self {
        let collected = Self::default();
        let writer = collected.clone();
        // Ends with the stream, or at the limit.
        thread::spawn(move || {
            writer.fill(&mut stream, limit);
            writer.stream().is_done = true;
            writer.0.1.notify_all();
        });
        collected
    }

    fn fill(&self, stream: &mut impl Read, limit: usize) {
        let mut part = [0; 8192];
        // An error ends the stream like its end does.
        while let Ok(length @ 1..) = stream.read(&mut part) {
            let mut so_far = self.stream();
            so_far.bytes.extend_from_slice(&part[..length]);
            if so_far.bytes.len() > limit {
                so_far.bytes.truncate(limit);
                so_far.is_over = true;
                return;
            }
        }
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.stream().is_over
    }

    /// All of it, after the child's end.
    fn bytes(&self) -> Vec<u8> {
        let waiting = self.0.1.wait_timeout_while(self.stream(), PATIENCE, |s| !s.is_done);
        let mut stream = waiting.unwrap_or_else(PoisonError::into_inner).0;
        std::mem::take(&mut stream.bytes)
    }
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|part| part == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, bounds: Bounds) -> Finished {
        run(Spawn::new("sh").args(["-c", script]), b"input", bounds).unwrap()
    }

    const SHORT: Bounds =
        Bounds { time: Duration::from_millis(400), output_bytes: 10_000, start: None };

    #[test]
    fn input_goes_in_and_output_comes_back() {
        let finished = shell("cat; echo problem >&2; exit 3", SHORT);
        assert_eq!(finished.stdout, b"input");
        assert_eq!(finished.stderr, b"problem\n");
        assert_eq!((finished.ending, finished.status.code()), (Ending::Exited, Some(3)));
    }

    #[test]
    fn a_child_that_overstays_is_killed_with_its_children() {
        let start = Instant::now();
        let finished = shell("sleep 30 & sleep 30", SHORT);
        assert_eq!(finished.ending, Ending::OutOfTime);
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn what_a_child_leaves_running_is_killed_with_it() {
        let finished = shell("sleep 30 >&2 & echo $!", SHORT);
        let left: i32 = String::from_utf8(finished.stdout).unwrap().trim().parse().unwrap();
        let is_running = || {
            let state = std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z")
        };
        // Killed already; the kernel may need a moment to take it away.
        let deadline = Instant::now() + Duration::from_secs(5);
        until(|| Ok(!is_running() || Instant::now() > deadline)).unwrap();
        assert!(!is_running(), "{left} runs on");
    }

    #[test]
    fn a_flood_is_cut_off() {
        let bounds = Bounds { time: Duration::from_secs(20), ..SHORT };
        let start = Instant::now();
        let finished = shell("yes flood", bounds);
        assert_eq!(finished.ending, Ending::TooMuchOutput);
        assert_eq!(finished.stdout.len(), 10_000);
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn time_counts_from_the_mark_and_a_child_without_one_has_not_started() {
        let start = Start { mark: b"begun", within: Duration::from_millis(400) };
        let bounds = Bounds { start: Some(start), ..SHORT };
        assert_eq!(shell("sleep 30", bounds).ending, Ending::NotStarted);
        assert_eq!(shell("exit 1", bounds).ending, Ending::NotStarted);
        assert_eq!(shell("echo begun >&2; sleep 30", bounds).ending, Ending::OutOfTime);
        let patient = Start { within: Duration::from_secs(20), ..start };
        let bounds = Bounds { start: Some(patient), ..SHORT };
        let late = shell("sleep 0.5; echo begun >&2", bounds);
        assert_eq!(late.ending, Ending::Exited, "0.5 s of starting are not 0.4 s of running");
    }
}
