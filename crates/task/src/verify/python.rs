//! Rewards in Python: a function of the user's, in processes that are kept alive (`process_pool/`).
//!
//! `python/worker.py` is given the text of the user's file, loads it, and finds out from the function's
//! parameters how it wants to be called: TRL's reward functions take several completions at once, verl's
//! `compute_score` and plain functions one. A number is the reward as it is. `None` is "cannot say"; an
//! exception, a hang, a crash, and what is no finite number are errors, never wrong answers.
//!
//! The code is the user's own and has all rights of the run. What it prints is in the run's folder.
//!
//! Not here: that the file must not change between a run's start and its resume (`verifier_files.rs`).

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::process_pool::{PoolOptions, ProcessPool, StartError, VerifierLog};
use crate::verifier::{Verifier, VerifierError};
use crate::verifier_files::VerifierFile;
use crate::verify::program::find;
use crate::verify::scores::Scores;

const WORKER: &str = include_str!("python/worker.py");

/// Verdicts asked for at once: each holds a thread.
const MOST_AT_ONCE: usize = 256;

/// How often the file is looked at for changes that have no effect.
const LOOK: Duration = Duration::from_secs(10);

/// Options of the `python` verifier.
#[derive(Debug, Clone)]
pub struct PythonOptions {
    /// The user's file, as it was read.
    pub file: VerifierFile,
    /// The function in it.
    pub function: String,
    /// The interpreter.
    pub python: String,
    /// Processes at once.
    pub processes: usize,
    /// Most completions of one call.
    pub batch_size: usize,
    /// For one call.
    pub time: Duration,
    /// For a process to start and import the file.
    pub start: Duration,
    /// What scores mean.
    pub scores: Scores,
    /// Where what it prints goes.
    pub log: VerifierLog,
}

/// Asks a Python function.
pub struct PythonVerifier {
    options: PythonOptions,
    pool: ProcessPool,
    /// Columns that the function cannot do without.
    columns: Vec<String>,
    wants_token_ids: bool,
    watch: Mutex<Watch>,
}

impl PythonVerifier {
    /// Starts the first process, which shows whether file and function can be used.
    pub fn try_new(options: PythonOptions) -> Result<Self, VerifierError> {
        let python = &options.python;
        find(python).map_err(|problem| VerifierError::BadReward {
            key: "python",
            problem: format!("{python} {problem}"),
        })?;
        let setup = json!({
            "file": options.file.path,
            "text": &*options.file.text,
            "function": options.function,
            "batch_size": options.batch_size,
        });
        let pool = ProcessPool::try_new(PoolOptions {
            name: options.file.path.clone(),
            command: [python, "-u", "-c", WORKER].map(str::to_owned).to_vec(),
            setup: Some(setup.to_string()),
            start: Some(options.start),
            time: options.time,
            processes: options.processes,
            log: Some(options.log.clone()),
        });
        let pool = pool.map_err(refused)?;
        let columns = pool.hello()["columns"].as_array().into_iter().flatten();
        let columns = columns.filter_map(|name| name.as_str().map(str::to_owned)).collect();
        let wants_token_ids = pool.hello()["completion_ids"] == true;
        let watch = Mutex::new(Watch { next: Instant::now() + LOOK, has_changed: false });
        Ok(Self { options, pool, columns, wants_token_ids, watch })
    }

    fn item(&self, problem: &Problem, answer: &Answer) -> Map<String, Value> {
        let is_chat = problem.messages.iter().all(|message| message.role != "plain");
        let token_ids = if self.wants_token_ids { answer.token_ids() } else { &[] };
        let item = [
            ("prompt", json!(problem.text())),
            ("messages", json!(problem.messages)),
            ("is_chat", json!(is_chat)),
            ("completion", json!(answer.text())),
            ("full_completion", json!(answer.completion())),
            ("completion_ids", json!(token_ids)),
            ("version", json!(answer.version())),
            ("answer", json!(problem.answer)),
            ("row", json!(problem.fields)),
            ("dataset", json!(problem.dataset)),
        ];
        item.map(|(key, value)| (key.to_owned(), value)).into_iter().collect()
    }

