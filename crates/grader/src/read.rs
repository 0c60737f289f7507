//! Tokens to a tree: answers as people write them.
//!
//! ```text
//! answer   = group (";" group)*              group   = element ("," | "and" element)*
//! element  = sets (("=" | "<" | "∈" | …) sets)*      sets = ratio (("∪" | "∩" | "∖") ratio)*
//! ratio    = sum (":" sum)*                  sum     = product (("+" | "-" | "±") product)*
//! product  = signed (("·" | "/" | nothing) signed)*  signed = "-"* power
//! ```
//!
//! Recursive descent; [`DEEPEST`] bounds the nesting, so hostile input ends in
//! [`ReadError::TooDeep`], never in an overflow of the stack. Atoms are in `read/atom.rs`.

mod atom;
mod function;
mod token;
pub(crate) mod vocabulary;

use crate::expr::{Comparator, Expr, SetOperator, Written};

use self::token::{ReadError, Token, tokenize};

/// Deepest nesting of brackets, fractions, powers and functions that is read.
pub(crate) const DEEPEST: usize = 64;

/// Most atoms that are read for one answer.
const MOST_STEPS: usize = 50_000;

pub(crate) type Parsed = Result<Expr, ReadError>;

/// Reads one answer.
pub(crate) fn parse(text: &str) -> Parsed {
    let trimmed = vocabulary::without_unit(text.trim().trim_end_matches(['.', ',', ';', ':', ' ']));
    let mut parser = Parser::new(tokenize(trimmed)?);
    let answer = parser.answer()?;
    if parser.is_done() { Ok(answer) } else { Err(ReadError::NotMathematics) }
}

pub(crate) struct Parser {
    pub(crate) tokens: Vec<Token>,
    pub(crate) at: usize,
    pub(crate) depth: usize,
    /// Open `|…|` around the current place: the next bar closes instead of opening.
    pub(crate) open_bars: usize,
    /// Atoms read so far, those read twice counted twice.
    pub(crate) steps: usize,
}

