//! Numbers and sums in prose: `1,000.99`, `-3`, `$5`, `28 pct`, `3 * (4 + 5)`.
//!
//! A number starts a word, so that the 2 in `AZYUK2A` is none, and may carry a currency sign
//! before it and anything after it. The patterns run on the linear-time `regex` crate: no input
//! makes them backtrack.

use std::sync::LazyLock;

use regex::Regex;

use super::environment::percent_at;

const PREFIX: &str = r"(?:^|[\s=])(?:\*\*)?";
const CURRENCY: &str = r"[$€£¥₹₽₪₩₫฿₿]?";
const NUMBER: &str = r"(?P<grouped>-?[1-9]\d{0,2}(?:[ ,]\d{3})+(?:\.\d+)?)|(?P<decimal>-?\d+[.,]\d+)|(?P<point>-?\.\d+)|(?P<integer>-?\d+)";
const ARITHMETIC: &str = r"(?P<sum>-?\(?-?\d[\d.\s+\-*×/^()÷]*[+\-*×/^()÷][\d.\s+\-*×/^()÷]+\)?)";
const SUFFIX: &str = r"(?:\*\*)?(?:[.,:\s)$]|$)";

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("a pattern of this file is wrong: {error}"))
}

static NUMBERS: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!("{PREFIX}{CURRENCY}(?:{NUMBER})")));
static SUMS: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("{PREFIX}{ARITHMETIC}{SUFFIX}")));

/// A number or a sum found in prose, written so that `read.rs` reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) text: String,
    pub(crate) is_percent: bool,
}

fn read_number(captures: &regex::Captures<'_>, text: &str) -> Option<Plain> {
    let whole = captures.get(0)?;
    let (value, written) = if let Some(found) = captures.name("grouped") {
        (found, found.as_str().replace([' ', ','], ""))
    } else if let Some(found) = captures.name("decimal") {
        (found, found.as_str().replace(',', "."))
    } else {
        let found = captures.name("point").or_else(|| captures.name("integer"))?;
        (found, found.as_str().to_owned())
    };
    let percent = percent_at(text, value.end());
    Some(Plain {
        start: whole.start(),
        end: percent.unwrap_or(value.end()),
        text: written,
        is_percent: percent.is_some(),
    })
}

fn read_sum(captures: &regex::Captures<'_>) -> Option<Plain> {
    let (whole, found) = (captures.get(0)?, captures.name("sum")?);
    let text = found.as_str().trim().trim_end_matches('.').to_owned();
    Some(Plain { start: whole.start(), end: whole.end(), text, is_percent: false })
}

/// The first number or sum that starts at or after `from`, a sum before a number at one place.
pub(crate) fn first_after(text: &str, from: usize) -> Option<Plain> {
    let number = NUMBERS.captures_at(text, from).and_then(|found| read_number(&found, text));
    let sum = SUMS.captures_at(text, from).and_then(|found| read_sum(&found));
    match (number, sum) {
        (Some(number), Some(sum)) if sum.start <= number.start => Some(sum),
        (number @ Some(_), _) => number,
        (None, sum) => sum,
    }
}

/// All numbers and sums, in no particular order.
pub(crate) fn all(text: &str) -> Vec<Plain> {
    let numbers = NUMBERS.captures_iter(text).filter_map(|found| read_number(&found, text));
    let sums = SUMS.captures_iter(text).filter_map(|found| read_sum(&found));
    numbers.chain(sums).collect()
}

/// The whole text as one number with its currency or percent sign; the common case, fast.
pub(crate) fn whole_number(text: &str) -> Option<Plain> {
    let trimmed = text.trim();
    if trimmed.len() > 40 || !trimmed.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let captures = NUMBERS.captures(trimmed)?;
    let number = read_number(&captures, trimmed)?;
    (captures.get(0)?.start() == 0 && number.end == trimmed.len()).then_some(number)
}
