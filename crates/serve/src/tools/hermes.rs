//! Qwen's and Hermes's form: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of
//! them, text before and between.

use super::{Message, ToolCall, mark_from};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

pub(super) fn parse(text: &str) -> Message {
    let (mut content, mut tool_calls) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let inner = &rest[start + OPEN.len()..];
        // A model that ends with its call may leave the closing tag out.
        let length = inner.find(CLOSE).unwrap_or(inner.len());
        let end = (start + OPEN.len() + length + CLOSE.len()).min(rest.len());
        let call = serde_json::from_str(inner[..length].trim());
        let call = call.ok().and_then(|call| ToolCall::read(call, &["arguments"]));
        content.push_str(&rest[..if call.is_some() { start } else { end }]);
        tool_calls.extend(call);
        rest = &rest[end..];
    }
    if tool_calls.is_empty() {
        return Message { content: text.to_owned(), tool_calls };
    }
    content.push_str(rest);
    content.truncate(content.trim_end().len());
    Message { content, tool_calls }
}

pub(super) fn certain(text: &str) -> usize {
    mark_from(text, OPEN)
}
