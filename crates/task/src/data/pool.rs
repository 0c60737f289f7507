//! Data sets of a recipe: reading one, mixing several.

use std::path::Path;

use scalerl_recipe::PromptTemplate;
use scalerl_rollout::PromptId;
use thiserror::Error;

use super::read::{ReadError, read_rows};
use super::split;
use super::template::{AnswerColumn, TemplateError, messages};
use crate::problem::Problem;

/// Where the rows of one data set are, and which columns matter.
pub(crate) struct Files<'a> {
    pub(crate) path: &'a Path,
    pub(crate) split: &'a str,
    pub(crate) prompt_column: &'a str,
    pub(crate) answer: AnswerColumn<'a>,
    /// Only the first rows.
    pub(crate) limit: Option<usize>,
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
                "set prompt_column and answer_column to columns of the data; task.prompt may name\
                 others in braces"
            }
            Self::BadWeight { .. } => "weights are relative: 1.0 and 3.0 sample one in four",
            Self::SameName { .. } => "names keep metrics apart: choose another",
            Self::Empty => "name at least one data set",
        }
    }
}

/// Reads the data set `name`. Rows are numbered from 0 in ids and errors.
pub(crate) fn read_problems(
    name: &str,
    files: &Files<'_>,
    template: &PromptTemplate,
) -> Result<Vec<Problem>, DataError> {
    let rows = read_rows(files.path, files.split)
        .map_err(|source| DataError::Read { name: name.to_owned(), source })?;
    let limit = files.limit.unwrap_or(rows.len());
    let problem = |(row, fields): (usize, super::Row)| {
        let bad = |source| DataError::Template { name: name.to_owned(), row, source };
        Ok(Problem {
            id: PromptId(format!("{name}/{row}")),
            dataset: name.to_owned(),
            messages: messages(template, files.prompt_column, &fields).map_err(bad)?,
            answer: files.answer.read(&fields).map_err(bad)?,
            fields,
            hidden: String::new(),
        })
    };
    rows.into_iter().take(limit).enumerate().map(problem).collect()
}

/// The same text for each, and a number that an environment makes its task from.
pub(crate) fn seeds(
    name: &str,
    prompt: &str,
    count: usize,
    template: &PromptTemplate,
) -> Result<Vec<Problem>, DataError> {
    let one = |seed: usize| {
        let fields = super::Row::from_iter([
            ("prompt".to_owned(), prompt.into()),
            ("seed".to_owned(), seed.into()),
        ]);
        let bad = |source| DataError::Template { name: name.to_owned(), row: seed, source };
        let messages = messages(template, "prompt", &fields).map_err(bad)?;
        let problem = Problem::plain("", "").named(name, seed);
        Ok(Problem { messages, fields, hidden: seed.to_string(), ..problem })
    };
    (0..count).map(one).collect()
}

/// One data set of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) weight: f64,
    pub(crate) problems: Vec<Problem>,
}

/// All problems that are trained on, by data set. Never empty.
#[derive(Debug, Clone)]
pub struct Pool {
    pub(crate) sets: Vec<Set>,
}

impl Pool {
    /// Data sets with their weights; names must differ, weights be positive.
    pub fn try_new(sets: Vec<(String, f64, Vec<Problem>)>) -> Result<Self, DataError> {
        if sets.iter().all(|(_, _, problems)| problems.is_empty()) {
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
        let sets = sets.into_iter().filter(|(_, _, problems)| !problems.is_empty());
        let sets = sets.map(|(name, weight, problems)| Set { name, weight, problems });
        Ok(Self { sets: sets.collect() })
    }

    /// All of them, data set by data set.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.sets.iter().flat_map(|set| &set.problems)
    }

    /// Changes when any prompt does; a resumed run must find the same.
    pub fn fingerprint(&self) -> String {
        let part = |set: &Set| format!("{}={}", set.name, split::fingerprint(&set.problems));
        self.sets.iter().map(part).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{HeldOut, SplitError};

    fn problems(name: &str, texts: &[&str]) -> Vec<Problem> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        let line = |text: &&str| serde_json::json!({"q": text, "a": "1"}).to_string() + "\n";
        std::fs::write(&path, texts.iter().map(line).collect::<String>()).unwrap();
        let answer = AnswerColumn { name: "a", after: "", is_boxed: false };
        let files = Files { path: &path, split: "train", prompt_column: "q", answer, limit: None };
        read_problems(name, &files, &PromptTemplate::default()).unwrap()
    }

    #[test]
    fn rows_are_named_by_data_set_and_number() {
        let found = problems("d", &["one", "two"]);
        assert_eq!((found[1].id.0.as_str(), found[1].text().as_str()), ("d/1", "two"));
        assert_eq!(found[1].answer, "1");
    }

    #[test]
    fn the_held_out_set_is_drawn_once_and_leaves_no_copy_behind() {
        let texts: Vec<String> = (0..50).map(|i| format!("prompt {}", i / 2)).collect();
        let all = problems("d", &texts.iter().map(String::as_str).collect::<Vec<_>>());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("held_out.json");
        let held = HeldOut::draw(&all, 5, 3).unwrap();
        held.save(&path).unwrap();
        assert_eq!(held, HeldOut::load(&path, &all).unwrap());
        let (training, evaluation) = held.apply(all.clone());
        assert_eq!((training.len(), evaluation.len()), (40, 5));
        let error = HeldOut::load(&path, &all[1..]).unwrap_err();
        assert!(matches!(error, SplitError::OtherData { .. }));
        assert!(matches!(HeldOut::draw(&all, 26, 1), Err(SplitError::TooFew { distinct: 25, .. })));
    }

    #[test]
    fn broken_mixtures_are_refused() {
        let set = |name: &str, weight| (name.to_owned(), weight, problems(name, &["x"]));
        assert!(matches!(Pool::try_new(vec![]), Err(DataError::Empty)));
        assert!(matches!(Pool::try_new(vec![set("a", 0.0)]), Err(DataError::BadWeight { .. })));
        let same = Pool::try_new(vec![set("a", 1.0), set("a", 1.0)]);
        assert!(matches!(same, Err(DataError::SameName { .. })));
    }
}
