//! A table whose keys are another program's: read as it stands, and given on.

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use crate::{
    error::RecipeError,
    node::{Node, Value},
    setting::{Setting, wrong_type},
};

/// Keys and values that no recipe knows of. Nothing in it is checked here.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FreeTable(Vec<(String, Node)>);

impl Setting for FreeTable {
    fn read(node: &Node, key: &str) -> Result<Self, RecipeError> {
        let Value::Table(entries) = placeless(node).value else {
            return Err(wrong_type::<Self>(node, key));
        };
        Ok(Self(entries))
    }

    fn written(&self) -> Node {
        Node::default_of(Value::Table(self.0.clone()))
    }

    fn kind() -> String {
        "a table of any keys".into()
    }
}

impl Serialize for FreeTable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        entries(&self.0, serializer)
    }
}

/// The same wherever it was written.
fn placeless(node: &Node) -> Node {
    Node::default_of(match &node.value {
        Value::Table(entries) => {
            Value::Table(entries.iter().map(|(key, node)| (key.clone(), placeless(node))).collect())
        }
        Value::List(items) => Value::List(items.iter().map(placeless).collect()),
        other => other.clone(),
    })
}

fn entries<S: Serializer>(all: &[(String, Node)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(all.len()))?;
    for (key, node) in all {
        map.serialize_entry(key, &Plain(node))?;
    }
    map.end()
}

/// A value as any format has it.
struct Plain<'a>(&'a Node);

impl Serialize for Plain<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.value {
            Value::Table(all) => entries(all, serializer),
            Value::List(items) => serializer.collect_seq(items.iter().map(Plain)),
            Value::Text(text) | Value::Moment(text) => serializer.serialize_str(text),
            Value::Integer(number) => serializer.serialize_i64(*number),
            Value::Float(number) => serializer.serialize_f64(*number),
            Value::Boolean(value) => serializer.serialize_bool(*value),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{EnvironmentChoice, Recipe, Resolved, Source};

    fn load(text: &str) -> Resolved {
        let text = text.to_owned();
        Recipe::load(&[Source::Text { name: "test".into(), text }], &[]).unwrap()
    }

    #[test]
    fn foreign_keys_are_given_on_as_they_stand_and_survive_being_written() {
        let text = "[[task.datasets]]\nname = \"games\"\nsource = \"seeds\"\nenvironment = { type = \
                    \"verifiers\", python = \"p\", environment = \"e\", arguments = { \"a.b\" = [1, \
                    2.5], taskset = { game = \"x\", deep = { is = true } } } }\n";
        let recipe = load(text);
        let Some(EnvironmentChoice::Verifiers { arguments, .. }) =
            recipe.task.datasets[0].environment()
        else {
            panic!("another environment")
        };
        let expected = serde_json::json!({
            "a.b": [1, 2.5], "taskset": {"game": "x", "deep": {"is": true}},
        });
        assert_eq!(serde_json::to_value(&arguments).unwrap(), expected);
        assert_eq!(*load(&recipe.to_toml()), *recipe);
    }
}
