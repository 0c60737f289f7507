//! Environments of the `verifiers` package (0.4): a side-car in the user's own virtual environment
//! imports it and plays many episodes at once.
//!
//! ```text
//! we       {"op": "play", "task": {row}, "base_url": "http://127.0.0.1:…/v1", "api_key": "session-…", "model": "policy"}
//! side-car  verifiers' harness --chat completions, the episode's key--> served policy
//! they     {"reward": 1.0, "truncated": false, "metrics": {"turns": 3}}     or     {"error": "…"}
//! ```
//!
//! verifiers owns the loop and calls the policy as any client does: tokens are kept by the session, so
//! nothing on its side needs a tokenizer. A row with a `seed` is the task of that place in the taskset;
//! any other row is a task's data itself. The reward is the weighted sum that verifiers computes; a
//! reward that was not computed is an error, and so is whatever verifiers calls one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use scalerl_recipe::FreeTable;
use scalerl_rollout::{EnvironmentError, Outcome, Pending};
use scalerl_serve::Server;
use serde_json::{Value, json};

use crate::program::{Answer, question};
use crate::shared_worker::{Patience, SharedWorker};
use crate::workers::{Program, Restarts};
use crate::{Driver, Refusal, Task};

/// Speaks with us on one side and with verifiers on the other.
const WORKER: &str = include_str!("verifiers_worker.py");

/// For loading the environment and its data.
const LOAD_TIME: Duration = Duration::from_mins(10);

/// What the recipe says of it.
pub struct Settings<'a> {
    /// The Python that has it.
    pub python: &'a str,
    /// Its module or file.
    pub environment: &'a str,
    /// verifiers' own keys.
    pub arguments: &'a FreeTable,
    /// Tasks that are asked for by their places.
    pub count: Option<u64>,
}

impl Settings<'_> {
    /// The side-car, looked at once: the version, the environment and as many tasks as are wanted.
    /// Nothing is played yet.
    pub(crate) fn program(&self, log: PathBuf, restarts: Restarts) -> Result<SideCar, Refusal> {
        let refuse = |key| move |problem: String| (key, problem.trim_end().to_owned(), HINT);
        let arguments = serde_json::to_string(self.arguments);
        let arguments = arguments.map_err(|error| refuse("arguments")(error.to_string()))?;
        let command = [self.python, "-c", WORKER, self.environment, &arguments];
        let command = command.map(ToOwned::to_owned).to_vec();
        let program = Program { command, log, restarts };
        let looked = program.ask_once(&json!({"op": "check", "count": self.count}), LOAD_TIME);
        let looked = looked.map_err(refuse("python"))?;
        understood(looked).map_err(|error| refuse("environment")(error.reason))?;
        Ok(SideCar(Arc::new(program)))
    }
}

const HINT: &str = "docs/environments.md shows how verifiers is installed and named";

/// A side-car that was found to work.
pub struct SideCar(Arc<Program>);

/// Plays environments of verifiers.
pub struct VerifiersDriver {
    worker: SharedWorker,
    server: Arc<Server>,
    pass_score: f64,
}

impl VerifiersDriver {
    /// On a server that is already there. A side-car that gives no sign of life for `patience` hangs.
    pub fn new(
        side_car: SideCar,
        server: Arc<Server>,
        pass_score: f64,
        patience: Duration,
    ) -> Self {
        let patience = Patience { at_start: LOAD_TIME, later: patience };
        Self { worker: SharedWorker::new(side_car.0, patience), server, pass_score }
    }

    async fn episode(&self, task: Task) -> Result<Outcome, EnvironmentError> {
        // Closed, and every call under way given up, when the episode ends however it does.
        let session = self.server.open(task.policy.clone()).map_err(EnvironmentError::new)?;
        let mut asked = question(&task, &self.server, &session);
        asked["op"] = "play".into();
        let answer = self.worker.ask(asked).await?;
        Answer::outcome(understood(answer)?, self.pass_score)
    }
}

impl Driver for VerifiersDriver {
    fn play(&self, task: Task) -> Pending<'_, Result<Outcome, EnvironmentError>> {
        Box::pin(self.episode(task))
    }
}

fn understood(answer: Value) -> Result<Value, EnvironmentError> {
    match answer["error"].as_str() {
        Some(error) => Err(EnvironmentError::new(error)),
        None => Ok(answer),
    }
}
