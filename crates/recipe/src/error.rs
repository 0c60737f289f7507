//! Why a recipe cannot be used, told so that the user can mend it.
//!
//! Every message names the key as it is spelled in the file and the place it was set: file and
//! line, or the `--set` it came from. [`RecipeError::hint`] says what to do.

use std::{fmt, io, path::PathBuf};

use thiserror::Error;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Origin {
    /// Nowhere: the built-in default.
    #[default]
    Default,
    /// A line of a file, or of a shipped recipe.
    Line {
        /// Path as given, or `scalerl` (shipped).
        file: String,
        /// Counted from 1.
        line: usize,
    },
    /// A `--set` on the command line.
    Set(
        /// The whole override, as typed.
        String,
    ),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("built-in default"),
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Set(text) => write!(f, "--set {text}"),
        }
    }
}

/// Every variant is something the user can mend.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RecipeError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// Not TOML.
    #[error("{place}: not valid TOML: {message}")]
    Syntax { place: Origin, message: String },
    /// A key the schema does not have.
    #[error("{place}: unknown key `{key}`{}", suggest(nearest))]
    UnknownKey { place: Origin, key: String, nearest: Vec<String>, known: Vec<String> },
    /// A value of the wrong kind.
    #[error("{place}: `{key}` must be {expected}, found {found}")]
    WrongType { place: Origin, key: String, expected: String, found: String },
    /// A word that is none of the choices.
    #[error("{place}: `{key}` cannot be \"{found}\"{}", suggest(nearest.as_slice()))]
    UnknownChoice {
        place: Origin,
        key: String,
        found: String,
        nearest: Option<Box<str>>,
        known: Vec<String>,
    },
    /// A number or text outside what makes sense.
    #[error("{place}: `{key}` is {found}, it must be {rule}")]
    OutOfRange { place: Origin, key: String, found: String, rule: String },
    /// Choices that cannot work together.
    #[error("{place}: `{key}` does not go with `{other}`: {reason}")]
    Conflict { place: Origin, key: String, other: String, reason: Box<str>, remedy: Box<str> },
    /// `--set` that is not key=value.
    #[error("--set {text}: {reason}")]
    BadOverride { text: String, reason: String },
    /// Neither a shipped recipe nor a file.
    #[error("there is no recipe `{name}`{}", suggest(nearest.as_slice()))]
    UnknownRecipe { name: String, nearest: Option<Box<str>>, known: Vec<String> },
    /// A recipe that extends itself, by whatever detour.
    #[error("recipes extend each other in a circle: {}", chain.join(" → "))]
    ExtendsLoop { chain: Vec<String> },
}

fn suggest(nearest: &[impl fmt::Display]) -> String {
    let names: Vec<String> = nearest.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("; did you mean {}?", names.join(" or "))
}

impl RecipeError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable { .. } => "check the path; `scalerl recipe list` names the recipes \
                                        that need no file"
                .into(),
            Self::Syntax { .. } => "texts need quotes, tables are written [section]".into(),
            Self::UnknownKey { known, .. } if known.is_empty() => "remove the key".into(),
            Self::UnknownKey { known, .. } => format!("known here: {}", known.join(", ")),
            Self::WrongType { expected, .. } => format!("write {expected}"),
            Self::UnknownChoice { known, .. } => format!("choose one of: {}", known.join(", ")),
            Self::OutOfRange { key, rule, .. } => format!("set `{key}` to a value that is {rule}"),
            Self::Conflict { remedy, .. } => remedy.to_string(),
            Self::BadOverride { .. } => {
                "write --set section.key=value, e.g. --set optimizer.lr=1e-6".into()
            }
            Self::UnknownRecipe { known, .. } => {
                format!("shipped: {}; a file is named with its .toml ending", known.join(", "))
            }
            Self::ExtendsLoop { .. } => "remove one `extends`".into(),
        }
    }
}
