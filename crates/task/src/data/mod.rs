//! Prompts out of files.
//!
//! ```text
//! file or folder ─ read ─▶ rows ─ template ─▶ prompts ─ split ─▶ training, held out ─ pool ─▶ sampler
//! ```
//!
//! JSONL, JSON, CSV, Parquet and Hugging Face folders become rows of JSON; a template makes each
//! row a [`Prompt`] with an answer. Not here: which prompt comes next (`sampler.rs`).

mod duplicates;
mod pool;
mod read;
mod split;
mod sums;
mod template;

pub use duplicates::{DuplicatePolicy, DuplicatesError, separate};
pub use pool::{DataConfig, DataError, Pool, load_dataset};
pub use read::{ReadError, Row, read_rows};
pub use split::{HeldOut, SplitError};
pub use sums::{ProblemSums, ProblemsChanged};
pub use template::{AnswerSource, Message, PromptTemplate, TemplateError};

use serde::{Deserialize, Serialize};

use crate::question::Question;

/// One prompt, ready to be sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Unique in a run and stable between runs: the data set's name and the row's number.
    pub id: String,
    /// The data set it comes from; metrics are kept by this name.
    pub dataset: String,
    /// The conversation; one message with role `plain` is text for a model without a chat format.
    pub messages: Vec<Message>,
    /// What a verifier needs.
    pub question: Question,
}

impl Prompt {
    /// All messages as one text, for comparing prompts.
    pub fn text(&self) -> String {
        self.messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>().join("\n")
    }
}
