//! The held-out set: drawn once from the training data, written down, read back ever after.
//!
//! Independent and identically distributed: every distinct prompt has the same chance. A prompt
//! that occurs several times is drawn once and its copies leave the training set with it.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::duplicates::essence;
use crate::problem::Problem;
use crate::random::{Random, hash};

/// Which prompts are held out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// The seed of the draw.
    pub seed: u64,
    /// A fingerprint of the data it was drawn from.
    pub data: String,
    /// Ids of the held-out prompts, in the order drawn.
    pub ids: Vec<String>,
    /// Ids of their copies, which are neither trained nor evaluated on.
    pub copies: Vec<String>,
}

/// Why there is no held-out set.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SplitError {
    /// More asked for than there is.
    #[error("task.held_out asks for {wanted} prompts, and there are only {distinct} distinct ones")]
    TooFew { wanted: usize, distinct: usize },
    /// The recorded set was drawn from other data.
    #[error("{path}: drawn from other data (fingerprint {recorded}, now {found})")]
    OtherData { path: PathBuf, recorded: String, found: String },
    /// The record cannot be read or written.
    #[error("{path}: {problem}")]
    BadRecord { path: PathBuf, problem: String },
}

impl SplitError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooFew { .. } => {
                "lower task.held_out (it must leave prompts to train on), or give more data"
            }
            Self::OtherData { .. } => {
                "use the data the split was drawn from, or delete the file to draw a new one: \
                 evaluations before and after are then not comparable"
            }
            Self::BadRecord { .. } => "check the file, its permissions and the free space",
        }
    }
}

/// Changes when any prompt does.
pub(crate) fn fingerprint(prompts: &[Problem]) -> String {
    let whole = prompts.iter().fold(0_u64, |whole, prompt| {
        let text = format!("{whole:x}\n{}\n{}", prompt.id.0, prompt.text());
        hash(text.as_bytes())
    });
    format!("{whole:016x}")
}

impl HeldOut {
    /// Draws `count` distinct prompts.
    pub fn draw(prompts: &[Problem], count: usize, seed: u64) -> Result<Self, SplitError> {
        let mut order: Vec<usize> = (0..prompts.len()).collect();
        Random::new(seed, "held out").shuffle(&mut order);
        let mut texts = HashSet::new();
        let mut distinct = order.iter().filter(|i| texts.insert(essence(&prompts[**i])));
        let drawn: Vec<usize> = distinct.by_ref().take(count).copied().collect();
        if drawn.len() < count {
            return Err(SplitError::TooFew { wanted: count, distinct: drawn.len() });
        }
        let held: HashSet<(String, &str)> = drawn.iter().map(|i| essence(&prompts[*i])).collect();
        let chosen: BTreeSet<usize> = drawn.iter().copied().collect();
        let copies = (0..prompts.len())
            .filter(|i| !chosen.contains(i) && held.contains(&essence(&prompts[*i])))
            .map(|i| prompts[i].id.0.clone())
            .collect();
        Ok(Self {
            seed,
            data: fingerprint(prompts),
            ids: drawn.iter().map(|i| prompts[*i].id.0.clone()).collect(),
            copies,
        })
    }

    /// Reads the recorded set, which must be of these prompts.
    pub fn load(path: &Path, prompts: &[Problem]) -> Result<Self, SplitError> {
        let bad = |problem: String| SplitError::BadRecord { path: path.to_owned(), problem };
        let text = scalerl_files::read_to_string(path, scalerl_files::TABLE)
            .map_err(|error| bad(error.to_string()))?;
        let held: Self = serde_json::from_str(&text).map_err(|error| bad(error.to_string()))?;
        let found = fingerprint(prompts);
        if held.data != found {
            let recorded = held.data;
            return Err(SplitError::OtherData { path: path.to_owned(), recorded, found });
        }
        Ok(held)
    }

    /// Records the set.
    pub fn save(&self, path: &Path) -> Result<(), SplitError> {
        let bad = |problem: String| SplitError::BadRecord { path: path.to_owned(), problem };
        crate::record::write_json(path, self).map_err(|error| bad(crate::record::problem(&error)))
    }

    /// Training prompts and held-out prompts, the latter in the order drawn.
    pub fn apply(&self, prompts: Vec<Problem>) -> (Vec<Problem>, Vec<Problem>) {
        let place: std::collections::HashMap<&str, usize> =
            self.ids.iter().enumerate().map(|(place, id)| (id.as_str(), place)).collect();
        let copies: HashSet<&str> = self.copies.iter().map(String::as_str).collect();
        let (mut training, mut held) = (Vec::new(), Vec::new());
        for prompt in prompts {
            match place.get(prompt.id.0.as_str()) {
                Some(place) => held.push((*place, prompt)),
                None if copies.contains(prompt.id.0.as_str()) => {}
                None => training.push(prompt),
            }
        }
        held.sort_by_key(|(place, _)| *place);
        (training, held.into_iter().map(|(_, prompt)| prompt).collect())
    }
}
