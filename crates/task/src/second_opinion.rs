//! Math-Verify as a second opinion, for what the native grader cannot decide.
//!
//! A pool of Python processes that read one JSON line per comparison and write one back.
//! Math-Verify works only on the main thread of a process and can hang in SymPy; so each process
//! has one thread, its own alarm is off, and a process that does not answer in time is killed and
//! started anew. Its failures are errors, never wrong answers. It inherits nothing but its standard
//! streams: it reads what a model wrote.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::spawn::{Child, Spawn};
use crate::verifier::{LONGEST_S, VerifierError};
use crate::verify::math::{MatchType, MathOptions};

/// Options of the pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecondOpinionOptions {
    /// An interpreter in which `import math_verify` works.
    pub python: String,
    /// Processes at once.
    pub processes: usize,
    /// Seconds for one comparison, after which the process is killed.
    pub timeout_s: f64,
}

impl Default for SecondOpinionOptions {
    fn default() -> Self {
        Self { python: "python3".to_owned(), processes: 2, timeout_s: 15.0 }
    }
}

/// The Python side: one line in, one line out.
const SERVER: &str = r#"
import json, logging, sys, warnings
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from importlib.metadata import version
from math_verify import (ExprExtractionConfig, LatexExtractionConfig, StringExtractionConfig,
                         parse, verify)
out = sys.stdout
sys.stdout = sys.stderr
KINDS = {"latex": LatexExtractionConfig, "expr": ExprExtractionConfig,
         "string": StringExtractionConfig}
out.write(json.dumps({"ready": version("math-verify")}) + "\n")
out.flush()
for line in sys.stdin:
    job = json.loads(line)
    try:
        config = [KINDS[name]() for name in job["match_types"]]
        gold = parse(job["gold"], config, parsing_timeout=None)
        pred = parse(job["pred"], config, parsing_timeout=None)
        reply = {"equal": bool(verify(
            gold, pred, float_rounding=job["precision"], strict=job["strict"],
            allow_set_relation_comp=job["allow_set_relation_comp"], timeout_seconds=None)),
            "read": bool(gold)}
    except Exception as error:
        reply = {"error": type(error).__name__ + ": " + str(error)[:200]}
    out.write(json.dumps(reply) + "\n")
    out.flush()
"#;

/// Time for Python to start and import SymPy.
const START: Duration = Duration::from_mins(1);

/// Most bytes of one reply.
const MOST_REPLY: u64 = 1 << 20;

/// Dropped, it is killed with its group.
struct Process {
    _child: Child,
    /// Lines to a writer thread, so that a process that does not read cannot block us.
    requests: Sender<String>,
    /// Lines from a reader thread. Both end with the process.
    replies: Receiver<String>,
}

/// A pool of Math-Verify processes.
pub struct SecondOpinion {
    options: SecondOpinionOptions,
    version: String,
    /// Idle processes and how many exist; `returned` wakes a caller that waits for one.
    idle: Mutex<(Vec<Process>, usize)>,
    returned: Condvar,
}

impl SecondOpinion {
    /// Starts the first process, which shows whether Math-Verify is there.
    pub fn try_new(options: SecondOpinionOptions) -> Result<Self, VerifierError> {
        if !(options.timeout_s > 0.0 && options.timeout_s <= LONGEST_S) {
            let problem = format!("{} s is no time to wait", options.timeout_s);
            return Err(VerifierError::BadOption { key: "second_opinion.timeout_s", problem });
        }
        let (process, version) =
            start(&options.python).map_err(|problem| VerifierError::NoSecondOpinion { problem })?;
        Ok(Self {
            options,
            version,
            idle: Mutex::new((vec![process], 1)),
            returned: Condvar::new(),
        })
    }

    /// Math-Verify's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Math-Verify's verdict.
    pub fn compare(&self, gold: &str, pred: &str, options: &MathOptions) -> Outcome {
        let mut process = match self.take() {
            Ok(process) => process,
            Err(problem) => return Outcome::error(problem),
        };
        let reply = ask(&mut process, &request(gold, pred, options), self.options.timeout_s);
        let mut state = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = match reply {
            Ok(reply) => {
                state.0.push(process);
                judge(&reply)
            }
            Err(problem) => {
                // Killed by its drop; the next caller starts another.
                state.1 -= 1;
                drop(state);
                drop(process);
                Outcome::error(problem)
            }
        };
        self.returned.notify_one();
        outcome
    }

