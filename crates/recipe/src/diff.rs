//! The choices in which two recipes differ.

use std::fmt;

use crate::{Resolved, node::Node, setting::join, text::inline};

/// One key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Dotted name.
    pub key: String,
    /// The first recipe's value as TOML; `None` when unset.
    pub left: Option<String>,
    /// The second recipe's.
    pub right: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "unset".into());
        write!(f, "{}: {} → {}", self.key, side(&self.left), side(&self.right))
    }
}

/// Every key whose value differs, in the order of the sections. A choice and its own keys are one
/// value. `description` is a label, not a choice, and is left out.
pub fn diff(left: &Resolved, right: &Resolved) -> Vec<Difference> {
    let (left, right) = (left.tree(), right.tree());
    let (left, right) = (values(&left), values(&right));
    let value_in = |values: &[(String, String)], key: &str| {
        values.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    };
    let mut keys: Vec<&String> = left.iter().map(|(key, _)| key).collect();
    keys.extend(right.iter().map(|(key, _)| key).filter(|key| value_in(&left, key).is_none()));
    keys.into_iter()
        .filter(|key| *key != "description")
        .map(|key| Difference {
            key: key.clone(),
            left: value_in(&left, key),
            right: value_in(&right, key),
        })
        .filter(|difference| difference.left != difference.right)
        .collect()
}

/// The values of a tree, sections opened, choices and lists whole.
fn values(tree: &Node) -> Vec<(String, String)> {
    let mut found = Vec::new();
    collect(tree, "", &mut found);
    found
}

fn collect(node: &Node, path: &str, found: &mut Vec<(String, String)>) {
    match node.entries() {
        Some(entries) if node.get("type").is_none() => {
            for (key, value) in entries {
                collect(value, &join(path, key), found);
            }
        }
        _ => found.push((path.into(), inline(node))),
    }
}
