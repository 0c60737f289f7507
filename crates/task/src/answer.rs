//! What a verifier is shown of a completion, cut once, before any verifier, by the recipe's format.
//!
//! ```text
//! 3 + 4 is 7, so</think>The answer is \boxed{7}.
//!               ^ thinking ends          ^ ^ what `format.answer = "boxed"` encloses
//!                └──────────────────────────  all of it with "plain"
//! ```
//!
//! The first text that ends thinking counts, as in the generator: what comes after it is the answer's
//! part, whatever it says about thinking. A completion whose thinking never ends, or whose answer
//! lacks its mark, has no answer.

use std::ops::Range;

use scalerl_recipe::{AnswerForm, Format, Thinking};
use scalerl_rollout::{AnswerEnd, Completion};

/// A completion and the part of it that is its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    completion: String,
    part: Option<Range<usize>>,
    is_marked: bool,
    /// Its tokens, and the newest version that wrote one; unknown where only its text is.
    token_ids: Vec<u32>,
    version: Option<u64>,
}

impl Answer {
    /// Finds the answer in what a policy wrote.
    pub fn of(format: &Format, completion: &Completion) -> Self {
        Self {
            token_ids: completion.token_ids.clone(),
            version: completion.versions.iter().map(|version| version.0).max(),
            ..Self::cut(format, completion.text.clone())
        }
    }

    /// Finds the answer in a completion.
    pub fn cut(format: &Format, completion: impl Into<String>) -> Self {
        let completion = completion.into();
        let part = after_thinking(format, &completion).and_then(|start| {
            let part = marked(format, &completion[start..])?;
            Some(start + part.start..start + part.end)
        });
        let is_marked = format.answer != AnswerForm::Plain;
        Self { completion, part, is_marked, token_ids: Vec::new(), version: None }
    }

    /// A completion that is nothing but its answer, as in a file of answers.
    pub fn whole(text: impl Into<String>) -> Self {
        let completion = text.into();
        let part = Some(0..completion.len());
        Self { completion, part, is_marked: false, token_ids: Vec::new(), version: None }
    }

    /// The answer; `None` where the completion has none.
    pub fn text(&self) -> Option<&str> {
        self.part.clone().map(|part| &self.completion[part])
    }

    /// All that was written, thinking included.
    pub fn completion(&self) -> &str {
        &self.completion
    }

    /// The tokens of all that was written; none where only the text is known.
    pub fn token_ids(&self) -> &[u32] {
        &self.token_ids
    }

    /// The newest policy version that wrote one of them.
    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// Whether marks enclose the answer, so that nothing but the answer stands between them.
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }
}

/// How a generator knows that the answer has ended; `None` where only the model can say so. For
/// text that begins where thinking has ended.
pub fn answer_end(format: &Format) -> Option<AnswerEnd> {
    let closing = format.answer.closing()?.to_owned();
    // Thinking that lasts until the mark has consumed it.
    let is_opened = format.thinking == Thinking::BeforeAnswer;
    let opening = if is_opened { String::new() } else { format.answer.opening().to_owned() };
    Some(AnswerEnd { opening, closing, braces_nest: format.answer == AnswerForm::Boxed })
}

fn after_thinking(format: &Format, completion: &str) -> Option<usize> {
    let Some(close) = format.thinking_close() else { return Some(0) };
    completion.find(close).map(|at| at + close.len())
}

fn marked(format: &Format, text: &str) -> Option<Range<usize>> {
    if let Some(end) = answer_end(format) {
        // A line that the completion's own end closes is whole.
        let line_ends = end.closing == "\n";
        return end.find(text).or_else(|| {
            let start = text.find(&end.opening)? + end.opening.len();
            line_ends.then_some(start..text.len())
        });
    }
    let opening = format.answer.opening();
    if opening.is_empty() || format.thinking == Thinking::BeforeAnswer {
        return Some(0..text.len());
    }
    text.rfind(opening).map(|at| at + opening.len()..text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(answer: AnswerForm) -> Format {
        Format { answer, ..Format::default() }
    }

    fn without_thinking(answer: AnswerForm) -> Format {
        Format { thinking: Thinking::None, answer, ..Format::default() }
    }

    fn before_answer(answer: AnswerForm) -> Format {
        Format { thinking: Thinking::BeforeAnswer, answer, ..Format::default() }
    }

    fn between(open: &str, close: Option<&str>) -> AnswerForm {
        AnswerForm::Marked { open: open.into(), close: close.map(Into::into) }
    }

    #[test]
    fn each_format_shows_its_own_part() {
        for (format, completion, expected) in [
            (tags(AnswerForm::Plain), "hm 7</think>8", Some("8")),
            (tags(AnswerForm::Plain), "hm</think>8</think>9", Some("8</think>9")),
            (tags(AnswerForm::Plain), "hm 7", None),
            (
                tags(AnswerForm::Boxed),
                "\\boxed{1}</think>so \\boxed{\\frac{1}{2}}",
                Some("\\frac{1}{2}"),
            ),
            (tags(AnswerForm::Boxed), "\\boxed{1}</think>so 2", None),
            (without_thinking(AnswerForm::Plain), "8</think>9", Some("8</think>9")),
            (without_thinking(AnswerForm::Boxed), "\\boxed{1} \\boxed{2}", Some("1")),
            (without_thinking(AnswerForm::Boxed), "\\boxed{1", None),
            (without_thinking(AnswerForm::Gsm8k), "4 + 5\n#### 9\nand", Some(" 9")),
            (without_thinking(AnswerForm::Gsm8k), "4 + 5\n#### 9", Some(" 9")),
            (without_thinking(AnswerForm::Gsm8k), "9", None),
            (before_answer(AnswerForm::Boxed), "3+4 is \\boxed{7} or \\boxed{8}", Some("7")),
            (before_answer(AnswerForm::Boxed), "3+4 is 7", None),
            (without_thinking(between("<a>", Some("</a>"))), "<a>1</a><a>2</a>", Some("1")),
            (without_thinking(between("<a>", Some("</a>"))), "<a>1", None),
            (without_thinking(between("Answer:", None)), "Answer: 1. Answer: 2", Some(" 2")),
            (without_thinking(between("", Some("}"))), "2} and", Some("2")),
        ] {
            let answer = Answer::cut(&format, completion);
            assert_eq!(answer.text(), expected, "{format:?} on {completion:?}");
            assert_eq!(answer.completion(), completion);
        }
    }

    #[test]
    fn a_generator_ends_where_the_answer_ends() {
        for format in [
            tags(AnswerForm::Boxed),
            without_thinking(AnswerForm::Boxed),
            before_answer(AnswerForm::Boxed),
            without_thinking(AnswerForm::Gsm8k),
            without_thinking(between("<a>", Some("</a>"))),
        ] {
            let written = "see \\boxed{\\frac{1}{2}} #### <a>1</a> 2\n</think>";
            let completion = format!("{written}{written}");
            let start = after_thinking(&format, &completion).unwrap();
            let end = answer_end(&format).unwrap();
            let found = end.find(&completion[start..]).unwrap();
            let cut = Answer::cut(&format, completion.clone());
            assert_eq!(cut.text(), Some(&completion[start..][found]), "{format:?}");
        }
        assert_eq!(answer_end(&tags(AnswerForm::Plain)), None);
    }
}
