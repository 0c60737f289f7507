//! Processes that are kept alive and answer one JSON line with another: rewards in Python, `program`
//! verifiers with `keep_alive`, Math-Verify.
//!
//! ```text
//! ask ─▶ queue ─▶ thread 1 ─▶ process 1      {"id": 7, …}            ─▶ {"id": 7, …}
//!              └▶ thread 2 ─▶ process 2      {"id": 8, "items": […]} ─▶ {"id": 8, "replies": […]}
//! ```
//!
//! Each thread owns a process. One that overstays, ends, or answers another question than the one asked
//! is killed with its group and started anew; its question is an error, never an answer. A process whose
//! first line has `most_per_call` takes its share of what waits, up to so many, in one call. Where such a call fails,
//! its questions are asked again one by one, so that one of them cannot take the others with it.
//!
//! Not here: what is asked (`verify/`, `second_opinion.rs`); programs that run to their end
//! (`process.rs`).

mod log;
mod process;
mod queue;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

pub use log::VerifierLog;
use process::Process;
use queue::{Question, Queue};

/// Calls that the answer to one of several questions may take: one that is under way, its own, and the
/// one in which it is asked again.
const MOST_CALLS: u32 = 3;

/// What to start, and how it is spoken to.
pub(crate) struct PoolOptions {
    /// What messages call it.
    pub(crate) name: String,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// The first line it is given.
    pub(crate) setup: Option<String>,
    /// It says a line when it is ready, within this time: an object with `ready`, or with `refused`.
    /// `None`: it says nothing before it is asked.
    pub(crate) start: Option<Duration>,
    /// For one call.
    pub(crate) time: Duration,
    /// Processes at once.
    pub(crate) processes: usize,
    /// Where what it prints on standard error goes; `None`: nowhere.
    pub(crate) log: Option<VerifierLog>,
}

impl PoolOptions {
    fn longest(&self, calls: u32) -> Duration {
        self.time * calls + self.start.unwrap_or_default()
    }
}

/// Why a process does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartError {
    /// The recipe's key that is wrong, where the process itself says so.
    pub(crate) key: Option<String>,
    pub(crate) problem: String,
}

impl StartError {
    fn new(problem: String) -> Self {
        Self { key: None, problem }
    }
}

type Reply = Result<Value, String>;

struct Shared {
    options: PoolOptions,
    queue: Queue,
}

/// A pool of processes. Dropped, it kills them.
pub(crate) struct ProcessPool {
    shared: Arc<Shared>,
    hello: Value,
    most_per_call: usize,
}

impl ProcessPool {
    /// Starts the first process and waits until it is ready; the others start behind it.
    pub(crate) fn try_new(options: PoolOptions) -> Result<Self, StartError> {
        let processes = options.processes.max(1);
        let queue = Queue::new(options.longest(MOST_CALLS));
        let shared = Arc::new(Shared { options, queue });
        let mut pool = Self { shared, hello: Value::Null, most_per_call: 1 };
        let (started, is_started) = channel();
        pool.add_thread(1, Some(started));
        let gone = |_| StartError::new("its thread has ended".to_owned());
        pool.hello = is_started.recv().map_err(gone)??;
        pool.most_per_call = pool.hello["most_per_call"].as_u64().unwrap_or(1).max(1) as usize;
        for number in 2..=processes {
            pool.add_thread(number, None);
        }
        Ok(pool)
    }

    /// What the first process said when it was ready.
    pub(crate) fn hello(&self) -> &Value {
        &self.hello
    }

    /// Questions that can be worked on without one waiting for more than one call before its own.
    pub(crate) fn at_once(&self) -> usize {
        self.shared.options.processes.max(1) * self.most_per_call
    }

    /// The most time an answer takes while no more than `at_once` are asked for: a process may have to
    /// start, and a call of several may follow another and be asked again.
    pub(crate) fn longest(&self) -> Duration {
        self.shared.options.longest(if self.most_per_call > 1 { MOST_CALLS } else { 1 })
    }

