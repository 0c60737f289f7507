//! What the server needs of a model beside its tokens: how a conversation is written, and text to
//! tokens and back.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::tools::{END_OF_MESSAGE, Family};

/// What a conversation has beside its messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extras {
    /// What the model may call, as the client described it.
    pub tools: Vec<Value>,
    /// Variables that some templates look at, such as `enable_thinking`.
    pub variables: Map<String, Value>,
}

/// Whether special tokens show in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// They do.
    Show,
    /// They do not.
    Hide,
}

/// Why a conversation or a text could not be turned into tokens, or tokens into text.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ChatError {
    #[error("this model has no chat template; use /v1/completions")]
    NoTemplate,
    #[error("the chat template refuses these messages: {0}")]
    Template(String),
    #[error("the tokenizer: {0}")]
    Tokenizer(String),
}

impl ChatError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoTemplate => "use a model with a chat template, or plain prompts",
            Self::Template(_) => {
                "look at the messages, and at chat_template in the model's tokenizer_config.json"
            }
            Self::Tokenizer(_) => "is the model's tokenizer.json complete?",
        }
    }
}

/// A model's way of writing conversations. Calls may take milliseconds.
pub trait ChatFormat: Send + Sync + 'static {
    /// The conversation as text, open for the assistant's next message. Each message is an object
    /// with `role` and `content`, perhaps `tool_calls` whose arguments are objects.
    fn render(&self, messages: &[Value], extras: &Extras) -> Result<String, ChatError>;

    /// Tokens of a text that has its markers already, as [`ChatFormat::render`] writes them.
    fn encode(&self, text: &str) -> Result<Vec<u32>, ChatError>;

    /// Tokens of a plain text, with the markers (a start token) that the model expects.
    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ChatError>;

    /// Tokens as text.
    fn decode(&self, token_ids: &[u32], special: Special) -> Result<String, ChatError>;

    /// Tokens with which the model ends a text.
    fn end_tokens(&self) -> &[u32];

    /// The form of tool calls that the model was taught, if any.
    fn tool_family(&self) -> Option<Family>;

    /// Whether the model has written the end with which `gap`, what the template puts after its turn,
    /// begins: then it is not written twice. Llama 3 ends a turn that calls a tool with a mark of its
    /// own, in place of the one that its template writes.
    fn has_written_end(&self, turn: &[u32], gap: &[u32]) -> bool {
        let (Some(last), Some(first)) = (turn.last(), gap.first()) else { return false };
        let is_end = |id: &u32| self.end_tokens().contains(id);
        let is_end_of_call = || {
            self.tool_family() == Some(Family::Llama3)
                && self.decode(&[*last], Special::Show).is_ok_and(|text| text == END_OF_MESSAGE)
        };
        is_end(first) && (last == first || is_end(last) && is_end_of_call())
    }
}
