//! Finds the answer in what a model wrote.
//!
//! Candidates have a rank; within a rank the one that ends last is tried first, and the first that
//! can be read as mathematics is the answer.
//!
//! ```text
//! 0  "#### 72"                         the mark of GSM8K
//! 1  "final answer is X. I hope"       the closing of the MATH prompts
//! 2  "final answer … is X", \boxed{X}
//! 3  "answer: … X"                     within 50 characters
//! 4  "answer … X"
//! 5  any mathematics or number
//! ```
//!
//! Not here: reading a candidate (`read.rs`).

pub(crate) mod boxed;
mod candidate;
mod environment;
pub(crate) mod plain;

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::expr::Expr;

pub(crate) use self::candidate::{plain_value, read_latex};

use self::candidate::{Candidate, LocatedCandidate};
use self::environment::{Environments, JoinedEnvironments, Wanted};
use self::plain::Plain;

/// Only the end of a long completion is searched: the answer is there.
const TAIL: usize = 256 * 1024;
/// Candidates of one rank that are tried.
const MOST_TRIED: usize = 24;

/// Bytes after an anchor in which its answer must begin and end.
const WINDOW: usize = 400;

/// What counts as an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent switches, set by name")]
pub(crate) struct Sources {
    /// Mathematics in LaTeX environments and boxes.
    pub(crate) latex: bool,
    /// Numbers and sums in prose.
    pub(crate) plain: bool,
    /// The line after `####`.
    pub(crate) marked: bool,
    /// The letters A to D.
    pub(crate) choice: bool,
}

/// The answer that was found: read, and as text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extracted {
    pub(crate) value: Option<Expr>,
    /// The text the value was read from.
    pub(crate) read_from: Option<String>,
    /// The best candidate as text; equal texts are equal answers even when nobody can read them.
    pub(crate) text: Option<String>,
    /// Whether anything was there to be read.
    pub(crate) found: bool,
}

impl Extracted {
    /// A text that is the answer itself.
    pub(crate) fn whole(text: String, read: impl FnOnce(&str) -> Option<Expr>) -> Self {
        Self {
            value: read(&text),
            read_from: Some(text.clone()),
            found: !text.is_empty(),
            text: Some(text),
        }
    }

    /// Words that are the answer.
    pub(crate) fn words(text: &str) -> Self {
        Self::whole(text.to_owned(), |text| Some(Expr::Text(text.to_owned())))
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("a pattern of this file is wrong: {error}"))
}

static FINAL_IS: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)final answer is:?"));
static FINAL: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?is)final answer.{0,100}?\s+is:?"));
static ANSWER: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)answer"));
static ANNOUNCED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)answer\b[*:\s]*(?:is\b)?[*:\s]*([^\n]*)"));
static CHOICE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:^|[\s(])(?:\*\*)?([A-D])(?:\*\*)?(?:[.,:)\s]|$)"));

/// The words after the last "answer", in a text without mathematics.
pub(crate) fn announced_words(text: &str) -> Option<&str> {
    let text = tail(text);
    if text.contains(['$', '\\']) || text.contains("####") {
        return None;
    }
    let words = ANNOUNCED.captures_iter(text).last()?.get(1)?.as_str();
    let words =
        words.trim_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '.' | '"' | '!'));
    (!words.is_empty()).then_some(words)
}

/// Finds and reads the answer.
pub(crate) fn extract(text: &str, sources: Sources) -> Extracted {
    let text = tail(text);
    let mut result = Extracted::default();
    let finder = Finder { text, environments: Environments::new(text), sources };
    let mut unread: Vec<Range<usize>> = Vec::new();
    for rank in 0..=5 {
        let mut placed = finder.candidates(rank);
        // Last end first; of two that end together the longer one.
        placed.sort_by_key(|p| (std::cmp::Reverse(p.end), p.start));
        for placed in placed.into_iter().take(MOST_TRIED) {
            result.found = true;
            if unread.iter().any(|span| placed.is_inside(span)) {
                continue;
            }
            let (value, text) = finder.read(&placed);
            if result.text.is_none() && !text.trim().is_empty() {
                result.text = Some(text.clone());
            }
            if value.is_some() {
                result.value = value;
                result.read_from = Some(text);
                return result;
            }
            // The 1 of a `\sum_{k=1}` that nobody can read is not the answer.
            if placed.is_formula() {
                unread.push(placed.start..placed.end + 1);
            }
        }
    }
    result
}

fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

struct Finder<'a> {
    text: &'a str,
    environments: Environments<'a>,
    sources: Sources,
}

