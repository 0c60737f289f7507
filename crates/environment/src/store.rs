//! The built-in toy: numbers behind letters, read and added by turns (`scalerl_task::synthetic::store`).

use std::collections::BTreeMap;

use scalerl_rollout::{EnvironmentError, EpisodeVerdict, Outcome, Pending, Reward};
use scalerl_task::synthetic::store::{Numbers, Response, TURN_END};
use serde_json::{Value, json};

use crate::{Chat, Conversation, Driver, Task, Written};

/// Plays the store.
pub struct StoreDriver {
    correct_reward: f64,
    wrong_reward: f64,
    chat: Chat,
}

impl StoreDriver {
    /// With what right and wrong answers earn.
    pub fn new((correct_reward, wrong_reward): (f64, f64), chat: Chat) -> Self {
        Self { correct_reward, wrong_reward, chat }
    }

    async fn episode(&self, task: Task) -> Result<Outcome, EnvironmentError> {
        let numbers = Numbers::of(&task.problem.fields)
            .ok_or_else(|| EnvironmentError::new("the problem has no numbers"))?;
        let messages: Vec<Value> = task.problem.messages.iter().map(|one| json!(one)).collect();
        let tokens = task.prompt.token_ids.clone();
        let begun = Conversation::new(&messages, tokens, task.policy, self.chat.clone());
        let mut conversation = begun.ending_at(&[TURN_END]);
        let mut turns = 0.0;
        let answered = loop {
            let Written::Turn(turn) = conversation.turn().await? else { break None };
            turns += 1.0;
            match numbers.respond(&turn.text) {
                Response::Says(text) => conversation.say("plain", &text).await?,
                Response::Answered(answer) => break Some(answer),
            }
        };
        let is_correct = answered.is_some_and(|answer| answer.to_string() == task.problem.answer);
        let value = if is_correct { self.correct_reward } else { self.wrong_reward };
        Ok(Outcome {
            verdict: EpisodeVerdict::Reward(Reward { value, is_correct }),
            is_truncated: answered.is_none(),
            metrics: BTreeMap::from([("turns".to_owned(), turns)]),
        })
    }
}

impl Driver for StoreDriver {
    fn play(&self, task: Task) -> Pending<'_, Result<Outcome, EnvironmentError>> {
        Box::pin(self.episode(task))
    }
}
