//! Data sets of a recipe: loading one, mixing several.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::read::{ReadError, read_rows};
use super::template::{AnswerSource, PromptTemplate, TemplateError};
use super::{Prompt, split};
use crate::question::Question;

/// One data set of a recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// The name under which metrics are kept.
    pub name: String,
    /// A file or a Hugging Face folder.
    pub path: PathBuf,
    /// The split of a folder.
    #[serde(default = "train")]
    pub split: String,
    /// How a row becomes a prompt.
    #[serde(default)]
    pub prompt: PromptTemplate,
    /// Where the answer is.
    #[serde(default)]
    pub answer: AnswerSource,
    /// Share of the samples, relative to the other data sets.
    #[serde(default = "one")]
    pub weight: f64,
    /// Only the first rows. 0: all.
    #[serde(default)]
    pub limit: usize,
}

fn train() -> String {
    "train".to_owned()
}

fn one() -> f64 {
    1.0
}

/// Why data cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DataError {
    /// The file.
    #[error("data set `{name}`: {source}")]
    Read { name: String, source: ReadError },
    /// A row that does not fit the template.
    #[error("data set `{name}`, row {row}: {source}")]
    Template { name: String, row: usize, source: TemplateError },
    /// A weight that is no share.
    #[error("data set `{name}`: weight {weight} is not a positive number")]
    BadWeight { name: String, weight: f64 },
    /// Two data sets of one name.
    #[error("two data sets are called `{name}`")]
    SameName { name: String },
    /// Nothing to sample from.
    #[error("no data sets")]
    Empty,
}

impl DataError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { source, .. } => source.hint(),
            Self::Template { .. } => {
                "templates name columns in braces: prompt.plain = \"{question}\""
            }
            Self::BadWeight { .. } => "weights are relative: 1.0 and 3.0 sample one in four",
            Self::SameName { .. } => "names keep metrics apart: choose another",
            Self::Empty => "name at least one data set",
        }
    }
}

/// Reads one data set. Rows are numbered from 0 in ids and errors.
pub fn load_dataset(config: &DataConfig) -> Result<Vec<Prompt>, DataError> {
    let name = || config.name.clone();
    let mut rows = read_rows(&config.path, &config.split)
        .map_err(|source| DataError::Read { name: name(), source })?;
    if config.limit > 0 {
        rows.truncate(config.limit);
    }
    let mut prompts = Vec::with_capacity(rows.len());
    for (row, fields) in rows.into_iter().enumerate() {
        let bad = |source| DataError::Template { name: name(), row, source };
        let messages = config.prompt.apply(&fields).map_err(bad)?;
        let answer = config.answer.apply(&fields).map_err(bad)?;
        let mut prompt = Prompt {
            id: format!("{}/{row}", config.name),
            dataset: name(),
            messages,
            question: Question { prompt: String::new(), answer, fields },
        };
        prompt.question.prompt = prompt.text();
        prompts.push(prompt);
    }
    Ok(prompts)
}

/// All prompts of a run, by data set.
#[derive(Debug, Clone)]
pub struct Pool {
    pub(crate) sets: Vec<(String, f64, Vec<Prompt>)>,
}

impl Pool {
    /// Data sets with their weights; names must differ, weights be positive.
    pub fn try_new(sets: Vec<(String, f64, Vec<Prompt>)>) -> Result<Self, DataError> {
        if sets.is_empty() || sets.iter().all(|(_, _, prompts)| prompts.is_empty()) {
            return Err(DataError::Empty);
        }
        for (index, (name, weight, _)) in sets.iter().enumerate() {
            if !(weight.is_finite() && *weight > 0.0) {
                return Err(DataError::BadWeight { name: name.clone(), weight: *weight });
            }
            if sets[..index].iter().any(|(other, _, _)| other == name) {
                return Err(DataError::SameName { name: name.clone() });
            }
        }
        Ok(Self { sets: sets.into_iter().filter(|(_, _, prompts)| !prompts.is_empty()).collect() })
    }

