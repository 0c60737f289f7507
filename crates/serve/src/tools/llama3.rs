//! Llama 3's form: the whole answer is a call, `{"name": …, "parameters": {…}}`, or several with `;`
//! between them, perhaps after `<|python_tag|>`.

use serde_json::Value;

use super::{Message, ToolCall};

const TAG: &str = "<|python_tag|>";
/// Ends a turn that waits for a tool's answer.
pub(crate) const END_OF_MESSAGE: &str = "<|eom_id|>";

pub(super) fn parse(text: &str) -> Message {
    let tool_calls = calls(text).unwrap_or_default();
    let content = if tool_calls.is_empty() { text.to_owned() } else { String::new() };
    Message { content, tool_calls }
}

fn calls(text: &str) -> Option<Vec<ToolCall>> {
    let mut rest = text.trim();
    rest = rest.strip_prefix(TAG).unwrap_or(rest).trim_start();
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        calls.push(ToolCall::read(value, &["parameters", "arguments"])?);
        rest = rest[values.byte_offset()..].trim_start();
        rest = rest.strip_prefix(';').unwrap_or(rest).trim_start();
    }
    Some(calls)
}

/// All of it, unless it begins as a call does.
pub(super) fn certain(text: &str) -> usize {
    let begun = text.trim_start();
    let is_call = begun.starts_with('{') || begun.starts_with(TAG) || TAG.starts_with(begun);
    if is_call { 0 } else { text.len() }
}
