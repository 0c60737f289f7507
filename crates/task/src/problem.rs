//! One problem of a data set: what the model is asked, and what its verifier needs to know.
//!
//! Not here: the prompt as tokens ([`scalerl_rollout::Prompt`]), which takes a model's tokenizer.

use scalerl_rollout::PromptId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// `system`, `user`, `assistant`; `plain` for text without a chat format.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of that role.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_owned(), content: content.into() }
    }

    /// Text for a model without a chat format.
    pub fn plain(content: impl Into<String>) -> Self {
        Self::new("plain", content)
    }
}

/// One row of a data set, or one synthetic problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Unique in a run and stable between runs: the data set's name and the row's number.
    pub id: PromptId,
    /// The data set it comes from; metrics are kept by this name.
    pub dataset: String,
    /// What the model is asked.
    pub messages: Vec<Message>,
    /// The gold answer.
    pub answer: String,
    /// Every column of the row: what a verifier needs beyond the answer (tests, numbers, target).
    pub fields: Map<String, Value>,
    /// What only an environment knows and no message says: problems that read alike and differ in it are
    /// different ones. Empty where the messages say everything.
    pub hidden: String,
}

impl Problem {
    /// A problem of one plain text, without a name or further columns.
    pub fn plain(text: impl Into<String>, answer: impl Into<String>) -> Self {
        Self {
            id: PromptId(String::new()),
            dataset: String::new(),
            messages: vec![Message::plain(text)],
            answer: answer.into(),
            fields: Map::new(),
            hidden: String::new(),
        }
    }

    /// A problem of which only the answer matters.
    pub fn with_answer(answer: impl Into<String>) -> Self {
        Self::plain("", answer)
    }

    /// The same problem with a name: row `row` of data set `dataset`.
    #[must_use]
    pub fn named(self, dataset: &str, row: impl std::fmt::Display) -> Self {
        Self { id: PromptId(format!("{dataset}/{row}")), dataset: dataset.to_owned(), ..self }
    }

    /// All messages as one text.
    pub fn text(&self) -> String {
        self.messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// A field by its path, `reward_model.ground_truth.target`.
    pub fn field(&self, path: &str) -> Option<&Value> {
        lookup(&self.fields, path)
    }
}

/// A value inside nested objects, by a dotted path. A key that holds dots itself wins.
pub fn lookup<'a>(fields: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    if let Some(value) = fields.get(path) {
        return Some(value);
    }
    let (head, rest) = path.split_once('.')?;
    lookup(fields.get(head)?.as_object()?, rest)
}
