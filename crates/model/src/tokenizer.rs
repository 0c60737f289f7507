//! tokenizer.json, and which tokens end a text.
//!
//! The file brings patterns along, and a pattern such as `(x+x+)+y` can take for ever on a short
//! text. So it is read within limits and tried on texts that such patterns fail on before it is
//! used ([`try_out`]); a panic inside the tokenizer is an error here.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use scalerl_files::caught;
use serde_json::{Value, json};

use crate::error::LoadError;
use crate::json;
use crate::limited::{self, Limits, Overrun};

/// Those of vocabularies with 200 thousand tokens have 30 MiB.
const LARGEST_FILE: u64 = 256 << 20;

/// For reading the file.
const READING: Limits = Limits { time: Duration::from_mins(5), memory: 8 << 30, stack: 64 << 20 };

/// For trying it out, which takes milliseconds.
const TRYING: Limits = Limits { time: Duration::from_secs(20), memory: 256 << 20, stack: 64 << 20 };

/// Text to tokens and back.
pub struct Tokenizer {
    inner: Arc<tokenizers::Tokenizer>,
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
        let failed = |problem: String| LoadError::Tokenizer { path: path.clone(), problem };
        let bytes = scalerl_files::read(&path, LARGEST_FILE).map_err(|error| {
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            failed(if is_missing { "no such file".to_owned() } else { error.to_string() })
        })?;
        let read = limited::run(READING, move || {
            tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| error.to_string())
        });
        let mut inner = flat(read).map_err(failed)?;
        // Settings of whoever saved the file. Transformers puts them aside, too.
        inner.with_padding(None);
        let removed = inner.with_truncation(None).map(|_| ());
        removed.map_err(|error| failed(error.to_string()))?;
        let inner = Arc::new(inner);
        try_out(&inner).map_err(failed)?;
        Ok(Self { inner, path, ends: end_tokens(folder)? })
    }

    pub fn encode(&self, text: &str, markers: Markers) -> Result<Vec<i64>, LoadError> {
        encode(&self.inner, text, markers).map_err(|problem| self.failed(problem))
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
        let text = caught(|| self.inner.decode(&ids, skip));
        let text = text.map_err(|problem| self.failed(problem))?;
        text.map_err(|error| self.failed(error.to_string()))
    }

    fn failed(&self, problem: String) -> LoadError {
        LoadError::Tokenizer { path: self.path.clone(), problem }
    }

    /// Tokens that end a generated text; the first is appended to training answers.
    pub fn ends(&self) -> &[i64] {
        &self.ends
    }

    /// Number of tokens, added ones included.
    pub fn vocabulary(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

fn encode(
    tokenizer: &tokenizers::Tokenizer,
    text: &str,
    markers: Markers,
) -> Result<Vec<i64>, String> {
    let encoding =
        caught(|| tokenizer.encode_fast(text, markers == Markers::Add).map_err(as_text))??;
    Ok(encoding.get_ids().iter().map(|id| i64::from(*id)).collect())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn as_text(error: tokenizers::Error) -> String {
    error.to_string()
}

fn flat<T>(outcome: Result<Result<T, String>, Overrun>) -> Result<T, String> {
    outcome.unwrap_or_else(|overrun| Err(overrun.to_string()))
}

/// Encodes and decodes texts on which a pattern backtracks or a replacement grows: each character
/// that the tokenizer's rules mention, and some of every kind, again and again.
fn try_out(tokenizer: &Arc<tokenizers::Tokenizer>) -> Result<(), String> {
    const TIMES: usize = 256;
    let rules =
        json!([tokenizer.get_normalizer(), tokenizer.get_pre_tokenizer(), tokenizer.get_decoder()]);
    let mut characters: Vec<char> = rules.to_string().chars().collect();
    characters.extend("aZ09 \n\t.,_-'\"é中🙂".chars());
    characters.sort_unstable();
    characters.dedup();
    // What a pattern wants to see at its end stands somewhere behind: else it is not even tried.
    let all: String = characters.iter().collect();
    let tokenizer = tokenizer.clone();
    let tried = limited::run(TRYING, move || {
        for character in characters {
            let text = format!("{}!{all}", character.to_string().repeat(TIMES));
            // Not every tokenizer knows every character: an error is an answer.
            let Ok(encoding) = tokenizer.encode_fast(text, true) else { continue };
            tokenizer.decode(encoding.get_ids(), false).map_err(as_text)?;
        }
        Ok(())
    });
    flat(tried).map_err(|problem| format!("tried on {TIMES} equal characters in a row, {problem}"))
}

fn end_tokens(folder: &Path) -> Result<Vec<i64>, LoadError> {
    for name in ["generation_config.json", "config.json"] {
        let Some(value) = json::read_if_there(&folder.join(name))? else { continue };
        match value.get("eos_token_id") {
            Some(Value::Number(id)) => return Ok(id.as_i64().into_iter().collect()),
            Some(Value::Array(ids)) => return Ok(ids.iter().filter_map(Value::as_i64).collect()),
            _ => {}
        }
    }
    Ok(Vec::new())
}
