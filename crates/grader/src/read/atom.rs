//! The atoms of the grammar: numbers, names, fractions, roots, and what follows them.
//!
//! What binds tighter than a product is here: powers, subscripts, factorials, percent signs,
//! degrees, units in `\text{}`. Brackets are in `bracket.rs`, functions and matrices in
//! `function.rs`.

use super::numeral::{number, repeating_decimal};
use super::token::{ReadError, Token};
use super::{Parsed, Parser, measured, unit, vocabulary};
use crate::expr::{Constant, Expr, Function};

/// Letters that name a function when a bracket follows; any other letter multiplies it.
const FUNCTION_LETTERS: &str = "fghFGH";

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
                    | "surd"
                    | "surd3"
                    | "surd4"
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
        self.chained(Self::atom_with_endings)
    }

    fn atom_with_endings(&mut self) -> Parsed {
        let mut value = self.nested(Self::atom)?;
        loop {
            value = match self.peek() {
                Some(Token::Symbol('^')) => {
                    self.ending()?;
                    self.exponent_of(value)?
                }
                Some(Token::Symbol('!')) if self.is_factorial() => {
                    self.ending()?;
                    Expr::Function(Function::Factorial, vec![value])
                }
                Some(Token::Symbol('%')) => {
                    self.ending()?;
                    Expr::Percent(Box::new(value))
                }
                Some(Token::Symbol('\'')) => match value {
                    Expr::Symbol(name) => {
                        self.next();
                        Expr::Symbol(name + "'")
                    }
                    // The derivative of something, or minutes of an arc.
                    _ => return Err(ReadError::NotMathematics),
                },
                Some(Token::Command(name)) if name == "percent" => {
                    self.ending()?;
                    Expr::Percent(Box::new(value))
                }
                Some(Token::Command(name))
                    if matches!(name.as_str(), "degree" | "circ" | "deg") =>
                {
                    self.ending()?;
                    Expr::Degrees(Box::new(value))
                }
                Some(text @ Token::Text(_))
                    if !matches!(value, Expr::Text(_))
                        && may_follow(text)
                        && self.text_is_trailing() =>
                {
                    let words = self.unit_words();
                    measured(value, unit::measure(&words))
                }
                _ => return Ok(value),
            }
        }
    }

    /// Takes a sign that puts the value before it one level deeper.
    fn ending(&mut self) -> Result<(), ReadError> {
        self.next();
        self.link()
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
                Token::Symbol('^' | '{' | '}' | '/') | Token::Number(_) | Token::Text(_) => {
                    rest.next();
                }
                Token::Symbol(',' | ';' | '=' | ')' | ']' | '.')
                | Token::Escaped('}')
                | Token::Row => return true,
                Token::Command(name) => return name == "and" || name == "or",
                _ => return false,
            }
        }
        true
    }

    /// `\text{cm}^2`, `\text{ km}^{2}`, `\text{m}/\text{s}`, as one text.
    fn unit_words(&mut self) -> String {
        let mut words = String::new();
        while let Some(Token::Text(text)) = self.peek().filter(|next| may_follow(next)) {
            words.push(' ');
            words.push_str(text);
            self.next();
            if self.eat_symbol('^') {
                let braced = self.eat_symbol('{');
                if let Some(Token::Number(power)) = self.peek() {
                    words.push('^');
                    words.push_str(power);
                    self.next();
                }
                if braced {
                    self.eat_symbol('}');
                }
            }
            let mut rest = self.tokens[self.at..].iter().filter(|token| **token != Token::Space);
            if rest.next() == Some(&Token::Symbol('/'))
                && matches!(rest.next(), Some(Token::Text(_)))
            {
                words.push('/');
                self.next();
            }
        }
        words
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
        if self.eat_ordinal_ending(braced) {
            return Ok(base);
        }
        self.at = start;
        let exponent = self.argument()?;
        // `f^{-1}` and `\sin^{-1}` are names of functions, dealt with where those are read.
        Ok(Expr::Power(Box::new(base), Box::new(exponent)))
    }

    /// `9^{th}`, `9^\text{th}`: an ending, not a power.
    fn eat_ordinal_ending(&mut self, braced: usize) -> bool {
        let mut ending = String::new();
        while ending.len() < 2 {
            match self.next() {
                Some(Token::Letter(letter)) => ending.push(letter),
                Some(Token::Text(text)) => ending.push_str(&text),
                _ => return false,
            }
        }
        let is_ending = matches!(ending.as_str(), "st" | "nd" | "rd" | "th");
        is_ending && (0..braced).all(|_| self.eat_symbol('}'))
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
                base if base == Expr::integer(10) => number(text),
                Expr::Number(base, _) => Ok(Expr::Based(text.to_owned(), base.to_string())),
                _ => Err(ReadError::NotMathematics),
            };
        }
        // `0.333…` is the decimal as far as it was written.
        if text.contains('.') {
            self.eat(&Token::Dots);
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
}

/// Words that can be the unit of the value before them.
fn may_follow(token: &Token) -> bool {
    matches!(token, Token::Text(words) if unit::may_follow(words))
}
