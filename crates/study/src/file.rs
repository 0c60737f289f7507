//! A study as it stands in its file.
//!
//! ```toml
//! description = "what is asked"
//! base = "scalerl"                      # shipped recipe, or a file beside this one
//! seeds = [1, 2, 3]
//! budget = { steps = 200 }              # or tokens, or device_hours: exactly one
//! evaluation = { every_steps = 10 }     # keys of the recipe's [evaluation]
//! set = { model = { path = "…" } }      # laid over the base of every run
//! tune = { key = "optimizer.lr", values = [1e-5, 3e-5], budget_share = 0.2 }
//!
//! [[variants]]
//! name = "dapo"
//! change = "dapo-qwen2.5"               # a recipe whose own choices are laid over the base
//! set = { pipeline = { groups_per_step = 40 } }
//! seeds = [1]
//! ```
//!
//! A study may extend another: its keys replace those of the other, `set` and `evaluation` merge,
//! variants of the same name merge, new ones follow.
//!
//! Not here: what the keys mean together (`plan.rs`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::{StudyError, shipped};

/// A study file, everything it extends merged in.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StudyFile {
    /// Another study that this one changes.
    pub extends: Option<String>,
    /// What is asked, in a line or two.
    pub description: Option<String>,
    /// The recipe that every variant changes.
    pub base: Option<String>,
    /// What the base is called in tables.
    pub base_name: Option<String>,
    /// Seeds of every variant that does not name its own.
    pub seeds: Option<Vec<u64>>,
    /// What each run may spend.
    pub budget: Option<BudgetTable>,
    /// Keys of the recipe's `[evaluation]`.
    pub evaluation: Table,
    /// Keys of the recipe for all runs.
    pub set: Table,
    /// A sweep before the runs of every variant that does not name its own.
    pub tune: Option<TuneTable>,
    /// The variants. One of the base's name gives the base its own seeds or sweep.
    pub variants: Vec<VariantTable>,
    /// Path as given, or the name of a shipped study; for messages.
    #[serde(skip)]
    pub label: String,
    /// The study's name: the file's.
    #[serde(skip)]
    pub name: String,
}

/// One variant.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VariantTable {
    /// Its name, a part of folder names.
    pub name: String,
    /// A recipe whose own choices are laid over the base.
    pub change: Option<String>,
    /// Keys of the recipe, laid over that.
    pub set: Table,
    /// Its own seeds.
    pub seeds: Option<Vec<u64>>,
    /// Its own sweep.
    pub tune: Option<TuneTable>,
}

/// What each run may spend; exactly one is set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetTable {
    /// Optimizer steps.
    pub steps: Option<u64>,
    /// Tokens generated for training.
    pub tokens: Option<u64>,
    /// Device-hours, evaluations and idle time included.
    pub device_hours: Option<f64>,
}

/// Short runs over the values of one key; the best goes on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneTable {
    /// Dotted key of the recipe.
    pub key: String,
    /// Values to try.
    pub values: Vec<Value>,
    /// Share of the budget that each short run gets.
    #[serde(default = "usual_share")]
    pub budget_share: f64,
}

fn usual_share() -> f64 {
    0.2
}

impl StudyFile {
    /// Reads a shipped study by its name, or a file by its path.
    pub fn load(name: &str) -> Result<Self, StudyError> {
        Self::load_chain(name, None, &mut Vec::new())
    }

    /// Reads a text that is in no file.
    pub fn parse(label: &str, text: &str) -> Result<Self, StudyError> {
        let file = Self::parse_alone(label, text)?;
        match file.extends.clone() {
            Some(base) => Ok(Self::load_chain(&base, None, &mut vec![label.into()])?.under(file)),
            None => Ok(file),
        }
    }

    fn load_chain(
        name: &str,
        beside: Option<&Path>,
        chain: &mut Vec<String>,
    ) -> Result<Self, StudyError> {
        let is_path = Path::new(name).extension().is_some_and(|ending| ending == "toml");
        let (label, text, folder) = if is_path {
            let path = beside.map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
            let text = scalerl_files::read_to_string(&path, scalerl_files::DOCUMENT)
                .map_err(StudyError::io("read", &path))?;
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            (path.display().to_string(), text, Some(folder))
        } else {
            let found = shipped::find(name)
                .ok_or_else(|| StudyError::UnknownStudy { name: name.to_owned() })?;
            (found.name.to_owned(), found.text.to_owned(), None)
        };
        let is_loop = chain.contains(&label);
        chain.push(label.clone());
        if is_loop {
            return Err(StudyError::ExtendsLoop { chain: chain.clone() });
        }
        let mut file = Self::parse_alone(&label, &text)?;
        if let Some(folder) = &folder {
            file.anchor(folder);
        }
        match file.extends.clone() {
            Some(base) => Ok(Self::load_chain(&base, folder.as_deref(), chain)?.under(file)),
            None => Ok(file),
        }
    }

