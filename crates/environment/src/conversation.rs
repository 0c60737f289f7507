//! An episode whose loop is ours: tokens so far, turns of the policy, what the environment says.

use std::sync::Arc;

use scalerl_rollout::{Completion, EnvironmentError, GeneratorError, Policy, SampleRequest};
use scalerl_serve::ChatError;
use serde_json::{Value, json};

use crate::chat::{Chat, Form, bytes};

/// What is longer is made into tokens on a thread of its own: others wait for this one.
const LONG_BYTES: usize = 16 << 10;

/// The tokens of one episode, growing by turns.
pub struct Conversation {
    policy: Arc<dyn Policy>,
    chat: Chat,
    form: Form,
    tokens: Vec<u32>,
    /// Of the last turn.
    written: Vec<u32>,
    stop: Vec<String>,
    /// The environment has said more than any context holds.
    is_full: bool,
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
    /// Begins with the tokens of a prompt that says these messages.
    pub fn new(messages: &[Value], prompt: Vec<u32>, policy: Arc<dyn Policy>, chat: Chat) -> Self {
        let form = chat.form(messages);
        let (written, stop) = (Vec::new(), Vec::new());
        Self { policy, chat, form, tokens: prompt, written, stop, is_full: false }
    }

    /// Begins with messages, and tools that the policy may call.
    pub async fn open(
        messages: Vec<Value>,
        tools: Vec<Value>,
        policy: Arc<dyn Policy>,
        chat: Chat,
    ) -> Result<Self, EnvironmentError> {
        if chat.is_too_long(&messages) {
            let reason = format!("the first context has {} bytes", bytes(&messages));
            return Err(EnvironmentError::new(format!("{reason}, for which there is no room")));
        }
        let mut begun = Self::new(&messages, Vec::new(), policy, chat.clone());
        let length = bytes(&messages);
        begun.tokens = tokens(length, move || chat.open(&messages, &tools)).await?;
        Ok(begun)
    }

    /// Texts that end a turn, beside the recipe's.
    #[must_use]
    pub fn ending_at(mut self, stop: &[&str]) -> Self {
        self.stop = stop.iter().map(|text| (*text).to_owned()).collect();
        self
    }

    /// Asks the policy for its next turn.
    pub async fn turn(&mut self) -> Result<Written, EnvironmentError> {
        if self.is_full {
            return Ok(Written::OutOfRoom);
        }
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
    pub async fn say(&mut self, role: &str, text: &str) -> Result<(), EnvironmentError> {
        self.say_all(vec![json!({"role": role, "content": text})]).await
    }

    /// The environment says several things at once, or nothing: the turn is over all the same.
    pub async fn say_all(&mut self, messages: Vec<Value>) -> Result<(), EnvironmentError> {
        self.is_full = self.is_full || self.chat.is_too_long(&messages);
        if self.is_full {
            return Ok(());
        }
        let (chat, form, written) = (self.chat.clone(), self.form, self.written.clone());
        let length = bytes(&messages);
        let gap = tokens(length, move || chat.gap(form, &written, &messages)).await?;
        self.tokens.extend(gap);
        Ok(())
    }
}

/// Tokens of `length` bytes of text.
async fn tokens(
    length: usize,
    make: impl FnOnce() -> Result<Vec<u32>, ChatError> + Send + 'static,
) -> Result<Vec<u32>, EnvironmentError> {
    let made = match length {
        ..LONG_BYTES => make(),
        _ => tokio::task::spawn_blocking(make).await.map_err(EnvironmentError::new)?,
    };
    made.map_err(EnvironmentError::new)
}
