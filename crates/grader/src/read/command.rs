//! LaTeX commands that are values: fractions, roots, binomials, named sets and letters.

use num_traits::ToPrimitive;

use super::numeral::number;
use super::token::{ReadError, Token};
use super::{Parsed, Parser, vocabulary};
use crate::expr::{Constant, Expr, Function};

impl Parser {
    pub(super) fn command_atom(&mut self, name: &str) -> Parsed {
        match name {
            "frac" | "dfrac" | "tfrac" | "cfrac" => {
                let numerator = self.argument()?;
                let denominator = self.argument()?;
                Ok(numerator.quotient(denominator))
            }
            "binom" | "dbinom" | "tbinom" => {
                let (n, k) = (self.argument()?, self.argument()?);
                Ok(binomial(n, k))
            }
            "sqrt" => self.root(),
            "surd" => self.surd(2),
            "surd3" => self.surd(3),
            "surd4" => self.surd(4),
            "pi" => Ok(Expr::Constant(Constant::Pi)),
            "infty" => Ok(Expr::Constant(Constant::Infinity)),
            "imath" => Ok(Expr::Constant(Constant::Imaginary)),
            "emptyset" | "varnothing" => Ok(Expr::Set(Vec::new())),
            "R" => Ok(Expr::NamedSet('R')),
            "mathbb" => self.named_set(),
            "lfloor" => self.until("rfloor", Function::Floor),
            "lceil" => self.until("rceil", Function::Ceil),
            "lvert" => self.until("rvert", Function::Abs),
            "vert" => self.bars(&Token::Command("vert".to_owned())),
            "lbrack" => self.bracket(false),
            "langle" => {
                let inner = self.answer()?;
                let closed = self.eat_command(&["rangle"]);
                let Expr::List(items) = inner else { return Err(ReadError::NotMathematics) };
                if closed { Ok(Expr::Tuple(items)) } else { Err(ReadError::NotMathematics) }
            }
            "overline" | "bar" => {
                let inner = self.argument()?;
                Ok(Expr::Call("overline".to_owned(), vec![inner]))
            }
            "begin" => self.nested(Self::matrix),
            _ => self.named(name),
        }
    }

    fn named(&mut self, name: &str) -> Parsed {
        if let Some(letter) = vocabulary::greek(name) {
            let mut symbol = letter.to_owned();
            if self.eat_symbol('_') {
                symbol.push('_');
                symbol.push_str(&self.subscript()?);
            }
            return Ok(Expr::Symbol(symbol));
        }
        let function = vocabulary::function(name).ok_or(ReadError::NotMathematics)?;
        self.function(function)
    }

    /// `√946`, `sqrt 12`: outside LaTeX a number is taken whole.
    fn surd(&mut self, degree: i64) -> Parsed {
        let radicand = match self.peek() {
            Some(Token::Number(text)) => {
                let text = text.clone();
                self.next();
                number(&text)?
            }
            Some(Token::Symbol('(')) => {
                self.next();
                self.nested(|parser| parser.group(')'))?
            }
            _ => self.argument()?,
        };
        let exponent = Expr::integer(1).quotient(Expr::integer(degree));
        Ok(Expr::Power(Box::new(radicand), Box::new(exponent)))
    }

    fn root(&mut self) -> Parsed {
        let mut degree = Expr::integer(2);
        if self.eat_symbol('[') {
            degree = self.sum()?;
            if !self.eat_symbol(']') {
                return Err(ReadError::NotMathematics);
            }
        }
        let radicand = if matches!(self.peek(), Some(Token::Symbol('('))) {
            self.next();
            self.nested(|parser| parser.group(')'))?
        } else {
            self.argument()?
        };
        let exponent = Expr::integer(1).quotient(degree);
        Ok(Expr::Power(Box::new(radicand), Box::new(exponent)))
    }
}

/// A binomial; over few factors of something unknown it is a polynomial.
fn binomial(n: Expr, k: Expr) -> Expr {
    const MOST_FACTORS: i64 = 12;
    let few = match &k {
        Expr::Number(k, _) if k.is_integer() => k.to_integer().to_i64(),
        _ => None,
    };
    match few {
        Some(k) if (0..=MOST_FACTORS).contains(&k) && !matches!(n, Expr::Number(..)) => {
            let factor =
                |i: i64| n.clone().difference(Expr::integer(i)).quotient(Expr::integer(i + 1));
            Expr::product((0..k).map(factor).chain([Expr::integer(1)]).collect())
        }
        _ => Expr::Function(Function::Binomial, vec![n, k]),
    }
}
