//! One kept-alive process: JSON lines in and out, what it prints on standard error into the log.
//!
//! Threads write and read for us, so a process that does not read, or says half a line, cannot block
//! anybody. That it has gone is noticed by its end and not only by the end of its output, which a child
//! of its own may hold open.
//!
//! Not here: who asks it, and what becomes of it afterwards (`mod.rs`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{PoolOptions, StartError};
use crate::spawn::{Child, Spawn};

/// Most bytes of one reply.
const MOST_REPLY: u64 = 16 << 20;
/// Most bytes of one printed line that are kept together.
const MOST_LINE: u64 = 64 << 10;
/// Bytes of what it printed last that are told when it ends.
const TAIL: usize = 600;
/// How often its life is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(50);
/// For a process whose output has ended to end itself, and for its last words to arrive.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// Dropped, it is killed with its group.
pub(super) struct Process {
    name: String,
    child: Child,
    /// To a writer thread, which ends with the process or with this sender.
    requests: Sender<String>,
    /// From a reader thread, which ends with the process or with a reply that is too long.
    replies: Receiver<String>,
    printed: Printed,
    /// Completions it takes in one call; `None`: one, as a bare object.
    pub(super) most_per_call: Option<usize>,
}

impl Process {
    /// Starts one and waits for what it says when it is ready, if that is agreed.
    pub(super) fn start(options: &PoolOptions, who: &str) -> Result<(Self, Value), StartError> {
        let mut process = Self::spawn(options, who).map_err(|error| {
            StartError::new(format!("{} cannot be started: {error}", options.command[0]))
        })?;
        let Some(within) = options.start else { return Ok((process, Value::Null)) };
        let setup = options.setup.clone().unwrap_or_default();
        let line = process.ask(setup, within, &|| false).map_err(StartError::new)?;
        let hello: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(refusal) = hello.get("refused") {
            let text = |key: &str| refusal[key].as_str().unwrap_or_default().to_owned();
            return Err(StartError { key: Some(text("key")), problem: text("problem") });
        }
        if hello.get("ready").is_none() {
            let (name, program) = (&process.name, &options.command[0]);
            let problem =
                format!("{name} did not say that it is ready: is {program} an interpreter?");
            return Err(StartError::new(problem));
        }
        process.most_per_call = hello["most_per_call"].as_u64().map(|most| most.max(1) as usize);
        Ok((process, hello))
    }

    fn spawn(options: &PoolOptions, who: &str) -> io::Result<Self> {
        let (stdin, input) = io::pipe()?;
        let (output, stdout) = io::pipe()?;
        let mut program = Spawn::new(&options.command[0]);
        program.args(&options.command[1..]);
        let (stderr, printed) = match &options.log {
            None => (File::options().write(true).open("/dev/null")?.into(), None),
            Some(log) => {
                let (errors, stderr) = io::pipe()?;
                (stderr.into(), Some((errors, log.clone())))
            }
        };
        let child = program.start([stdin.into(), stdout.into(), stderr])?;
        let who = who.to_owned();
        let printed = match printed {
            None => Printed::default(),
            Some((errors, log)) => Printed::read(errors, move |line| log.line(&who, line)),
        };
        let (requests, replies) = (writer(input), reader(output));
        let name = options.name.clone();
        Ok(Self { name, child, requests, replies, printed, most_per_call: None })
    }

    /// Whether it has gone while nobody asked it anything.
    pub(super) fn has_exited(&self) -> bool {
        self.child.has_exited().unwrap_or(true)
    }

    /// One line in, where there is one, and one out. After an error it must not be asked again.
    pub(super) fn ask(
        &mut self,
        line: String,
        time: Duration,
        is_given_up: &dyn Fn() -> bool,
    ) -> Result<String, String> {
        if !line.is_empty() && self.requests.send(line).is_err() {
            return Err(self.ended());
        }
        let deadline = Instant::now() + time;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.replies.recv_timeout(left.min(LOOK)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                // It may have said it before it went.
                Err(RecvTimeoutError::Timeout) if self.has_exited() => {
                    return self.replies.recv_timeout(LAST_WORDS).map_err(|_| self.ended());
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    let (name, seconds) = (&self.name, time.as_secs_f64());
                    return Err(format!("{name} gave no answer within {seconds} s"));
                }
                Err(RecvTimeoutError::Timeout) if is_given_up() => {
                    return Err(format!("{} is no longer needed", self.name));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// How it came to its end, with what it printed last.
    fn ended(&mut self) -> String {
        let deadline = Instant::now() + LAST_WORDS;
        let is_over = || Ok(self.has_exited() || Instant::now() >= deadline);
        let _ = crate::process::until(is_over);
        let was_over = self.has_exited();
        let how = match self.child.end() {
            Ok(status) if was_over => format!("has ended ({status})"),
            _ => format!("has ended its output, or a reply had more than {MOST_REPLY} bytes"),
        };
        let last = self.printed.last();
        let last = if last.is_empty() { last } else { format!("; it last printed:\n{last}") };
        format!("{} {how}{last}", self.name)
    }
}

/// The end of what a process printed.
#[derive(Default)]
struct Printed {
    tail: Arc<Mutex<Vec<u8>>>,
    /// Closed when nothing more will come.
    done: Option<Receiver<()>>,
}

impl Printed {
    /// Reads until the stream ends, line by line.
    fn read(stream: impl Read + Send + 'static, keep: impl Fn(&[u8]) + Send + 'static) -> Self {
        let tail = Arc::new(Mutex::new(Vec::new()));
        let (done, is_done) = channel();
        let end = Arc::clone(&tail);
        thread::spawn(move || {
            let _closed_at_the_end: Sender<()> = done;
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(stream.by_ref().take(MOST_LINE).read_until(b'\n', &mut line), Ok(1..)) {
                let text = line.strip_suffix(b"\n").unwrap_or(&line);
                keep(text);
                let mut end = end.lock().unwrap_or_else(PoisonError::into_inner);
                end.extend_from_slice(text);
                end.push(b'\n');
                let surplus = end.len().saturating_sub(TAIL);
                end.drain(..surplus);
                line.clear();
            }
        });
        Self { tail, done: Some(is_done) }
    }

    fn last(&self) -> String {
        if let Some(done) = &self.done {
            let _ = done.recv_timeout(LAST_WORDS);
        }
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&tail).trim().to_owned()
    }
}

fn writer(mut input: impl Write + Send + 'static) -> Sender<String> {
    let (sender, requests) = channel::<String>();
    thread::spawn(move || {
        for mut request in requests {
            request.push('\n');
            if input.write_all(request.as_bytes()).and_then(|()| input.flush()).is_err() {
                break;
            }
        }
    });
    sender
}

fn reader(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, replies) = channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = String::new();
        while output.by_ref().take(MOST_REPLY).read_line(&mut line).is_ok()
            && line.ends_with('\n')
            && sender.send(std::mem::take(&mut line)).is_ok()
        {}
    });
    replies
}
