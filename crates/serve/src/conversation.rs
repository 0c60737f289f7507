//! From messages to prompt tokens; within a session, tokens are never made from text again.
//!
//! ```text
//! call 1    [system user] -----------------> prompt ids  P1, completion ids C1 (as drawn)
//! call 2    [system user assistant tool] --> P1 + C1 + ids of the gap
//! ```
//! A call that begins with the messages of an earlier one, and goes on with the message it was
//! answered with, continues that call's tokens. The gap is what the template writes between the
//! assistant's text and the next opening: it is found by rendering the conversation with a mark in
//! place of that text. Every other call is rendered anew, as is all that comes without a session.
//!
//! Not here: which tokens are trained on. A prompt that begins with earlier tokens shows by itself
//! what it continues.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::chat_format::{ChatError, ChatFormat, Extras};
use crate::error::ApiError;
use crate::tools::Message;

/// A call of a session and what it was answered with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) messages: Vec<Value>,
    pub(crate) extras: Extras,
    pub(crate) prompt: Vec<u32>,
    /// Each choice: the message that the client got, and its tokens as they were drawn.
    pub(crate) answers: Vec<(Message, Vec<u32>)>,
}

/// The tokens of a conversation that is open for the assistant's next message.
pub(crate) fn prompt(
    chat: &dyn ChatFormat,
    turns: &[Arc<Turn>],
    messages: &[Value],
    extras: &Extras,
) -> Result<Vec<u32>, ChatError> {
    if let Some((turn, tokens)) = continued(turns, messages, extras)
        && let Some(gap) = gap(chat, messages, turn.messages.len(), extras)?
    {
        let gap = chat.encode(&gap)?;
        let is_written = chat.has_written_end(tokens, &gap);
        return Ok([&turn.prompt, tokens, &gap[usize::from(is_written)..]].concat());
    }
    chat.encode(&chat.render(messages, extras)?)
}

/// The longest earlier call that these messages go on from, and the tokens it was answered with.
fn continued<'a>(
    turns: &'a [Arc<Turn>],
    messages: &[Value],
    extras: &Extras,
) -> Option<(&'a Turn, &'a [u32])> {
    let of = |turn: &'a Arc<Turn>| {
        let (before, after) = messages.split_at_checked(turn.messages.len())?;
        let said = after.first()?;
        if before != turn.messages || *extras != turn.extras || said["role"] != "assistant" {
            return None;
        }
        let is_said = |(message, _): &&(Message, Vec<u32>)| is_same(said, message);
        let (_, tokens) = turn.answers.iter().find(is_said)?;
        Some((&**turn, &tokens[..]))
    };
    turns.iter().filter_map(of).max_by_key(|(turn, _)| turn.messages.len())
}

/// Whether a client has sent back what it got. Identifiers of calls are its own business.
fn is_same(sent: &Value, returned: &Message) -> bool {
    let none = Vec::new();
    let calls = sent["tool_calls"].as_array().unwrap_or(&none);
    sent["content"] == returned.content.as_str()
        && calls.len() == returned.tool_calls.len()
        && calls.iter().zip(&returned.tool_calls).all(|(sent, returned)| {
            sent["function"]["name"] == returned.name.as_str()
                && sent["function"]["arguments"].as_object() == Some(&returned.arguments)
        })
}

/// What the template writes after the text of message `at`. `None` where the template does not show
/// that text once and as it is.
///
/// # Errors
/// The template may refuse the messages.
///
/// # Panics
/// Never: some number is not in the text.
pub fn gap(
    chat: &dyn ChatFormat,
    messages: &[Value],
    at: usize,
    extras: &Extras,
) -> Result<Option<String>, ChatError> {
    let all = Value::Array(messages.to_vec()).to_string();
    let marks = (0..).map(|number| format!("[turn-{number}]"));
    let mark = { marks }.find(|mark| !all.contains(mark)).expect("some number is not in the text");
    let mut marked = messages.to_vec();
    // Its calls are part of what was drawn, so they are not written again.
    marked[at] = json!({"role": "assistant", "content": mark});
    let text = chat.render(&marked, extras)?;
    let mut parts = text.split(&mark);
    Ok(match (parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(after), None) => Some(after.to_owned()),
        _ => None,
    })
}

/// Messages as templates expect them: text as one string, arguments of calls as objects.
pub(crate) fn messages(given: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    if given.is_empty() {
        return Err(ApiError::field("messages", "messages must not be empty"));
    }
    given.into_iter().enumerate().map(|(index, value)| message(index, value)).collect()
}

fn message(index: usize, given: Value) -> Result<Value, ApiError> {
    let name = |field: &str| format!("messages[{index}]{field}");
    let refuse = |field: &str, message: String| Err(ApiError::field(&name(field), message));
    let Value::Object(mut given) = given else {
        return refuse("", format!("{} must be an object", name("")));
    };
    let role = match given.get("role").and_then(Value::as_str) {
        // What later models call it; templates know the old name.
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        _ => {
            let message = format!("{} must be system, user, assistant or tool", name(".role"));
            return refuse(".role", message);
        }
    };
    let mut out = Map::new();
    out.insert("role".to_owned(), json!(role));
    out.insert("content".to_owned(), Value::String(content(index, given.remove("content"))?));
    match given.remove("tool_calls") {
        None | Some(Value::Null) => {}
        Some(Value::Array(calls)) if calls.is_empty() => {}
        Some(Value::Array(calls)) => {
            let calls = calls.into_iter().map(call).collect::<Option<Vec<Value>>>();
            let Some(calls) = calls else {
                let message = format!(
                    "{} must each be {{\"function\": {{\"name\", \"arguments\"}}}}",
                    name(".tool_calls")
                );
                return refuse(".tool_calls", message);
            };
            out.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        Some(_) => return refuse(".tool_calls", format!("{} must be a list", name(".tool_calls"))),
    }
    for field in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(value) = given.remove(field).filter(|value| !value.is_null()) {
            out.insert(field.to_owned(), value);
        }
    }
    Ok(Value::Object(out))
}

fn content(index: usize, given: Option<Value>) -> Result<String, ApiError> {
    let name = format!("messages[{index}].content");
    let refuse = |message: String| Err(ApiError::field(&name, format!("{name} {message}")));
    let parts = match given {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(Value::String(text)) => return Ok(text),
        Some(Value::Array(parts)) => parts,
        Some(_) => return refuse("must be a text or a list of texts".to_owned()),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for part in &parts {
        match (part["type"].as_str(), part["text"].as_str()) {
            (Some("text"), Some(text)) => texts.push(text),
            (kind, _) => {
                let kind = kind.unwrap_or("without a type");
                return refuse(format!("has a part {kind:?}; this model reads text only"));
            }
        }
    }
    Ok(texts.join("\n"))
}

/// A call with its arguments as an object; as they came where they are not one.
fn call(mut call: Value) -> Option<Value> {
    let function = call.get_mut("function")?.as_object_mut()?;
    function.get("name")?.as_str()?;
    let arguments = function.get_mut("arguments")?;
    if let Value::String(text) = arguments
        && let Ok(object @ Value::Object(_)) = serde_json::from_str(text)
    {
        *arguments = object;
    }
    Some(call)
}