impl Parser {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self { tokens, at: 0, depth: 0, open_bars: 0, steps: 0 }
    }

    /// The next token that is not a blank.
    pub(crate) fn peek(&self) -> Option<&Token> {
        self.tokens[self.at..].iter().find(|token| **token != Token::Space)
    }

    pub(crate) fn next(&mut self) -> Option<Token> {
        while self.tokens.get(self.at) == Some(&Token::Space) {
            self.at += 1;
        }
        let token = self.tokens.get(self.at).cloned();
        self.at += usize::from(token.is_some());
        token
    }

    pub(crate) fn is_done(&self) -> bool {
        self.peek().is_none()
    }

    pub(crate) fn eat(&mut self, wanted: &Token) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.next();
        }
        found
    }

    pub(crate) fn eat_symbol(&mut self, symbol: char) -> bool {
        self.eat(&Token::Symbol(symbol))
    }

    pub(crate) fn eat_command(&mut self, names: &[&str]) -> bool {
        let found =
            matches!(self.peek(), Some(Token::Command(name)) if names.contains(&name.as_str()));
        if found {
            self.next();
        }
        found
    }

    /// Runs `inner` one level deeper.
    pub(crate) fn nested<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        if self.depth >= DEEPEST {
            return Err(ReadError::TooDeep);
        }
        // Set builders and inverse functions are tried and read again: nested, that would double
        // the work with every level.
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(ReadError::TooLong);
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Semicolon-separated groups; several groups of several elements are a list of tuples.
    pub(crate) fn answer(&mut self) -> Parsed {
        let mut groups = vec![self.elements()?];
        while self.eat_symbol(';') {
            if self.is_done() {
                break;
            }
            groups.push(self.elements()?);
        }
        if groups.len() == 1 {
            return Ok(as_list(groups.swap_remove(0)));
        }
        let is_flat = groups.iter().all(|group| group.len() == 1);
        let items = groups
            .into_iter()
            .map(|mut group| if is_flat { group.swap_remove(0) } else { Expr::Tuple(group) });
        Ok(Expr::List(items.collect()))
    }

    pub(crate) fn eat_separator(&mut self) -> bool {
        let mut found = false;
        while self.eat_symbol(',') || self.eat_command(&["and", "wedge", "vee", "lor", "land"]) {
            found = true;
        }
        found
    }

    /// Comma-separated elements.
    pub(crate) fn elements(&mut self) -> Result<Vec<Expr>, ReadError> {
        let mut elements = vec![self.element()?];
        while self.eat_separator() {
            if self.is_done() {
                break;
            }
            elements.push(self.element()?);
        }
        Ok(elements)
    }

    /// A chain of relations, or just an expression.
    pub(crate) fn element(&mut self) -> Parsed {
        let mut terms = vec![self.sets()?];
        let mut comparators = Vec::new();
        while let Some(comparator) = self.comparator() {
            terms.push(self.sets()?);
            comparators.push(comparator);
        }
        Ok(chain(terms, comparators))
    }

    fn comparator(&mut self) -> Option<Comparator> {
        let found = match self.peek()? {
            Token::Symbol('=') => Comparator::Equal,
            Token::Symbol('<') => Comparator::Less,
            Token::Symbol('>') => Comparator::Greater,
            Token::Symbol('!') => Comparator::NotEqual,
            Token::Command(name) => match name.as_str() {
                "le" | "leq" | "leqslant" | "leqq" => Comparator::LessOrEqual,
                "ge" | "geq" | "geqslant" | "geqq" => Comparator::GreaterOrEqual,
                "lt" => Comparator::Less,
                "gt" => Comparator::Greater,
                "ne" | "neq" => Comparator::NotEqual,
                "approx" | "simeq" | "thickapprox" => Comparator::About,
                "in" => Comparator::In,
                _ => return None,
            },
            _ => return None,
        };
        self.next();
        let or_equal = match found {
            Comparator::Less => Some(Comparator::LessOrEqual),
            Comparator::Greater => Some(Comparator::GreaterOrEqual),
            Comparator::NotEqual => Some(Comparator::NotEqual),
            _ => None,
        };
        // `<=`, `>=`, `!=`, `==`.
        if let Some(or_equal) = or_equal
            && matches!(found, Comparator::Less | Comparator::Greater | Comparator::NotEqual)
            && self.eat_symbol('=')
        {
            return Some(or_equal);
        }
        if found == Comparator::Equal {
            self.eat_symbol('=');
        }
        Some(found)
    }

    fn sets(&mut self) -> Parsed {
        let mut left = self.ratio()?;
        loop {
            let operator = match self.peek() {
                Some(Token::Command(name)) => match name.as_str() {
                    "cup" | "bigcup" => SetOperator::Union,
                    "cap" | "bigcap" => SetOperator::Intersection,
                    "setminus" | "backslash" => SetOperator::Difference,
                    _ => return Ok(left),
                },
                _ => return Ok(left),
            };
            self.next();
            let right = self.ratio()?;
            left = Expr::SetOperation(operator, Box::new(left), Box::new(right));
        }
    }

    fn ratio(&mut self) -> Parsed {
        let first = self.sum()?;
        let mut terms = vec![first];
        while self.eat_symbol(':') || self.eat_command(&["colon"]) {
            terms.push(self.sum()?);
        }
        Ok(if terms.len() == 1 { terms.swap_remove(0) } else { Expr::Ratio(terms) })
    }

    pub(crate) fn sum(&mut self) -> Parsed {
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
                let right = self.product()?;
                let left = as_sum(std::mem::take(&mut terms));
                terms.push(Expr::PlusMinus(Box::new(left), Box::new(right)));
            } else {
                return Ok(as_sum(terms));
            }
        }
    }

    pub(crate) fn product(&mut self) -> Parsed {
        let mut factors = vec![self.signed()?];
        loop {
            if self.eat_symbol('*') || self.eat_command(&["cdot", "times", "ast"]) {
                // `**` is a power in plain text.
                if self.eat_symbol('*') {
                    let exponent = self.nested(Self::signed)?;
                    let base = factors.pop().ok_or(ReadError::NotMathematics)?;
                    factors.push(Expr::Power(Box::new(base), Box::new(exponent)));
                } else {
                    factors.push(self.signed()?);
                }
            } else if self.eat_symbol('/') || self.eat_command(&["div", "slash"]) {
                let divisor = self.signed()?;
                // `1/2x` divides by 2 only.
                let dividend = factors.pop().ok_or(ReadError::NotMathematics)?;
                factors.push(dividend.quotient(divisor));
                if let Some(mixed) = self.take_mixed_number(&factors) {
                    factors = vec![mixed];
                }
            } else if self.starts_factor() {
                let is_mixed = self.is_mixed_fraction(&factors);
                let factor = self.power()?;
                if is_mixed {
                    let whole = factors.pop().ok_or(ReadError::NotMathematics)?;
                    factors.push(add_fraction(whole, factor));
                } else {
                    factors.push(factor);
                }
            } else {
                return Ok(Expr::product(factors));
            }
        }
    }

    /// `2 1/2`: an integer, a blank, then a fraction of two integers.
    fn take_mixed_number(&self, factors: &[Expr]) -> Option<Expr> {
        let [Expr::Number(whole, Written::Exact), Expr::Number(part, Written::Exact)] = factors
        else {
            return None;
        };
        let is_proper = !part.is_integer() && part.numer() < part.denom();
        (whole.is_integer() && is_proper && self.at >= 4)
            .then(|| add_fraction(factors[0].clone(), factors[1].clone()))
    }

    /// `2\frac{1}{2}`: an integer directly before a fraction of two integers.
    fn is_mixed_fraction(&self, factors: &[Expr]) -> bool {
        let is_whole =
            matches!(factors, [Expr::Number(whole, Written::Exact)] if whole.is_integer());
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
        let mut is_negative = false;
        loop {
            if self.eat_symbol('-') {
                is_negative = !is_negative;
            } else if !self.eat_symbol('+') {
                break;
            }
        }
        let value = self.power()?;
        Ok(if is_negative { value.negated() } else { value })
    }
}

