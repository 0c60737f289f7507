//! The atoms of the grammar: numbers, names, brackets, fractions, roots, functions, matrices.
//!
//! Continues `read.rs`; what binds tighter than a product is here: powers, subscripts,
//! factorials, percent signs, degrees, units in `\text{}`.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Num, One, ToPrimitive, pow};

use super::token::{ReadError, Token};
use super::vocabulary;
use super::{Parsed, Parser};
use crate::expr::{Comparator, Constant, Expr, Function, Written};

/// Letters that name a function when a bracket follows; any other letter multiplies it.
const FUNCTION_LETTERS: &str = "fghFGH";

/// Longest numeral that is read.
const MOST_DIGITS: usize = 2_000;

impl Parser {
    /// Whether the next token can begin a factor of an implicit product.
    pub(crate) fn starts_factor(&self) -> bool {
        match self.peek() {
            Some(Token::Number(_) | Token::Letter(_) | Token::Text(_) | Token::Escaped('{')) => {
                true
            }
            Some(Token::Symbol(c)) => match c {
                '(' | '[' | '{' => true,
                '|' => self.open_bars == 0,
                _ => false,
            },
            Some(Token::Command(name)) => self.is_factor_command(name),
            _ => false,
        }
    }

    fn is_factor_command(&self, name: &str) -> bool {
        vocabulary::function(name).is_some()
            || vocabulary::greek(name).is_some()
            || matches!(
                name,
                "frac"
                    | "dfrac"
                    | "tfrac"
                    | "cfrac"
                    | "sqrt"
                    | "pi"
                    | "infty"
                    | "binom"
                    | "dbinom"
                    | "tbinom"
                    | "begin"
                    | "lfloor"
                    | "lceil"
                    | "lvert"
                    | "overline"
                    | "bar"
                    | "mathbb"
                    | "emptyset"
                    | "varnothing"
                    | "imath"
                    | "langle"
                    | "lbrack"
                    | "R"
            )
            || (name == "vert" && self.open_bars == 0)
    }

    /// An atom with what follows it: powers, factorials, percent, degrees, units.
    pub(crate) fn power(&mut self) -> Parsed {
        let mut value = self.nested(Self::atom)?;
        loop {
            match self.peek() {
                Some(Token::Symbol('^')) => {
                    self.next();
                    value = self.exponent_of(value)?;
                }
                Some(Token::Symbol('!')) if self.is_factorial() => {
                    self.next();
                    value = Expr::Function(Function::Factorial, vec![value]);
                }
                Some(Token::Symbol('%')) => {
                    self.next();
                    value = Expr::Percent(Box::new(value));
                }
                Some(Token::Symbol('\'')) => {
                    self.next();
                    if let Expr::Symbol(name) = &mut value {
                        name.push('\'');
                    }
                }
                Some(Token::Command(name)) => match name.as_str() {
                    "percent" => {
                        self.next();
                        value = Expr::Percent(Box::new(value));
                    }
                    "degree" | "circ" | "deg" => {
                        self.next();
                        value = Expr::Degrees(Box::new(value));
                    }
                    _ => return Ok(value),
                },
                Some(Token::Text(_))
                    if !matches!(value, Expr::Text(_)) && self.text_is_trailing() =>
                {
                    self.skip_unit();
                }
                _ => return Ok(value),
            }
        }
    }

    /// `n!` but not `n != 3`.
    fn is_factorial(&self) -> bool {
        let mut rest = self.tokens[self.at..].iter().filter(|t| **t != Token::Space);
        rest.next();
        rest.next() != Some(&Token::Symbol('='))
    }

    /// Words after a value are its unit when the element ends with them.
    fn text_is_trailing(&self) -> bool {
        let mut rest =
            self.tokens[self.at..].iter().filter(|t| **t != Token::Space).skip(1).peekable();
        while let Some(token) = rest.peek() {
            match token {
                Token::Symbol('^' | '{' | '}') | Token::Number(_) | Token::Text(_) => {
                    rest.next();
                }
                Token::Symbol(',' | ';' | '=' | ')' | ']' | '.')
                | Token::Escaped('}')
                | Token::Row => return true,
                Token::Command(name) => return name == "and",
                _ => return false,
            }
        }
        true
    }

    /// `\text{cm}^2`, `\text{ km}^{2}`.
    fn skip_unit(&mut self) {
        self.next();
        if self.eat_symbol('^') {
            let braced = self.eat_symbol('{');
            if matches!(self.peek(), Some(Token::Number(_))) {
                self.next();
            }
            if braced {
                self.eat_symbol('}');
            }
        }
    }

    fn exponent_of(&mut self, base: Expr) -> Parsed {
        let mut braced = 0;
        let start = self.at;
        while self.eat_symbol('{') {
            braced += 1;
        }
        if self.eat_command(&["circ", "degree"]) {
            for _ in 0..braced {
                self.eat_symbol('}');
            }
            return Ok(Expr::Degrees(Box::new(base)));
        }
        self.at = start;
        let exponent = self.argument()?;
        // `f^{-1}` and `\sin^{-1}` are names of functions, dealt with where those are read.
        Ok(Expr::Power(Box::new(base), Box::new(exponent)))
    }

