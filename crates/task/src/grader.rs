//! Who judges completions: the verifier of each data set, on the answer that the format cuts out.
//!
//! A verdict becomes a reward here and nowhere else: right and wrong earn what the recipe says, a
//! score is the reward as it is, and a verdict that failed is an error and no reward.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use scalerl_recipe::{Format, Recipe};
use scalerl_rollout::{Completion, Grader, GraderError, Prompt, PromptId, Reward};

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::worker::VerifierPool;

/// Verifiers by data set, and what they need to know about each prompt.
pub struct TaskGrader {
    format: Format,
    correct_reward: f64,
    wrong_reward: f64,
    verifiers: BTreeMap<String, Arc<VerifierPool>>,
    problems: HashMap<PromptId, Arc<Problem>>,
}

impl fmt::Debug for TaskGrader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets: Vec<&String> = self.verifiers.keys().collect();
        f.debug_struct("TaskGrader").field("verifiers", &sets).finish_non_exhaustive()
    }
}

impl TaskGrader {
    /// Judges answers to `problems`, each by the verifier of its data set.
    pub fn new(
        recipe: &Recipe,
        verifiers: BTreeMap<String, Arc<VerifierPool>>,
        problems: impl Iterator<Item = Problem>,
    ) -> Self {
        Self {
            format: recipe.format.clone(),
            correct_reward: recipe.task.correct_reward,
            wrong_reward: recipe.task.wrong_reward,
            verifiers,
            problems: problems.map(|problem| (problem.id.clone(), Arc::new(problem))).collect(),
        }
    }

    /// The problem behind a prompt.
    pub fn problem(&self, id: &PromptId) -> Option<Arc<Problem>> {
        self.problems.get(id).cloned()
    }

    /// Verdicts to ask for at once: what the narrowest of the verifiers works on, so that none is asked
    /// for more than it can begin with.
    pub fn verdicts_at_once(&self) -> usize {
        self.verifiers.values().map(|pool| pool.at_once()).min().unwrap_or(1)
    }

    fn reward(&self, outcome: Outcome) -> Result<Reward, GraderError> {
        let reward = |value, is_correct| Ok(Reward { value, is_correct });
        match outcome {
            Outcome::Correct => reward(self.correct_reward, true),
            Outcome::Incorrect => reward(self.wrong_reward, false),
            Outcome::Scored { score, is_correct } => reward(score, is_correct),
            Outcome::Undecided { reason } => Err(GraderError::new(format!("undecided: {reason}"))),
            Outcome::Error { reason } => Err(GraderError { reason }),
        }
    }
}

/// Characters; what is longer is no answer to be compared by its form.
const LONGEST_REFERENCE: usize = 60;

/// What is left of an answer without its words and values: `12` and `7` are `0`, `5 + 2` is `0+0`.
fn form(answer: &str) -> String {
    let mut form = String::new();
    for character in answer.chars().filter(|character| !character.is_whitespace()) {
        let kind = match character {
            digit if digit.is_numeric() => '0',
            letter if letter.is_alphabetic() => 'a',
            other => other,
        };
        if !(matches!(kind, '0' | 'a') && form.ends_with(kind)) {
            form.push(kind);
        }
    }
    form
}

/// After a pool's own deadline, for its verdict to reach us.
const GRACE: Duration = Duration::from_secs(2);

impl Grader for TaskGrader {
    fn deadline(&self, prompt: &Prompt, usual: Duration) -> Duration {
        let pool = self.verifiers.get(&prompt.dataset);
        pool.map_or(usual, |pool| usual.max(pool.deadline() + GRACE))
    }

    fn has_reference_form(&self, prompt: &Prompt, completion: &Completion) -> Option<bool> {
        let reference = prompt.answer.trim();
        let is_compared = !reference.is_empty() && reference.len() <= LONGEST_REFERENCE;
        let answer = Answer::cut(&self.format, completion.text.clone());
        let answer = answer.text().filter(|_| is_compared)?.trim().to_owned();
        Some(form(&answer) == form(reference))
    }

    async fn grade(&self, prompt: &Prompt, completion: &Completion) -> Result<Reward, GraderError> {
        let missing = |what: &str, name: &str| GraderError::new(format!("no {what} {name}"));
        let verifier = self.verifiers.get(&prompt.dataset).cloned();
        let verifier = verifier.ok_or_else(|| missing("verifier for data set", &prompt.dataset))?;
        let problem = self.problem(&prompt.id);
        let problem = problem.ok_or_else(|| missing("problem behind prompt", &prompt.id.0))?;
        let answer = Answer::of(&self.format, completion);
        // The pool has a deadline of its own, so this thread comes back.
        let judged = tokio::task::spawn_blocking(move || verifier.verify(problem, answer)).await;
        self.reward(judged.map_err(|error| GraderError::new(error.to_string()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::exact::ExactVerifier;
    use scalerl_recipe::Source;
    use scalerl_rollout::FinishReason;

    fn grader() -> TaskGrader {
        let source = Source::Text { name: "test".into(), text: "task.wrong_reward = -0.5".into() };
        let recipe = Recipe::load(&[source], &[]).unwrap();
        let exact = ExactVerifier { ignore_case: false, ignore_blanks: true };
        let pool = VerifierPool::new(Box::new(exact), 1, Duration::from_secs(5));
        let verifiers = [("sums".to_owned(), Arc::new(pool))].into();
        TaskGrader::new(
            &recipe,
            verifiers,
            [Problem::plain("1+1=", "2").named("sums", 1)].into_iter(),
        )
    }

    fn prompt(row: u32) -> Prompt {
        Prompt {
            id: PromptId(format!("sums/{row}")),
            dataset: "sums".into(),
            text: "1+1=".into(),
            token_ids: vec![1],
            answer: "2".into(),
        }
    }

    fn said(text: &str) -> Completion {
        Completion {
            token_ids: vec![],
            logprobs: vec![],
            versions: vec![],
            is_injected: vec![],
            text: text.into(),
            thinking_tokens: 0,
            finish: FinishReason::Stop,
        }
    }

    #[tokio::test]
    async fn verdicts_become_rewards_and_missing_ones_errors() {
        let grader = grader();
        let usual = Duration::from_secs(1);
        assert!(grader.deadline(&prompt(1), usual) > Duration::from_secs(5), "after the pool's");
        for (text, value, is_correct) in
            [("hm</think>2", 1.0, true), ("hm</think>3", -0.5, false), ("2", -0.5, false)]
        {
            let reward = grader.grade(&prompt(1), &said(text)).await;
            assert_eq!(reward, Ok(Reward { value, is_correct }), "{text}");
        }
        assert!(grader.grade(&prompt(2), &said("2")).await.is_err());
    }

    #[test]
    fn a_sum_in_place_of_its_value_is_another_form() {
        let asked = |text: &str| grader().has_reference_form(&prompt(1), &said(text));
        assert_eq!(asked("hm</think>17"), Some(true));
        assert_eq!(asked("hm</think> 1 + 1 "), Some(false));
        assert_eq!(asked("no answer"), None);
        assert_eq!(form("\\frac{12}{7} cm"), "\\a{0}{0}a");
    }

    #[test]
    fn a_score_is_the_reward_and_a_failure_is_none() {
        let scored = grader().reward(Outcome::Scored { score: 0.7, is_correct: true });
        assert_eq!(scored, Ok(Reward { value: 0.7, is_correct: true }));
        for outcome in [Outcome::undecided("hm"), Outcome::error("broken")] {
            assert!(grader().reward(outcome).is_err());
        }
    }
}
