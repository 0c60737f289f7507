//! Agents that own their loop: a command or a service calls the policy at an OpenAI-style address as it
//! likes, and answers with what the episode earned.
//!
//! ```text
//! we    {"task": {row}, "seed": 7, "base_url": "http://127.0.0.1:…/v1", "api_key": "session-…", "model": "policy"}
//! they  {"reward": 1.0, "metrics": {"calls": 3}}            the last line of output, or the answer to a POST
//! ```
//!
//! A command also finds the address and the key where OpenAI's own client looks for them
//! (`OPENAI_BASE_URL`, `OPENAI_API_KEY`), so agents need no change. The key is the episode's own: tokens
//! are whose key they were asked with, and it is worth nothing once the episode has ended.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use scalerl_rollout::{EnvironmentError, EpisodeVerdict, Outcome, Pending};
use scalerl_serve::{Server, Session};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::python::row;
use crate::workers::end_group;
use crate::{Driver, Task, scored};

/// The name that the served policy has.
pub const MODEL: &str = "policy";

/// Bytes of what an agent said that are shown in an error.
const TAIL: usize = 2000;

/// What is started, or asked.
pub enum Agent {
    /// Program and arguments.
    Command(Vec<String>),
    /// An address.
    Url(String),
}

/// Plays episodes by agents that own their loop.
pub struct ProgramDriver {
    agent: Agent,
    server: Arc<Server>,
    pass_score: f64,
    /// The whole episode's.
    timeout: Duration,
}

/// How an agent says that its episode ended.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    reward: f64,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    metrics: BTreeMap<String, f64>,
}

impl Answer {
    /// Reads what an agent said; a score from `pass_score` on is right.
    pub(crate) fn outcome(said: Value, pass_score: f64) -> Result<Outcome, EnvironmentError> {
        let wrong = format!("the agent answered {said}, not with a reward");
        let answer: Self = serde_json::from_value(said)
            .map_err(|error| EnvironmentError::new(format!("{wrong}: {error}")))?;
        let verdict = EpisodeVerdict::Reward(scored(answer.reward, pass_score));
        Ok(Outcome { verdict, is_truncated: answer.truncated, metrics: answer.metrics })
    }
}

/// What an agent is told: the task, and where its policy is.
pub(crate) fn question(task: &Task, server: &Server, session: &Session) -> Value {
    json!({
        "task": row(task),
        "seed": task.seed,
        "base_url": base_url(server),
        "api_key": session.api_key(),
        "model": MODEL,
    })
}

fn base_url(server: &Server) -> String {
    format!("{}/v1", server.url())
}

impl ProgramDriver {
    /// On a server that is already there.
    pub fn new(agent: Agent, server: Arc<Server>, pass_score: f64, timeout: Duration) -> Self {
        Self { agent, server, pass_score, timeout }
    }

    async fn episode(&self, task: Task) -> Result<Outcome, EnvironmentError> {
        // Closed, and every call under way given up, when the episode ends however it does.
        let session = self.server.open(task.policy.clone()).map_err(EnvironmentError::new)?;
        let question = question(&task, &self.server, &session);
        let answer = match &self.agent {
            Agent::Command(command) => self.run(command, &question, &session).await?,
            Agent::Url(url) => self.post(url, question).await?,
        };
        Answer::outcome(answer, self.pass_score)
    }

    async fn run(
        &self,
        command: &[String],
        question: &Value,
        session: &Session,
    ) -> Result<Value, EnvironmentError> {
        let failed = |error: std::io::Error| {
            EnvironmentError::new(format!("the agent {}: {error}", command[0]))
        };
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .env("OPENAI_BASE_URL", base_url(&self.server))
            .env("OPENAI_API_KEY", session.api_key())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let mut input = child.stdin.take();
        let group = Group::of(&child);
        let output = async {
            if let Some(mut input) = input.take() {
                // An agent that does not read its task may end before we have written it.
                input.write_all(format!("{question}\n").as_bytes()).await.ok();
            }
            child.wait_with_output().await
        };
        let output = output.await.map_err(failed)?;
        drop(group);
        let printed = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said = tail(&output.stderr);
            let reason = format!("the agent ended with {}: {said}", output.status);
            return Err(EnvironmentError::new(reason));
        }
        let last = printed.trim_end().lines().next_back().unwrap_or_default();
        serde_json::from_str(last).map_err(|_| {
            let said = tail(&output.stdout);
            EnvironmentError::new(format!(
                "the agent's last line must be {{\"reward\": …}}; it wrote: {said}"
            ))
        })
    }

    async fn post(&self, url: &str, question: Value) -> Result<Value, EnvironmentError> {
        let (url, timeout) = (url.to_owned(), self.timeout);
        let asked = tokio::task::spawn_blocking(move || -> Result<Value, ureq::Error> {
            let config =
                ureq::Agent::config_builder().timeout_global(Some(timeout)).max_redirects(0);
            let agent: ureq::Agent = config.build().into();
            agent.post(&url).send_json(&question)?.body_mut().read_json()
        });
        let answer = asked.await.map_err(EnvironmentError::new)?;
        answer.map_err(|error| EnvironmentError::new(format!("the agent's address: {error}")))
    }
}

impl Driver for ProgramDriver {
    fn play(&self, task: Task) -> Pending<'_, Result<Outcome, EnvironmentError>> {
        Box::pin(self.episode(task))
    }
}

/// What an agent has started ends with its episode.
struct Group(Option<rustix::process::Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(
            child
                .id()
                .and_then(|id| i32::try_from(id).ok())
                .and_then(rustix::process::Pid::from_raw),
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        end_group(self.0);
    }
}

fn tail(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL)..]);
    text.trim().to_owned()
}