    /// Asks and waits.
    pub(crate) fn ask(&self, body: Map<String, Value>) -> Reply {
        let (reply, answer) = channel();
        self.shared.queue.push(body, reply);
        let longest = self.longest();
        answer.recv_timeout(longest).unwrap_or_else(|_| {
            let (name, seconds) = (&self.shared.options.name, longest.as_secs_f64());
            Err(format!("{name} gave no answer within {seconds} s"))
        })
    }

    fn add_thread(&self, number: usize, started: Option<Sender<Result<Value, StartError>>>) {
        let shared = Arc::clone(&self.shared);
        // Ends when the pool is dropped; its process with it.
        thread::spawn(move || Worker { shared, number, calls: 0 }.work(started));
    }
}

impl Drop for ProcessPool {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// One thread and the process it owns.
struct Worker {
    shared: Arc<Shared>,
    number: usize,
    calls: u64,
}

impl Worker {
    fn start(&self) -> Result<(Process, Value), StartError> {
        let options = &self.shared.options;
        let name = options.name.rsplit('/').next().unwrap_or_default();
        Process::start(options, &format!("{name} {}", self.number))
    }

    fn work(mut self, started: Option<Sender<Result<Value, StartError>>>) {
        let mut first = self.start();
        if let Some(started) = started {
            let said = match &mut first {
                Ok((_, hello)) => Ok(std::mem::take(hello)),
                Err(problem) => Err(problem.clone()),
            };
            // The pool may have been given up meanwhile; then `take` says so.
            let _ = started.send(said);
        }
        let mut process = first.map(|(process, _)| process);
        loop {
            let most = process.as_ref().ok().and_then(|process| process.most_per_call);
            let Some(questions) = self.shared.queue.take(most.unwrap_or(1)) else { return };
            if !process.as_ref().is_ok_and(|process| !process.has_exited()) {
                process = self.start().map(|(process, _)| process);
            }
            match &mut process {
                Err(problem) => answer_all(questions, &problem.problem),
                Ok(running) => {
                    if !self.call(running, questions) {
                        process = self.start().map(|(process, _)| process);
                    }
                }
            }
        }
    }

    /// Asks and answers; whether the process can be asked again.
    fn call(&mut self, process: &mut Process, questions: Vec<Question>) -> bool {
        self.calls += 1;
        let replies = self.replies(process, &questions);
        match replies {
            Ok(replies) => {
                for (question, reply) in questions.into_iter().zip(replies) {
                    // Nobody listens any more after the deadline.
                    let _ = question.reply.send(Ok(reply));
                }
                true
            }
            Err(_) if questions.len() > 1 => {
                self.shared.queue.ask_again(questions);
                false
            }
            Err(problem) => {
                answer_all(questions, &problem);
                false
            }
        }
    }

    fn replies(&self, process: &mut Process, questions: &[Question]) -> Result<Vec<Value>, String> {
        let id = self.calls;
        let is_list = process.most_per_call.is_some();
        let line = if is_list {
            let items: Vec<&Map<String, Value>> = questions.iter().map(|one| &one.body).collect();
            json!({"id": id, "items": items})
        } else {
            let mut body = questions[0].body.clone();
            body.insert("id".to_owned(), id.into());
            Value::Object(body)
        };
        let is_closed = || self.shared.queue.is_closed();
        let line = process.ask(line.to_string(), self.shared.options.time, &is_closed)?;
        let name = &self.shared.options.name;
        let broken = |problem: String| format!("{name}'s reply is broken: {problem}");
        let mut reply: Value =
            serde_json::from_str(&line).map_err(|error| broken(error.to_string()))?;
        if reply["id"] != id {
            return Err(broken(format!("it has the id {}, and was asked {id}", reply["id"])));
        }
        if !is_list {
            return Ok(vec![reply]);
        }
        match reply["replies"].take() {
            Value::Array(replies) if replies.len() == questions.len() => Ok(replies),
            _ => Err(broken(format!("it does not have {} replies", questions.len()))),
        }
    }
}

fn answer_all(questions: Vec<Question>, problem: &str) {
    for question in questions {
        let _ = question.reply.send(Err(problem.to_owned()));
    }
}
