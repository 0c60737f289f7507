//! Math-Verify as a second opinion, for what the native grader cannot decide.
//!
//! A pool of Python processes that read one JSON line per comparison and write one back.
//! Math-Verify works only on the main thread of a process and can hang in SymPy; so each process
//! has one thread, its own alarm is off, and a process that does not answer in time is killed and
//! started anew. Its failures are errors, never wrong answers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::process::kill_group;
use crate::verifier::{VerifierError, is_deadline};
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

struct Process {
    child: Child,
    input: ChildStdin,
    /// Lines from a reader thread that ends with the process.
    lines: Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        kill_group(&self.child);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        if !is_deadline(options.timeout_s) {
            let problem = format!("{} is no time to wait", options.timeout_s);
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
    let mut child = Command::new(python)
        .args(["-u", "-c", SERVER])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{python} cannot be started: {error}"))?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(format!("{python} has no pipes"));
    };
    let (sender, lines) = channel();
    // Ends when the process does.
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let process = Process { child, input, lines };
    let hello = process.lines.recv_timeout(START).ok();
    let hello = hello.and_then(|line| serde_json::from_str::<Value>(&line).ok());
    match hello.as_ref().and_then(|hello| hello["ready"].as_str()) {
        Some(version) => Ok((process, version.to_owned())),
        None => Err(format!("`import math_verify` fails in {python}")),
    }
}

fn ask(process: &mut Process, request: &str, timeout_s: f64) -> Result<Value, String> {
    writeln!(process.input, "{request}")
        .and_then(|()| process.input.flush())
        .map_err(|error| format!("Math-Verify's process has ended: {error}"))?;
    let line = process
        .lines
        .recv_timeout(Duration::from_secs_f64(timeout_s))
        .map_err(|_| format!("Math-Verify gave no verdict within {timeout_s} s"))?;
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
}
