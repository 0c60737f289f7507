//! Completions kept for people to read: `samples/step-000100.jsonl`, one file per evaluation, and
//! `samples/train-000100.jsonl`, some of what the step that an evaluation follows was trained on.
//!
//! Both keep the tokens too, with what is known of each: an evaluation is written by one version, a
//! completion that was trained on may be of several.

use std::{collections::BTreeMap, path::Path};

use scalerl_files::TABLE;
use scalerl_rollout::{FinishReason, PolicyVersion, Prompt, PromptId, Reward, Rollout};
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
    /// An episode as it was written, stretch by stretch; empty for a single completion.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<SamplePart>,
    /// Turns of the policy; 1 for a single completion.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub turns: u32,
    /// What the environment counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Why it has no verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first tokens of what was written; empty in folders of releases that did not keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token_list: Vec<SampleToken>,
}

/// One token of a sample. Short names in the file, since there are many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleToken {
    /// What it adds to the text; empty where a character is not finished yet.
    #[serde(rename = "t")]
    pub text: String,
    /// Log-prob under the distribution it was drawn from; 0 for injected ones.
    #[serde(rename = "l")]
    pub logprob: f32,
    /// The policy that chose it, or read it where it was injected.
    #[serde(rename = "v")]
    pub version: PolicyVersion,
    /// Put in by an interruption or the environment, not written by the policy.
    #[serde(rename = "i", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_injected: bool,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_one(turns: &u32) -> bool {
    *turns == 1
}

/// A stretch of an episode that one side wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplePart {
    /// Whether it was put in: the environment's, or an interruption.
    pub is_injected: bool,
    /// What it says.
    pub text: String,
}

impl Sample {
    /// Takes from a rollout what a reader wants to see.
    pub fn new(set: &str, prompt: &Prompt, rollout: &Rollout) -> Self {
        let finish = if rollout.is_truncated() { FinishReason::Length } else { FinishReason::Stop };
        Self {
            set: set.to_owned(),
            prompt: prompt.id.clone(),
            prompt_text: prompt.text.clone(),
            answer: prompt.answer.clone(),
            completion: rollout.completion.text.clone(),
            reward: Some(rollout.reward),
            tokens: rollout.tokens() as u64,
            is_interrupted: rollout.is_interrupted(),
            finish,
            parts: Vec::new(),
            turns: rollout.episode.as_ref().map_or(1, |episode| episode.turns),
            metrics: BTreeMap::new(),
            error: None,
            token_list: Vec::new(),
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