    /// A prompt by data set and row.
    pub fn prompt(&self, dataset: usize, row: usize) -> &Prompt {
        &self.sets[dataset].2[row]
    }

    /// The same without some prompts; an error when none is left.
    pub fn without(self, is_left_out: impl Fn(&Prompt) -> bool) -> Result<Self, DataError> {
        let keep = |prompts: Vec<Prompt>| prompts.into_iter().filter(|p| !is_left_out(p)).collect();
        let sets = self.sets.into_iter().map(|(name, weight, p)| (name, weight, keep(p)));
        Self::try_new(sets.collect())
    }

    /// All of them, data set by data set.
    pub fn prompts(&self) -> impl Iterator<Item = &Prompt> {
        self.sets.iter().flat_map(|(_, _, prompts)| prompts)
    }

    /// Prompts in all data sets.
    pub fn len(&self) -> usize {
        self.sets.iter().map(|(_, _, prompts)| prompts.len()).sum()
    }

    /// A pool is never empty; here for completeness.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes when any prompt does; a resumed run must find the same.
    pub fn fingerprint(&self) -> String {
        let parts = self
            .sets
            .iter()
            .map(|(name, _, prompts)| format!("{name}={}", split::fingerprint(prompts)));
        parts.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{DuplicatePolicy, HeldOut, SplitError, separate};

    fn prompts(name: &str, texts: &[&str]) -> Vec<Prompt> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        let lines: Vec<String> = texts
            .iter()
            .map(|t| serde_json::json!({"prompt": t, "answer": "1"}).to_string())
            .collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let config = serde_json::json!({"name": name, "path": path});
        load_dataset(&serde_json::from_value(config).unwrap()).unwrap()
    }

    #[test]
    fn held_out_prompts_in_training_are_refused_with_examples() {
        let training = prompts("train", &["What is 1 + 1?", "What is 1 - 1?"]);
        let held = prompts("test", &["what is 1+1"]);
        let error = separate(training.clone(), &held, DuplicatePolicy::Refuse).unwrap_err();
        assert_eq!(error.count, 1);
        assert!(error.to_string().contains("train/0 = test/0"), "{error}");
        let kept = separate(training, &held, DuplicatePolicy::DropFromTraining).unwrap();
        assert_eq!(kept.len(), 1);
    }

    #[test]
    fn the_held_out_set_is_drawn_once_and_leaves_no_copy_behind() {
        let texts: Vec<String> = (0..50).map(|i| format!("prompt {}", i / 2)).collect();
        let all = prompts("d", &texts.iter().map(String::as_str).collect::<Vec<_>>());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("held_out.json");
        let held = HeldOut::load_or_draw(&path, &all, 5, 3).unwrap();
        assert_eq!(held, HeldOut::load_or_draw(&path, &all, 9, 99).unwrap());
        let (training, evaluation) = held.apply(all.clone());
        assert_eq!((training.len(), evaluation.len()), (40, 5));
        assert!(separate(training, &evaluation, DuplicatePolicy::Refuse).is_ok());
        let error = HeldOut::load_or_draw(&path, &all[1..], 5, 3).unwrap_err();
        assert!(matches!(error, SplitError::OtherData { .. }));
        assert!(matches!(HeldOut::draw(&all, 26, 1), Err(SplitError::TooFew { distinct: 25, .. })));
    }

    #[test]
    fn broken_mixtures_are_refused() {
        let set = |name: &str, weight| (name.to_owned(), weight, prompts(name, &["x"]));
        assert!(matches!(Pool::try_new(vec![]), Err(DataError::Empty)));
        assert!(matches!(Pool::try_new(vec![set("a", 0.0)]), Err(DataError::BadWeight { .. })));
        let same = Pool::try_new(vec![set("a", 1.0), set("a", 1.0)]);
        assert!(matches!(same, Err(DataError::SameName { .. })));
    }
}
