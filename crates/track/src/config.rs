//! The resolved recipe as a tracker's config: the TOML of the run folder as JSON, nested or flat.

use serde_json::{Map, Value};

use crate::error::TrackError;

/// The recipe as nested JSON.
pub(crate) fn nested(path: &std::path::Path, recipe: &str) -> Result<Value, TrackError> {
    let bad = |problem: String| TrackError::BadFile { path: path.to_owned(), problem };
    let table: toml::Table = toml::from_str(recipe).map_err(|error| bad(error.to_string()))?;
    serde_json::to_value(table).map_err(|error| bad(error.to_string()))
}

/// `section.key` and value, in the order of the recipe; lists stay whole.
pub(crate) fn flat(config: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    if let Value::Object(entries) = config {
        walk("", entries, &mut found);
    }
    found
}

fn walk(prefix: &str, entries: &Map<String, Value>, found: &mut Vec<(String, Value)>) {
    for (name, value) in entries {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            Value::Object(inside) => walk(&key, inside, found),
            value => found.push((key, value.clone())),
        }
    }
}

/// A value as text without quotes around a text.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
