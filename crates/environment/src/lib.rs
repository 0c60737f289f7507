//! Where episodes take place: one file a driver, chosen in the recipe for each data set.
//!
//! ```text
//! engine --Prompt, Policy--> Environments --by data set--> driver: turns until the end --> Outcome
//! ```
//!
//! | driver | who owns the loop |
//! |---|---|
//! | [`store`] | we: an exact toy of two tools |
//! | [`openenv`] | we: a WebSocket an episode |
//! | [`python`] | we: a class with `reset` and `step` in kept-alive workers |
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
pub mod python;
pub mod store;
mod workers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use scalerl_recipe::{EnvironmentChoice, Recipe};
use scalerl_rollout::{
    Environment, EnvironmentError, Outcome, Pending, Policy, Prompt, PromptId, Reward,
};
use scalerl_task::Problem;
use thiserror::Error;

pub use chat::Chat;
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
    pub chat: Arc<dyn Chat>,
    /// Seconds an environment may take to answer one turn.
    pub turn_timeout: Duration,
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

/// The environments of a recipe, by data set.
pub struct Environments {
    drivers: BTreeMap<String, Box<dyn Driver>>,
    problems: Arc<dyn Fn(&PromptId) -> Option<Arc<Problem>> + Send + Sync>,
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
        for dataset in recipe.task.datasets.iter().chain(&recipe.evaluation.datasets) {
            let Some(choice) = dataset.environment() else { continue };
            let driver = driver(&choice, &dataset.name, recipe, surroundings).map_err(
                |(key, problem, hint)| {
                    let dataset = dataset.name.clone();
                    SetUpError { dataset, key, problem, hint }
                },
            )?;
            drivers.insert(dataset.name.clone(), driver);
        }
        let problems = Arc::new(problems);
        Ok((!drivers.is_empty()).then_some(Self { drivers, problems }))
    }
}

fn driver(
    choice: &EnvironmentChoice,
    dataset: &str,
    recipe: &Recipe,
    surroundings: &Surroundings,
) -> Result<Box<dyn Driver>, Refusal> {
    let task = &recipe.task;
    Ok(match choice {
        EnvironmentChoice::Store => {
            let rewards = (task.correct_reward, task.wrong_reward);
            Box::new(store::StoreDriver::new(rewards, surroundings.chat.clone()))
        }
        EnvironmentChoice::Python { file, class, python, workers, pass_score } => {
            let settings = python::Settings { file, class, python, workers: *workers as usize };
            Box::new(python::PythonDriver::start(&settings, dataset, *pass_score, surroundings)?)
        }
        EnvironmentChoice::OpenEnv { url, action_key, observation_key, pass_score } => {
            let (action_key, observation_key) = (action_key.as_deref(), observation_key.as_deref());
            let settings = openenv::Settings { url, action_key, observation_key };
            Box::new(openenv::OpenEnvDriver::start(&settings, *pass_score, surroundings)?)
        }
        _ => return Err(("type", format!("\"{}\" is not there yet", choice.name()), "")),
    })
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
}

/// A score as a reward: the score itself, right from `pass_score` on.
pub(crate) fn scored(score: f64, pass_score: f64) -> Reward {
    Reward { value: score, is_correct: score >= pass_score }
}
