//! From a problem to the prompt the model sees: chat template, thinking tag, tokens.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use scalerl_engine::Phrases;
use scalerl_model::error::LoadError;
use scalerl_model::template::{ChatTemplate, Prompt as Turn};
use scalerl_model::tokenizer::{Markers, Tokenizer};
use scalerl_recipe::{Recipe, Thinking};
use scalerl_rollout::Prompt;
use scalerl_task::{Problem, answer_end};
use serde_json::json;

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
        let (mut text, markers) = match (&self.template, problem.messages.first()) {
            (Some(template), Some(first)) if first.role != "plain" => {
                let messages: Vec<_> = problem.messages.iter().map(|m| json!(m)).collect();
                (template.render(&messages, Turn::Open)?, Markers::Leave)
            }
            _ => (problem.text(), Markers::Add),
        };
        if let Some(open) = &self.open
            && !text.trim_end().ends_with(open.as_str())
        {
            text.push_str(open);
        }
        let tokens = self.tokenizer.encode(&text, markers)?;
        Ok(Prompt {
            id: problem.id.clone(),
            dataset: problem.dataset.clone(),
            text,
            token_ids: tokens.iter().map(|id| *id as u32).collect(),
            answer: problem.answer.clone(),
        })
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
