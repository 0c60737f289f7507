//! How conversations become tokens, as drivers need it.

use std::sync::Arc;

use scalerl_serve::tools::{self, Family, Message};
use scalerl_serve::{ChatError, ChatFormat, Extras};
use serde_json::{Value, json};

/// More bytes than any token of a vocabulary has: what is longer has no room, whatever it says.
const MOST_TOKEN_BYTES: usize = 256;

/// A model's chat format; messages of role `plain` are text without any.
#[derive(Clone)]
pub struct Chat {
    format: Arc<dyn ChatFormat>,
    most_bytes: usize,
}

/// How the two sides of a conversation are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Not at all: one text.
    Plain,
    /// By the model's template.
    Chat,
}

impl Chat {
    /// Over a model's own format.
    pub fn new(format: Arc<dyn ChatFormat>) -> Self {
        Self { format, most_bytes: usize::MAX }
    }

    /// The same for contexts of so many tokens.
    #[must_use]
    pub fn within(mut self, tokens: u32) -> Self {
        self.most_bytes = MOST_TOKEN_BYTES * tokens as usize;
        self
    }

    /// The format itself, for a server.
    pub fn format(&self) -> Arc<dyn ChatFormat> {
        self.format.clone()
    }

    /// How a conversation that begins so goes on.
    pub fn form(&self, messages: &[Value]) -> Form {
        let probe = [json!({"role": "user", "content": "-"})];
        let rendered = || self.format.render(&probe, &Extras::default());
        if is_plain(messages) || matches!(rendered(), Err(ChatError::NoTemplate)) {
            Form::Plain
        } else {
            Form::Chat
        }
    }

    /// Whether so much cannot fit into any context.
    pub fn is_too_long(&self, messages: &[Value]) -> bool {
        bytes(messages) > self.most_bytes
    }

    /// Tokens of a whole conversation, up to where the policy writes. `tools` are JSON schemas as
    /// OpenAI's API has them.
    pub fn open(&self, messages: &[Value], tools: &[Value]) -> Result<Vec<u32>, ChatError> {
        if is_plain(messages) {
            return self.format.encode_plain(&joined(messages, "\n"));
        }
        let extras = Extras { tools: tools.to_vec(), ..Extras::default() };
        self.format.encode(&self.format.render(messages, &extras)?)
    }

    /// Tokens that stand between `written`, a turn of the policy, and its next turn, where `said` was
    /// said in between. Nothing before is made into tokens again.
    pub fn gap(&self, form: Form, written: &[u32], said: &[Value]) -> Result<Vec<u32>, ChatError> {
        // Silence is plain too: in a chat the turn before it is closed all the same.
        if is_plain(said) && (form == Form::Plain || !said.is_empty()) {
            return self.format.encode(&joined(said, ""));
        }
        let user = json!({"role": "user", "content": "-"});
        let turn = json!({"role": "assistant", "content": ""});
        let messages: Vec<Value> = [user, turn].into_iter().chain(said.iter().cloned()).collect();
        let gap = scalerl_serve::gap(&*self.format, &messages, 1, &Extras::default())?;
        let gap = gap.ok_or_else(|| {
            ChatError::Template("it does not show what the assistant wrote".to_owned())
        })?;
        let gap = self.format.encode(&gap)?;
        let is_ended = self.format.has_written_end(written, &gap);
        Ok(gap[usize::from(is_ended)..].to_vec())
    }

    /// The form of tool calls that the model was taught, if any.
    pub fn tool_family(&self) -> Option<Family> {
        self.format.tool_family()
    }

    /// What a turn says and calls.
    pub fn parse(&self, text: &str) -> Message {
        match self.tool_family() {
            Some(family) => tools::parse(family, text),
            None => Message { content: text.to_owned(), tool_calls: Vec::new() },
        }
    }
}

fn is_plain(messages: &[Value]) -> bool {
    messages.iter().all(|message| message["role"] == "plain")
}

/// Of all texts together.
pub(crate) fn bytes(messages: &[Value]) -> usize {
    messages.iter().filter_map(|message| message["content"].as_str()).map(str::len).sum()
}

fn joined(messages: &[Value], between: &str) -> String {
    let texts = messages.iter().filter_map(|message| message["content"].as_str());
    texts.collect::<Vec<_>>().join(between)
}
