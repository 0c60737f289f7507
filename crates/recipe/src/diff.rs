//! The choices in which two recipes differ.

use std::fmt;

use crate::{Resolved, node::Node, setting::join, text::inline};

/// One key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Dotted name.
    pub key: String,
    /// The first recipe's value as TOML.
    pub left: String,
    /// The second recipe's.
    pub right: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.key, self.left, self.right)
    }
}

/// Every key whose value differs, in the order of the sections. A choice and its own keys are one
/// value. `description` is a label, not a choice, and is left out.
pub fn diff(left: &Resolved, right: &Resolved) -> Vec<Difference> {
    // Written recipes have all keys, in one order.
    let pairs = values(&left.tree()).into_iter().zip(values(&right.tree()));
    pairs
        .filter(|((key, left), (_, right))| key != "description" && left != right)
        .map(|((key, left), (_, right))| Difference { key, left, right })
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
