//! Mathematics inside prose: `$…$`, `$$…$$`, `\(…\)`, `\[…\]`, ` [ … ] `, bare `\frac{1}{2}`.
//!
//! Inline mathematics stays on one line. Where closers lie is indexed once, so an environment that
//! is opened a million times and never closed costs a million look-ups, not a million scans.

use super::boxed;

/// Up to six environments joined by `and`, `or` or commas.
#[derive(Debug, Clone)]
pub(crate) struct JoinedEnvironments {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The content of each, and whether a percent sign follows it.
    pub(crate) parts: Vec<(String, bool)>,
}

fn has_box(content: &str) -> bool {
    content.contains("\\boxed") || content.contains("\\fbox")
}

/// Which environments count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Any,
    /// Only those with a box in them.
    Boxed,
}

impl JoinedEnvironments {
    /// The content with boxes opened.
    pub(crate) fn contents(&self) -> Vec<(String, bool)> {
        self.parts.iter().map(|(text, percent)| (boxed::content_or_text(text), *percent)).collect()
    }
}

/// Most environments in one group.
const MOST_PARTS: usize = 6;

pub(crate) struct Environments<'a> {
    text: &'a str,
    dollars: Vec<usize>,
    double_dollars: Vec<usize>,
    closing_brackets: Vec<usize>,
    closing_parentheses: Vec<usize>,
    newlines: Vec<usize>,
}

fn next(positions: &[usize], from: usize) -> Option<usize> {
    positions.get(positions.partition_point(|at| *at < from)).copied()
}

