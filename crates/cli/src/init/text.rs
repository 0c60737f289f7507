//! The recipe as a file, and as lines to read: both are made of the same choices.

use std::fmt::{Display, Write as _};

/// One key of the recipe, and why it has this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) section: &'static str,
    pub(super) key: &'static str,
    /// TOML.
    pub(super) value: String,
    /// Empty where the value says it.
    pub(super) why: String,
}

impl Choice {
    pub(super) fn new(
        section: &'static str,
        key: &'static str,
        value: impl Display,
        why: impl Into<String>,
    ) -> Self {
        Self { section, key, value: value.to_string(), why: why.into() }
    }
}

/// A TOML text.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The file. `head` are lines of comment.
pub(super) fn recipe(head: &[String], description: &str, choices: &[Choice]) -> String {
    let mut text = String::new();
    for line in head {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# {line}");
    }
    let _ = write!(text, "extends = \"first-run\"\ndescription = {}\n", quoted(description));
    let mut sections: Vec<&str> = Vec::new();
    for choice in choices {
        if !sections.contains(&choice.section) {
            sections.push(choice.section);
        }
    }
    for section in sections {
        let header =
            if section == "task.datasets" { "[[task.datasets]]" } else { &format!("[{section}]") };
        let _ = write!(text, "\n{header}\n");
        for choice in choices.iter().filter(|choice| choice.section == section) {
            let _ = write!(text, "{} = {}", choice.key, choice.value);
            let _ = if choice.why.is_empty() {
                writeln!(text)
            } else {
                writeln!(text, "  # {}", choice.why)
            };
        }
    }
    text
}
