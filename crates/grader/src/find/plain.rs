//! Numbers and sums in prose: `1,000.99`, `-3`, `$5`, `28 pct`, `3.8e5`, `√946`, `3 * (4 + 5)`.
//!
//! A number starts a word, so that the 2 in `AZYUK2A` is none, and may carry a currency sign
//! before it and anything after it. The patterns run on the linear-time `regex` crate: no input
//! makes them backtrack.

use std::collections::VecDeque;
use std::sync::LazyLock;

use regex::Regex;

use super::environment::percent_at;
use crate::read::{Unit, numeral, unit, vocabulary};

const PREFIX: &str = r"(?:^|[\s=])(?:\*\*)?";
const CURRENCY: &str = r"(?:\\?(?P<currency>[$€£¥₹₽₪₩₫฿₿]))?";
const NUMBER: &str = r"(?P<grouped>-?[1-9][0-9]{0,2}(?:[ ,][0-9]{3})+(?:\.[0-9]+)?)|(?P<based>[0-9]+_\{?[0-9]{1,2}\}?)|(?P<root>-?[0-9]*√\(?[0-9]+(?:\.[0-9]+)?\)?)|(?P<decimal>-?[0-9]+[.,][0-9]+(?:[eE][+-]?[0-9]{1,4})?)|(?P<point>-?\.[0-9]+)|(?P<integer>-?[0-9]+(?:[eE][+-]?[0-9]{1,4})?)";
const ARITHMETIC: &str =
    r"(?P<sum>-?\(?-?[0-9][0-9.\s+\-*×/^()÷]*[+\-*×/^()÷][0-9.\s+\-*×/^()÷]+\)?)";
const SUFFIX: &str = r"(?:\*\*)?(?:[.,:\s)$]|$)";
/// A further number of an enumeration: what joins it, and its value.
const FURTHER: &str = r"^(?:\^\{?\\circ\}?|°|\\text\{[^{}]*\})?\s*(?:(?P<or>,?\s*or\s)|(?P<to>\s*to\s)|,\s|;|,?\s*and\s)\s*(?:[A-Za-z]\s*=\s*)?[$€£]?(?P<value>-?[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:\s?\\?%)?)";

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| panic!("a pattern of this file is wrong: {error}"))
}

static NUMBERS: LazyLock<Regex> =
    LazyLock::new(|| pattern(&format!("{PREFIX}{CURRENCY}(?:{NUMBER})")));
static SUMS: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("{PREFIX}{ARITHMETIC}{SUFFIX}")));
static FURTHERS: LazyLock<Regex> = LazyLock::new(|| pattern(FURTHER));

/// A number or a sum found in prose, written so that `read.rs` reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) text: String,
    pub(crate) is_percent: bool,
    /// Of a currency sign before it.
    pub(crate) unit: Option<Unit>,
}

/// The groups of [`NUMBERS`].
mod group {
    pub(super) const CURRENCY: usize = 1;
    pub(super) const GROUPED: usize = 2;
    pub(super) const BASED: usize = 3;
    pub(super) const ROOT: usize = 4;
    pub(super) const DECIMAL: usize = 5;
    pub(super) const POINT: usize = 6;
    pub(super) const INTEGER: usize = 7;
}

fn read_number(captures: &regex::Captures<'_>, text: &str) -> Option<Plain> {
    let whole = captures.get(0)?;
    let (value, written) = if let Some(found) = captures.get(group::INTEGER) {
        (found, found.as_str().to_owned())
    } else if let Some(found) = captures.get(group::GROUPED) {
        (found, found.as_str().replace([' ', ','], ""))
    } else if let Some(found) = captures.get(group::DECIMAL) {
        (found, found.as_str().replace(',', "."))
    } else {
        let groups = [group::BASED, group::ROOT, group::POINT];
        let found = groups.iter().find_map(|group| captures.get(*group))?;
        (found, found.as_str().to_owned())
    };
    let percent = percent_at(text, value.end());
    let sign = captures.get(group::CURRENCY).and_then(|sign| sign.as_str().chars().next());
    Some(Plain {
        start: whole.start(),
        end: percent.unwrap_or(value.end()),
        text: written,
        is_percent: percent.is_some(),
        unit: sign.and_then(Unit::currency),
    })
}

fn read_sum(captures: &regex::Captures<'_>) -> Option<Plain> {
    let (whole, found) = (captures.get(0)?, captures.name("sum")?);
    let text = found.as_str().trim_end().trim_end_matches('.');
    let end = found.start() + text.len();
    let text = text.trim_start().to_owned();
    Some(Plain { start: whole.start(), end, text, is_percent: false, unit: None })
}

/// Commands after a number that make it part of a formula.
const OPERATORS: &[&str] = &[
    "frac", "dfrac", "tfrac", "sqrt", "pi", "cdot", "times", "pm", "mp", "div", "left", "ln",
    "log", "sin", "cos", "tan", "binom", "mod", "bmod", "pmod",
];

