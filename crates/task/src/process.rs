//! Runs a child process that must end: bounded in time and in what it may print.
//!
//! The child gets a process group of its own, and the whole group is killed when it overstays or
//! floods. Output beyond the bound is not read. Input goes in from a thread, so a child that does
//! not read cannot block us.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How a child came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited,
    OutOfTime,
    TooMuchOutput,
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) ending: Ending,
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) time: Duration,
    pub(crate) output_bytes: usize,
}

/// Runs `command` to its end, however it comes.
pub(crate) fn run(command: &mut Command, input: &[u8], bounds: Bounds) -> io::Result<Finished> {
    let deadline = Instant::now() + bounds.time;
    let mut child = command
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    feed(&mut child, input);
    let stdout = collect(child.stdout.take(), bounds.output_bytes);
    let stderr = collect(child.stderr.take(), bounds.output_bytes);
    let (ending, status) = wait(&mut child, deadline, [&stdout, &stderr])?;
    Ok(Finished { ending, status, stdout: stdout.bytes(), stderr: stderr.bytes() })
}

fn feed(child: &mut Child, input: &[u8]) {
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_owned();
        // Ends when the child reads all or goes away; a broken pipe is the child's business.
        thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
    }
}

/// What a reader thread has to say: its bytes, and whether there were more.
struct Collected {
    done: Receiver<(Vec<u8>, bool)>,
    result: std::cell::RefCell<Option<(Vec<u8>, bool)>>,
}

impl Collected {
    fn poll(&self) {
        if self.result.borrow().is_none()
            && let Ok(result) = self.done.try_recv()
        {
            *self.result.borrow_mut() = Some(result);
        }
    }

    fn overflowed(&self) -> bool {
        self.poll();
        matches!(&*self.result.borrow(), Some((_, true)))
    }

    /// After the child's end. A grandchild may still hold the pipe: it is not waited for long.
    fn bytes(self) -> Vec<u8> {
        self.poll();
        match self.result.into_inner() {
            Some((bytes, _)) => bytes,
            None => self.done.recv_timeout(Duration::from_millis(500)).map_or(Vec::new(), |r| r.0),
        }
    }
}

fn collect(stream: Option<impl Read + Send + 'static>, limit: usize) -> Collected {
    let (sender, done) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(stream) = stream {
            let mut bounded = stream.take(limit as u64 + 1);
            // An error ends the stream like its end does.
            let _ = bounded.read_to_end(&mut bytes);
        }
        let is_over = bytes.len() > limit;
        bytes.truncate(limit);
        let _ = sender.send((bytes, is_over));
    });
    Collected { done, result: std::cell::RefCell::new(None) }
}

fn wait(
    child: &mut Child,
    deadline: Instant,
    outputs: [&Collected; 2],
) -> io::Result<(Ending, ExitStatus)> {
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            // What the child left running goes with it.
            kill_group(child);
            let over = outputs.iter().any(|output| output.overflowed());
            return Ok((if over { Ending::TooMuchOutput } else { Ending::Exited }, status));
        }
        let ending = if outputs.iter().any(|output| output.overflowed()) {
            Some(Ending::TooMuchOutput)
        } else if Instant::now() >= deadline {
            Some(Ending::OutOfTime)
        } else {
            None
        };
        if let Some(ending) = ending {
            kill_group(child);
            let _ = child.kill();
            return Ok((ending, child.wait()?));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills the child's process group; that it is gone already is fine.
pub(crate) fn kill_group(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, bounds: Bounds) -> Finished {
        run(Command::new("sh").args(["-c", script]), b"input", bounds).unwrap()
    }

    const SHORT: Bounds = Bounds { time: Duration::from_millis(400), output_bytes: 10_000 };

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
    fn a_flood_is_cut_off() {
        let bounds = Bounds { time: Duration::from_secs(20), ..SHORT };
        let start = Instant::now();
        let finished = shell("yes flood", bounds);
        assert_eq!(finished.ending, Ending::TooMuchOutput);
        assert_eq!(finished.stdout.len(), 10_000);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
