//! One group from prompt to verdicts: the task behind every slot.
//!
//! Waits for the generator (deadline; asked again when that can help), then for all verdicts at
//! once (deadline each). Ends with the group judged, or with the error that ends the run.
//!
//! Not here: who starts these tasks and what becomes of the group (`conductor`).

use std::{sync::Arc, time::Duration};

use scalerl_rollout::{
    Completion, Generator, GeneratorError, Grader, GroupId, Prompt, Reward, Rollout, SampleRequest,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    error::EngineError,
    meter::{Meter, Role},
    settings::Settings,
};

/// A failing generator is asked this often before the run ends.
const ATTEMPTS: u32 = 4;

/// Before the second attempt; doubles each time.
const PAUSE: Duration = Duration::from_secs(1);

/// A verifier that failed on a completion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) completion: u32,
    pub(crate) reason: String,
}

/// A group after its verdicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Judged {
    pub(crate) rollouts: Vec<Rollout>,
    pub(crate) failures: Vec<Failure>,
    /// Tokens of all completions, also of those without a verdict.
    pub(crate) tokens: u64,
    /// Right completions in another form than the reference answer's, where that can be said.
    #[serde(default)]
    pub(crate) other_form: Option<u32>,
    /// Seconds of the generator, and of the verdicts after it.
    #[serde(default)]
    pub(crate) generate_s: f64,
    #[serde(default)]
    pub(crate) judge_s: f64,
}

/// How a sampling task ended.
#[derive(Debug)]
pub(crate) struct Sampled {
    pub(crate) group: GroupId,
    /// Attempts that failed and why, for the journal.
    pub(crate) retried: Vec<(u32, String)>,
    pub(crate) result: Result<Judged, EngineError>,
}

/// What a sampling task works with.
#[derive(Debug)]
pub(crate) struct Floor<G, R> {
    pub(crate) settings: Arc<Settings>,
    pub(crate) generator: Arc<G>,
    pub(crate) grader: Arc<R>,
    pub(crate) meter: Meter,
    /// One permit per verdict at a time; a verdict's deadline begins when it has one.
    pub(crate) verdict_room: Arc<Semaphore>,
}

impl<G, R> Clone for Floor<G, R> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            generator: self.generator.clone(),
            grader: self.grader.clone(),
            meter: self.meter.clone(),
            verdict_room: self.verdict_room.clone(),
        }
    }
}

impl<G: Generator, R: Grader> Floor<G, R> {
    /// Samples and judges one training group.
    pub(crate) async fn sample_group(self, group: GroupId, prompt: Prompt) -> Sampled {
        let request = self.settings.training_request(group, &prompt);
        let started = Instant::now();
        let mut retried = Vec::new();
        let completions = match self.generate(request, Role::Generate, &mut retried).await {
            Ok(completions) => completions,
            Err(source) => {
                let result = Err(EngineError::Sampling { group, source });
                return Sampled { group, retried, result };
            }
        };
        let generate_s = started.elapsed().as_secs_f64();
        let result = self.judge(&prompt, completions).await;
        let result = result.map(|judged| Judged { generate_s, ..judged });
        Sampled { group, retried, result }
    }

    /// Completions, asked for again where that can help; failed attempts go into `retried`.
    pub(crate) async fn generate(
        &self,
        request: SampleRequest,
        role: Role,
        retried: &mut Vec<(u32, String)>,
    ) -> Result<Vec<Completion>, GeneratorError> {
        let mut attempt = 1;
        loop {
            match self.generate_once(request.clone(), role).await {
                Err(source) if source.is_retryable() && attempt < ATTEMPTS => {
                    retried.push((attempt, source.to_string()));
                    sleep(PAUSE * 2_u32.pow(attempt - 1)).await;
                    attempt += 1;
                }
                answer => return answer,
            }
        }
    }

    /// One answer that has passed the intake.
    async fn generate_once(
        &self,
        request: SampleRequest,
        role: Role,
    ) -> Result<Vec<Completion>, GeneratorError> {
        let limit = self.settings.deadlines.generate;
        let completions = {
            let _busy = self.meter.busy(role);
            let answer = timeout(limit, self.generator.generate(request.clone())).await;
            answer.unwrap_or(Err(GeneratorError::Late { seconds: limit.as_secs() }))?
        };
        // Reads every token; not on a thread that others wait for.
        let intake = self.settings.intake.clone();
        let checked = tokio::task::spawn_blocking(move || {
            intake.check(&request, &completions).map(|()| completions)
        });
        match checked.await {
            Ok(checked) => Ok(checked?),
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    async fn judge(
        &self,
        prompt: &Prompt,
        completions: Vec<Completion>,
    ) -> Result<Judged, EngineError> {
        let tokens = completions.iter().map(|completion| completion.len() as u64).sum();
        let (mut rollouts, mut failures) = (Vec::new(), Vec::new());
        let started = Instant::now();
        let verdicts = self.verdicts(prompt, completions).await?;
        for (index, (completion, verdict)) in verdicts.into_iter().enumerate() {
            match verdict {
                Ok(reward) => rollouts.push(Rollout { completion, reward }),
                Err(reason) => failures.push(Failure { completion: index as u32, reason }),
            }
        }
        let judge_s = started.elapsed().as_secs_f64();
        let other_form = self.other_form(prompt, &rollouts);
        Ok(Judged { rollouts, failures, tokens, other_form, generate_s: 0.0, judge_s })
    }

    /// Right completions in another form than the reference answer's.
    fn other_form(&self, prompt: &Prompt, rollouts: &[Rollout]) -> Option<u32> {
        let right = rollouts.iter().filter(|rollout| rollout.reward.is_correct);
        let forms = right.filter_map(|one| self.grader.has_reference_form(prompt, &one.completion));
        let forms: Vec<bool> = forms.collect();
        let others = forms.iter().filter(|is_same| !**is_same).count() as u32;
        (!forms.is_empty()).then_some(others)
    }

    /// All verdicts of a group at once, in the order of the completions.
    pub(crate) async fn verdicts(
        &self,
        prompt: &Prompt,
        completions: Vec<Completion>,
    ) -> Result<Vec<(Completion, Result<Reward, String>)>, EngineError> {
        let usual = Duration::from_secs_f64(self.settings.recipe.task.verifier_timeout_s);
        let limit = self.grader.deadline(prompt, usual);
        let prompt = Arc::new(prompt.clone());
        let count = completions.len();
        // Dropped, and every verdict with it, when the group's own task is given up.
        let mut graders = JoinSet::new();
        for (index, completion) in completions.into_iter().enumerate() {
            let (grader, prompt) = (self.grader.clone(), prompt.clone());
            let room = self.verdict_room.clone();
            graders.spawn(async move {
                // Held for the length of the verdict; never closed.
                let _permit = room.acquire().await.ok();
                let verdict = match timeout(limit, grader.grade(&prompt, &completion)).await {
                    Ok(Ok(reward)) => Ok(reward),
                    Ok(Err(error)) => Err(error.reason),
                    Err(_) => Err(format!("no verdict within {} s", limit.as_secs_f64())),
                };
                (index, completion, verdict)
            });
        }
        let mut ordered: Vec<Option<(Completion, Result<Reward, String>)>> = vec![None; count];
        while let Some(done) = graders.join_next().await {
            let (index, completion, verdict) = done.map_err(|error| EngineError::Panicked {
                what: "a verifier",
                reason: error.to_string(),
            })?;
            ordered[index] = Some((completion, verdict));
        }
        Ok(ordered.into_iter().flatten().collect())
    }
}
