//! Sums and products of atoms, signs, mixed numbers.
//!
//! Two numbers side by side are no product: `2 3` is not 6, and `1 2` is not 12.

use super::Parsed;
use super::parser::Parser;
use super::token::{ReadError, Token};
use crate::expr::{Expr, Written};

impl Parser {
    pub(crate) fn sum(&mut self) -> Parsed {
        self.chained(Self::terms)
    }

    fn terms(&mut self) -> Parsed {
        let leading_sign = self.eat_command(&["pm", "mp"]);
        let mut terms = vec![self.product()?];
        if leading_sign {
            let value = terms.swap_remove(0);
            terms = vec![Expr::PlusMinus(Box::new(Expr::integer(0)), Box::new(value))];
        }
        loop {
            if self.eat_symbol('+') {
                terms.push(self.product()?);
            } else if self.eat_symbol('-') {
                let term = self.product()?;
                terms.push(term.negated());
            } else if self.eat_command(&["pm", "mp"]) {
                self.link()?;
                let right = self.product()?;
                let left = as_sum(std::mem::take(&mut terms));
                terms.push(Expr::PlusMinus(Box::new(left), Box::new(right)));
            } else if terms.len() == 1 {
                return Ok(terms.swap_remove(0));
            } else {
                return Ok(with_unit_outside(terms, Expr::Sum));
            }
        }
    }

    pub(crate) fn product(&mut self) -> Parsed {
        self.chained(Self::factors)
    }

    fn factors(&mut self) -> Parsed {
        let mut factors = vec![self.signed()?];
        loop {
            if self.eat_symbol('*') || self.eat_command(&["cdot", "times", "ast"]) {
                // `**` is a power in plain text.
                if self.eat_symbol('*') {
                    self.link()?;
                    let exponent = self.nested(Self::signed)?;
                    let base = factors.pop().ok_or(ReadError::NotMathematics)?;
                    factors.push(Expr::Power(Box::new(base), Box::new(exponent)));
                } else {
                    factors.push(self.signed()?);
                }
            } else if self.eat_symbol('/') || self.eat_command(&["div", "slash"]) {
                let is_group = matches!(self.peek(), Some(Token::Symbol('(' | '[' | '{')));
                let divisor = self.signed()?;
                // `1/2x` divides by 2 only; `1/2 %` is half a percent.
                match factors.pop().ok_or(ReadError::NotMathematics)? {
                    dividend @ Expr::Number(..) if !is_group => {
                        factors.push(divisor.inside(|divisor| dividend.quotient(divisor)));
                    }
                    dividend @ (Expr::Number(..) | Expr::Quantity(..)) => {
                        factors.push(dividend.quotient(divisor));
                    }
                    dividend => factors.extend([dividend, divisor.inverse()]),
                }
            } else if self.starts_factor() {
                if self.is_beside_number() {
                    factors = vec![self.mixed_number(factors)?];
                    continue;
                }
                let is_mixed = self.is_mixed_fraction(&factors);
                let factor = self.power()?;
                if is_mixed {
                    let whole = factors.pop().ok_or(ReadError::NotMathematics)?;
                    factors.push(factor.inside(|part| add_fraction(whole, part)));
                } else {
                    factors.push(factor);
                }
            } else {
                return Ok(with_unit_outside(factors, Expr::product));
            }
        }
    }

    /// Whether the next token is a number and the last one was, with at most a blank between.
    fn is_beside_number(&self) -> bool {
        let is_number = |token: Option<&Token>| matches!(token, Some(Token::Number(_)));
        let before = self.tokens[..self.at].iter().rev().find(|token| **token != Token::Space);
        is_number(before) && is_number(self.peek())
    }

    /// `2 1/2`: an integer, a blank, then a proper fraction. Any other two numbers side by side are
    /// no product: `2 3` is not 6.
    fn mixed_number(&mut self, mut factors: Vec<Expr>) -> Parsed {
        let numerator = self.power()?;
        if !self.eat_symbol('/') || factors.len() != 1 {
            return Err(ReadError::Juxtaposed);
        }
        let whole = factors.swap_remove(0);
        let mut is_mixed = matches!(whole, Expr::Number(_, Written::Integer));
        let mixed = self.power()?.inside(|denominator| {
            let fraction = numerator.quotient(denominator);
            is_mixed &= matches!(&fraction, Expr::Number(part, Written::Fraction)
                if part.numer() < part.denom());
            add_fraction(whole, fraction)
        });
        if is_mixed { Ok(mixed) } else { Err(ReadError::Juxtaposed) }
    }

    /// `2\frac{1}{2}`: an integer directly before a fraction of two integers.
    fn is_mixed_fraction(&self, factors: &[Expr]) -> bool {
        let is_whole = matches!(factors, [Expr::Number(_, Written::Integer)]);
        let rest: Vec<&Token> =
            self.tokens[self.at..].iter().filter(|t| **t != Token::Space).take(7).collect();
        let is_frac = |name: &str| matches!(name, "frac" | "dfrac" | "tfrac" | "cfrac");
        let integer = |t: &Token| matches!(t, Token::Number(text) if !text.contains('.'));
        is_whole
            && match rest.as_slice() {
                [Token::Command(name), Token::Number(_), ..] => is_frac(name),
                [
                    Token::Command(name),
                    Token::Symbol('{'),
                    a,
                    Token::Symbol('}'),
                    Token::Symbol('{'),
                    b,
                    Token::Symbol('}'),
                ] => is_frac(name) && integer(a) && integer(b),
                _ => false,
            }
    }

    /// Signs before a factor, in a loop so that a million of them cost no stack.
    fn signed(&mut self) -> Parsed {
        let mut minuses = 0_usize;
        loop {
            if self.eat_symbol('-') {
                minuses += 1;
            } else if !self.eat_symbol('+') {
                break;
            }
        }
        let value = self.power()?;
        Ok(match minuses {
            0 => value,
            odd if odd % 2 == 1 => value.negated(),
            // Twice, so that it is known that something was left to do.
            _ => value.negated().negated(),
        })
    }
}

fn add_fraction(whole: Expr, fraction: Expr) -> Expr {
    match (whole, fraction) {
        (Expr::Number(a, _), Expr::Number(b, _)) => {
            let is_proper = b.numer() < b.denom() && b.numer().sign() == num_bigint::Sign::Plus;
            let written = if is_proper { Written::Fraction } else { Written::Worked };
            let is_negative = a.numer().sign() == num_bigint::Sign::Minus;
            Expr::Number(if is_negative { a - b } else { a + b }, written)
        }
        (a, b) => Expr::Sum(vec![a, b]),
    }
}

fn as_sum(mut terms: Vec<Expr>) -> Expr {
    if terms.len() == 1 { terms.swap_remove(0) } else { Expr::Sum(terms) }
}

/// Joins terms; the unit of the last one is the unit of all: `3 : 00 pm`, `2 · 10^5 m`.
pub(super) fn with_unit_outside(
    mut terms: Vec<Expr>,
    join: impl FnOnce(Vec<Expr>) -> Expr,
) -> Expr {
    match terms.pop() {
        Some(Expr::Quantity(last, unit)) => {
            terms.push(*last);
            Expr::Quantity(Box::new(join(terms)), unit)
        }
        last => {
            terms.extend(last);
            join(terms)
        }
    }
}
