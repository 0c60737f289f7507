//! An episode whose loop is ours: tokens so far, turns of the policy, what the environment says.

use std::sync::Arc;

use scalerl_rollout::{Completion, EnvironmentError, GeneratorError, Policy, SampleRequest};
use serde_json::{Value, json};

use crate::Chat;

/// The tokens of one episode, growing by turns.
pub struct Conversation {
    policy: Arc<dyn Policy>,
    chat: Chat,
    tokens: Vec<u32>,
    /// Of the last turn.
    written: Vec<u32>,
    stop: Vec<String>,
}

/// How asking for a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// The policy wrote.
    Turn(Completion),
    /// No turns or no room are left: the episode is truncated.
    OutOfRoom,
}

impl Conversation {
    /// Begins with the tokens of a prompt.
    pub fn new(prompt: Vec<u32>, policy: Arc<dyn Policy>, chat: Chat) -> Self {
        Self { policy, chat, tokens: prompt, written: Vec::new(), stop: Vec::new() }
    }

    /// Texts that end a turn, beside the recipe's.
    #[must_use]
    pub fn ending_at(mut self, stop: &[&str]) -> Self {
        self.stop = stop.iter().map(|text| (*text).to_owned()).collect();
        self
    }

    /// Asks the policy for its next turn.
    pub async fn turn(&mut self) -> Result<Written, EnvironmentError> {
        let request = SampleRequest::turn(self.tokens.clone(), self.stop.clone());
        let answer = self.policy.generate(request, None).await;
        let completion = match answer {
            Ok(completions) => completions.into_iter().next(),
            Err(GeneratorError::TooLong { .. } | GeneratorError::Refused { .. }) => {
                return Ok(Written::OutOfRoom);
            }
            Err(error) => return Err(EnvironmentError::new(error)),
        };
        let completion =
            completion.ok_or_else(|| EnvironmentError::new("the policy answered with nothing"))?;
        self.tokens.extend(&completion.token_ids);
        self.written.clone_from(&completion.token_ids);
        Ok(Written::Turn(completion))
    }

    /// The environment says something to the policy.
    pub fn say(&mut self, role: &str, text: &str) -> Result<(), EnvironmentError> {
        self.say_all(&[json!({"role": role, "content": text})])
    }

    /// The environment says several things at once.
    pub fn say_all(&mut self, messages: &[Value]) -> Result<(), EnvironmentError> {
        let gap = self.chat.gap(&self.written, messages).map_err(EnvironmentError::new)?;
        self.tokens.extend(gap);
        Ok(())
    }
}
