//! Why a study cannot be run or read, told so that the user can mend it.

use std::{io, path::PathBuf};

use scalerl_journal::JournalError;
use scalerl_recipe::RecipeError;
use thiserror::Error;

/// Every variant is something the user can mend.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum StudyError {
    /// The file cannot be read.
    #[error("cannot {act} {}: {source}", path.display())]
    Io { act: &'static str, path: PathBuf, source: io::Error },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("{file}:{line}: {message}")]
    Syntax { file: String, line: usize, message: String },
    /// Neither a shipped study nor a file.
    #[error("there is no study `{name}`")]
    UnknownStudy { name: String },
    /// A key that says something impossible.
    #[error("{file}: `{key}` {problem}")]
    BadKey { file: String, key: String, problem: String, remedy: String },
    /// A variant whose recipe cannot be used.
    #[error("{file}: variant `{variant}`: {source}")]
    Recipe { file: String, variant: String, source: Box<RecipeError> },
    /// Studies that extend each other.
    #[error("studies extend each other in a circle: {}", chain.join(" → "))]
    ExtendsLoop { chain: Vec<String> },
    /// A name that is neither a variant nor a run of the study.
    #[error("--only {name}: the study has no such variant or run")]
    UnknownRun { name: String, known: Vec<String> },
    /// A run folder that was made with another recipe than the study asks for now.
    #[error("{}: was started with another recipe: {difference}", path.display())]
    Changed { path: PathBuf, difference: String },
    /// A run folder that cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file of points or predictions that does not hold what it should.
    #[error("{}: {problem}", path.display())]
    BadFile { path: PathBuf, problem: String },
}

impl StudyError {
    pub(crate) fn io(
        act: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { act, path, source }
    }

    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { .. } => "check the path".into(),
            Self::Syntax { .. } => "the keys of a study file are in docs/studies.md".into(),
            Self::UnknownStudy { .. } => {
                let names: Vec<&str> = crate::shipped::STUDIES.iter().map(|one| one.name).collect();
                format!("shipped: {}; a file is named with its .toml ending", names.join(", "))
            }
            Self::BadKey { remedy, .. } => remedy.clone(),
            Self::Recipe { source, .. } => source.hint(),
            Self::ExtendsLoop { .. } => "remove one `extends`".into(),
            Self::UnknownRun { known, .. } => format!("known: {}", known.join(", ")),
            Self::Changed { .. } => {
                "undo the change, or start the changed study in another folder with --out".into()
            }
            Self::Journal(error) => error.hint().into(),
            Self::BadFile { .. } => "it is made by `scalerl study` or `scalerl predictions`".into(),
        }
    }
}