    fn take(&self) -> Result<Process, String> {
        let mut state = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(process) = state.0.pop() {
                return Ok(process);
            }
            if state.1 < self.options.processes.max(1) {
                state.1 += 1;
                drop(state);
                let started = start(&self.options.python);
                if started.is_err() {
                    self.idle.lock().unwrap_or_else(PoisonError::into_inner).1 -= 1;
                    self.returned.notify_one();
                }
                return started.map(|(process, _)| process);
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Without match types the native grader takes a bare gold answer whole; Math-Verify wants
/// LaTeX marked as such.
fn request(gold: &str, pred: &str, options: &MathOptions) -> String {
    let types = &options.match_types;
    let is_free = types.is_empty();
    let names = if is_free { &[MatchType::Latex, MatchType::Expr][..] } else { types };
    let marked = |text: &str| {
        let is_bare = is_free
            && text.len() <= 400
            && !text.contains(['$', '\n'])
            && !text.contains("\\boxed");
        if is_bare { format!("${text}$") } else { text.to_owned() }
    };
    json!({
        "gold": marked(gold), "pred": marked(pred), "match_types": names,
        "precision": options.precision, "strict": options.strict,
        "allow_set_relation_comp": options.allow_set_relation_comp,
    })
    .to_string()
}

fn judge(reply: &Value) -> Outcome {
    if let Some(problem) = reply["error"].as_str() {
        return Outcome::error(format!("Math-Verify failed: {problem}"));
    }
    match (reply["equal"].as_bool(), reply["read"].as_bool()) {
        (Some(true), _) => Outcome::Correct,
        (Some(false), Some(true)) => Outcome::Incorrect,
        (Some(false), _) => Outcome::undecided("Math-Verify cannot read the gold answer"),
        (None, _) => Outcome::error("Math-Verify's reply has no verdict"),
    }
}

fn start(python: &str) -> Result<(Process, String), String> {
    let cannot = |error: io::Error| format!("{python} cannot be started: {error}");
    let (stdin, input) = io::pipe().map_err(cannot)?;
    let (output, stdout) = io::pipe().map_err(cannot)?;
    let nowhere = File::options().write(true).open("/dev/null").map_err(cannot)?;
    let mut server = Spawn::new(python);
    server.args(["-u", "-c", SERVER]);
    let child = server.start([stdin.into(), stdout.into(), nowhere.into()]).map_err(cannot)?;
    let process = Process { _child: child, requests: writer(input), replies: reader(output) };
    let hello = process.replies.recv_timeout(START).ok();
    let hello = hello.and_then(|line| serde_json::from_str::<Value>(&line).ok());
    match hello.as_ref().and_then(|hello| hello["ready"].as_str()) {
        Some(version) => Ok((process, version.to_owned())),
        None => Err(format!("`import math_verify` fails in {python}")),
    }
}

/// Ends when the process does, or with its last request.
fn writer(mut input: impl Write + Send + 'static) -> Sender<String> {
    let (sender, requests) = channel::<String>();
    thread::spawn(move || {
        for request in requests {
            if writeln!(input, "{request}").and_then(|()| input.flush()).is_err() {
                break;
            }
        }
    });
    sender
}

/// Ends when the process does, or with a reply that is too long.
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

fn ask(process: &mut Process, request: &str, timeout_s: f64) -> Result<Value, String> {
    let ended = || "Math-Verify's process has ended".to_owned();
    process.requests.send(request.to_owned()).map_err(|_| ended())?;
    let timeout = Duration::from_secs_f64(timeout_s);
    let line = process.replies.recv_timeout(timeout).map_err(|problem| match problem {
        RecvTimeoutError::Timeout => format!("Math-Verify gave no verdict within {timeout_s} s"),
        RecvTimeoutError::Disconnected => ended(),
    })?;
    serde_json::from_str(&line).map_err(|error| format!("Math-Verify's reply is broken: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_interpreter_is_named() {
        let options = SecondOpinionOptions {
            python: "no-such-python".into(),
            ..SecondOpinionOptions::default()
        };
        let Err(error) = SecondOpinion::try_new(options) else { panic!("it cannot be there") };
        assert!(error.to_string().contains("no-such-python"), "{error}");
    }

    /// A pool whose interpreter is a shell script.
    fn pool_of(script: &str, timeout_s: f64) -> (tempfile::TempDir, SecondOpinion) {
        let folder = tempfile::tempdir().unwrap();
        let python = folder.path().join("python").to_str().unwrap().to_owned();
        // Written by another process: a child that is forked here meanwhile would hold the file
        // open, and what is open for writing cannot be run.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod +x \"$2\"";
        let status =
            std::process::Command::new("sh").args(["-c", write, "sh", script, &python]).status();
        assert!(status.unwrap().success());
        let options = SecondOpinionOptions { python, timeout_s, ..SecondOpinionOptions::default() };
        (folder, SecondOpinion::try_new(options).unwrap())
    }

    #[test]
    fn a_process_inherits_nothing_but_its_streams() {
        let (reader, _writer) = std::io::pipe().unwrap();
        rustix::io::fcntl_setfd(&reader, rustix::io::FdFlags::empty()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let script = format!(
            "[ -e /proc/self/fd/{number} ] && found=leaked || found=nothing\n\
             echo '{{\"ready\": \"'$found'\"}}'; cat >/dev/null"
        );
        let (_folder, pool) = pool_of(&script, 1.0);
        assert_eq!(pool.version(), "nothing");
    }

    #[test]
    fn a_process_that_neither_reads_nor_answers_is_given_up() {
        let long = "x".repeat(1 << 20);
        for (script, said) in [
            ("sleep 30", "no verdict within"),
            ("exit 0", "has ended"),
            ("head -c 3000000 /dev/zero; sleep 30", "has ended"),
            ("head -c 10 >/dev/null; echo nonsense; sleep 30", "broken"),
        ] {
            let (_folder, pool) = pool_of(&format!("echo '{{\"ready\": \"1\"}}'; {script}"), 1.0);
            let outcome = pool.compare("1", &long, &MathOptions::default());
            let Outcome::Error { reason } = outcome else { panic!("{script}: {outcome:?}") };
            assert!(reason.contains(said), "{script}: {reason}");
        }
    }
}