    /// The argument of a command or an exponent: a group, or the next single digit or letter.
    pub(crate) fn argument(&mut self) -> Parsed {
        match self.peek() {
            Some(Token::Symbol('{')) => {
                self.next();
                self.nested(|parser| parser.group('}'))
            }
            Some(Token::Number(text))
                if text.len() > 1 && text.chars().all(|c| c.is_ascii_digit()) =>
            {
                let (first, rest) = text.split_at(1);
                let (first, rest) = (first.to_owned(), rest.to_owned());
                self.next();
                self.tokens[self.at - 1] = Token::Number(rest);
                self.at -= 1;
                Ok(number(&first)?)
            }
            Some(Token::Symbol('-')) => {
                self.next();
                Ok(self.nested(Self::argument)?.negated())
            }
            Some(_) => self.nested(Self::atom),
            None => Err(ReadError::NotMathematics),
        }
    }

    /// What stands between an opening brace and `close`; several elements are a list.
    fn group(&mut self, close: char) -> Parsed {
        let bars = std::mem::take(&mut self.open_bars);
        let inner = self.answer();
        self.open_bars = bars;
        let inner = inner?;
        if self.eat_symbol(close) { Ok(inner) } else { Err(ReadError::NotMathematics) }
    }

    fn atom(&mut self) -> Parsed {
        match self.next().ok_or(ReadError::NotMathematics)? {
            Token::Number(text) => self.numeral(&text),
            Token::Letter(letter) => self.name(letter),
            Token::Text(words) => Ok(Expr::Text(words)),
            Token::Symbol('{') => self.group('}'),
            // `]0, 1[` is an open interval in parts of the world.
            Token::Symbol('(' | ']') => self.bracket(true),
            Token::Symbol('[') => self.bracket(false),
            Token::Symbol('|') => self.bars(&Token::Symbol('|')),
            Token::Escaped('|') => self.bars(&Token::Escaped('|')),
            Token::Escaped('{') => self.set(),
            Token::Command(name) => self.command_atom(&name),
            _ => Err(ReadError::NotMathematics),
        }
    }

    /// A number, with `\overline{…}` digits that repeat and a base as subscript.
    fn numeral(&mut self, text: &str) -> Parsed {
        let repeats =
            matches!(self.tokens.get(self.at), Some(Token::Command(name)) if name == "overline");
        if text.contains('.') && repeats {
            self.next();
            self.eat_symbol('{');
            let Some(Token::Number(repeated)) = self.next() else {
                return Err(ReadError::NotMathematics);
            };
            self.eat_symbol('}');
            return repeating_decimal(text, &repeated);
        }
        if self.eat_symbol('_') {
            let base = self.argument()?;
            return match base {
                Expr::Number(base, _) => Ok(Expr::Based(text.to_owned(), base.to_string())),
                _ => Err(ReadError::NotMathematics),
            };
        }
        number(text)
    }

    fn name(&mut self, letter: char) -> Parsed {
        let mut name = letter.to_string();
        if self.eat_symbol('_') {
            name.push('_');
            name.push_str(&self.subscript()?);
        }
        while self.eat_symbol('\'') {
            name.push('\'');
        }
        if FUNCTION_LETTERS.contains(letter) {
            let start = self.at;
            if self.eat_symbol('^') {
                if self.argument()? == Expr::integer(-1) {
                    name.push_str("^-1");
                } else {
                    self.at = start;
                }
            }
            if self.eat_symbol('(') {
                let arguments = self.nested(Self::elements)?;
                return if self.eat_symbol(')') {
                    Ok(Expr::Call(name, arguments))
                } else {
                    Err(ReadError::NotMathematics)
                };
            }
            if self.at != start && name.ends_with("^-1") {
                name.truncate(name.len() - 3);
                let symbol = Expr::Symbol(name);
                return Ok(symbol.inverse());
            }
        }
        Ok(match name.as_str() {
            "e" => Expr::Constant(Constant::Euler),
            "i" => Expr::Constant(Constant::Imaginary),
            _ => Expr::Symbol(name),
        })
    }

    /// The letters and digits of a subscript, however it is bracketed.
    pub(crate) fn subscript(&mut self) -> Result<String, ReadError> {
        let mut name = String::new();
        if !self.eat_symbol('{') {
            match self.next() {
                Some(Token::Number(text)) => {
                    // `x_12` is x₁2 in TeX; people mean x₁₂.
                    name.push_str(&text);
                }
                Some(Token::Letter(letter)) => name.push(letter),
                Some(Token::Text(text) | Token::Command(text)) => name.push_str(&text),
                _ => return Err(ReadError::NotMathematics),
            }
            return Ok(name);
        }
        loop {
            match self.next() {
                Some(Token::Symbol('}')) => return Ok(name),
                Some(Token::Number(text) | Token::Text(text) | Token::Command(text)) => {
                    name.push_str(&text);
                }
                Some(Token::Letter(c) | Token::Symbol(c)) if c != '{' => name.push(c),
                _ => return Err(ReadError::NotMathematics),
            }
        }
    }

