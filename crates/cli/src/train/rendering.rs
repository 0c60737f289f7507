//! From a problem to the prompt the model sees: chat template, thinking tag, tokens.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use scalerl_engine::Phrases;
use scalerl_model::tokenizer::Tokenizer;
use scalerl_recipe::{Recipe, Thinking};
use scalerl_rollout::Prompt;
use scalerl_serve::tools::Family;
use scalerl_serve::{ChatError, ChatFormat, Extras, Special};
use scalerl_task::{Problem, answer_end};
use serde_json::{Value, json};

use crate::serve::chat::ModelChat;
use crate::train::policy::bad_model;

/// Renders prompts of one recipe for one model.
#[derive(Clone)]
pub(crate) struct Renderer {
    chat: Arc<ModelChat>,
    /// Put at the end of a prompt that does not end with it already.
    open: Option<String>,
}

impl Renderer {
    pub(crate) fn load(recipe: &Recipe, folder: &Path) -> Result<Self> {
        let chat = ModelChat::load(folder).map_err(|error| bad_model(&error))?;
        let open = match &recipe.format.thinking {
            Thinking::Tags { open, opened_by_prompt: true, .. } => Some(open.clone()),
            _ => None,
        };
        Ok(Self { chat: Arc::new(chat), open })
    }

    pub(crate) fn tokenizer(&self) -> Arc<Tokenizer> {
        self.chat.tokenizer()
    }

    /// The model's end tokens.
    pub(crate) fn ends(&self) -> Vec<u32> {
        self.chat.ends().to_vec()
    }

    /// The prompt the model sees.
    pub(crate) fn render(&self, problem: &Problem) -> Result<Prompt, ChatError> {
        let is_plain = problem.messages.first().is_none_or(|first| first.role == "plain");
        let messages: Vec<Value> = problem.messages.iter().map(|m| json!(m)).collect();
        let (text, token_ids) = if is_plain || !self.chat.has_template() {
            let text = self.opened(problem.text());
            let token_ids = self.encode_plain(&text)?;
            (text, token_ids)
        } else {
            let text = ChatFormat::render(self, &messages, &Extras::default())?;
            let token_ids = self.encode(&text)?;
            (text, token_ids)
        };
        Ok(Prompt {
            id: problem.id.clone(),
            dataset: problem.dataset.clone(),
            text,
            token_ids,
            answer: problem.answer.clone(),
        })
    }

    /// With thinking opened, where the format wants that.
    fn opened(&self, mut text: String) -> String {
        if let Some(open) = &self.open
            && !text.trim_end().ends_with(open.as_str())
        {
            text.push_str(open);
        }
        text
    }

    /// What an interruption appends, what ends thinking, and what the answer.
    pub(crate) fn phrases(&self, recipe: &Recipe) -> Result<Phrases> {
        let end_of_answer = answer_end(&recipe.format);
        let Some(close) = recipe.format.thinking_close() else {
            return Ok(Phrases { end_of_answer, ..Phrases::default() });
        };
        let encode = |text: &str| -> Result<Vec<u32>> { Ok(self.encode(text)?) };
        Ok(Phrases {
            interruption: encode(&format!("{}{close}", recipe.format.interruption))?,
            end_of_thinking: encode(close)?,
            end_of_answer,
        })
    }
}

/// The model's own format, with thinking opened: what prompts, environments and agents of a run see.
impl ChatFormat for Renderer {
    fn render(&self, messages: &[Value], extras: &Extras) -> Result<String, ChatError> {
        Ok(self.opened(self.chat.render(messages, extras)?))
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        self.chat.encode(text)
    }

    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        self.chat.encode_plain(text)
    }

    fn decode(&self, token_ids: &[u32], special: Special) -> Result<String, ChatError> {
        self.chat.decode(token_ids, special)
    }

    fn end_tokens(&self) -> &[u32] {
        self.chat.end_tokens()
    }

    fn tool_family(&self) -> Option<Family> {
        self.chat.tool_family()
    }
}
