//! Training examples from JSONL, with the answers marked.
//!
//! ```text
//! {"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …}, …]}
//! {"prompt": "…", "completion": "…"}          both texts, or both lists of messages
//! ```
//! A chat goes through the model's template. Every assistant turn is an answer; what the template
//! puts around it (its end token) counts as answer too, so that the model learns to stop. Texts
//! are tokenized piece by piece, prompt and answer apart, as they are when a model generates.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use scalerl_files::{Lines, RECORD};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::error::LoadError;
use crate::template::{ChatTemplate, Prompt};
use crate::tokenizer::{Markers, Tokenizer};

/// Tokens of one example; `is_answer` has the same length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub tokens: Vec<i64>,
    pub is_answer: Vec<bool>,
}

impl Example {
    fn push(&mut self, tokens: &[i64], is_answer: bool) {
        self.tokens.extend_from_slice(tokens);
        self.is_answer.resize(self.tokens.len(), is_answer);
    }

    /// Tokens the loss looks at.
    pub fn answers(&self) -> usize {
        self.is_answer.iter().filter(|is_answer| **is_answer).count()
    }
}

/// Why a file of examples cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DataError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}, line {line}: {problem}", path.display())]
    Line { path: PathBuf, line: usize, problem: String },
    #[error("{}: no example{}", path.display(), if *too_long > 0 { format!(": all {too_long} are longer than the limit") } else { String::new() })]
    Empty { path: PathBuf, too_long: usize },
}

impl DataError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Io { .. } => "give the path of a JSONL file",
            Self::Line { .. } => {
                "each line is {\"messages\": [{\"role\": …, \"content\": …}, …]} or \
                 {\"prompt\": …, \"completion\": …}"
            }
            Self::Empty { .. } => "check the file, or raise --max-tokens",
        }
    }
}

/// Reads examples for one model.
pub struct Reader {
    pub tokenizer: Tokenizer,
    pub template: Option<ChatTemplate>,
    /// Longer examples are left out and counted.
    pub max_tokens: usize,
}

impl Reader {
    /// The tokenizer and template of a model folder.
    pub fn load(folder: &Path, max_tokens: usize) -> Result<Self, LoadError> {
        let tokenizer = Tokenizer::load(folder)?;
        Ok(Self { tokenizer, template: ChatTemplate::load(folder)?, max_tokens })
    }

    /// Every example of a file, and how many were too long.
    pub fn read(&self, path: &Path) -> Result<(Vec<Example>, usize), DataError> {
        let failed = |source| DataError::Io { path: path.to_path_buf(), source };
        let file = BufReader::new(scalerl_files::open(path).map_err(failed)?);
        let (mut examples, mut too_long) = (Vec::new(), 0);
        for (index, text) in Lines::new(file, RECORD).enumerate() {
            let text = text.map_err(|error| DataError::Line {
                path: path.to_path_buf(),
                line: index + 1,
                problem: error.to_string(),
            })?;
            if text.trim().is_empty() {
                continue;
            }
            let example = self.example(&text).map_err(|problem| DataError::Line {
                path: path.to_path_buf(),
                line: index + 1,
                problem,
            })?;
            if example.tokens.len() > self.max_tokens {
                too_long += 1;
            } else {
                examples.push(example);
            }
        }
        if examples.is_empty() {
            return Err(DataError::Empty { path: path.to_path_buf(), too_long });
        }
        Ok((examples, too_long))
    }

    fn example(&self, text: &str) -> Result<Example, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let object = value.as_object().ok_or("a JSON object is needed")?;
        let example = match (object.get("messages"), object.get("prompt"), object.get("completion"))
        {
            (Some(Value::Array(messages)), ..) => self.chat(messages)?,
            (None, Some(Value::String(prompt)), Some(Value::String(completion))) => {
                self.texts(prompt, completion)?
            }
            (None, Some(Value::Array(prompt)), Some(Value::Array(completion))) => {
                self.chat(&[prompt.as_slice(), completion.as_slice()].concat())?
            }
            _ => return Err("needs `messages`, or `prompt` and `completion`".to_owned()),
        };
        if example.answers() == 0 {
            return Err("has no answer to learn from".to_owned());
        }
        Ok(example)
    }

    fn encode(&self, text: &str, markers: Markers) -> Result<Vec<i64>, String> {
        self.tokenizer.encode(text, markers).map_err(|error| error.to_string())
    }

    fn texts(&self, prompt: &str, completion: &str) -> Result<Example, String> {
        let mut example = Example { tokens: Vec::new(), is_answer: Vec::new() };
        example.push(&self.encode(prompt, Markers::Add)?, false);
        example.push(&self.encode(completion, Markers::Leave)?, true);
        if let Some(end) = self.tokenizer.ends().first() {
            example.push(&[*end], true);
        }
        Ok(example)
    }

    fn chat(&self, messages: &[Value]) -> Result<Example, String> {
        let template = self.template.as_ref().ok_or("the model has no chat template")?;
        check_messages(messages)?;
        let render = |messages: &[Value], prompt: Prompt| {
            template.render(messages, prompt).map_err(|error| error.to_string())
        };
        let answers: Vec<usize> =
            (0..messages.len()).filter(|&i| messages[i]["role"] == "assistant").collect();
        let (mut example, mut done) =
            (Example { tokens: Vec::new(), is_answer: Vec::new() }, String::new());
        for (number, &index) in answers.iter().enumerate() {
            let before = render(&messages[..index], Prompt::Open)?;
            let after = render(&messages[..=index], Prompt::Closed)?;
            let Some(asked) = before.strip_prefix(&done) else {
                // Some templates rewrite earlier turns (they drop old thoughts). The texts seen
                // when generating are then different ones; the last is the one to learn.
                return self.last_answer(messages, answers[answers.len() - 1], render);
            };
            let Some(answered) = after.strip_prefix(&before) else {
                return Err(format!(
                    "the template does not open assistant turn {} the way it writes it",
                    number + 1
                ));
            };
            example.push(&self.encode(asked, Markers::Leave)?, false);
            example.push(&self.encode(answered, Markers::Leave)?, true);
            done = after;
        }
        Ok(example)
    }

    fn last_answer(
        &self,
        messages: &[Value],
        index: usize,
        render: impl Fn(&[Value], Prompt) -> Result<String, String>,
    ) -> Result<Example, String> {
        let before = render(&messages[..index], Prompt::Open)?;
        let after = render(&messages[..=index], Prompt::Closed)?;
        let answered = after
            .strip_prefix(&before)
            .ok_or("the template does not open the last assistant turn the way it writes it")?;
        let mut example = Example { tokens: Vec::new(), is_answer: Vec::new() };
        example.push(&self.encode(&before, Markers::Leave)?, false);
        example.push(&self.encode(answered, Markers::Leave)?, true);
        Ok(example)
    }
}

fn check_messages(messages: &[Value]) -> Result<(), String> {
    for (index, message) in messages.iter().enumerate() {
        let empty = Map::new();
        let fields = message.as_object().unwrap_or(&empty);
        for key in ["role", "content"] {
            if !fields.get(key).is_some_and(Value::is_string) {
                return Err(format!("message {}: `{key}` must be a string", index + 1));
            }
        }
    }
    Ok(())
}
