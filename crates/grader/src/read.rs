//! Text to a tree: answers as people write them.
//!
//! ```text
//! answer   = group (";" group)*              group   = element ("," | "and" element)*
//! element  = sets (("=" | "<" | "∈" | …) sets)*      sets = ratio (("∪" | "∩" | "∖") ratio)*
//! ratio    = sum (":" sum)*                  sum     = product (("+" | "-" | "±") product)*
//! product  = signed (("·" | "/" | nothing) signed)*  signed = "-"* power
//! ```
//!
//! The upper half of the grammar is in `parser.rs`, sums and products in `arithmetic.rs`, and what
//! binds tighter in `atom.rs`, `bracket.rs`, `command.rs` and `function.rs`. Nothing is evaluated or
//! simplified here, save that fractions of integers become numbers.

mod arithmetic;
mod atom;
mod bracket;
mod command;
mod function;
pub(crate) mod numeral;
mod parser;
mod token;
pub(crate) mod unit;
pub(crate) mod vocabulary;

use num_bigint::BigInt;

use crate::expr::{Expr, Written};

use self::parser::Parser;
use self::token::tokenize;
use self::unit::Measure;

pub(crate) use self::parser::is_only_symbols;
pub(crate) use self::token::ReadError;
pub(crate) use self::unit::Unit;

pub(crate) type Parsed = Result<Expr, ReadError>;

/// Reads one answer.
pub(crate) fn parse(text: &str) -> Parsed {
    if let Some(integer) = numeral::small_integer(text) {
        return Ok(integer);
    }
    let (value, mut measure) = unit::split_measure(without_closing(text));
    let (tokens, currency) = tokenize(value)?;
    let mut parser = Parser::new(tokens);
    let answer = parser.answer()?;
    if !parser.is_done() {
        return Err(ReadError::NotMathematics);
    }
    if parser.is_too_high(&answer) {
        return Err(ReadError::TooDeep);
    }
    measure.unit = match (measure.unit, currency) {
        (Some(unit), Some(currency)) => Some(unit.with(currency)),
        (unit, currency) => unit.or(currency),
    };
    Ok(measured(answer, measure))
}

/// Without the punctuation of the sentence around it. Dots after a list are part of it: `1, 2, ...`
fn without_closing(text: &str) -> &str {
    let text = text.trim();
    if text.ends_with("...") && text.contains([',', ';']) {
        return text;
    }
    text.trim_end_matches(['.', ',', ';', ':', ' '])
}

/// A value with what the words after it say; of several values they follow the last.
pub(crate) fn measured(value: Expr, measure: Measure) -> Expr {
    if measure == Measure::NONE {
        return value;
    }
    match value {
        Expr::List(mut items) => {
            if let Some(last) = items.pop() {
                items.push(measured(last, measure));
            }
            Expr::List(items)
        }
        Expr::Relation(mut terms, comparators) => {
            if let Some(last) = terms.pop() {
                terms.push(measured(last, measure));
            }
            Expr::Relation(terms, comparators)
        }
        other if other.is_collection() || matches!(other, Expr::Matrix(_)) => other,
        Expr::Quantity(inner, unit) => {
            // `\$3 million`: the sign was read with the number.
            measured(*inner, Measure { unit: measure.unit.or(Some(unit)), ..measure })
        }
        other => {
            let value = scaled(other, measure.scale);
            match measure.unit {
                Some(unit) => Expr::Quantity(Box::new(value), unit),
                None => value,
            }
        }
    }
}

fn scaled(value: Expr, factor: u64) -> Expr {
    match value {
        value if factor == 1 => value,
        Expr::Number(value, written) => {
            let value = value * BigInt::from(factor);
            let written = if value.is_integer() { Written::Integer } else { written };
            Expr::Number(value, written)
        }
        other => {
            Expr::product(vec![other, Expr::Number(BigInt::from(factor).into(), Written::Integer)])
        }
    }
}
