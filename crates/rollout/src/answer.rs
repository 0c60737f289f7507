//! How a completion marks its answer: where the mark begins and where it ends.
//!
//! One rule for both sides: a generator ends a completion where [`AnswerEnd::find`] first finds an
//! end, and the verifier is shown what the same call encloses.
//!
//! ```text
//! … so the result is \boxed{\frac{1}{2}}|        opening "\boxed{", closing "}", braces nest
//! … 4 + 5 = 9\n#### 9\n|                         opening "####", closing "\n"
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The two texts around an answer. Made from the recipe's format, used by generators and by `task`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AnswerEnd {
    /// Text before the answer; empty where the answer begins at once.
    pub opening: String,
    /// Text after it. Never empty.
    pub closing: String,
    /// Whether `{` and `}` inside the answer nest, so that the closing text counts only outside.
    pub braces_nest: bool,
}

impl AnswerEnd {
    /// The first `closing` text, wherever it stands.
    pub fn at(closing: impl Into<String>) -> Self {
        Self { opening: String::new(), closing: closing.into(), braces_nest: false }
    }

    /// `\boxed{…}`, to its matching brace.
    pub fn boxed() -> Self {
        Self { opening: "\\boxed{".into(), closing: "}".into(), braces_nest: true }
    }

    /// What the marks of the first complete answer of `text` enclose; `None` while there is none.
    pub fn find(&self, text: &str) -> Option<Range<usize>> {
        let start = text.find(&self.opening)? + self.opening.len();
        let length = if self.braces_nest {
            self.outside_braces(&text[start..])?
        } else {
            text[start..].find(&self.closing)?
        };
        Some(start..start + length)
    }

    /// Where the closing text first stands with every brace closed.
    fn outside_braces(&self, text: &str) -> Option<usize> {
        let mut depth = 0_usize;
        let mut is_escaped = false;
        for (at, c) in text.char_indices() {
            if depth == 0 && !is_escaped && text[at..].starts_with(&self.closing) {
                return Some(at);
            }
            match c {
                '{' if !is_escaped => depth += 1,
                '}' if !is_escaped => depth = depth.saturating_sub(1),
                _ => {}
            }
            // `\{` and `\}` are characters of the answer, as in \boxed{\{1, 2\}}.
            is_escaped = c == '\\' && !is_escaped;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(end: &AnswerEnd, text: &'a str) -> Option<&'a str> {
        end.find(text).map(|range| &text[range])
    }

    #[test]
    fn a_box_ends_at_its_matching_brace() {
        let boxed = AnswerEnd::boxed();
        for (text, expected) in [
            ("so \\boxed{\\frac{1}{2}} and \\boxed{3}", Some("\\frac{1}{2}")),
            ("\\boxed{\\{1, 2\\}}", Some("\\{1, 2\\}")),
            ("\\boxed{a\\\\}}", Some("a\\\\")),
            ("\\boxed{}", Some("")),
            ("\\boxed{\\frac{1}{2}", None),
            ("a } b", None),
            ("", None),
        ] {
            assert_eq!(found(&boxed, text), expected, "{text}");
        }
    }

    #[test]
    fn without_an_opening_text_the_first_closing_one_ends() {
        let brace = AnswerEnd::at("}}");
        assert_eq!(found(&brace, "a } b }} c }}"), Some("a } b "));
        assert_eq!(found(&brace, "a } b"), None);
    }

    #[test]
    fn a_line_after_a_mark_is_the_answer() {
        let line = AnswerEnd { opening: "####".into(), closing: "\n".into(), braces_nest: false };
        assert_eq!(found(&line, "4 + 5 = 9\n#### 9\nmore"), Some(" 9"));
        assert_eq!(found(&line, "4 + 5 = 9\n#### 9"), None, "the line may go on");
    }
}