    fn parse_alone(label: &str, text: &str) -> Result<Self, StudyError> {
        let mut file: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(""));
            StudyError::Syntax {
                file: label.to_owned(),
                line: before.matches('\n').count() + 1,
                message: error.message().to_owned(),
            }
        })?;
        let stem = Path::new(label).file_stem().unwrap_or_default();
        file.name = stem.to_string_lossy().into_owned();
        label.clone_into(&mut file.label);
        Ok(file)
    }

    /// A recipe's file is named relative to the study that names it.
    fn anchor(&mut self, folder: &Path) {
        let changes = self.variants.iter_mut().map(|variant| &mut variant.change);
        for name in std::iter::once(&mut self.base).chain(changes).flatten() {
            if Path::new(name).extension().is_some_and(|ending| ending == "toml") {
                *name = folder.join(&*name).display().to_string();
            }
        }
    }

    /// This study with another one laid over it.
    fn under(self, over: Self) -> Self {
        let mut variants = self.variants;
        for variant in over.variants {
            match variants.iter_mut().find(|known| known.name == variant.name) {
                Some(known) => *known = std::mem::take(known).under(variant),
                None => variants.push(variant),
            }
        }
        Self {
            description: over.description.or(self.description),
            base: over.base.or(self.base),
            base_name: over.base_name.or(self.base_name),
            seeds: over.seeds.or(self.seeds),
            budget: over.budget.or(self.budget),
            evaluation: merged(self.evaluation, over.evaluation),
            set: merged(self.set, over.set),
            tune: over.tune.or(self.tune),
            variants,
            extends: over.extends,
            label: over.label,
            name: over.name,
        }
    }
}

impl VariantTable {
    fn under(self, over: Self) -> Self {
        Self {
            name: over.name,
            change: over.change.or(self.change),
            set: merged(self.set, over.set),
            seeds: over.seeds.or(self.seeds),
            tune: over.tune.or(self.tune),
        }
    }
}

/// Tables merge key by key, everything else replaces. A table with a `type` replaces too: its keys
/// belong to that type.
fn merged(mut under: Table, over: Table) -> Table {
    for (key, value) in over {
        let value = match (under.remove(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) if !new.contains_key("type") => {
                Value::Table(merged(old, new))
            }
            (_, value) => value,
        };
        under.insert(key, value);
    }
    under
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = StudyFile::parse("my.toml", "base = \"scalerl\"\nsedes = [1]\n").unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("my.toml:2: unknown field `sedes`"), "{text}");
    }

    #[test]
    fn a_study_that_extends_another_changes_what_it_names_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "one.toml",
            "base = \"scalerl\"\nseeds = [1]\nbudget = { steps = 10 }\nset.seed = 3\n\
             set.optimizer.lr = 1e-6\n[[variants]]\nname = \"a\"\nchange = \"gspo\"\n",
        );
        write(
            "two.toml",
            "extends = \"one.toml\"\nbudget = { tokens = 500 }\nset.optimizer.beta1 = 0.8\n\
             [[variants]]\nname = \"b\"\n[[variants]]\nname = \"a\"\nseeds = [4]\n",
        );
        let file = StudyFile::load(folder.path().join("two.toml").to_str().unwrap()).unwrap();
        assert_eq!((file.name.as_str(), file.base.as_deref()), ("two", Some("scalerl")));
        assert_eq!(file.budget, Some(BudgetTable { tokens: Some(500), ..BudgetTable::default() }));
        assert_eq!(toml::to_string(&file.set).unwrap().lines().count(), 5, "{}", file.set);
        let names: Vec<_> = file.variants.iter().map(|variant| variant.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(file.variants[0].change.as_deref(), Some("gspo"));
        assert_eq!(file.variants[0].seeds, Some(vec![4]));
    }

    #[test]
    fn a_circle_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.toml");
        fs::write(&path, "extends = \"own.toml\"\n").unwrap();
        let error = StudyFile::load(path.to_str().unwrap()).unwrap_err();
        assert!(matches!(error, StudyError::ExtendsLoop { .. }), "{error}");
    }

    #[test]
    fn an_unknown_study_is_answered_with_those_that_ship() {
        let error = StudyFile::load("leave-one-in").unwrap_err();
        assert!(error.hint().contains("leave-one-out"), "{}", error.hint());
    }
}
