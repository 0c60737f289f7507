//! Answers that are words: the same letters, whatever the case and the punctuation.
//!
//! Signs count: `x > 5` in words is not `x < 5`.

use super::Same;
use crate::expr::{Constant, Expr};

/// Lower case, without blanks and punctuation, save what changes the meaning: signs, and a blank
/// between two digits.
fn normal_words(text: &str) -> String {
    let mut words = String::with_capacity(text.len());
    let mut has_blank = false;
    let mut chars = text.chars().flat_map(char::to_lowercase).peekable();
    while let Some(c) = chars.next() {
        let after = chars.peek().copied();
        let before = words.chars().next_back();
        let is_between =
            |test: fn(char) -> bool| before.is_some_and(test) && after.is_some_and(test);
        let counts = match c {
            c if c.is_whitespace() => {
                has_blank = true;
                continue;
            }
            // `non-negative` is one word.
            '-' => !is_between(char::is_alphabetic),
            // `1.5` keeps its point.
            '.' | ',' => is_between(|c| c.is_ascii_digit()),
            '(' | ')' | '[' | ']' | '{' | '}' | '"' | '\'' | ';' | ':' | '!' | '?' | '`' | '$'
            | '\\' | '_' | '’' | '“' | '”' => false,
            _ => true,
        };
        if has_blank && c.is_ascii_digit() && before.is_some_and(|c| c.is_ascii_digit()) {
            words.push(' ');
        }
        has_blank = false;
        if counts {
            words.push(c);
        }
    }
    words
}

/// An answer that is only words.
fn words(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Text(text) | Expr::Symbol(text) => Some(normal_words(text)),
        Expr::Constant(Constant::Euler) => Some("e".to_owned()),
        Expr::Constant(Constant::Imaginary) => Some("i".to_owned()),
        Expr::Product(items) => items.iter().map(words).collect::<Option<String>>(),
        _ => None,
    }
}

/// Whether an answer is only words or names.
pub(crate) fn is_words(expr: &Expr) -> bool {
    words(expr).is_some()
}

/// `None` when the answers are not words.
pub(super) fn compare_words(gold: &Expr, pred: &Expr) -> Option<Same> {
    let is_text = |expr: &Expr| {
        matches!(expr, Expr::Text(_))
            || matches!(expr, Expr::Product(items) if items.iter().any(|i| matches!(i, Expr::Text(_))))
    };
    match (words(gold), words(pred)) {
        (Some(a), Some(b)) if !a.is_empty() && a == b => Some(Same::Yes),
        (Some(_), Some(_)) if is_text(gold) || is_text(pred) => Some(Same::No),
        _ if matches!(gold, Expr::Text(_)) != matches!(pred, Expr::Text(_)) => Some(Same::No),
        _ => None,
    }
}
