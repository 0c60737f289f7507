//! Tool calls in the forms that models write them: text in, message out. One file per family.
//!
//! What cannot be read as a call stays text: a model that writes nonsense has written nonsense.
//!
//! Not here: how tools and earlier calls are written into a prompt. The chat template does that.

mod hermes;
mod llama3;

use serde_json::{Map, Value};

pub(crate) use llama3::END_OF_MESSAGE;

/// A form of tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Qwen and Hermes: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`.
    Hermes,
    /// Llama 3: `{"name": …, "parameters": {…}}` as the whole answer, perhaps after `<|python_tag|>`.
    Llama3,
}

impl Family {
    /// The form that a chat template teaches; `None` where it knows nothing of tools.
    pub fn of_template(source: &str) -> Option<Self> {
        if !source.contains("tools") {
            return None;
        }
        if source.contains("<tool_call>") {
            return Some(Self::Hermes);
        }
        (source.contains("<|python_tag|>") || source.contains("\"parameters\":"))
            .then_some(Self::Llama3)
    }
}

/// A call that a model has written.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Which tool.
    pub name: String,
    /// What it is given.
    pub arguments: Map<String, Value>,
}

impl ToolCall {
    /// `{"name": …, KEY: {…}}`, with the arguments under one of the keys.
    fn read(value: Value, keys: &[&str]) -> Option<Self> {
        let Value::Object(mut call) = value else { return None };
        let Some(Value::String(name)) = call.remove("name") else { return None };
        match keys.iter().find_map(|key| call.remove(*key)) {
            Some(Value::Object(arguments)) => Some(Self { name, arguments }),
            _ => None,
        }
    }
}

/// What an assistant has said.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its text, without the calls.
    pub content: String,
    /// Its calls, in order.
    pub tool_calls: Vec<ToolCall>,
}

/// Reads calls out of a whole answer.
pub fn parse(family: Family, text: &str) -> Message {
    match family {
        Family::Hermes => hermes::parse(text),
        Family::Llama3 => llama3::parse(text),
    }
}

/// Bytes of a half-written answer that will be its content however it goes on.
pub(crate) fn certain(family: Family, text: &str) -> usize {
    let certain = match family {
        Family::Hermes => hermes::certain(text),
        Family::Llama3 => llama3::certain(text),
    };
    // Space before a call is no content.
    text[..certain].trim_end().len()
}

/// Where a mark begins in the text, or might with what comes next.
fn mark_from(text: &str, mark: &str) -> usize {
    if let Some(at) = text.find(mark) {
        return at;
    }
    let begun = (1..mark.len()).rev().find(|end| text.ends_with(&mark[..*end]));
    text.len() - begun.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: &Value) -> ToolCall {
        ToolCall { name: name.to_owned(), arguments: arguments.as_object().unwrap().clone() }
    }

    #[test]
    fn a_template_tells_its_family() {
        assert_eq!(Family::of_template("{{ messages }}"), None);
        assert_eq!(
            Family::of_template("{% if tools %}<tool_call>{% endif %}"),
            Some(Family::Hermes)
        );
        let llama = "{% if tools %}{\"name\": x, \"parameters\": y}{% endif %}";
        assert_eq!(Family::of_template(llama), Some(Family::Llama3));
    }

    #[test]
    fn calls_are_read_and_the_rest_stays_text() {
        let one = "{\"name\": \"add\", \"arguments\": {\"a\": 1}}";
        let add = call("add", &json!({"a": 1}));
        let cases = [
            (Family::Hermes, format!("<tool_call>\n{one}\n</tool_call>"), "", 1),
            (
                Family::Hermes,
                format!("So:\n<tool_call>{one}</tool_call>\n<tool_call>{one}</tool_call>"),
                "So:",
                2,
            ),
            (Family::Hermes, format!("<tool_call>{one}"), "", 1),
            (
                Family::Hermes,
                "no <tool_call>{]</tool_call>".to_owned(),
                "no <tool_call>{]</tool_call>",
                0,
            ),
            (
                Family::Hermes,
                format!("<tool_call>[{one}]</tool_call> "),
                "<tool_call>[1]</tool_call> ",
                0,
            ),
            (Family::Llama3, one.replace("arguments", "parameters"), "", 1),
            (Family::Llama3, format!("<|python_tag|>{one}; {one}"), "", 2),
            (Family::Llama3, format!("{one} and more"), "=", 0),
            (Family::Llama3, "{\"name\": \"add\"}".to_owned(), "=", 0),
            (Family::Llama3, "plain".to_owned(), "=", 0),
        ];
        for (family, text, content, count) in cases {
            let message = parse(family, &text);
            assert_eq!(message.tool_calls, vec![add.clone(); count], "{text}");
            if count > 0 {
                assert_eq!(message.content, content, "{text}");
            } else {
                assert_eq!(message.content, text);
            }
        }
    }

    #[test]
    fn a_broken_call_stays_beside_a_good_one() {
        let good = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
        let message = parse(Family::Hermes, &format!("<tool_call>?</tool_call>{good}"));
        assert_eq!(message.content, "<tool_call>?</tool_call>");
        assert_eq!(message.tool_calls, [call("f", &json!({}))]);
    }

    proptest! {
        /// What was let through early is how the content begins, whatever came after.
        #[test]
        fn certain_text_is_content(parts in prop::collection::vec(prop::sample::select(vec![
            "<tool_call>", "</tool_call>", "{\"name\": \"f\", \"arguments\": {}}", "<|python_tag|>", " ", "\n",
            "a", "<tool", "{", "; ", "<", "é",
        ]), 0..8)) {
            let text = parts.concat();
            for family in [Family::Hermes, Family::Llama3] {
                let message = parse(family, &text);
                for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
                    let early = &text[..certain(family, &text[..end])];
                    prop_assert!(message.content.starts_with(early), "{:?} of {:?}", early, text);
                }
            }
        }
    }
}
