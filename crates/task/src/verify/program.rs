//! Any executable or HTTP service that scores.
//!
//! It gets one JSON object on standard input or as the body of a POST: `prompt`, `answer` and `fields`
//! of the problem, `completion` as the recipe's format cuts it (null where it has no answer) and
//! `full_completion`, all that was written. It returns one: `{"score": 0.7}`, which is the reward as
//! it is, `{"correct": true}`, or `{"error": "why"}` when it cannot judge. A bad exit status, no JSON, a status other than 200
//! (a redirect too: it is not followed) or silence until the deadline are errors of the verifier,
//! never wrong answers.
//!
//! With `keep_alive` the same objects are lines to and from processes that stay (`process_pool/`), each
//! with an `id` that the reply repeats.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::process::{self, Bounds, Ending};
use crate::process_pool::{PoolOptions, ProcessPool, VerifierLog};
use crate::spawn::Spawn;
use crate::verifier::{LONGEST_S, Verifier, VerifierError};
use crate::verify::scores::Scores;

/// Options of the `program` verifier.
#[derive(Debug, Clone)]
pub struct ProgramOptions {
    /// The executable and its arguments.
    pub command: Vec<String>,
    /// The address of a service, instead of a command.
    pub url: String,
    /// Seconds for one answer.
    pub timeout_s: f64,
    /// The command is started once and asked again and again.
    pub kept: Option<Kept>,
    /// What scores mean.
    pub scores: Scores,
}

/// Processes that are kept alive.
#[derive(Debug, Clone)]
pub struct Kept {
    /// So many.
    pub processes: usize,
    /// Where what they print on standard error goes.
    pub log: VerifierLog,
}

impl Default for ProgramOptions {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            url: String::new(),
            timeout_s: 30.0,
            kept: None,
            scores: Scores::default(),
        }
    }
}

/// Most bytes a program may print or a service may send.
const MOST_OUTPUT: usize = 1 << 20;

/// Asks an executable or a service.
pub struct ProgramVerifier {
    options: ProgramOptions,
    agent: ureq::Agent,
    pool: Option<ProcessPool>,
}

/// What comes back.
#[derive(Debug, Deserialize)]
struct Reply {
    score: Option<f64>,
    correct: Option<bool>,
    error: Option<String>,
}

impl ProgramVerifier {
    /// Checks that there is exactly one thing to ask, and that a program is there to be asked: a
    /// mistyped path would otherwise show as one failed verdict after the other.
    pub fn try_new(options: ProgramOptions) -> Result<Self, VerifierError> {
        match (options.command.is_empty(), options.url.is_empty()) {
            (true, true) => return Err(VerifierError::NoProgram { found: "neither" }),
            (false, false) => return Err(VerifierError::NoProgram { found: "both" }),
            _ => {}
        }
        if let Some(name) = options.command.first() {
            find(name)
                .map_err(|problem| VerifierError::MissingProgram { name: name.clone(), problem })?;
        }
        if !(options.timeout_s > 0.0 && options.timeout_s <= LONGEST_S) {
            let problem = format!("{} s is no time to wait", options.timeout_s);
            return Err(VerifierError::BadOption { key: "timeout_s", problem });
        }
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(Duration::from_secs_f64(options.timeout_s)))
            .http_status_as_error(false)
            // A redirect is followed as a GET: the page it leads to never sees the completion.
            .max_redirects(0)
            .build()
            .into();
        let pool = options.kept.as_ref().map(|kept| start(&options, kept)).transpose()?;
        Ok(Self { options, agent, pool })
    }

    fn ask_command(&self, request: &str) -> Result<String, String> {
        let mut program = Spawn::new(&self.options.command[0]);
        program.args(&self.options.command[1..]);
        let time = Duration::from_secs_f64(self.options.timeout_s);
        let bounds = Bounds { time, output_bytes: MOST_OUTPUT, start: None };
        let name = &self.options.command[0];
        let finished = process::run(&program, request.as_bytes(), bounds)
            .map_err(|error| format!("{name} cannot be started: {error}"))?;
        match finished.ending {
            Ending::OutOfTime => {
                Err(format!("{name} gave no score within {} s", time.as_secs_f64()))
            }
            Ending::TooMuchOutput => Err(format!("{name} printed more than {MOST_OUTPUT} bytes")),
            Ending::Exited if !finished.status.success() => {
                let stderr = String::from_utf8_lossy(&finished.stderr);
                let last = stderr.trim_end().lines().next_back().unwrap_or("no message");
                Err(format!("{name} ended with {}: {last}", finished.status))
            }
            Ending::Exited => Ok(String::from_utf8_lossy(&finished.stdout).into_owned()),
            Ending::NotStarted | Ending::OutOfMemory | Ending::Dismissed => {
                Err(format!("{name} was stopped"))
            }
        }
    }

    fn ask_service(&self, request: &str) -> Result<String, String> {
        let url = &self.options.url;
        let mut response = self
            .agent
            .post(url)
            .header("content-type", "application/json")
            .send(request)
            .map_err(|error| format!("{url}: {error}"))?;
        if response.status() != 200 {
            return Err(format!("{url} answered {}", response.status()));
        }
        response
            .body_mut()
            .with_config()
            .limit(MOST_OUTPUT as u64)
            .read_to_string()
            .map_err(|error| format!("{url}: {error}"))
    }
}

