//! Numerals: one token from the digits, and its exact value.
//!
//! `1{,}000`, `1 000`, `.5`, `0,5`, `3.8e5` (the point is moved here), `9th` (the ending is dropped),
//! `0.1\overline{6}`.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Num, One, pow};

use super::Parsed;
use super::token::{ReadError, Reader, Token};
use crate::expr::{Expr, Written};

/// Longest numeral that is read.
const MOST_DIGITS: usize = 2_000;

impl Reader {
    fn digits(&mut self, into: &mut String) {
        while let Some(c) = self.peek(0).filter(char::is_ascii_digit) {
            into.push(c);
            self.at += 1;
        }
    }

    pub(super) fn number(&mut self) -> Result<(), ReadError> {
        let mut text = String::new();
        self.digits(&mut text);
        let leading = text.len();
        if (1..=3).contains(&leading) && !text.starts_with('0') {
            while let Some(length) = self.group_separator() {
                self.at += length;
                self.digits(&mut text);
            }
        }
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let is_decimal_comma =
            self.depth == 0 && text == "0" && self.peek(0) == Some(',') && is_digit(self.peek(1));
        let is_point = self.peek(0) == Some('.') && is_digit(self.peek(1));
        if is_point || is_decimal_comma {
            self.at += 1;
            text.push('.');
            self.digits(&mut text);
        } else if self.starts_with(self.at, ".\\overline") {
            self.at += 1;
            text.push('.');
        } else if let Some(length) = self.ordinal_ending() {
            self.at += length;
        }
        if let Some((exponent, length)) = self.exponent() {
            self.at += length;
            text = shifted(&text, exponent?)?;
        }
        self.tokens.push(Token::Number(text));
        Ok(())
    }

    /// Length of a separator that is followed by exactly three digits, if one stands here.
    fn group_separator(&self) -> Option<usize> {
        let digits_at = |ahead: usize| {
            let digit = |i: usize| self.peek(ahead + i).is_some_and(|c| c.is_ascii_digit());
            digit(0) && digit(1) && digit(2) && !digit(3)
        };
        for separator in ["{,}", ",\\!", ",\\! ", "\\,", "\\ ", "\\;", "{ }", " ", "\u{a0}"] {
            let length = separator.chars().count();
            if self.starts_with(self.at, separator) && digits_at(length) {
                return Some(length);
            }
        }
        (self.depth == 0 && self.peek(0) == Some(',') && digits_at(1)).then_some(1)
    }

    /// `9th`, `1st`, `2nd`, `3rd`.
    fn ordinal_ending(&self) -> Option<usize> {
        let is_ending = ["st", "nd", "rd", "th"].iter().any(|end| self.starts_with(self.at, end));
        let is_over = !self.peek(2).is_some_and(char::is_alphanumeric);
        (is_ending && is_over).then_some(2)
    }

    /// The exponent of `3.8e5` with its length; an error when nobody could write the number out.
    fn exponent(&self) -> Option<(Result<i32, ReadError>, usize)> {
        if !matches!(self.peek(0), Some('e' | 'E')) {
            return None;
        }
        let signed = usize::from(matches!(self.peek(1), Some('+' | '-' | '−')));
        let digits: String = (1 + signed..)
            .map_while(|ahead| self.peek(ahead).filter(char::is_ascii_digit))
            .take(12)
            .collect();
        let length = 1 + signed + digits.len();
        let is_over = !self.peek(length).is_some_and(|c| c.is_alphanumeric() || c == '.');
        if digits.is_empty() || !is_over {
            return None;
        }
        let size = digits.parse::<i32>().ok().filter(|size| *size <= MOST_DIGITS as i32);
        let sign = if signed == 1 && self.peek(1) != Some('+') { -1 } else { 1 };
        Some((size.map(|size| sign * size).ok_or(ReadError::TooLong), length))
    }
}

/// A numeral with its point moved `places` to the right.
fn shifted(text: &str, places: i32) -> Result<String, ReadError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = format!("{whole}{fraction}");
    let point = i32::try_from(whole.len()).map_err(|_| ReadError::TooLong)? + places;
    if point <= 0 {
        let zeros = usize::try_from(-point).map_err(|_| ReadError::TooLong)?;
        return Ok(format!("0.{}{digits}", "0".repeat(zeros)));
    }
    let point = usize::try_from(point).map_err(|_| ReadError::TooLong)?;
    while digits.len() < point {
        digits.push('0');
    }
    let (whole, fraction) = digits.split_at(point);
    Ok(if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") })
}

/// Whether a text is digits with perhaps a minus sign before them.
pub(crate) fn is_digits(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// An integer that fits a machine word, without the way over tokens.
pub(crate) fn small_integer(text: &str) -> Option<Expr> {
    is_digits(text).then(|| text.parse().ok().map(Expr::integer)).flatten()
}

/// A numeral as an exact rational; a point makes it a decimal.
pub(super) fn number(text: &str) -> Parsed {
    if text.len() > MOST_DIGITS {
        return Err(ReadError::TooLong);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let numerator = BigInt::from_str_radix(if digits.is_empty() { "0" } else { &digits }, 10)
        .map_err(|_| ReadError::NotMathematics)?;
    let denominator = pow(BigInt::from(10), fraction.len());
    let written = if fraction.is_empty() { Written::Integer } else { Written::Decimal };
    Ok(Expr::Number(BigRational::new(numerator, denominator), written))
}

/// `0.1\overline{6}`: exact.
pub(super) fn repeating_decimal(start: &str, repeated: &str) -> Parsed {
    if repeated.len() > MOST_DIGITS || !repeated.chars().all(|c| c.is_ascii_digit()) {
        return Err(ReadError::NotMathematics);
    }
    let places = start.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let Expr::Number(base, _) = number(start)? else { return Err(ReadError::NotMathematics) };
    let cycle = BigInt::from_str_radix(repeated, 10).map_err(|_| ReadError::NotMathematics)?;
    let nines = pow(BigInt::from(10), repeated.len()) - BigInt::one();
    let shift = pow(BigInt::from(10), places);
    let value = base + BigRational::new(cycle, nines * shift);
    Ok(Expr::Number(value, Written::Fraction))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_moved_point_multiplies_by_a_power_of_ten(
            whole in 0_u32..100_000, fraction in "[0-9]{0,6}", places in -30_i32..30,
        ) {
            let text = if fraction.is_empty() {
                whole.to_string()
            } else {
                format!("{whole}.{fraction}")
            };
            let value = |text: &str| match number(text) {
                Ok(Expr::Number(value, _)) => value,
                other => panic!("{other:?}"),
            };
            let ten = BigRational::from_integer(BigInt::from(10));
            let expected = value(&text) * ten.pow(places);
            prop_assert_eq!(value(&shifted(&text, places).unwrap()), expected);
        }
    }
}
