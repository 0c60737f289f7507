//! Rows to problems: the recipe's template with `{placeholders}`, and where the answer is.
//!
//! `{prompt}` is the column that holds the problem; every other placeholder names a column, dotted
//! for nested ones: `{extra_info.index}`. `{{` and `}}` are braces. A problem's column may also hold
//! the conversation itself, as a list of messages.

use scalerl_recipe::PromptTemplate;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::problem::{Message, lookup};

/// What a placeholder of the recipe calls the problem, whatever its column is called.
const PROBLEM: &str = "prompt";

/// Why a row does not fill a template.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TemplateError {
    /// A placeholder that is no column.
    #[error("no column `{name}`; the columns are {columns}")]
    NoColumn { name: String, columns: String },
    /// A brace that is not closed, or closed without being opened.
    #[error("the template has a single brace at character {at}; write {{{{ or }}}} for a brace")]
    LoneBrace { at: usize },
    /// A column that should hold messages.
    #[error("column `{name}` is a list, but not of {{role, content}}")]
    NotMessages { name: String },
    /// An answer without its mark.
    #[error("the answer has no {mark}")]
    NoMark { mark: String },
}

/// Fills `{name}` from the row; `{prompt}` is the column `problem`.
fn fill(template: &str, problem: &str, row: &Map<String, Value>) -> Result<String, TemplateError> {
    let mut text = String::with_capacity(template.len());
    let mut chars = template.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '{' | '}' if chars.peek().is_some_and(|(_, next)| *next == c) => {
                chars.next();
                text.push(c);
            }
            '{' => {
                let rest = &template[at + 1..];
                let end = rest.find(['{', '}']).filter(|end| rest[*end..].starts_with('}'));
                let end = end.ok_or(TemplateError::LoneBrace { at })?;
                let name = if &rest[..end] == PROBLEM { problem } else { &rest[..end] };
                text.push_str(&column(row, name)?);
                while chars.next_if(|(next, _)| *next <= at + 1 + end).is_some() {}
            }
            '}' => return Err(TemplateError::LoneBrace { at }),
            other => text.push(other),
        }
    }
    Ok(text)
}

/// What a row holds under a (dotted) name, as a reader would write it.
pub fn column(row: &Map<String, Value>, name: &str) -> Result<String, TemplateError> {
    match lookup(row, name) {
        Some(Value::String(text)) => Ok(text.clone()),
        // 51.0 in JSON is 51 to a reader.
        Some(Value::Number(number)) => Ok(match number.as_f64() {
            Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() < 1e15 => {
                format!("{value:.0}")
            }
            _ => number.to_string(),
        }),
        Some(other) => Ok(other.to_string()),
        None => {
            let columns = row.keys().cloned().collect::<Vec<_>>().join(", ");
            Err(TemplateError::NoColumn { name: name.to_owned(), columns })
        }
    }
}

/// The conversation of one row, whose problem is in `column`.
pub(crate) fn messages(
    template: &PromptTemplate,
    column: &str,
    row: &Map<String, Value>,
) -> Result<Vec<Message>, TemplateError> {
    let fill = |text: &str| fill(text, column, row);
    match template {
        PromptTemplate::Plain { template } => Ok(vec![Message::plain(fill(template)?)]),
        PromptTemplate::Chat { system, user } => {
            let mut messages = Vec::new();
            if let Some(system) = system {
                messages.push(Message::new("system", fill(system)?));
            }
            match lookup(row, column) {
                Some(Value::Array(turns)) if user == "{prompt}" => {
                    messages.extend(conversation(column, turns)?);
                }
                _ => messages.push(Message::new("user", fill(user)?)),
            }
            Ok(messages)
        }
    }
}

/// The messages that a column holds.
fn conversation(column: &str, turns: &[Value]) -> Result<Vec<Message>, TemplateError> {
    let bad = || TemplateError::NotMessages { name: column.to_owned() };
    let messages: Result<Vec<Message>, _> =
        turns.iter().map(|turn| serde_json::from_value(turn.clone())).collect();
    messages.ok().filter(|messages| !messages.is_empty()).ok_or_else(bad)
}

/// Where a row's answer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerColumn<'a> {
    /// The column; empty where there is no answer, as for problems that tests judge.
    pub(crate) name: &'a str,
    /// Only what follows the last occurrence of this mark, such as GSM8K's `####`; empty for all.
    pub(crate) after: &'a str,
    /// Only what the last `\boxed{}` holds, as in MATH's solutions.
    pub(crate) is_boxed: bool,
}

impl AnswerColumn<'_> {
    /// The answer of one row.
    pub(crate) fn read(&self, row: &Map<String, Value>) -> Result<String, TemplateError> {
        if self.name.is_empty() {
            return Ok(String::new());
        }
        let text = column(row, self.name)?;
        if self.is_boxed {
            let content = crate::verify::math::last_boxed(&text);
            return content.ok_or(TemplateError::NoMark { mark: "\\boxed{}".to_owned() });
        }
        if self.after.is_empty() {
            return Ok(text.trim().to_owned());
        }
        match text.rfind(self.after) {
            Some(at) => Ok(text[at + self.after.len()..].trim().to_owned()),
            None => Err(TemplateError::NoMark { mark: self.after.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row() -> Map<String, Value> {
        let row = json!({"q": "1+1?", "n": {"x": 51.0}, "a": "so\n#### 2", "s": "is \\boxed{\\frac{1}{2}}."});
        row.as_object().unwrap().clone()
    }

    #[test]
    fn placeholders_are_columns_also_nested_ones() {
        let fill = |template: &str| fill(template, "q", &row());
        assert_eq!(fill("Q: {prompt} {q} {{{n.x}}}").unwrap(), "Q: 1+1? 1+1? {51}");
        assert!(matches!(fill("{z}"), Err(TemplateError::NoColumn { .. })));
        assert!(matches!(fill("a {q"), Err(TemplateError::LoneBrace { at: 2 })));
        assert!(matches!(fill("a } b"), Err(TemplateError::LoneBrace { at: 2 })));
    }

    #[test]
    fn answers_are_found_after_a_mark_or_in_a_box() {
        let after = AnswerColumn { name: "a", after: "####", is_boxed: false };
        assert_eq!(after.read(&row()).unwrap(), "2");
        let boxed = AnswerColumn { name: "s", after: "", is_boxed: true };
        assert_eq!(boxed.read(&row()).unwrap(), "\\frac{1}{2}");
        let missing = AnswerColumn { name: "q", ..after };
        assert!(matches!(missing.read(&row()), Err(TemplateError::NoMark { .. })));
    }

    #[test]
    fn a_column_may_hold_the_conversation() {
        let row = json!({"prompt": [{"role": "user", "content": "hi"}], "bad": [1]});
        let row = row.as_object().unwrap();
        let chat =
            PromptTemplate::Chat { system: Some("Be brief.".into()), user: "{prompt}".into() };
        let found = messages(&chat, "prompt", row).unwrap();
        assert_eq!(found, [Message::new("system", "Be brief."), Message::new("user", "hi")]);
        let error = messages(&chat, "bad", row);
        assert!(matches!(error, Err(TemplateError::NotMessages { .. })));
    }
}
