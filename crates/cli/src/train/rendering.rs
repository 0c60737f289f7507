//! From a problem to the prompt the model sees: chat template, thinking tag, tokens.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use scalerl_engine::Phrases;
use scalerl_environment::Chat;
use scalerl_model::error::LoadError;
use scalerl_model::template::{ChatTemplate, Prompt as Turn};
use scalerl_model::tokenizer::{Markers, Tokenizer};
use scalerl_recipe::{Recipe, Thinking};
use scalerl_rollout::Prompt;
use scalerl_task::{Problem, answer_end};
use serde_json::{Value, json};

use crate::train::policy::bad_model;

/// Renders prompts of one recipe for one model.
#[derive(Clone)]
pub(crate) struct Renderer {
    pub(crate) tokenizer: Arc<Tokenizer>,
    template: Option<Arc<ChatTemplate>>,
    /// Put at the end of a prompt that does not end with it already.
    open: Option<String>,
}

impl Renderer {
    pub(crate) fn load(recipe: &Recipe, folder: &Path) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder).map_err(|error| bad_model(&error))?;
        let template = ChatTemplate::load(folder).map_err(|error| bad_model(&error))?;
        let open = match &recipe.format.thinking {
            Thinking::Tags { open, opened_by_prompt: true, .. } => Some(open.clone()),
            _ => None,
        };
        Ok(Self { tokenizer: Arc::new(tokenizer), template: template.map(Arc::new), open })
    }

    /// The prompt the model sees.
    pub(crate) fn render(&self, problem: &Problem) -> Result<Prompt, LoadError> {
        let messages: Vec<Value> = problem.messages.iter().map(|m| json!(m)).collect();
        let (text, markers) = self.opened(&messages, &[])?;
        let token_ids = self.encode(&text, markers)?;
        Ok(Prompt {
            id: problem.id.clone(),
            dataset: problem.dataset.clone(),
            text,
            token_ids,
            answer: problem.answer.clone(),
        })
    }

    /// A conversation up to where the policy writes: by the template, or as plain text.
    fn conversation(
        &self,
        messages: &[Value],
        tools: &[Value],
    ) -> Result<(String, Markers), LoadError> {
        let is_plain = messages.first().is_none_or(|first| first["role"] == "plain");
        match &self.template {
            Some(template) if !is_plain => {
                Ok((template.render(messages, Turn::Open)?, Markers::Leave))
            }
            _ => {
                let texts = messages.iter().filter_map(|message| message["content"].as_str());
                Ok((texts.collect::<Vec<_>>().join("\n"), Markers::Add))
            }
        }
    }

    /// The same with thinking opened, where the format wants that.
    fn opened(&self, messages: &[Value], tools: &[Value]) -> Result<(String, Markers), LoadError> {
        let (mut text, markers) = self.conversation(messages, tools)?;
        if let Some(open) = self.missing_open(&text) {
            text.push_str(open);
        }
        Ok((text, markers))
    }

    fn missing_open(&self, text: &str) -> Option<&str> {
        self.open.as_deref().filter(|open| !text.trim_end().ends_with(open))
    }

    fn encode(&self, text: &str, markers: Markers) -> Result<Vec<u32>, LoadError> {
        let tokens = self.tokenizer.encode(text, markers)?;
        Ok(tokens.iter().map(|id| *id as u32).collect())
    }

    /// What an interruption appends, what ends thinking, and what the answer.
    pub(crate) fn phrases(&self, recipe: &Recipe) -> Result<Phrases> {
        let end_of_answer = answer_end(&recipe.format);
        let Some(close) = recipe.format.thinking_close() else {
            return Ok(Phrases { end_of_answer, ..Phrases::default() });
        };
        let encode = |text: &str| -> Result<Vec<u32>> {
            let tokens = self.tokenizer.encode(text, Markers::Leave);
            let tokens = tokens.map_err(|error| bad_model(&error))?;
            Ok(tokens.iter().map(|id| *id as u32).collect())
        };
        Ok(Phrases {
            interruption: encode(&format!("{}{close}", recipe.format.interruption))?,
            end_of_thinking: encode(close)?,
            end_of_answer,
        })
    }
}

/// Stands for a turn of the policy, so that what the template writes after it can be told apart.
const WRITTEN: &str = "the turn that was written";

/// Environments speak through the same template.
impl Chat for Renderer {
    fn open(&self, messages: &[Value], tools: &[Value]) -> Result<Vec<u32>, String> {
        let (text, markers) = self.opened(messages, tools).map_err(|error| error.to_string())?;
        self.encode(&text, markers).map_err(|error| error.to_string())
    }

    fn gap(&self, written: &[u32], said: &[Value]) -> Result<Vec<u32>, String> {
        let is_plain = said.iter().all(|message| message["role"] == "plain");
        let (Some(_), false) = (&self.template, is_plain) else {
            let text: String =
                said.iter().filter_map(|message| message["content"].as_str()).collect();
            return self.encode(&text, Markers::Leave).map_err(|error| error.to_string());
        };
        let before = [
            json!({"role": "user", "content": ""}),
            json!({"role": "assistant", "content": WRITTEN}),
        ];
        let messages: Vec<Value> = before.into_iter().chain(said.iter().cloned()).collect();
        let (text, _) = self.conversation(&messages, &[]).map_err(|error| error.to_string())?;
        let at = text.find(WRITTEN).ok_or("the chat template drops what the assistant wrote")?;
        let mut gap = self
            .encode(&text[at + WRITTEN.len()..], Markers::Leave)
            .map_err(|error| error.to_string())?;
        // The end token that the policy chose stands there already.
        let is_ended =
            written.last().is_some_and(|last| self.tokenizer.ends().contains(&i64::from(*last)));
        if is_ended && gap.first() == written.last() {
            gap.remove(0);
        }
        if let Some(open) = self.missing_open(&text) {
            gap.extend(self.encode(open, Markers::Leave).map_err(|error| error.to_string())?);
        }
        Ok(gap)
    }
}
