//! A class in Python: `reset` and `step`, in worker processes that are kept alive.
//!
//! ```python
//! class Environment:
//!     def reset(self, task, seed): ...      # what the policy is told beside the prompt, or None
//!     def step(self, text): ...             # (observation, reward, done), or gymnasium's five, or a dict
//!     def close(self): ...                  # optional
//! ```
//!
//! Parameters are given by name, those that are there: `task` (the row as a dict, also `options`) and
//! `seed`. The class is made anew for every episode. An exception is an error of that episode, with its
//! traceback; a hang or a crash ends the worker and every episode it held.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scalerl_rollout::{EnvironmentError, EpisodeVerdict, Outcome, Pending};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::workers::{Program, Restarts, Worker};
use crate::{Chat, Conversation, Driver, Refusal, Surroundings, Task, Written, scored};

/// Speaks with us on one side and with the user's class on the other.
const WORKER: &str = include_str!("python_worker.py");

/// For reading the file: heavy packages take their time.
const CHECK_TIME: Duration = Duration::from_mins(5);

/// What the recipe says of it.
pub struct Settings<'a> {
    /// The file that holds the class.
    pub file: &'a str,
    /// The class.
    pub class: &'a str,
    /// The Python to run it with.
    pub python: &'a str,
    /// Worker processes.
    pub workers: usize,
}

/// Plays environments written in Python.
pub struct PythonDriver {
    workers: Vec<Worker>,
    /// Episodes so far: each names one, and takes the next worker.
    episodes: AtomicU64,
    pass_score: f64,
    chat: Chat,
    turn_timeout: Duration,
}

/// What the class said.
#[derive(Debug, Deserialize)]
struct Said {
    error: Option<String>,
    /// Messages for the policy; empty where it said nothing.
    #[serde(default)]
    messages: Vec<Value>,
    #[serde(default)]
    reward: f64,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    metrics: BTreeMap<String, f64>,
}

impl PythonDriver {
    /// Starts a worker and looks at the class; nothing is played yet.
    pub(crate) fn start(
        settings: &Settings<'_>,
        dataset: &str,
        pass_score: f64,
        surroundings: &Surroundings,
        restarts: Restarts,
    ) -> Result<Self, Refusal> {
        let file = Path::new(settings.file);
        let source = std::fs::read_to_string(file).map_err(|error| {
            (
                "file",
                format!("{}: {error}", settings.file),
                "paths are relative to where the command runs",
            )
        })?;
        let name = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let log = surroundings.folder.join(format!("environment-{dataset}.log"));
        // The text as it is now: a file that is changed while the run is alive changes nothing.
        let command = vec![
            settings.python.to_owned(),
            "-c".to_owned(),
            WORKER.to_owned(),
            name.display().to_string(),
            settings.class.to_owned(),
            source,
        ];
        let program = Arc::new(Program { command, log, restarts });
        let looked = program.ask_once(&json!({"op": "check"}), CHECK_TIME);
        looked.and_then(|answer| understood(answer).map_err(|error| error.reason)).map_err(
            |problem| {
                let problem = problem.trim_end().to_owned();
                (
                    "file",
                    problem,
                    "python = \"…/bin/python\" chooses the virtual environment it runs in",
                )
            },
        )?;
        let workers: Vec<Worker> =
            (0..settings.workers.max(1)).map(|_| Worker::new(program.clone())).collect();
        Ok(Self {
            workers,
            episodes: AtomicU64::new(0),
            pass_score,
            chat: surroundings.chat.clone(),
            turn_timeout: surroundings.turn_timeout,
        })
    }

    async fn episode(&self, task: Task) -> Result<Outcome, EnvironmentError> {
        let episode = self.episodes.fetch_add(1, Ordering::Relaxed);
        let worker = &self.workers[episode as usize % self.workers.len()];
        // Before anything is made there: given up at any moment, it is put away.
        let session = Session { worker, episode, limit: self.turn_timeout };
        let reset = json!({
            "op": "reset", "episode": episode, "seed": task.seed, "task": row(&task),
        });
        let first = worker.ask(&reset, None, self.turn_timeout).await?;
        self.turns((&session, first.life), task, understood(first.value)?).await
    }

    async fn turns(
        &self,
        (session, life): (&Session<'_>, u64),
        task: Task,
        first: Said,
    ) -> Result<Outcome, EnvironmentError> {
        let (policy, chat) = (task.policy, self.chat.clone());
        let asked = task.problem.messages.iter().map(|message| json!(message));
        let mut conversation = if first.messages.is_empty() {
            let tokens = task.prompt.token_ids.clone();
            Conversation::new(&asked.collect::<Vec<_>>(), tokens, policy, chat)
        } else {
            let messages: Vec<Value> = asked.chain(first.messages).collect();
            Conversation::open(messages, Vec::new(), policy, chat).await?
        };
        let (mut score, mut metrics) = (first.reward, first.metrics);
        let is_truncated = loop {
            let Written::Turn(turn) = conversation.turn().await? else { break true };
            let said = session.step(&turn.text, life).await?;
            score += said.reward;
            metrics.extend(said.metrics);
            if said.done {
                break said.truncated;
            }
            conversation.say_all(said.messages).await?;
        };
        let verdict = EpisodeVerdict::Reward(scored(score, self.pass_score));
        Ok(Outcome { verdict, is_truncated, metrics })
    }
}

impl Driver for PythonDriver {
    fn play(&self, task: Task) -> Pending<'_, Result<Outcome, EnvironmentError>> {
        Box::pin(self.episode(task))
    }
}

/// One object of the class, in its worker; put away at its end.
struct Session<'a> {
    worker: &'a Worker,
    episode: u64,
    limit: Duration,
}

impl Session<'_> {
    async fn step(&self, text: &str, life: u64) -> Result<Said, EnvironmentError> {
        let question = json!({"op": "step", "episode": self.episode, "text": text});
        let answer = self.worker.ask(&question, Some(life), self.limit).await?;
        understood(answer.value)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.worker.tell(json!({"op": "close", "episode": self.episode}), self.limit);
    }
}

fn understood(answer: Value) -> Result<Said, EnvironmentError> {
    let said: Said = serde_json::from_value(answer)
        .map_err(|error| EnvironmentError::new(format!("its worker's answer: {error}")))?;
    match said.error {
        Some(error) => Err(EnvironmentError::new(error)),
        None if !said.reward.is_finite() => {
            Err(EnvironmentError::new(format!("its reward is {}", said.reward)))
        }
        None => Ok(said),
    }
}

/// The row as the class is given it: every column, and what we made of them.
pub(crate) fn row(task: &Task) -> Map<String, Value> {
    let mut row = task.problem.fields.clone();
    row.entry("prompt").or_insert_with(|| task.prompt.text.clone().into());
    row.entry("answer").or_insert_with(|| task.problem.answer.clone().into());
    row.entry("id").or_insert_with(|| task.prompt.id.0.clone().into());
    row
}