impl Finder<'_> {
    fn candidates(&self, rank: u8) -> Vec<LocatedCandidate> {
        match rank {
            0 if self.sources.marked => self.marked().into_iter().collect(),
            1 => self.after_final_is(),
            2 => {
                let mut found = self.after_final();
                found.extend(self.boxed());
                found
            }
            3 => self.after_answer(true),
            4 => self.after_answer(false),
            5 => self.anything(),
            _ => Vec::new(),
        }
    }

    /// The line after the last `####`.
    fn marked(&self) -> Option<LocatedCandidate> {
        let start = self.text.rfind("####")? + 4;
        let line = self.text[start..].trim_start_matches('#').lines().next()?.trim();
        let line = line.trim_matches('*').trim().trim_end_matches('.');
        let candidate = match plain::whole_number(line) {
            Some(number) => Candidate::Plain(number),
            None if line.len() <= 200 => {
                Candidate::Latex(vec![(boxed::content_or_text(line.trim_matches('$')), false)])
            }
            None => return None,
        };
        Some(LocatedCandidate { start, end: self.text.len(), candidate })
    }

    /// The text up to a little after `at`: a search from one of many anchors must end soon.
    fn window(&self, at: usize) -> &str {
        let mut end = (at + WINDOW).min(self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        &self.text[..end]
    }

    /// A candidate that stands at `at`, blanks skipped.
    fn directly_at(&self, at: usize) -> Vec<LocatedCandidate> {
        // Quotes, bold and a colon may stand before it.
        let rest = self.text[at..].trim_start_matches(|c: char| {
            c.is_whitespace() || matches!(c, '"' | '*' | '“' | '\'' | ':')
        });
        let rest = rest.strip_prefix("\\\"").unwrap_or(rest);
        let start = self.text.len() - rest.len();
        let mut found = Vec::new();
        if self.sources.latex {
            found.extend(
                self.environments
                    .group_at(start, Wanted::Any)
                    .as_ref()
                    .map(LocatedCandidate::group),
            );
        }
        if self.sources.plain {
            // The pattern wants the blank before the number.
            let plain = plain::first_after(self.window(at), at).filter(|p| p.start <= start);
            found.extend(plain.and_then(|plain| self.place_plain(plain, true)));
        }
        if self.sources.choice
            && let Some(captures) = CHOICE.captures_at(self.window(at), at)
        {
            found.extend(LocatedCandidate::choice(&captures).filter(|p| p.start <= start));
        }
        found
    }

    fn after_final_is(&self) -> Vec<LocatedCandidate> {
        let closed = |placed: &LocatedCandidate| {
            let is_closing =
                |c: char| c.is_whitespace() || matches!(c, '.' | '"' | '*' | '”' | '\'' | '\\');
            self.text[placed.end..].trim_start_matches(is_closing).starts_with("I hope")
        };
        FINAL_IS
            .find_iter(self.text)
            .flat_map(|anchor| self.directly_at(anchor.end()))
            .filter(closed)
            .collect()
    }

    fn after_final(&self) -> Vec<LocatedCandidate> {
        FINAL.find_iter(self.text).flat_map(|anchor| self.directly_at(anchor.end())).collect()
    }

    fn boxed(&self) -> Vec<LocatedCandidate> {
        if !self.sources.latex {
            return Vec::new();
        }
        let mut found: Vec<LocatedCandidate> =
            self.environments.all(Wanted::Boxed).iter().map(LocatedCandidate::group).collect();
        let parts = boxed::boxes(self.text);
        if let (Some(first), Some(content)) =
            (parts.first(), boxed::last_cluster(&parts, self.text))
        {
            let end = self.text.rfind('}').map_or(self.text.len(), |at| at + 1).max(first.end);
            found.push(LocatedCandidate {
                start: first.start,
                end,
                candidate: Candidate::Latex(vec![(content, false)]),
            });
        }
        found
    }

    fn after_answer(&self, with_colon: bool) -> Vec<LocatedCandidate> {
        let mut found = Vec::new();
        for anchor in ANSWER.find_iter(self.text) {
            let mut from = anchor.end();
            if with_colon {
                match self.text[from..].strip_prefix(':') {
                    Some(_) => from += 1,
                    None => continue,
                }
            }
            if self.sources.latex {
                found.extend(self.group_within(from, 50).as_ref().map(LocatedCandidate::group));
            }
            if self.sources.plain {
                found.extend(
                    self.plain_within(from).and_then(|plain| self.place_plain(plain, true)),
                );
            }
            if self.sources.choice
                && let Some(captures) = CHOICE.captures_at(self.window(from), from)
            {
                found.extend(LocatedCandidate::choice(&captures).filter(|p| p.start <= from + 50));
            }
        }
        found
    }

    /// The first group that opens within `limit` characters.
    fn group_within(&self, from: usize, limit: usize) -> Option<JoinedEnvironments> {
        self.text[from..]
            .char_indices()
            .take(limit + 1)
            .filter(|(_, c)| matches!(c, '$' | '\\' | '[' | '-'))
            .find_map(|(offset, _)| self.environments.group_at(from + offset, Wanted::Any))
    }

    /// The number after the last `=` of the next 100 characters, else the first within 50.
    fn plain_within(&self, from: usize) -> Option<Plain> {
        let line = self.window(from)[from..].lines().next().unwrap_or("");
        let upto = |limit: usize| line.char_indices().nth(limit).map_or(line.len(), |(at, _)| at);
        let is_free = |plain: &Plain| !self.text[plain.end..].trim_start().starts_with('=');
        let window = &line[..upto(100)];
        if let Some(equals) = window.rfind('=') {
            let found = plain::first_after(self.window(from), from + equals);
            let near = |plain: &Plain| plain.start <= from + equals + 3 && is_free(plain);
            if let Some(plain) = found.filter(near) {
                return Some(plain);
            }
        }
        let mut at = from;
        while at <= from + upto(50) {
            let plain = plain::first_after(self.window(from), at)?;
            if plain.start > from + upto(50) {
                return None;
            }
            if is_free(&plain) {
                return Some(plain);
            }
            at = plain.end.max(at + 1);
        }
        None
    }

    /// A number with those it is enumerated with, unless it is part of something larger. Where only
    /// some kinds of answers are looked for, as Math-Verify does, each number stands for itself.
    fn place_plain(&self, plain: Plain, is_announced: bool) -> Option<LocatedCandidate> {
        if !self.sources.marked {
            return Some(LocatedCandidate::plain(plain));
        }
        let is_part = plain::is_part(&self.text[plain.end..]);
        (!is_part)
            .then(|| LocatedCandidate::plain(plain::with_further(plain, self.text, is_announced)))
    }

    /// The value and the text of a candidate. One of several alternatives is not the answer:
    /// `5 or $7$`.
    fn read(&self, placed: &LocatedCandidate) -> (Option<Expr>, String) {
        let (value, text) = placed.read(self.text);
        if !self.sources.marked || !self.is_alternative(placed) {
            return (value, text);
        }
        let other = Expr::Text("…".to_owned());
        (value.map(|value| Expr::List(vec![value, other])), format!("{text} or …"))
    }

    /// Whether a number or a formula stands on the other side of an `or`. A box is chosen, and what
    /// stands before it is often the same in other words: `1/2, or \boxed{50\%}`.
    fn is_alternative(&self, placed: &LocatedCandidate) -> bool {
        let own = &self.text[placed.start..placed.end];
        if own.contains("\\boxed") || own.contains("\\fbox") {
            return false;
        }
        let before = without_name(self.text[..placed.start].trim_end());
        let is_after = before.strip_suffix("or").is_some_and(|rest| {
            let value = rest.trim_end().trim_end_matches(',');
            rest.ends_with(char::is_whitespace)
                && value.ends_with(|c: char| c.is_ascii_digit() || matches!(c, '$' | '}' | ')'))
        });
        let after = self.text[placed.end..].trim_start_matches([',', ' ']);
        let is_before = after.strip_prefix("or ").is_some_and(|rest| {
            rest.trim_start().starts_with(|c: char| c.is_ascii_digit() || "-$\\√".contains(c))
        });
        is_after || is_before
    }

    fn anything(&self) -> Vec<LocatedCandidate> {
        let mut found = Vec::new();
        if self.sources.latex {
            found.extend(self.environments.all(Wanted::Any).iter().map(LocatedCandidate::group));
        }
        if self.sources.plain {
            let numbers = plain::last(self.text, MOST_TRIED + plain::MOST_FURTHER);
            found.extend(numbers.into_iter().filter_map(|plain| self.place_plain(plain, false)));
        }
        if self.sources.choice {
            found.extend(
                CHOICE.captures_iter(self.text).filter_map(|c| LocatedCandidate::choice(&c)),
            );
        }
        found
    }
}

/// Without the `x` of `x = 5`.
fn without_name(text: &str) -> &str {
    let rest = text.trim_end_matches(|c: char| c == '=' || c.is_whitespace());
    let name = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_name = rest.len() == name.len() + 1 && name.ends_with(char::is_whitespace);
    if is_name { name.trim_end() } else { text }
}
