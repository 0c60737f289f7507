//! A recipe as TOML text, with or without the place each value comes from.

use std::fmt::Write as _;

use crate::{
    error::Origin,
    node::{Node, Value},
};

/// A value on one line.
pub(crate) fn inline(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => toml::Value::String(text.clone()).to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => float(*number),
        Value::Boolean(value) => value.to_string(),
        Value::Moment(text) => text.clone(),
        Value::List(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Table(entries) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, node)| format!("{} = {}", name(key), inline(node)))
                .collect();
            if entries.is_empty() { "{}".into() } else { format!("{{ {} }}", entries.join(", ")) }
        }
    }
}

/// A key as TOML wants it: in quotes where it is more than a word.
fn name(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) {
        return key.to_owned();
    }
    toml::Value::String(key.to_owned()).to_string()
}

/// Shortest form that reads back as the same number and is a float in TOML.
fn float(number: f64) -> String {
    let plain = format!("{number:?}");
    if number != 0.0 && number.abs() < 1e-3 { format!("{number:e}") } else { plain }
}

/// A table that is written as a choice's value, not as a section of its own.
fn is_choice(node: &Node) -> bool {
    node.get("type").is_some()
}

fn is_list_of_tables(node: &Node) -> bool {
    matches!(&node.value, Value::List(items) if items.iter().any(|item| item.entries().is_some()))
}

/// Writes a whole recipe: plain keys first, then one table per section.
pub(crate) fn document(root: &Node, place_of: &dyn Fn(&str) -> Option<Origin>) -> String {
    let mut out = String::new();
    section(&mut out, root, "", place_of);
    out
}

fn section(out: &mut String, node: &Node, path: &str, place_of: &dyn Fn(&str) -> Option<Origin>) {
    let entries = node.entries().unwrap_or_default();
    let key_path = |key: &str| crate::setting::join(path, key);
    let is_section =
        |node: &Node| (node.entries().is_some() && !is_choice(node)) || is_list_of_tables(node);
    for (key, value) in entries.iter().filter(|(_, value)| !is_section(value)) {
        let origin = place_of(&key_path(key)).map(|place| format!("  # {place}"));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{key} = {}{}", inline(value), origin.unwrap_or_default());
    }
    for (key, value) in entries.iter().filter(|(_, value)| is_section(value)) {
        let path = key_path(key);
        if let Value::List(items) = &value.value {
            for item in items {
                let _ = writeln!(out, "\n[[{path}]]");
                section(out, item, &path, &|_| None);
            }
        } else {
            let _ = writeln!(out, "\n[{path}]");
            section(out, value, &path, place_of);
        }
    }
}