    /// Says once that the file is not what runs any longer.
    fn say_changes(&self) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.has_changed || Instant::now() < watch.next {
            return;
        }
        watch.next = Instant::now() + LOOK;
        watch.has_changed = has_changed(&self.options.file);
        if watch.has_changed {
            let file = &self.options.file.path;
            let line =
                format!("{file} has changed: this run goes on with what it was at its start");
            self.options.log.line("scalerl", line.as_bytes());
            // The run goes on whether or not anybody reads this.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

struct Watch {
    next: Instant,
    has_changed: bool,
}

/// A file that is gone or cannot be read just now, as in the middle of an edit, has not changed.
fn has_changed(file: &VerifierFile) -> bool {
    let text = scalerl_files::read_to_string(Path::new(&file.path), scalerl_files::DOCUMENT);
    text.is_ok_and(|text| *text != *file.text)
}

fn refused(error: StartError) -> VerifierError {
    // Whatever else ends an interpreter before it is ready is in what it imports.
    let key = if error.key.as_deref() == Some("function") { "function" } else { "file" };
    VerifierError::BadReward { key, problem: error.problem }
}

impl Verifier for PythonVerifier {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        self.say_changes();
        let reply = match self.pool.ask(self.item(problem, answer)) {
            Ok(reply) => reply,
            Err(reason) => return Outcome::error(reason),
        };
        let text = |key: &str| reply[key].as_str().map(str::to_owned);
        match (reply["score"].as_f64(), text("undecided"), text("error")) {
            (Some(score), ..) => self.options.scores.judge(score),
            (_, Some(reason), _) => Outcome::undecided(reason),
            (.., reason) => Outcome::error(reason.unwrap_or_else(|| "no score".to_owned())),
        }
    }

    /// A scorer may have something to say about completions that lack an answer.
    fn reads_all(&self) -> bool {
        true
    }

    fn longest(&self) -> Option<Duration> {
        Some(self.pool.longest())
    }

    fn at_once(&self) -> Option<usize> {
        Some(self.pool.at_once().min(MOST_AT_ONCE))
    }

    fn check(&self, problem: &Problem) -> Result<(), VerifierError> {
        let is_known = |name: &&String| *name == "answer" || problem.fields.contains_key(*name);
        let Some(missing) = self.columns.iter().find(|name| !is_known(name)) else {
            return Ok(());
        };
        let known: Vec<&str> = problem.fields.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let (function, file, id) = (&self.options.function, &self.options.file.path, &problem.id.0);
        let problem = format!(
            "`{function}` in {file} needs a column `{missing}`; {id} has these columns: {known}"
        );
        Err(VerifierError::BadReward { key: "function", problem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_the_file_has_changed_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, log) = (folder.path().join("reward.py"), folder.path().join("verifier.log"));
        let text = "def score(completion):\n    return 1.0\n";
        std::fs::write(&path, text).unwrap();
        let file = VerifierFile { path: path.display().to_string(), text: text.into() };
        let options = PythonOptions {
            file,
            function: "score".to_owned(),
            python: "python3".to_owned(),
            processes: 1,
            batch_size: 1,
            time: Duration::from_secs(20),
            start: Duration::from_mins(1),
            scores: Scores::default(),
            log: VerifierLog::default(),
        };
        options.log.keep_at(&log);
        let verifier = PythonVerifier::try_new(options).unwrap();
        let look = || {
            verifier.watch.lock().unwrap().next = Instant::now();
            verifier.say_changes();
            std::fs::read_to_string(&log).unwrap_or_default().matches("has changed").count()
        };
        assert_eq!(look(), 0);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(look(), 0, "in the middle of an edit");
        std::fs::write(&path, text.replace('1', "0")).unwrap();
        assert_eq!((look(), look()), (1, 1));
    }
}
