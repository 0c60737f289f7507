//! Values that remember where they were set, and how layers of them merge.
//!
//! A later layer wins. Tables merge key by key, everything else replaces. A table with a `type`
//! is a choice: another `type` brings its own keys, so the earlier ones are dropped, and a bare
//! word is short for `{ type = word }`.

use std::collections::BTreeMap;

use crate::error::{Origin, RecipeError};

/// A value and the place it was set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) place: Origin,
    pub(crate) value: Value,
}

/// TOML's values, tables in the order they were written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Table(Vec<(String, Node)>),
    List(Vec<Node>),
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// TOML has dates and times; no key takes one.
    Moment(String),
}

impl Value {
    /// What the user would call it.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Table(_) => "a table".into(),
            Self::List(_) => "a list".into(),
            Self::Text(text) => format!("the text {text:?}"),
            Self::Integer(number) => format!("the number {number}"),
            Self::Float(number) => format!("the number {number:?}"),
            Self::Boolean(value) => format!("{value}"),
            Self::Moment(text) => format!("the date {text}"),
        }
    }
}

impl Node {
    pub(crate) fn new(place: Origin, value: Value) -> Self {
        Self { place, value }
    }

    /// A value that nobody set.
    pub(crate) fn default_of(value: Value) -> Self {
        Self::new(Origin::Default, value)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    pub(crate) fn entries(&self) -> Option<&[(String, Node)]> {
        if let Value::Table(entries) = &self.value { Some(entries) } else { None }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries()?.iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let Value::Table(entries) = &mut self.value else { return None };
        entries.iter_mut().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Takes a key out of a table.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Node> {
        let Value::Table(entries) = &mut self.value else { return None };
        let at = entries.iter().position(|(name, _)| name == key)?;
        Some(entries.remove(at).1)
    }

    /// Sets a key of a table, whatever it was.
    pub(crate) fn set(&mut self, key: &str, node: Node) {
        self.remove(key);
        if let Value::Table(entries) = &mut self.value {
            entries.push((key.to_owned(), node));
        }
    }

    /// The node at a dotted path.
    pub(crate) fn find(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, key| node.get(key))
    }

    /// The place of a dotted key, or of the nearest table above it that somebody wrote.
    pub(crate) fn place_of(&self, path: &str) -> Origin {
        let mut node = self;
        let mut place = Origin::Default;
        for key in path.split('.') {
            let Some(next) = node.get(key) else { break };
            if next.place != Origin::Default {
                place = next.place.clone();
            }
            node = next;
        }
        place
    }

    /// Lays `other` over this one.
    pub(crate) fn merge(&mut self, other: Node) {
        let Node { place, value } = other;
        let value = self.spell_out(value, &place);
        match (&mut self.value, value) {
            (Value::Table(old), Value::Table(new)) => {
                let new_type = new.iter().find(|(key, _)| key == "type");
                let old_type = old.iter().find(|(key, _)| key == "type");
                let is_switched = matches!((old_type, new_type),
                    (Some((_, old)), Some((_, new))) if old.value != new.value);
                if is_switched {
                    *old = new;
                } else {
                    let names = old.iter().enumerate().map(|(at, (key, _))| (key.clone(), at));
                    let places: BTreeMap<String, usize> = names.collect();
                    for (key, node) in new {
                        match places.get(&key) {
                            Some(at) => old[*at].1.merge(node),
                            None => old.push((key, node)),
                        }
                    }
                }
                self.place = place;
            }
            (_, value) => *self = Node { place, value },
        }
    }

    /// A bare word over a choice, or a table without `type` over a bare word, in their long form.
    fn spell_out(&mut self, value: Value, place: &Origin) -> Value {
        let long = |place: &Origin, word: String| {
            Value::Table(vec![("type".into(), Node::new(place.clone(), Value::Text(word)))])
        };
        match (&self.value, value) {
            (Value::Table(old), Value::Text(word)) if old.iter().any(|(key, _)| key == "type") => {
                long(place, word)
            }
            (Value::Text(word), Value::Table(new)) if !new.iter().any(|(key, _)| key == "type") => {
                self.value = long(&self.place, word.clone());
                Value::Table(new)
            }
            (_, value) => value,
        }
    }

    /// Reads a file's text into a tree whose nodes know their lines.
    pub(crate) fn parse(file: &str, text: &str) -> Result<Self, RecipeError> {
        let ends: Vec<usize> = text.match_indices('\n').map(|(end, _)| end).collect();
        let line_of = |offset: usize| ends.partition_point(|end| *end < offset) + 1;
        let place = |offset| Origin::Line { file: file.into(), line: line_of(offset) };
        let table = toml::de::DeTable::parse(text).map_err(|error| RecipeError::Syntax {
            place: place(error.span().map_or(0, |span| span.start)),
            message: error.message().to_string(),
        })?;
        Ok(table_node(table.into_inner(), place(0), &place))
    }

    /// Reads one TOML value; what is not TOML is taken as text.
    pub(crate) fn parse_value(text: &str, place: &Origin) -> Self {
        match toml::de::DeValue::parse(text) {
            Ok(value) => value_node(value.into_inner(), place.clone(), &|_| place.clone()),
            Err(_) => Node::new(place.clone(), Value::Text(text.into())),
        }
    }
}

fn table_node(table: toml::de::DeTable<'_>, place: Origin, at: &dyn Fn(usize) -> Origin) -> Node {
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries
        .into_iter()
        .map(|(key, value)| {
            let place = at(key.span().start);
            let name = key.into_inner().into_owned();
            (name, value_node(value.into_inner(), place, at))
        })
        .collect();
    Node::new(place, Value::Table(entries))
}

fn value_node(value: toml::de::DeValue<'_>, place: Origin, at: &dyn Fn(usize) -> Origin) -> Node {
    use toml::de::DeValue;
    let value = match value {
        DeValue::Table(table) => return table_node(table, place, at),
        DeValue::Array(items) => Value::List(
            items
                .into_iter()
                .map(|item| {
                    let place = at(item.span().start);
                    value_node(item.into_inner(), place, at)
                })
                .collect(),
        ),
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Boolean(value) => Value::Boolean(value),
        DeValue::Datetime(moment) => Value::Moment(moment.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::Text(number.as_str().into()), Value::Integer),
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| Value::Text(number.as_str().into()), Value::Float),
    };
    Node::new(place, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(layers: &[&str]) -> Node {
        let mut tree = Node::default_of(Value::Table(vec![]));
        for (index, text) in layers.iter().enumerate() {
            tree.merge(Node::parse(&format!("{index}.toml"), text).unwrap());
        }
        tree
    }

    #[test]
    fn tables_merge_and_lists_replace() {
        let tree = merged(&["[a]\nx = 1\nlist = [1, 2]", "[a]\ny = 2\nlist = [3]"]);
        assert_eq!(tree.find("a.x").unwrap().value, Value::Integer(1));
        assert_eq!(tree.find("a.y").unwrap().value, Value::Integer(2));
        let Value::List(list) = &tree.find("a.list").unwrap().value else { panic!("a list") };
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn another_type_drops_the_keys_of_the_one_before() {
        let tree = merged(&["s = { type = 'cispo', cap = 4 }", "s = { type = 'clip', low = 0.1 }"]);
        assert!(tree.find("s.cap").is_none());
        let same = merged(&["s = { type = 'cispo', cap = 4 }", "s = { type = 'cispo', x = 1 }"]);
        assert!(same.find("s.cap").is_some());
    }

    #[test]
    fn a_bare_word_is_short_for_its_type() {
        let tree = merged(&["s = { type = 'cispo', cap = 4 }", "s = 'none'"]);
        assert_eq!(tree.find("s.type").unwrap().text(), Some("none"));
        assert!(tree.find("s.cap").is_none());
        let back = merged(&["s = 'cispo'", "s = { cap = 4 }"]);
        assert_eq!(back.find("s.type").unwrap().text(), Some("cispo"));
        assert_eq!(back.find("s.cap").unwrap().value, Value::Integer(4));
    }

    #[test]
    fn every_value_knows_its_line() {
        let tree = merged(&["# note\n[a]\nx = 1\n\n[a.b]\ny = [\n 1,\n 2,\n]"]);
        let line = |path: &str| tree.find(path).unwrap().place.to_string();
        assert_eq!(line("a.x"), "0.toml:3");
        assert_eq!(line("a.b.y"), "0.toml:6");
    }
}