fn add_fraction(whole: Expr, fraction: Expr) -> Expr {
    match (whole, fraction) {
        (Expr::Number(a, _), Expr::Number(b, _)) if a.numer().sign() == num_bigint::Sign::Minus => {
            Expr::rational(a - b)
        }
        (Expr::Number(a, _), Expr::Number(b, _)) => Expr::rational(a + b),
        (a, b) => Expr::Sum(vec![a, b]),
    }
}

pub(crate) fn as_list(mut items: Vec<Expr>) -> Expr {
    if items.len() == 1 { items.swap_remove(0) } else { Expr::List(items) }
}

fn as_sum(mut terms: Vec<Expr>) -> Expr {
    if terms.len() == 1 { terms.swap_remove(0) } else { Expr::Sum(terms) }
}

/// Drops the rounded side of every `≈`: `x = 1/3 ≈ 0.33` means 1/3, `x ≈ 0.33` means 0.33.
fn chain(terms: Vec<Expr>, comparators: Vec<Comparator>) -> Expr {
    let mut kept_terms = Vec::with_capacity(terms.len());
    let mut kept: Vec<Comparator> = Vec::new();
    let mut terms = terms.into_iter();
    kept_terms.extend(terms.next());
    for (term, comparator) in terms.zip(comparators) {
        if comparator == Comparator::About {
            let is_name = kept_terms.len() == 1 && is_only_symbols(&kept_terms[0]);
            if !is_name {
                break;
            }
            kept.push(Comparator::Equal);
        } else {
            kept.push(comparator);
        }
        kept_terms.push(term);
    }
    if kept_terms.len() == 1 { kept_terms.swap_remove(0) } else { Expr::Relation(kept_terms, kept) }
}

/// A name: `x`, `AB`, `S_1 : S_2`, `(p, q)`, `f(x)`.
pub(crate) fn is_only_symbols(expr: &Expr) -> bool {
    match expr {
        Expr::Symbol(_) | Expr::Text(_) | Expr::Call(..) | Expr::Constant(_) => true,
        Expr::Product(items) | Expr::Tuple(items) | Expr::Ratio(items) => {
            items.iter().all(is_only_symbols)
        }
        Expr::Function(crate::expr::Function::Abs, items) => items.iter().all(is_only_symbols),
        Expr::Power(base, exponent) => is_only_symbols(base) && **exponent == Expr::integer(-1),
        _ => false,
    }
}
