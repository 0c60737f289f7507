//! Prompts that are in training and held out at once.
//!
//! Two prompts are the same when their words, numbers and signs are, whatever the case, the blanks
//! and the punctuation at the end. Evaluating on what was trained on makes every forecast too good, so it is refused
//! unless told to drop the training copies.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Prompt;

/// What to do with a training prompt that is also held out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicatePolicy {
    /// Stop, with examples.
    #[default]
    Refuse,
    /// Train without it.
    DropFromTraining,
}

/// Held-out prompts were found in the training set.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{count} training prompts are also held out, for example {}", examples.join("; "))]
pub struct DuplicatesError {
    /// How many training prompts.
    pub count: usize,
    /// Up to three pairs, `training id = held-out id: beginning of the text`.
    pub examples: Vec<String>,
}

impl DuplicatesError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        "set duplicates = \"drop-from-training\", or choose another held-out set"
    }
}

/// Lower case, single blanks, none beside a sign, no punctuation at the end.
pub(crate) fn normal(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    let mut blank = false;
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_whitespace() {
            blank = true;
            continue;
        }
        // A blank between two words or numbers keeps them apart; beside a sign it says nothing.
        if blank && c.is_alphanumeric() && normal.ends_with(char::is_alphanumeric) {
            normal.push(' ');
        }
        blank = false;
        normal.push(c);
    }
    normal.trim_end_matches(['.', '?', '!', ':']).to_owned()
}

/// The training prompts that may stay, in order.
pub fn separate(
    training: Vec<Prompt>,
    held_out: &[Prompt],
    policy: DuplicatePolicy,
) -> Result<Vec<Prompt>, DuplicatesError> {
    let known: HashMap<String, &Prompt> =
        held_out.iter().map(|prompt| (normal(&prompt.text()), prompt)).collect();
    let twin = |prompt: &Prompt| known.get(&normal(&prompt.text())).copied();
    if policy == DuplicatePolicy::DropFromTraining {
        return Ok(training.into_iter().filter(|prompt| twin(prompt).is_none()).collect());
    }
    let pairs: Vec<(&Prompt, &Prompt)> =
        training.iter().filter_map(|prompt| Some((prompt, twin(prompt)?))).collect();
    if pairs.is_empty() {
        return Ok(training);
    }
    let example = |(a, b): &(&Prompt, &Prompt)| {
        let start: String = a.text().chars().take(60).collect();
        format!("{} = {}: {start:?}", a.id, b.id)
    };
    Err(DuplicatesError {
        count: pairs.len(),
        examples: pairs.iter().take(3).map(example).collect(),
    })
}
