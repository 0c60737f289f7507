//! tokenizer.json, and which tokens end a text.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::LoadError;

/// Text to tokens and back.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    path: PathBuf,
    ends: Vec<i64>,
}

/// Whether the tokenizer's own markers (a start token) are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Markers {
    Add,
    /// The text has them already, as the output of a chat template does.
    Leave,
}

impl Tokenizer {
    /// Reads tokenizer.json, and the end tokens from generation_config.json or config.json.
    pub fn load(folder: &Path) -> Result<Self, LoadError> {
        let path = folder.join("tokenizer.json");
        if !path.is_file() {
            return Err(LoadError::Tokenizer { path, problem: "no such file".to_owned() });
        }
        let inner = tokenizers::Tokenizer::from_file(&path).map_err(|error| {
            LoadError::Tokenizer { path: path.clone(), problem: error.to_string() }
        })?;
        Ok(Self { inner, path, ends: end_tokens(folder)? })
    }

    pub fn encode(&self, text: &str, markers: Markers) -> Result<Vec<i64>, LoadError> {
        let encoding = self.inner.encode_fast(text, markers == Markers::Add);
        let encoding = encoding.map_err(|error| self.failed(&error))?;
        Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
    }

    /// Without special tokens.
    pub fn decode(&self, tokens: &[i64]) -> Result<String, LoadError> {
        self.decoded(tokens, true)
    }

    /// With special tokens.
    pub fn decode_all(&self, tokens: &[i64]) -> Result<String, LoadError> {
        self.decoded(tokens, false)
    }

    fn decoded(&self, tokens: &[i64], skip: bool) -> Result<String, LoadError> {
        let ids: Vec<u32> = tokens.iter().map(|id| *id as u32).collect();
        self.inner.decode(&ids, skip).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> LoadError {
        LoadError::Tokenizer { path: self.path.clone(), problem: error.to_string() }
    }

    /// Tokens that end a generated text; the first is appended to training answers.
    pub fn ends(&self) -> &[i64] {
        &self.ends
    }

    pub fn id_of(&self, token: &str) -> Option<i64> {
        self.inner.token_to_id(token).map(i64::from)
    }

    /// Number of tokens, added ones included.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

fn end_tokens(folder: &Path) -> Result<Vec<i64>, LoadError> {
    for name in ["generation_config.json", "config.json"] {
        let path = folder.join(name);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let value: Value = serde_json::from_str(&text)
            .map_err(|source| LoadError::Json { path: path.clone(), source })?;
        match value.get("eos_token_id") {
            Some(Value::Number(id)) => return Ok(id.as_i64().into_iter().collect()),
            Some(Value::Array(ids)) => return Ok(ids.iter().filter_map(Value::as_i64).collect()),
            _ => {}
        }
    }
    Ok(Vec::new())
}
