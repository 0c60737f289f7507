//! A place in a text that may be the answer, and how it is read.

use std::ops::Range;

use num_bigint::BigInt;

use super::environment::JoinedEnvironments;
use super::plain::Plain;
use crate::expr::Expr;
use crate::read::{ReadError, measured, parse, unit};

/// What stands at a place.
pub(super) enum Candidate {
    /// Environments that belong together, each with whether a percent sign follows it.
    Latex(Vec<(String, bool)>),
    Plain(Plain),
    Choice(char),
}

pub(super) struct LocatedCandidate {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) candidate: Candidate,
}

impl LocatedCandidate {
    pub(super) fn group(group: &JoinedEnvironments) -> Self {
        let candidate = Candidate::Latex(group.contents());
        Self { start: group.start, end: group.end, candidate }
    }

    pub(super) fn plain(plain: Plain) -> Self {
        Self { start: plain.start, end: plain.end, candidate: Candidate::Plain(plain) }
    }

    pub(super) fn choice(captures: &regex::Captures<'_>) -> Option<Self> {
        let letter = captures.get(1)?;
        let candidate = Candidate::Choice(letter.as_str().chars().next()?);
        Some(Self { start: letter.start(), end: letter.end(), candidate })
    }

    fn is_plain(&self) -> bool {
        matches!(self.candidate, Candidate::Plain(_))
    }

    /// LaTeX with a command in it, as opposed to prose between two dollar signs.
    pub(super) fn is_formula(&self) -> bool {
        matches!(&self.candidate, Candidate::Latex(parts)
            if parts.iter().any(|(text, _)| text.contains('\\')))
    }

    /// Part of a formula; a number may begin with the blank before it.
    pub(super) fn is_inside(&self, span: &Range<usize>) -> bool {
        span.contains(&self.end) && (self.is_plain() || span.contains(&self.start))
    }

    /// Its value, where it can be read, and its text.
    pub(super) fn read(&self, text: &str) -> (Option<Expr>, String) {
        match &self.candidate {
            Candidate::Choice(letter) => (Some(Expr::Text(letter.to_string())), letter.to_string()),
            Candidate::Plain(plain) => {
                let behind = &text[self.end..];
                let words = unit::words_in_prose(behind);
                (plain_value(plain, behind), [&plain.text, words].concat())
            }
            Candidate::Latex(parts) => read_parts(parts),
        }
    }
}

/// Environments that belong together are one list; where one of them cannot be read, nor can it.
fn read_parts(parts: &[(String, bool)]) -> (Option<Expr>, String) {
    let text = parts.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(" and ");
    let value = |(text, is_percent): &(String, bool)| Some(percent(read_latex(text)?, *is_percent));
    let Some(mut values) = parts.iter().map(value).collect::<Option<Vec<Expr>>>() else {
        return (None, text);
    };
    if values.len() == 1 {
        return (values.pop(), text);
    }
    let elements = values.into_iter().flat_map(|value| match value {
        Expr::List(items) => items,
        other => vec![other],
    });
    (Some(Expr::List(elements.collect())), text)
}

/// The value of a number in prose, with what the words behind it say.
pub(crate) fn plain_value(plain: &Plain, behind: &str) -> Option<Expr> {
    let value = restated(percent(parse(&plain.text).ok()?, plain.is_percent));
    let mut measure = unit::measure_in_prose(behind);
    measure.unit = measure.unit.or(plain.unit.clone());
    Some(measured(value, measure))
}

/// `0.6 or 60%` is one value said twice; the last way to say it counts.
fn restated(value: Expr) -> Expr {
    let number = |item: &Expr| match item {
        Expr::Number(value, _) => Some(value.clone()),
        Expr::Percent(inner) => match &**inner {
            Expr::Number(value, _) => Some(value / BigInt::from(100)),
            _ => None,
        },
        _ => None,
    };
    match value {
        Expr::List(mut items) => {
            let first = items.first().and_then(number);
            let is_one = first.is_some() && items.iter().all(|item| number(item) == first);
            if is_one && let Some(last) = items.pop() {
                return last;
            }
            Expr::List(items)
        }
        other => other,
    }
}

fn percent(value: Expr, is_percent: bool) -> Expr {
    if is_percent && !matches!(value, Expr::Percent(_)) {
        Expr::Percent(Box::new(value))
    } else {
        value
    }
}

/// Reads LaTeX; of a chain of equations that cannot be read whole, the last part.
///
/// Two numbers side by side, `1 2`, are an answer that nothing but itself equals.
pub(crate) fn read_latex(text: &str) -> Option<Expr> {
    match parse(text) {
        Ok(value) => return Some(value),
        Err(ReadError::Juxtaposed) => return Some(Expr::Text(text.to_owned())),
        Err(_) => {}
    }
    if text.contains([',', ';']) || text.matches('=').count() < 2 {
        return None;
    }
    parse(text.rsplit('=').next()?).ok()
}
