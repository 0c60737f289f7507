//! Where episodes take place: one file a driver, chosen in the recipe for each data set.
//!
//! ```text
//! engine --Prompt, Policy--> Environments --by data set--> driver: turns until the end --> Outcome
//! ```
//!
//! | driver | who owns the loop |
//! |---|---|
//! | [`store`] | we: an exact toy of two tools |
//! | [`tools`] | we: built-in tools in the model's own format, the data set's verifier at the end |
//! | [`openenv`] | we: a WebSocket an episode |
//! | [`program`] | an agent: a command or an address that calls the served policy as it likes |
//! | [`python`] | we: a class with `reset` and `step` in kept-alive workers |
//! | [`verifiers`] | the verifiers package, in a process of its own that calls the served policy |
//!
//! Drivers that own the loop go through [`Conversation`], which keeps the tokens of both sides; agents
//! that own it call the policy over HTTP. Either way the policy is the engine's, which keeps every
//! token; a driver only says how an episode ended. What fails is an error of that episode and never a
//! wrong answer.
//!
//! Not here: tokenizers and templates, which are the model's ([`Chat`]); how turns become sequences
//! (`rollout::episode`).

mod chat;
mod conversation;
pub mod openenv;
pub mod program;
pub mod python;
mod shared_worker;
pub mod store;
pub mod tools;
pub mod verifiers;
mod workers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use scalerl_recipe::{DataSource, Dataset, EnvironmentChoice, Recipe};
use scalerl_rollout::{
    Environment, EnvironmentError, Outcome, Pending, Policy, Prompt, PromptId, Restart, Reward,
};
use scalerl_serve::{Limits, Server, ServerOptions};
use scalerl_task::Problem;
use thiserror::Error;

use workers::Restarts;

pub use chat::{Chat, Form};
pub use conversation::{Conversation, Written};

/// One episode to be played.
pub struct Task {
    /// What the policy is told first.
    pub prompt: Prompt,
    /// The row behind it.
    pub problem: Arc<Problem>,
    /// Of everything random in it.
    pub seed: u64,
    /// Who takes the turns.
    pub policy: Arc<dyn Policy>,
}

/// Plays episodes of one data set.
pub trait Driver: Send + Sync + 'static {
    /// From the first turn to the outcome. Dropping the future ends the episode.
    fn play(&self, task: Task) -> Pending<'_, Result<Outcome, EnvironmentError>>;
}

/// What every driver is given.
#[derive(Clone)]
pub struct Surroundings {
    /// How conversations become tokens.
    pub chat: Chat,
    /// Seconds an environment may take to answer one turn.
    pub turn_timeout: Duration,
    /// Seconds an environment may take for a whole episode.
    pub timeout: Duration,
    /// Most tokens of a context and a turn together.
    pub longest: u32,
    /// Where what environments print goes.
    pub folder: PathBuf,
}

/// Why environments cannot be made.
#[derive(Debug, Error)]
#[error("task.datasets, `{dataset}`: environment.{key}: {problem}")]
pub struct SetUpError {
    /// Its data set.
    pub dataset: String,
    /// The key at fault.
    pub key: &'static str,
    /// In a sentence.
    pub problem: String,
    /// What to do.
    pub hint: &'static str,
}

/// What a driver says when it cannot be made: the key at fault, why, and what to do.
pub type Refusal = (&'static str, String, &'static str);

/// Finds the row behind a prompt.
type ProblemOf = Arc<dyn Fn(&PromptId) -> Option<Arc<Problem>> + Send + Sync>;

/// The environments of a recipe, by data set.
pub struct Environments {
    drivers: BTreeMap<String, Box<dyn Driver>>,
    problems: ProblemOf,
    restarts: Restarts,
}

impl Environments {
    /// Makes every environment that the recipe names; `None` where it names none. `problems` finds the
    /// row behind a prompt.
    pub fn of(
        recipe: &Recipe,
        problems: impl Fn(&PromptId) -> Option<Arc<Problem>> + Send + Sync + 'static,
        surroundings: &Surroundings,
    ) -> Result<Option<Self>, SetUpError> {
        let mut drivers = BTreeMap::new();
        let chat = surroundings.chat.clone().within(surroundings.longest);
        let surroundings = &Surroundings { chat, ..surroundings.clone() };
        let mut made = Maker { recipe, surroundings, server: None, restarts: Restarts::default() };
        for dataset in recipe.task.datasets.iter().chain(&recipe.evaluation.datasets) {
            let Some(choice) = dataset.environment() else { continue };
            let driver = made.driver(&choice, dataset).map_err(|(key, problem, hint)| {
                let dataset = dataset.name.clone();
                SetUpError { dataset, key, problem, hint }
            })?;
            drivers.insert(dataset.name.clone(), driver);
        }
        let (problems, restarts) = (Arc::new(problems), made.restarts);
        Ok((!drivers.is_empty()).then_some(Self { drivers, problems, restarts }))
    }
}

