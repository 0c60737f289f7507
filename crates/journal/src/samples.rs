//! Completions kept for people to read: `samples/step-000100.jsonl`, one file per evaluation.

use std::path::Path;

use scalerl_files::TABLE;
use scalerl_rollout::{Completion, FinishReason, Prompt, PromptId, Reward};
use serde::{Deserialize, Serialize};

use crate::{
    durable::{json_lines, write_whole},
    error::JournalError,
};

/// One completion with what it was asked and what it earned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Evaluation set.
    pub set: String,
    /// The prompt's name.
    pub prompt: PromptId,
    /// What the model saw.
    pub prompt_text: String,
    /// The gold answer.
    pub answer: String,
    /// What the model wrote.
    pub completion: String,
    /// What it earned; `None` when the verifier failed.
    pub reward: Option<Reward>,
    /// Tokens of the completion.
    pub tokens: u64,
    /// Whether its thinking was cut.
    pub is_interrupted: bool,
    /// Why it ended.
    pub finish: FinishReason,
}

impl Sample {
    /// Takes from a completion what a reader wants to see.
    pub fn new(
        set: &str,
        prompt: &Prompt,
        completion: &Completion,
        reward: Option<Reward>,
    ) -> Self {
        Self {
            set: set.to_owned(),
            prompt: prompt.id.clone(),
            prompt_text: prompt.text.clone(),
            answer: prompt.answer.clone(),
            completion: completion.text.clone(),
            reward,
            tokens: completion.len() as u64,
            is_interrupted: completion.is_interrupted(),
            finish: completion.finish,
        }
    }
}

pub(crate) fn write_samples(path: &Path, samples: &[Sample]) -> Result<(), JournalError> {
    write_whole(path, &json_lines(path, samples)?)
}

/// Reads one file of samples.
pub fn read_samples(path: &Path) -> Result<Vec<Sample>, JournalError> {
    let text =
        scalerl_files::read_to_string(path, TABLE).map_err(JournalError::io("read", path))?;
    let parse = |(index, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|error| JournalError::Damaged {
            path: path.to_owned(),
            line: index + 1,
            problem: error.to_string(),
        })
    };
    text.lines().enumerate().map(parse).collect()
}