    /// After `(`, `[` or `]`: a group, a tuple or an interval.
    fn bracket(&mut self, opens_open: bool) -> Parsed {
        let bars = std::mem::take(&mut self.open_bars);
        let inner = self.answer();
        self.open_bars = bars;
        let inner = inner?;
        let closes_open = match self.next() {
            Some(Token::Symbol(')' | '[')) => true,
            Some(Token::Symbol(']')) => false,
            _ => return Err(ReadError::NotMathematics),
        };
        Ok(match inner {
            Expr::List(items) if items.len() == 2 && !(opens_open && closes_open) => {
                let mut items = items.into_iter();
                let (Some(low), Some(high)) = (items.next(), items.next()) else {
                    return Err(ReadError::NotMathematics);
                };
                Expr::Interval {
                    low: Box::new(low),
                    high: Box::new(high),
                    low_open: opens_open,
                    high_open: closes_open,
                }
            }
            Expr::List(items) => Expr::Tuple(items),
            single => single,
        })
    }

    fn bars(&mut self, close: &Token) -> Parsed {
        let bars = self.open_bars;
        self.open_bars += 1;
        let inner = self.sum();
        self.open_bars = bars;
        let inner = inner?;
        if !self.eat(close) && !self.eat_command(&["vert", "rvert"]) {
            return Err(ReadError::NotMathematics);
        }
        Ok(Expr::Function(Function::Abs, vec![inner]))
    }

    /// `\{1, 2\}` or `\{x : x > 2\}`, which is what its condition says.
    fn set(&mut self) -> Parsed {
        if self.eat(&Token::Escaped('}')) {
            return Ok(Expr::Set(Vec::new()));
        }
        let start = self.at;
        let bars = std::mem::replace(&mut self.open_bars, 1);
        let is_builder = self.eat_builder_head();
        self.open_bars = bars;
        if !is_builder {
            self.at = start;
        }
        let inner = self.answer()?;
        if !self.eat(&Token::Escaped('}')) {
            return Err(ReadError::NotMathematics);
        }
        let is_condition = matches!(&inner, Expr::Relation(_, comparators) if !comparators.contains(&Comparator::Equal));
        Ok(match inner {
            condition if is_builder && is_condition => condition,
            _ if is_builder => return Err(ReadError::NotMathematics),
            Expr::List(items) => Expr::Set(items),
            single => Expr::Set(vec![single]),
        })
    }

    /// `x |`, `x \in \mathbb{R} :` at the beginning of a set.
    fn eat_builder_head(&mut self) -> bool {
        if self.sum().is_err() || (self.eat_command(&["in"]) && self.sum().is_err()) {
            return false;
        }
        self.eat_symbol('|') || self.eat_symbol(':') || self.eat_command(&["mid", "vert", "colon"])
    }

    fn command_atom(&mut self, name: &str) -> Parsed {
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
        self.function(name, function)
    }

    fn named_set(&mut self) -> Parsed {
        let braced = self.eat_symbol('{');
        let Some(Token::Letter(letter)) = self.next() else {
            return Err(ReadError::NotMathematics);
        };
        if braced && !self.eat_symbol('}') {
            return Err(ReadError::NotMathematics);
        }
        Ok(Expr::NamedSet(letter))
    }

    fn until(&mut self, close: &str, function: Function) -> Parsed {
        let inner = self.sum()?;
        if self.eat_command(&[close]) {
            Ok(Expr::Function(function, vec![inner]))
        } else {
            Err(ReadError::NotMathematics)
        }
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

/// A numeral as an exact rational; a point makes it a decimal.
pub(crate) fn number(text: &str) -> Parsed {
    if text.len() > MOST_DIGITS {
        return Err(ReadError::TooLong);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let numerator = BigInt::from_str_radix(if digits.is_empty() { "0" } else { &digits }, 10)
        .map_err(|_| ReadError::NotMathematics)?;
    let denominator = pow(BigInt::from(10), fraction.len());
    let written = if fraction.is_empty() { Written::Exact } else { Written::Decimal };
    Ok(Expr::Number(BigRational::new(numerator, denominator), written))
}

/// `0.1\overline{6}`: exact.
fn repeating_decimal(start: &str, repeated: &str) -> Parsed {
    if repeated.len() > MOST_DIGITS || !repeated.chars().all(|c| c.is_ascii_digit()) {
        return Err(ReadError::NotMathematics);
    }
    let places = start.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let Expr::Number(base, _) = number(start)? else { return Err(ReadError::NotMathematics) };
    let cycle = BigInt::from_str_radix(repeated, 10).map_err(|_| ReadError::NotMathematics)?;
    let nines = pow(BigInt::from(10), repeated.len()) - BigInt::one();
    let shift = pow(BigInt::from(10), places);
    Ok(Expr::rational(base + BigRational::new(cycle, nines * shift)))
}