/// Whether a number is part of something larger, going by what stands behind it: `5x`, `5\pi`,
/// `5^2`, `5 and a half`.
pub(crate) fn is_part(behind: &str) -> bool {
    let letters = |text: &str| text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
    let mut chars = behind.chars();
    match chars.next() {
        Some('_' | 'π' | '√') => true,
        Some('^') => {
            let power = chars.as_str().trim_start_matches('{');
            !["\\circ", "\\text", "\\degree", "st", "nd", "rd", "th", "°"]
                .iter()
                .any(|ending| power.starts_with(ending))
        }
        Some('\\') => {
            let rest = chars.as_str();
            OPERATORS.contains(&&rest[..letters(rest)])
        }
        Some(c) if c.is_ascii_alphabetic() => {
            let word = &behind[..letters(behind)];
            let is_function = vocabulary::word_command(word).is_some();
            // Longer words name what is counted; one or two letters are a product.
            is_function || word.len() < 3 && !is_ordinal_ending(word) && !unit::is_unit(word)
        }
        Some(c) if c.is_whitespace() => {
            let rest = behind.trim_start();
            let first = &rest[..letters(rest)];
            matches!(first, "squared" | "cubed" | "factorial") || is_fraction_in_words(rest)
        }
        _ => false,
    }
}

fn is_ordinal_ending(word: &str) -> bool {
    matches!(word, "st" | "nd" | "rd" | "th")
}

/// `and a half`.
fn is_fraction_in_words(rest: &str) -> bool {
    let mut words = rest.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.next() == Some("and")
        && matches!(words.next(), Some("a" | "one" | "two" | "three"))
        && matches!(words.next(), Some("half" | "third" | "thirds" | "quarter" | "quarters"))
}

/// Most numbers of one enumeration that are read; more are no answer anyway.
pub(crate) const MOST_FURTHER: usize = 20;

/// With the numbers that follow it as alternatives or elements, `2 or 3`, `1, 2 and 3.`: together
/// they are one answer. A comma and an `and` count only where the sentence ends with them, and a
/// range, `5 to 6`, only where an answer is announced: prose counts from one number to another.
pub(crate) fn with_further(plain: Plain, text: &str, is_announced: bool) -> Plain {
    if !may_continue(&text[plain.end..]) {
        return plain;
    }
    let mut values = vec![plain.text.clone()];
    let (mut end, mut counted) = (plain.end, (plain.end, 1));
    while let Some(found) = FURTHERS.captures(&text[end..]).filter(|_| values.len() < MOST_FURTHER)
    {
        let Some(value) = found.name("value") else { break };
        let is_range = found.name("to").is_some();
        if is_range && !is_announced {
            break;
        }
        end += value.end();
        values.push(value.as_str().replace(',', ""));
        if is_range || found.name("or").is_some() {
            counted = (end, values.len());
        }
    }
    let rest = text[end..].trim_start_matches(['.', '!', '*', ' ']);
    if rest.is_empty() || rest.starts_with('\n') {
        counted = (end, values.len());
    }
    if counted.1 < 2 {
        return plain;
    }
    Plain { end: counted.0, text: values[..counted.1].join(", "), ..plain }
}

/// A look before the pattern is tried.
fn may_continue(behind: &str) -> bool {
    let rest = behind.trim_start();
    rest.starts_with([',', ';', '^', '°', '\\'])
        || ["or", "and", "to"].iter().any(|word| rest.starts_with(word))
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

/// The last `most` numbers and the last `most` sums, in no particular order.
pub(crate) fn last(text: &str, most: usize) -> Vec<Plain> {
    let starts = |pattern: &Regex| {
        let mut starts: VecDeque<usize> = VecDeque::with_capacity(most);
        for found in pattern.find_iter(text) {
            if starts.len() == most {
                starts.pop_front();
            }
            starts.push_back(found.start());
        }
        starts
    };
    let number = |at: usize| read_number(&NUMBERS.captures_at(text, at)?, text);
    let sum = |at: usize| read_sum(&SUMS.captures_at(text, at)?);
    let numbers = starts(&NUMBERS).into_iter().filter_map(number);
    numbers.chain(starts(&SUMS).into_iter().filter_map(sum)).collect()
}

/// The whole text as one number with its currency or percent sign; the common case, fast.
pub(crate) fn whole_number(text: &str) -> Option<Plain> {
    let trimmed = text.trim();
    if trimmed.len() > 40 || !trimmed.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if numeral::is_digits(trimmed) {
        let (end, text) = (trimmed.len(), trimmed.to_owned());
        return Some(Plain { start: 0, end, text, is_percent: false, unit: None });
    }
    let captures = NUMBERS.captures(trimmed)?;
    let number = read_number(&captures, trimmed)?;
    (captures.get(0)?.start() == 0 && number.end == trimmed.len()).then_some(number)
}
