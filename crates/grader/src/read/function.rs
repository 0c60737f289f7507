//! Functions and matrices: `\sin^2 x`, `\log_2 8`, `\begin{pmatrix} … \end{pmatrix}`.
//!
//! Continues `atom.rs`, for what has an argument list or rows.

use super::parser::as_list;
use super::token::{ReadError, Token};
use super::vocabulary;
use super::{Parsed, Parser};
use crate::expr::{Expr, Function};

impl Parser {
    /// `\sin x`, `\sin^2 (x)`, `\log_2 8`, `\tan^{-1} x`, `\max(a, b)`.
    pub(crate) fn function(&mut self, function: Function) -> Parsed {
        let mut base = None;
        let mut exponent = None;
        for _ in 0..2 {
            if self.eat_symbol('_') {
                base = Some(self.argument()?);
            } else if self.eat_symbol('^') {
                exponent = Some(self.argument()?);
            }
        }
        let mut arguments = self.nested(Self::function_arguments)?;
        if function == Function::Log {
            // A bare `log` is decimal in school, as `lg` is everywhere.
            let base = base.unwrap_or_else(|| Expr::integer(10));
            arguments.push(base);
        }
        if exponent == Some(Expr::integer(-1)) {
            let inverse = match function {
                Function::Sin => Some(Function::Arcsin),
                Function::Cos => Some(Function::Arccos),
                Function::Tan => Some(Function::Arctan),
                _ => None,
            };
            if let Some(inverse) = inverse {
                return Ok(Expr::Function(inverse, arguments));
            }
        }
        let value = Expr::Function(function, arguments);
        Ok(match exponent {
            Some(exponent) => Expr::Power(Box::new(value), Box::new(exponent)),
            None => value,
        })
    }

    fn function_arguments(&mut self) -> Result<Vec<Expr>, ReadError> {
        for (open, close) in [('(', ')'), ('[', ']')] {
            if self.eat_symbol(open) {
                let arguments = self.elements()?;
                return if self.eat_symbol(close) {
                    Ok(arguments)
                } else {
                    Err(ReadError::NotMathematics)
                };
            }
        }
        // Without brackets: factors up to the next sign or function.
        let mut factors = vec![self.power()?];
        while self.starts_factor() && !self.next_is_function() {
            factors.push(self.power()?);
        }
        Ok(vec![Expr::product(factors)])
    }

    fn next_is_function(&self) -> bool {
        matches!(self.peek(), Some(Token::Command(name)) if vocabulary::function(name).is_some())
            || matches!(self.peek(), Some(Token::Symbol('(' | '[')))
    }

    pub(crate) fn matrix(&mut self) -> Parsed {
        let environment = self.environment_name()?;
        if environment == "array" && self.eat_symbol('{') {
            while !self.eat_symbol('}') {
                self.next().ok_or(ReadError::NotMathematics)?;
            }
        }
        if !environment.ends_with("matrix") && environment != "array" {
            return Err(ReadError::NotMathematics);
        }
        let mut rows = vec![Vec::new()];
        loop {
            match self.peek() {
                Some(Token::Row) => {
                    self.next();
                    rows.push(Vec::new());
                }
                Some(Token::Symbol('&')) => {
                    self.next();
                }
                Some(Token::Command(name)) if name == "end" => {
                    self.next();
                    self.environment_name()?;
                    break;
                }
                Some(Token::Command(name)) if name == "hline" => {
                    self.next();
                }
                Some(_) => {
                    let cell = as_list(self.elements()?);
                    if let Some(row) = rows.last_mut() {
                        row.push(cell);
                    }
                }
                None => return Err(ReadError::NotMathematics),
            }
        }
        rows.retain(|row| !row.is_empty());
        let matrix = Expr::Matrix(rows);
        Ok(if environment == "vmatrix" {
            Expr::Function(Function::Determinant, vec![matrix])
        } else {
            matrix
        })
    }

    fn environment_name(&mut self) -> Result<String, ReadError> {
        if !self.eat_symbol('{') {
            return Err(ReadError::NotMathematics);
        }
        let mut name = String::new();
        loop {
            match self.next() {
                Some(Token::Letter(letter)) => name.push(letter),
                Some(Token::Symbol('*')) => {}
                Some(Token::Symbol('}')) => return Ok(name),
                _ => return Err(ReadError::NotMathematics),
            }
        }
    }
}
