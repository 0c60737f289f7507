//! Prompts and verdicts of `scalerl-task`, as the engine asks for them.
//!
//! [`TaskPrompts`] joins sampler and curriculum: what was handed out is the engine's to remember,
//! so the sampler's own list of prompts in flight stays empty. [`TaskGrader`] puts the blocking
//! verifiers of each data set behind a future; they get the whole text and find the answer in it
//! by their own options.
//!
//! [`Problems`] is a recipe's choice of both.
//!
//! Not here: reading data and verifiers themselves (`scalerl-task`), templates and tokens (the CLI's
//! `render`).

mod problems;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use scalerl_journal::Place;
use scalerl_recipe::Curriculum as CurriculumChoice;
use scalerl_rollout::{Completion, Prompt, PromptId, Reward};
use scalerl_task::{
    Outcome, Question, VerifierPool,
    curriculum::{self, Curriculum, CurriculumConfig},
    data::{self, Pool},
    sampler::{Sampler, SamplerState},
};
use serde::{Deserialize, Serialize};

pub use problems::{HELD_OUT, Problems, ProblemsError, operator, synthetic};

use crate::source::{Grader, GraderError, Handout, PassRecord, PromptSource, SourceError};

/// Makes the prompt the model sees out of a row: template and tokens.
pub type Render = Box<dyn FnMut(&data::Prompt) -> Prompt + Send>;

/// Training prompts in the sampler's order, without those the curriculum excludes.
pub struct TaskPrompts {
    pool: Pool,
    sampler: Sampler,
    curriculum: Curriculum,
    config: CurriculumConfig,
    render: Render,
}

impl fmt::Debug for TaskPrompts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskPrompts").field("config", &self.config).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Saved {
    sampler: SamplerState,
    curriculum: Curriculum,
}

impl TaskPrompts {
    /// From the beginning.
    pub fn new(pool: Pool, seed: u64, choice: &CurriculumChoice, render: Render) -> Self {
        let config = match choice {
            CurriculumChoice::None => CurriculumConfig::None,
            CurriculumChoice::NoPositiveResampling { threshold } => {
                CurriculumConfig::NoPositiveResampling { threshold: *threshold }
            }
        };
        let sampler = Sampler::new(pool.clone(), seed);
        Self { pool, sampler, curriculum: Curriculum::new(), config, render }
    }
}

fn source_error(error: &dyn fmt::Display) -> SourceError {
    SourceError { reason: error.to_string() }
}

impl PromptSource for TaskPrompts {
    fn next(&mut self) -> Result<Option<Handout>, SourceError> {
        let (curriculum, config) = (&self.curriculum, self.config);
        let is_excluded = |prompt: &data::Prompt| curriculum.is_excluded(&prompt.id, config);
        let Some((place, prompt)) = self.sampler.next(is_excluded) else { return Ok(None) };
        let prompt = (self.render)(prompt);
        self.sampler.consume(place).map_err(|error| source_error(&error))?;
        let place = Place {
            dataset: place.dataset as u32,
            epoch: place.epoch,
            position: place.position as u64,
        };
        Ok(Some(Handout { place, prompt }))
    }

    fn record(&mut self, prompt: &PromptId, record: PassRecord) -> Result<(), SourceError> {
        let PassRecord { step, passed, judged } = record;
        let record = curriculum::PassRecord { step, passed, judged };
        self.curriculum.record(&prompt.0, record).map_err(|error| source_error(&error))
    }

    fn state(&self) -> Result<serde_json::Value, SourceError> {
        let saved = Saved { sampler: self.sampler.state(), curriculum: self.curriculum.clone() };
        serde_json::to_value(saved).map_err(|error| source_error(&error))
    }

    fn restore(&mut self, state: serde_json::Value) -> Result<(), SourceError> {
        let saved: Saved = serde_json::from_value(state).map_err(|error| source_error(&error))?;
        self.sampler = Sampler::resume(self.pool.clone(), &saved.sampler)
            .map_err(|error| source_error(&error))?;
        self.curriculum = saved.curriculum;
        Ok(())
    }
}

/// Verifiers by data set, and what they need to know about each prompt.
pub struct TaskGrader {
    /// Reward of a right answer.
    pub correct_reward: f64,
    /// Reward of a wrong one.
    pub wrong_reward: f64,
    /// The judge of each data set.
    pub verifiers: BTreeMap<String, Arc<VerifierPool>>,
    /// The gold side of each prompt, training and evaluation.
    pub questions: HashMap<PromptId, Question>,
}

impl fmt::Debug for TaskGrader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets: Vec<&String> = self.verifiers.keys().collect();
        f.debug_struct("TaskGrader").field("verifiers", &sets).finish_non_exhaustive()
    }
}

/// After a pool's own deadline, for its verdict to reach us.
const GRACE: Duration = Duration::from_secs(2);

impl Grader for TaskGrader {
    fn deadline(&self, prompt: &Prompt, usual: Duration) -> Duration {
        let pool = self.verifiers.get(&prompt.dataset);
        pool.map_or(usual, |pool| usual.max(pool.deadline() + GRACE))
    }