impl<'a> Environments<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let mut index = Self {
            text,
            dollars: Vec::new(),
            double_dollars: Vec::new(),
            closing_brackets: Vec::new(),
            closing_parentheses: Vec::new(),
            newlines: Vec::new(),
        };
        for (at, byte) in bytes.iter().enumerate() {
            let is_escaped = at > 0 && bytes[at - 1] == b'\\';
            match byte {
                b'\n' => index.newlines.push(at),
                b'$' if !is_escaped => {
                    index.dollars.push(at);
                    if bytes.get(at + 1) == Some(&b'$') {
                        index.double_dollars.push(at);
                    }
                }
                b'\\' if !is_escaped => match bytes.get(at + 1) {
                    Some(b']') => index.closing_brackets.push(at),
                    Some(b')') => index.closing_parentheses.push(at),
                    _ => {}
                },
                _ => {}
            }
        }
        index
    }

    fn on_one_line(&self, start: usize, end: usize) -> bool {
        next(&self.newlines, start).is_none_or(|newline| newline >= end)
    }

    /// The environment that opens at `at`: content and end.
    fn one(&self, at: usize) -> Option<(&'a str, usize)> {
        let bytes = self.text.as_bytes();
        let before = at.checked_sub(1).map(|at| bytes[at]);
        let is_escaped = before == Some(b'\\');
        let rest = &bytes[at..];
        let content = |start: usize, close: usize, length: usize| {
            let content = self.text.get(start..close)?;
            (!content.is_empty()).then_some((content, close + length))
        };
        if rest.starts_with(b"$$") && !is_escaped {
            return content(at + 2, next(&self.double_dollars, at + 3)?, 2);
        }
        if rest.starts_with(b"$") && !is_escaped && !before.is_some_and(|b| b.is_ascii_digit()) {
            let close = next(&self.dollars, at + 1)?;
            return content(at + 1, close, 1).filter(|_| self.on_one_line(at, close));
        }
        if rest.starts_with(b"\\[") && !is_escaped {
            return content(at + 2, next(&self.closing_brackets, at + 2)?, 2);
        }
        if rest.starts_with(b"\\(") && !is_escaped {
            let close = next(&self.closing_parentheses, at + 2)?;
            return content(at + 2, close, 2).filter(|_| self.on_one_line(at, close));
        }
        if rest.starts_with(b"[") && before.is_some_and(|b| b.is_ascii_whitespace()) {
            return self.spaced_bracket(at);
        }
        if rest.starts_with(b"\\frac{") || rest.starts_with(b"-\\frac{") {
            return self.bare_fraction(at);
        }
        None
    }

    /// ` [ x = 5 ] `, a display environment that lost its backslashes.
    fn spaced_bracket(&self, at: usize) -> Option<(&'a str, usize)> {
        let rest = &self.text[at + 1..];
        let length = rest.find(['\n', ']', '['])?;
        let after = rest[length..].strip_prefix(']')?;
        let is_closed = length > 0 && after.starts_with(char::is_whitespace);
        is_closed.then(|| (&rest[..length], at + length + 2))
    }

    fn bare_fraction(&self, at: usize) -> Option<(&'a str, usize)> {
        let rest = &self.text[at..];
        let mut end = rest.find('{')?;
        for _ in 0..2 {
            let inner = rest[end..].strip_prefix('{')?;
            let close = inner.find('}')?;
            let is_number = !inner[..close].is_empty()
                && inner[..close]
                    .chars()
                    .all(|c| c.is_ascii_digit() || matches!(c, '.' | ',' | '-'));
            if !is_number {
                return None;
            }
            end += close + 2;
        }
        Some((&rest[..end], at + end))
    }

    /// The group that opens at byte `at`; without parts when the environment does not count.
    pub(crate) fn group_at(&self, at: usize, wanted: Wanted) -> Option<JoinedEnvironments> {
        let counts = |content: &str| wanted == Wanted::Any || has_box(content);
        let (content, mut end) = self.one(at)?;
        if !counts(content) {
            return Some(JoinedEnvironments { start: at, end, parts: Vec::new() });
        }
        let mut percent = percent_at(self.text, end);
        let mut parts = vec![(content.to_owned(), percent.is_some())];
        end = percent.unwrap_or(end);
        while parts.len() < MOST_PARTS {
            let Some(next_start) = after_connector(self.text, end) else { break };
            let Some((content, next_end)) = self.one(next_start).filter(|(c, _)| counts(c)) else {
                break;
            };
            percent = percent_at(self.text, next_end);
            parts.push((content.to_owned(), percent.is_some()));
            end = percent.unwrap_or(next_end);
        }
        Some(JoinedEnvironments { start: at, end, parts })
    }

    /// All groups of the text, none overlapping.
    pub(crate) fn all(&self, wanted: Wanted) -> Vec<JoinedEnvironments> {
        let mut groups = Vec::new();
        let mut at = 0;
        while let Some(offset) = self.text[at..].find(['$', '\\', '[', '-']) {
            at += offset;
            match self.group_at(at, wanted) {
                Some(group) => {
                    at = group.end;
                    if !group.parts.is_empty() {
                        groups.push(group);
                    }
                }
                None => at += 1,
            }
        }
        groups
    }
}

/// End of a percent sign or word that follows `at`.
pub(crate) fn percent_at(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let trimmed = rest.trim_start();
    let skipped = rest.len() - trimmed.len();
    for word in ["\\%", "%", "percentage", "Percentage", "percent", "Percent", "pct", "Pct"] {
        if trimmed.starts_with(word) {
            return Some(at + skipped + word.len());
        }
    }
    None
}

/// Where the next environment may start after `, `, ` and `, `, or `.
fn after_connector(text: &str, at: usize) -> Option<usize> {
    let mut rest = text[at..].trim_start();
    let mut found = false;
    if let Some(after) = rest.strip_prefix(',') {
        rest = after.trim_start();
        found = true;
    }
    for word in ["and", "or"] {
        if let Some(after) = rest.strip_prefix(word)
            && after.starts_with(|c: char| c.is_whitespace() || c == '$' || c == '\\')
        {
            rest = after.trim_start();
            found = true;
            break;
        }
    }
    found.then_some(text.len() - rest.len())
}
