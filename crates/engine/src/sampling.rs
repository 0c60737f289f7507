//! One group from prompt to verdicts: the task behind every slot.
//!
//! Waits for the generator (deadline; asked again when that can help), then for all verdicts at
//! once (deadline each); or for as many episodes as a group has rollouts (`episode.rs`). Ends with the
//! group judged, or with the error that ends the run.
//!
//! Not here: who starts these tasks and what becomes of the group (`conductor`).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use scalerl_rollout::{
    Completion, Environment, Episode, Generator, GeneratorError, Grader, GroupId, Interruption,
    Prompt, Reward, Rollout, SampleRequest,
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

/// One completion or episode with its verdict.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// `None` for an episode that failed before its first turn.
    pub(crate) completion: Option<Completion>,
    pub(crate) episode: Option<Episode>,
    /// Or why there is none.
    pub(crate) verdict: Result<Reward, String>,
    /// What the environment counted.
    pub(crate) metrics: BTreeMap<String, f64>,
}

impl Answer {
    /// The rollout it is with some reward, to be counted as one.
    pub(crate) fn rollout(&self) -> Option<Rollout> {
        let reward = self.verdict.clone().unwrap_or(Reward { value: 0.0, is_correct: false });
        let (completion, episode) = (self.completion.clone()?, self.episode.clone());
        Some(Rollout { completion, reward, episode })
    }
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
pub(crate) struct Floor<G, R> {
    pub(crate) settings: Arc<Settings>,
    pub(crate) generator: Arc<G>,
    pub(crate) grader: Arc<R>,
    pub(crate) meter: Meter,
    /// One permit per verdict at a time; a verdict's deadline begins when it has one.
    pub(crate) verdict_room: Arc<Semaphore>,
    /// Where episodes take place, and one permit per episode at a time.
    pub(crate) environment: Option<Arc<dyn Environment>>,
    pub(crate) episode_room: Arc<Semaphore>,
}

impl<G, R> std::fmt::Debug for Floor<G, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Floor").finish_non_exhaustive()
    }
}

impl<G, R> Clone for Floor<G, R> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            generator: self.generator.clone(),
            grader: self.grader.clone(),
            meter: self.meter.clone(),
            verdict_room: self.verdict_room.clone(),
            environment: self.environment.clone(),
            episode_room: self.episode_room.clone(),
        }
    }
}

impl<G: Generator, R: Grader> Floor<G, R> {
    /// Samples and judges one training group.
    pub(crate) async fn sample_group(self, group: GroupId, prompt: Prompt) -> Sampled {
        let request = self.settings.training_request(group, &prompt);
        let started = Instant::now();
        let mut retried = Vec::new();
        let answers = self.answers(&prompt, request, Role::Generate, &mut retried).await;
        let result = answers.map_err(|error| error.of_group(group)).map(|(answers, judge_s)| {
            let generate_s = started.elapsed().as_secs_f64() - judge_s;
            Judged { generate_s, judge_s, ..self.judged(&prompt, answers) }
        });
        Sampled { group, retried, result }
    }

    /// As many completions, or episodes, as were asked for, each with its verdict; and the seconds that
    /// verdicts took after the generator.
    pub(crate) async fn answers(
        &self,
        prompt: &Prompt,
        request: SampleRequest,
        role: Role,
        retried: &mut Vec<(u32, String)>,
    ) -> Result<(Vec<Answer>, f64), AnswerError> {
        if self.environment.as_ref().is_some_and(|one| one.plays(&prompt.dataset)) {
            let played = self.episodes(prompt, request, role, retried).await?;
            return Ok((played, 0.0));
        }
        let completions = self.generate(request, role, retried).await?;
        let started = Instant::now();
        let verdicts = self.verdicts(prompt, completions).await?;
        let single = |(completion, verdict)| Answer {
            completion: Some(completion),
            episode: None,
            verdict,
            metrics: BTreeMap::new(),
        };
        Ok((verdicts.into_iter().map(single).collect(), started.elapsed().as_secs_f64()))
    }

