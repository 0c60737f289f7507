//! Rows to prompts: a template with `{placeholders}`, and where the answer is.
//!
//! Placeholders name columns, dotted for nested ones: `{question}`, `{extra_info.index}`. `{{`
//! and `}}` are braces. A chat template is a list of messages with placeholders; a column may also
//! hold the messages themselves.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::question::lookup;

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// `system`, `user`, `assistant`; `plain` for text without a chat format.
    pub role: String,
    /// The text.
    pub content: String,
}

/// How a row becomes a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase")]
pub enum PromptTemplate {
    /// Text for a model without a chat format.
    Plain(String),
    /// Messages with placeholders.
    Chat(Vec<Message>),
    /// The column that holds a list of `{role, content}`.
    Column(String),
}

impl Default for PromptTemplate {
    fn default() -> Self {
        Self::Chat(vec![Message { role: "user".to_owned(), content: "{prompt}".to_owned() }])
    }
}

/// Where a row's answer is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AnswerSource {
    /// A template like that of a prompt, usually one column: `{answer}`. Empty: no answer.
    pub template: String,
    /// Only what follows the last occurrence of this mark, such as GSM8K's `####`.
    pub after: String,
    /// Take the content of the last `\boxed{}`, as in MATH's solutions.
    pub boxed: bool,
}

impl Default for AnswerSource {
    fn default() -> Self {
        Self { template: "{answer}".to_owned(), after: String::new(), boxed: false }
    }
}

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
    #[error("column `{name}` is not a list of {{role, content}}")]
    NotMessages { name: String },
    /// An answer without its mark.
    #[error("the answer has no {mark}")]
    NoMark { mark: String },
}

/// Fills `{name}` from the row.
pub(crate) fn fill(template: &str, row: &Map<String, Value>) -> Result<String, TemplateError> {
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
                text.push_str(&column(row, &rest[..end])?);
                while chars.next_if(|(next, _)| *next <= at + 1 + end).is_some() {}
            }
            '}' => return Err(TemplateError::LoneBrace { at }),
            other => text.push(other),
        }
    }
    Ok(text)
}

fn column(row: &Map<String, Value>, name: &str) -> Result<String, TemplateError> {
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

impl PromptTemplate {
    /// The conversation of one row.
    pub fn apply(&self, row: &Map<String, Value>) -> Result<Vec<Message>, TemplateError> {
        match self {
            Self::Plain(template) => {
                Ok(vec![Message { role: "plain".to_owned(), content: fill(template, row)? }])
            }
            Self::Chat(messages) => messages
                .iter()
                .map(|m| Ok(Message { role: m.role.clone(), content: fill(&m.content, row)? }))
                .collect(),
            Self::Column(name) => {
                let bad = || TemplateError::NotMessages { name: name.clone() };
                let value = lookup(row, name).ok_or_else(bad)?;
                let messages: Vec<Message> =
                    serde_json::from_value(value.clone()).map_err(|_| bad())?;
                if messages.is_empty() { Err(bad()) } else { Ok(messages) }
            }
        }
    }
}

impl AnswerSource {
    /// The answer of one row.
    pub fn apply(&self, row: &Map<String, Value>) -> Result<String, TemplateError> {
        let text = fill(&self.template, row)?;
        if self.boxed {
            let content = crate::verify::math::last_boxed(&text);
            return content.ok_or(TemplateError::NoMark { mark: "\\boxed{}".to_owned() });
        }
        if self.after.is_empty() {
            return Ok(text.trim().to_owned());
        }
        match text.rfind(&self.after) {
            Some(at) => Ok(text[at + self.after.len()..].trim().to_owned()),
            None => Err(TemplateError::NoMark { mark: self.after.clone() }),
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
        assert_eq!(fill("Q: {q} {{{n.x}}}", &row()).unwrap(), "Q: 1+1? {51}");
        assert!(matches!(fill("{z}", &row()), Err(TemplateError::NoColumn { .. })));
        assert!(matches!(fill("a {q", &row()), Err(TemplateError::LoneBrace { at: 2 })));
        assert!(matches!(fill("a } b", &row()), Err(TemplateError::LoneBrace { at: 2 })));
    }

    #[test]
    fn answers_are_found_after_a_mark_or_in_a_box() {
        let after = AnswerSource { template: "{a}".into(), after: "####".into(), boxed: false };
        assert_eq!(after.apply(&row()).unwrap(), "2");
        let boxed = AnswerSource { template: "{s}".into(), after: String::new(), boxed: true };
        assert_eq!(boxed.apply(&row()).unwrap(), "\\frac{1}{2}");
        let missing = AnswerSource { template: "{q}".into(), ..after };
        assert!(matches!(missing.apply(&row()), Err(TemplateError::NoMark { .. })));
    }

    #[test]
    fn a_column_may_hold_the_conversation() {
        let row = json!({"prompt": [{"role": "user", "content": "hi"}]});
        let messages =
            PromptTemplate::Column("prompt".into()).apply(row.as_object().unwrap()).unwrap();
        assert_eq!(messages[0].content, "hi");
        let error = PromptTemplate::Column("q".into()).apply(&self::row());
        assert!(matches!(error, Err(TemplateError::NotMessages { .. })));
    }
}