/// Makes drivers, and what several of them share.
struct Maker<'a> {
    recipe: &'a Recipe,
    surroundings: &'a Surroundings,
    server: Option<Arc<Server>>,
    restarts: Restarts,
}

impl Maker<'_> {
    fn driver(
        &mut self,
        choice: &EnvironmentChoice,
        dataset: &Dataset,
    ) -> Result<Box<dyn Driver>, Refusal> {
        let (task, surroundings) = (&self.recipe.task, self.surroundings);
        Ok(match choice {
            EnvironmentChoice::Store => {
                let rewards = (task.correct_reward, task.wrong_reward);
                Box::new(store::StoreDriver::new(rewards, surroundings.chat.clone()))
            }
            EnvironmentChoice::Tools { .. } => {
                Box::new(tools::ToolsDriver::start(choice, surroundings)?)
            }
            EnvironmentChoice::Python { file, class, python, workers, pass_score } => {
                let settings = python::Settings { file, class, python, workers: *workers as usize };
                Box::new(python::PythonDriver::start(
                    &settings,
                    &dataset.name,
                    *pass_score,
                    surroundings,
                    self.restarts.of(&dataset.name),
                )?)
            }
            EnvironmentChoice::Program { command, url, pass_score } => {
                let agent = match url {
                    Some(url) => program::Agent::Url(url.clone()),
                    None => program::Agent::Command(command.clone()),
                };
                let (server, timeout) = (self.server()?, surroundings.timeout);
                Box::new(program::ProgramDriver::new(agent, server, *pass_score, timeout))
            }
            EnvironmentChoice::OpenEnv { url, action_key, observation_key, pass_score } => {
                let (action_key, observation_key) =
                    (action_key.as_deref(), observation_key.as_deref());
                let settings = openenv::Settings { url, action_key, observation_key };
                Box::new(openenv::OpenEnvDriver::start(&settings, *pass_score, surroundings)?)
            }
            EnvironmentChoice::Verifiers { python, environment, arguments, pass_score } => {
                let count = match &dataset.source {
                    DataSource::Seeds { count, .. } => Some(*count),
                    _ => None,
                };
                let settings = verifiers::Settings { python, environment, arguments, count };
                let log = surroundings.folder.join(format!("environment-{}.log", dataset.name));
                let program = settings.program(log, self.restarts.of(&dataset.name))?;
                Box::new(verifiers::VerifiersDriver::new(
                    program,
                    self.server()?,
                    *pass_score,
                    surroundings.turn_timeout,
                ))
            }
        })
    }

    /// The policy behind HTTP, for agents; started with the first of them.
    fn server(&mut self) -> Result<Arc<Server>, Refusal> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let at_once = self.recipe.episode.at_once as usize;
        let options = ServerOptions {
            address: "127.0.0.1:0".to_owned(),
            api_key: None,
            model: program::MODEL.to_owned(),
            max_model_len: self.surroundings.longest,
            load: None,
            limits: Limits {
                connections: (4 * at_once).max(64),
                requests: (4 * at_once).max(64),
                deadline: Duration::from_hours(1),
                grace: Duration::from_millis(500),
                ..Limits::default()
            },
        };
        // Without a session's key there is no policy to ask.
        let server = Server::start(options, self.surroundings.chat.format(), None);
        let server = server.map_err(|error| ("type", error.to_string(), error.hint()))?;
        let server = Arc::new(server);
        self.server = Some(server.clone());
        Ok(server)
    }
}

impl Environment for Environments {
    fn plays(&self, dataset: &str) -> bool {
        self.drivers.contains_key(dataset)
    }

    fn play<'a>(
        &'a self,
        prompt: &'a Prompt,
        seed: u64,
        policy: Arc<dyn Policy>,
    ) -> Pending<'a, Result<Outcome, EnvironmentError>> {
        Box::pin(async move {
            let driver = self.drivers.get(&prompt.dataset).ok_or_else(|| {
                EnvironmentError::new(format!("none is there for data set {}", prompt.dataset))
            })?;
            let problem = (self.problems)(&prompt.id).ok_or_else(|| {
                EnvironmentError::new(format!("no problem behind prompt {}", prompt.id.0))
            })?;
            driver.play(Task { prompt: prompt.clone(), problem, seed, policy }).await
        })
    }

    fn restarts(&self) -> Vec<Restart> {
        self.restarts.take()
    }
}

/// A score as a reward: the score itself, right from `pass_score` on.
pub(crate) fn scored(score: f64, pass_score: f64) -> Reward {
    Reward { value: score, is_correct: score >= pass_score }
}