    /// All episodes of a group at once, in the order of their seeds.
    async fn episodes(
        &self,
        prompt: &Prompt,
        request: SampleRequest,
        role: Role,
        retried: &mut Vec<(u32, String)>,
    ) -> Result<Vec<Answer>, AnswerError> {
        let prompt = Arc::new(prompt.clone());
        // Dropped, and every episode with it, when the group's own task is given up.
        let mut playing = JoinSet::new();
        for index in 0..request.count as usize {
            let interruptions: Vec<Interruption> =
                request.interruptions.get(index).cloned().into_iter().collect();
            let seed = request.seed.wrapping_add(index as u64);
            let usual = SampleRequest { count: 1, interruptions, seed, ..request.clone() };
            let (floor, prompt) = (self.clone(), prompt.clone());
            playing.spawn(async move {
                let mut retried = Vec::new();
                let answer = floor.episode(&prompt, usual, role, &mut retried).await;
                (index, answer, retried)
            });
        }
        let mut ordered: Vec<Option<Answer>> = vec![None; request.count as usize];
        while let Some(done) = playing.join_next().await {
            let (index, answer, again) = done.map_err(|error| EngineError::Panicked {
                what: "an episode",
                reason: error.to_string(),
            })?;
            retried.extend(again);
            ordered[index] = Some(answer?);
        }
        Ok(ordered.into_iter().flatten().collect())
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

    fn judged(&self, prompt: &Prompt, answers: Vec<Answer>) -> Judged {
        let written = answers.iter().filter_map(Answer::rollout);
        let tokens = written.map(|rollout| rollout.tokens() as u64).sum();
        let (mut rollouts, mut failures) = (Vec::new(), Vec::new());
        for (index, answer) in answers.into_iter().enumerate() {
            match (answer.verdict, answer.completion) {
                (Ok(reward), Some(completion)) => {
                    rollouts.push(Rollout { completion, reward, episode: answer.episode });
                }
                (verdict, _) => {
                    let reason = verdict.err().unwrap_or_default();
                    failures.push(Failure { completion: index as u32, reason });
                }
            }
        }
        let other_form = self.other_form(prompt, &rollouts);
        Judged { rollouts, failures, tokens, other_form, generate_s: 0.0, judge_s: 0.0 }
    }

    /// Right completions in another form than the reference answer's.
    fn other_form(&self, prompt: &Prompt, rollouts: &[Rollout]) -> Option<u32> {
        let single = rollouts.iter().filter(|rollout| rollout.episode.is_none());
        let right = single.filter(|rollout| rollout.reward.is_correct);
        let forms = right.filter_map(|one| self.grader.has_reference_form(prompt, &one.completion));
        let forms: Vec<bool> = forms.collect();
        let others = forms.iter().filter(|is_same| !**is_same).count() as u32;
        (!forms.is_empty()).then_some(others)
    }

    /// The verdict on one completion.
    pub(crate) async fn verdict(
        &self,
        prompt: &Prompt,
        completion: &Completion,
    ) -> Result<Reward, String> {
        let usual = Duration::from_secs_f64(self.settings.recipe.task.verifier_timeout_s);
        let limit = self.grader.deadline(prompt, usual);
        // Held for the length of the verdict; never closed.
        let _permit = self.verdict_room.acquire().await.ok();
        match timeout(limit, self.grader.grade(prompt, completion)).await {
            Ok(Ok(reward)) => Ok(reward),
            Ok(Err(error)) => Err(error.reason),
            Err(_) => Err(format!("no verdict within {} s", limit.as_secs_f64())),
        }
    }

    /// All verdicts of a group at once, in the order of the completions.
    async fn verdicts(
        &self,
        prompt: &Prompt,
        completions: Vec<Completion>,
    ) -> Result<Vec<(Completion, Result<Reward, String>)>, EngineError> {
        let prompt = Arc::new(prompt.clone());
        let count = completions.len();
        // Dropped, and every verdict with it, when the group's own task is given up.
        let mut graders = JoinSet::new();
        for (index, completion) in completions.into_iter().enumerate() {
            let (floor, prompt) = (self.clone(), prompt.clone());
            graders.spawn(async move {
                let verdict = floor.verdict(&prompt, &completion).await;
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

/// Why a prompt has no answers.
#[derive(Debug)]
pub(crate) enum AnswerError {
    Generator(GeneratorError),
    Engine(EngineError),
}

impl AnswerError {
    fn of_group(self, group: GroupId) -> EngineError {
        self.into_engine(|source| EngineError::Sampling { group, source })
    }

    pub(crate) fn into_engine(
        self,
        of_generator: impl FnOnce(GeneratorError) -> EngineError,
    ) -> EngineError {
        match self {
            Self::Generator(source) => of_generator(source),
            Self::Engine(error) => error,
        }
    }
}

impl From<GeneratorError> for AnswerError {
    fn from(error: GeneratorError) -> Self {
        Self::Generator(error)
    }
}

impl From<EngineError> for AnswerError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}