impl Verifier for ProgramVerifier {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        let request = [
            ("prompt", json!(problem.text())),
            ("completion", json!(answer.text())),
            ("full_completion", json!(answer.completion())),
            ("answer", json!(problem.answer)),
            ("fields", json!(problem.fields)),
        ];
        let request: Map<String, Value> =
            request.map(|(key, value)| (key.to_owned(), value)).into_iter().collect();
        if let Some(pool) = &self.pool {
            return match pool.ask(request) {
                Ok(reply) => self.judge(serde_json::from_value(reply)),
                Err(reason) => Outcome::error(reason),
            };
        }
        let request = Value::Object(request).to_string();
        let reply = if self.options.url.is_empty() {
            self.ask_command(&request)
        } else {
            self.ask_service(&request)
        };
        // Scorers that chat print their verdict last.
        let last = |text: &str| text.trim().lines().next_back().unwrap_or("").to_owned();
        match reply {
            Ok(text) => self.judge(serde_json::from_str(&last(&text))),
            Err(reason) => Outcome::error(reason),
        }
    }

    /// A scorer may have something to say about completions that lack an answer.
    fn reads_all(&self) -> bool {
        true
    }

    fn longest(&self) -> Option<Duration> {
        let own = Duration::from_secs_f64(self.options.timeout_s);
        Some(self.pool.as_ref().map_or(own, ProcessPool::longest))
    }

    fn at_once(&self) -> Option<usize> {
        self.pool.as_ref().map(ProcessPool::at_once)
    }
}

fn start(options: &ProgramOptions, kept: &Kept) -> Result<ProcessPool, VerifierError> {
    let name = options.command[0].clone();
    let pool = ProcessPool::try_new(PoolOptions {
        name: name.clone(),
        command: options.command.clone(),
        setup: None,
        start: None,
        time: Duration::from_secs_f64(options.timeout_s),
        processes: kept.processes,
        log: Some(kept.log.clone()),
    });
    pool.map_err(|error| VerifierError::BadOption { key: "command", problem: error.problem })
}

/// Looks for an executable as the operating system will: at its path, or by its name on PATH.
pub(crate) fn find(name: &str) -> Result<(), &'static str> {
    let is_file = |path: &Path| path.is_file();
    let is_executable = |path: &Path| {
        path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return match Path::new(name) {
            path if is_executable(path) => Ok(()),
            path if is_file(path) => Err("is not executable"),
            _ => Err("does not exist"),
        };
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_found = std::env::split_paths(&folders).any(|folder| is_executable(&folder.join(name)));
    if is_found { Ok(()) } else { Err("is not on PATH") }
}

impl ProgramVerifier {
    fn judge(&self, reply: serde_json::Result<Reply>) -> Outcome {
        match reply {
            Err(error) => Outcome::error(format!("the scorer's reply is not JSON: {error}")),
            Ok(Reply { error: Some(reason), .. }) => Outcome::error(reason),
            Ok(Reply { correct: Some(is_correct), .. }) => Outcome::of(is_correct),
            Ok(Reply { score: Some(score), .. }) => self.options.scores.judge(score),
            Ok(_) => Outcome::error("the scorer's reply has neither `score` nor `correct`"),
        }
    }
}

#[cfg(test)]
mod tests;
