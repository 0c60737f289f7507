//! What a key can hold: reading, writing and describing one value of a recipe.
//!
//! A section is declared once, with [`section!`], each field with its documentation, its default
//! and its rule; a choice with [`choice!`]. Reading, unknown keys, the written form, the reference
//! page and the Rust type all come out of that one declaration.

use std::fmt;

use crate::{
    error::RecipeError,
    nearest::nearest,
    node::{Node, Value},
};

/// A type that a key can have.
pub(crate) trait Setting: Sized {
    /// Reads a value; `key` is its dotted name, for messages.
    fn read(node: &Node, key: &str) -> Result<Self, RecipeError>;
    /// The value as TOML.
    fn written(&self) -> Node;
    /// What the user has to write, in words.
    fn kind() -> String;
    /// The keys inside, for the reference page.
    fn keys(_prefix: &str) -> Vec<KeyEntry> {
        Vec::new()
    }
}

/// How a key that may have no value says so.
const UNSET: &str = "unset";

/// One line of the reference page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyEntry {
    /// Dotted name.
    pub(crate) key: String,
    /// What to write.
    pub(crate) kind: String,
    /// The default as TOML; `None` for tables and alternatives.
    pub(crate) default: Option<String>,
    /// The rule it must obey, empty when any value will do.
    pub(crate) rule: String,
    /// What it means.
    pub(crate) meaning: String,
}

/// What a value must obey beyond its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rule {
    AtLeast(f64),
    Above(f64),
    Between(f64, f64),
    AboveUpTo(f64, f64),
    NotEmpty,
}

impl Rule {
    fn holds(self, value: &Value) -> bool {
        let number = match value {
            Value::Integer(number) => *number as f64,
            Value::Float(number) => *number,
            Value::Text(text) => return self != Self::NotEmpty || !text.is_empty(),
            Value::List(items) => return items.iter().all(|item| self.holds(&item.value)),
            _ => return true,
        };
        match self {
            Self::AtLeast(low) => number >= low,
            Self::Above(low) => number > low,
            Self::Between(low, high) => (low..=high).contains(&number),
            Self::AboveUpTo(low, high) => number > low && number <= high,
            Self::NotEmpty => true,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(low) => write!(f, "at least {low}"),
            Self::Above(low) => write!(f, "above {low}"),
            Self::Between(low, high) => write!(f, "between {low} and {high}"),
            Self::AboveUpTo(low, high) => write!(f, "above {low} and at most {high}"),
            Self::NotEmpty => f.write_str("not empty"),
        }
    }
}

pub(crate) fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.into() } else { format!("{prefix}.{name}") }
}

/// A table's field, or its default; its rule is checked either way.
pub(crate) fn read_field<T: Setting>(
    table: &Node,
    prefix: &str,
    name: &str,
    default: impl FnOnce() -> T,
    rule: Option<Rule>,
) -> Result<T, RecipeError> {
    let key = join(prefix, name);
    let node = table.get(name);
    let value = node.map_or_else(|| Ok(default()), |node| T::read(node, &key))?;
    let written = value.written();
    if let Some(rule) = rule
        && !rule.holds(&written.value)
    {
        let place = node.unwrap_or(table).place.clone();
        let found = crate::text::inline(&written);
        return Err(RecipeError::OutOfRange { place, key, found, rule: rule.to_string() });
    }
    Ok(value)
}

/// Refuses every key of a table that is not `known`.
pub(crate) fn check_keys(table: &Node, prefix: &str, known: &[&str]) -> Result<(), RecipeError> {
    for (name, node) in table.entries().unwrap_or_default() {
        if !known.contains(&name.as_str()) {
            return Err(RecipeError::UnknownKey {
                place: node.place.clone(),
                key: join(prefix, name),
                nearest: nearest(name, known.iter().copied())
                    .map(|name| join(prefix, name))
                    .into_iter()
                    .collect(),
                known: known.iter().map(ToString::to_string).collect(),
            });
        }
    }
    Ok(())
}

pub(crate) fn wrong_type<T: Setting>(node: &Node, key: &str) -> RecipeError {
    RecipeError::WrongType {
        place: node.place.clone(),
        key: key.into(),
        expected: T::kind(),
        found: node.value.kind(),
    }
}

impl Setting for bool {
    fn read(node: &Node, key: &str) -> Result<Self, RecipeError> {
        if let Value::Boolean(value) = node.value {
            return Ok(value);
        }
        Err(wrong_type::<Self>(node, key))
    }
    fn written(&self) -> Node {
        Node::default_of(Value::Boolean(*self))
    }
    fn kind() -> String {
        "true or false".into()
    }
}

impl Setting for f64 {
    fn read(node: &Node, key: &str) -> Result<Self, RecipeError> {
        match node.value {
            Value::Float(number) if number.is_finite() => Ok(number),
            Value::Integer(number) => Ok(number as f64),
            _ => Err(wrong_type::<Self>(node, key)),
        }
    }
    fn written(&self) -> Node {
        Node::default_of(Value::Float(*self))
    }
    fn kind() -> String {
        "a number".into()
    }
}

macro_rules! whole_number {
    ($type:ty) => {
        impl Setting for $type {
            fn read(node: &Node, key: &str) -> Result<Self, RecipeError> {
                let Value::Integer(number) = node.value else {
                    return Err(wrong_type::<Self>(node, key));
                };
                number.try_into().map_err(|_| wrong_type::<Self>(node, key))
            }
            fn written(&self) -> Node {
                // Every value came from an i64 or is a small default.
                let number = i64::try_from(*self).unwrap_or(i64::MAX);
                Node::default_of(Value::Integer(number))
            }
            fn kind() -> String {
                "a whole number, 0 or more".into()
            }
        }
    };
}
whole_number!(u32);
whole_number!(u64);

impl Setting for String {
    fn read(node: &Node, key: &str) -> Result<Self, RecipeError> {
        node.text().map(Into::into).ok_or_else(|| wrong_type::<Self>(node, key))
    }
    fn written(&self) -> Node {
        Node::default_of(Value::Text(self.clone()))
    }
    fn kind() -> String {
        "text in quotes".into()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn read(node: &Node, key: &str) -> Result<Self, RecipeError> {
        if node.text() == Some(UNSET) { Ok(None) } else { T::read(node, key).map(Some) }
    }
    fn written(&self) -> Node {
        let unset = || Node::default_of(Value::Text(UNSET.into()));
        self.as_ref().map_or_else(unset, Setting::written)
    }
    fn kind() -> String {
        format!("{}, or \"unset\"", T::kind())
    }
    fn keys(prefix: &str) -> Vec<KeyEntry> {
        T::keys(prefix)
    }
}

impl<T: Setting> Setting for Vec<T> {
    fn read(node: &Node, key: &str) -> Result<Self, RecipeError> {
        let Value::List(items) = &node.value else { return Err(wrong_type::<Self>(node, key)) };
        let read = |(index, item)| T::read(item, &format!("{key}[{index}]"));
        items.iter().enumerate().map(read).collect()
    }
    fn written(&self) -> Node {
        let items = self.iter().map(Setting::written).collect();
        Node::default_of(Value::List(items))
    }
    fn kind() -> String {
        format!("a list, each item {}", T::kind())
    }
    fn keys(prefix: &str) -> Vec<KeyEntry> {
        T::keys(&format!("{prefix}[]"))
    }
}
