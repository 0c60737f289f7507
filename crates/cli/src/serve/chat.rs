//! A model's own tokenizer and chat template, as the server asks for them.

use std::path::Path;
use std::sync::Arc;

use scalerl_model::error::LoadError;
use scalerl_model::template::{self, ChatTemplate, Prompt};
use scalerl_model::tokenizer::{Markers, Tokenizer};
use scalerl_serve::tools::Family;
use scalerl_serve::{ChatError, ChatFormat, Extras, Special};
use serde_json::Value;

/// Tokenizer and chat template of one model.
pub(crate) struct ModelChat {
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    ends: Vec<u32>,
}

impl ModelChat {
    pub(crate) fn load(folder: &Path) -> Result<Self, LoadError> {
        let tokenizer = Tokenizer::load(folder)?;
        Ok(Self {
            ends: tokenizer.ends().iter().map(|id| *id as u32).collect(),
            tokenizer: Arc::new(tokenizer),
            template: ChatTemplate::load(folder)?,
        })
    }

    pub(crate) fn tokenizer(&self) -> Arc<Tokenizer> {
        self.tokenizer.clone()
    }

    /// The model's end tokens.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    pub(crate) fn has_template(&self) -> bool {
        self.template.is_some()
    }

    fn tokens(&self, text: &str, markers: Markers) -> Result<Vec<u32>, ChatError> {
        let ids = self.tokenizer.encode(text, markers).map_err(|error| unreadable(&error))?;
        Ok(ids.iter().map(|id| *id as u32).collect())
    }
}

fn unreadable(error: &LoadError) -> ChatError {
    ChatError::Tokenizer(error.to_string())
}

impl ChatFormat for ModelChat {
    fn render(&self, messages: &[Value], extras: &Extras) -> Result<String, ChatError> {
        let template = self.template.as_ref().ok_or(ChatError::NoTemplate)?;
        let extras =
            template::Extras { tools: extras.tools.clone(), variables: extras.variables.clone() };
        let text = template.render_with(messages, Prompt::Open, &extras);
        text.map_err(|error| ChatError::Template(error.to_string()))
    }

    fn encode(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        self.tokens(text, Markers::Leave)
    }

    fn encode_plain(&self, text: &str) -> Result<Vec<u32>, ChatError> {
        self.tokens(text, Markers::Add)
    }

    fn decode(&self, token_ids: &[u32], special: Special) -> Result<String, ChatError> {
        let ids: Vec<i64> = token_ids.iter().copied().map(i64::from).collect();
        let text = match special {
            Special::Show => self.tokenizer.decode_all(&ids),
            Special::Hide => self.tokenizer.decode(&ids),
        };
        text.map_err(|error| unreadable(&error))
    }

    fn end_tokens(&self) -> &[u32] {
        &self.ends
    }

    fn tool_family(&self) -> Option<Family> {
        Family::of_template(self.template.as_ref()?.source())
    }
}
