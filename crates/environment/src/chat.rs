//! How conversations become tokens, as drivers need it.

use std::sync::Arc;

use scalerl_serve::tools::{self, Family, Message};
use scalerl_serve::{ChatError, ChatFormat, Extras};
use serde_json::{Value, json};

/// Stands for a turn of the policy, so that what the template writes after it can be told apart.
const WRITTEN: &str = "[the turn that was written]";

/// A model's chat format; messages of role `plain` are text without any.
#[derive(Clone)]
pub struct Chat {
    format: Arc<dyn ChatFormat>,
}

impl Chat {
    /// Over a model's own format.
    pub fn new(format: Arc<dyn ChatFormat>) -> Self {
        Self { format }
    }

    /// The format itself, for a server.
    pub fn format(&self) -> Arc<dyn ChatFormat> {
        self.format.clone()
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
    pub fn gap(&self, written: &[u32], said: &[Value]) -> Result<Vec<u32>, ChatError> {
        if is_plain(said) {
            return self.format.encode(&joined(said, ""));
        }
        let before = [
            json!({"role": "user", "content": "-"}),
            json!({"role": "assistant", "content": WRITTEN}),
        ];
        let messages: Vec<Value> = before.into_iter().chain(said.iter().cloned()).collect();
        let text = self.format.render(&messages, &Extras::default())?;
        let at = text.rfind(WRITTEN).ok_or_else(|| {
            ChatError::Template("it does not show what the assistant wrote".to_owned())
        })?;
        let gap = self.format.encode(&text[at + WRITTEN.len()..])?;
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

fn joined(messages: &[Value], between: &str) -> String {
    let texts = messages.iter().filter_map(|message| message["content"].as_str());
    texts.collect::<Vec<_>>().join(between)
}