    async fn grade(&self, prompt: &Prompt, completion: &Completion) -> Result<Reward, GraderError> {
        let missing = |what: &str, name: &str| GraderError { reason: format!("no {what} {name}") };
        let verifier = self.verifiers.get(&prompt.dataset).cloned();
        let verifier = verifier.ok_or_else(|| missing("verifier for data set", &prompt.dataset))?;
        let question = self.questions.get(&prompt.id).cloned();
        let question = question.ok_or_else(|| missing("question for prompt", &prompt.id.0))?;
        let text = completion.text.clone();
        // The pool has a deadline of its own, so this thread comes back.
        let judged = tokio::task::spawn_blocking(move || verifier.verify(question, text)).await;
        let reward = |value, is_correct| Ok(Reward { value, is_correct });
        match judged {
            Ok(Outcome::Correct) => reward(self.correct_reward, true),
            Ok(Outcome::Incorrect) => reward(self.wrong_reward, false),
            Ok(Outcome::Undecided { reason }) => {
                Err(GraderError { reason: format!("undecided: {reason}") })
            }
            Ok(Outcome::Error { reason }) => Err(GraderError { reason }),
            Err(error) => Err(GraderError { reason: error.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_task::VerifierConfig;
    use scalerl_task::data::Message;

    fn row(index: usize) -> data::Prompt {
        data::Prompt {
            id: format!("sums/{index}"),
            dataset: "sums".into(),
            messages: vec![Message { role: "plain".into(), content: format!("{index}+1=") }],
            question: Question::with_answer((index + 1).to_string()),
        }
    }

    fn rendered(row: &data::Prompt) -> Prompt {
        Prompt {
            id: PromptId(row.id.clone()),
            dataset: row.dataset.clone(),
            text: row.text(),
            token_ids: row.text().bytes().map(u32::from).collect(),
            answer: row.question.answer.clone(),
        }
    }

    fn prompts() -> TaskPrompts {
        let pool = Pool::try_new(vec![("sums".into(), 1.0, (0..9).map(row).collect())]).unwrap();
        let choice = CurriculumChoice::NoPositiveResampling { threshold: 0.9 };
        TaskPrompts::new(pool, 3, &choice, Box::new(rendered))
    }

    fn is_solved(handout: &Handout) -> bool {
        ["sums/0", "sums/3", "sums/6"].contains(&handout.prompt.id.0.as_str())
    }

    /// Hands out and records; every third prompt is solved.
    fn take(prompts: &mut TaskPrompts, count: u64) -> Vec<Handout> {
        let mut taken = Vec::new();
        for step in 0..count {
            let handout = prompts.next().unwrap().unwrap();
            let passed = if is_solved(&handout) { 4 } else { 1 };
            let record = PassRecord { step, passed, judged: 4 };
            prompts.record(&handout.prompt.id, record).unwrap();
            taken.push(handout);
        }
        taken
    }

    #[test]
    fn a_restored_source_hands_out_what_would_have_come_next() {
        let mut straight = prompts();
        let all = take(&mut straight, 24);
        for stop in [0, 1, 5, 9, 13, 20] {
            let mut first = prompts();
            let mut taken = take(&mut first, stop);
            let text = serde_json::to_string(&first.state().unwrap()).unwrap();
            let mut second = prompts();
            second.restore(serde_json::from_str(&text).unwrap()).unwrap();
            taken.extend(take(&mut second, 24 - stop));
            assert_eq!(taken, all, "stopped after {stop}");
        }
        let solved: Vec<u64> =
            all.iter().filter(|one| is_solved(one)).map(|one| one.place.epoch).collect();
        assert_eq!(solved, [0, 0, 0], "a solved prompt does not come again");
    }

    #[test]
    fn a_state_of_other_data_is_refused() {
        let state = prompts().state().unwrap();
        let pool = Pool::try_new(vec![("sums".into(), 1.0, (0..4).map(row).collect())]).unwrap();
        let mut other = TaskPrompts::new(pool, 3, &CurriculumChoice::None, Box::new(rendered));
        assert!(other.restore(state).unwrap_err().to_string().contains("other data"));
    }

    #[tokio::test]
    async fn verdicts_become_rewards_and_missing_ones_errors() {
        let config: VerifierConfig = serde_json::from_str("{\"type\":\"exact\"}").unwrap();
        let pool = VerifierPool::new(config.build().unwrap(), 1, Duration::from_secs(5));
        let prompt = rendered(&row(1));
        let grader = TaskGrader {
            correct_reward: 1.0,
            wrong_reward: -1.0,
            verifiers: [("sums".to_owned(), Arc::new(pool))].into(),
            questions: [(prompt.id.clone(), row(1).question)].into(),
        };
        let said = |text: &str| Completion {
            token_ids: vec![],
            logprobs: vec![],
            versions: vec![],
            is_injected: vec![],
            text: text.into(),
            thinking_tokens: 0,
            finish: scalerl_rollout::FinishReason::Stop,
        };
        let usual = Duration::from_secs(1);
        assert!(grader.deadline(&prompt, usual) > Duration::from_secs(5), "after the pool's own");
        let right = grader.grade(&prompt, &said("hm</think>2")).await;
        assert_eq!(right, Ok(Reward { value: 1.0, is_correct: true }));
        let wrong = grader.grade(&prompt, &said("hm</think>3")).await;
        assert_eq!(wrong, Ok(Reward { value: -1.0, is_correct: false }));
        let unknown = rendered(&row(2));
        assert!(grader.grade(&unknown, &said("3")).await.is_err());
    }
}
