//! Tokens to a tree, from the outside in: lists, relations, set operations, ratios.
//!
//! Recursive descent; [`DEEPEST`] bounds the nesting and [`MOST_STEPS`] the work, so hostile input
//! ends in [`ReadError::TooDeep`] or [`ReadError::TooLong`], never in an overflow of the stack.
//! Sums and products are in `arithmetic.rs`.

use super::Parsed;
use super::arithmetic::with_unit_outside;
use super::token::{ReadError, Token};
use crate::expr::{Comparator, Connective, Expr, Function, SetOperator};

/// Deepest nesting of brackets, fractions, powers and functions that is read.
pub(crate) const DEEPEST: usize = 64;

/// Highest tree that is walked. Brackets alone, [`DEEPEST`] of them, stay below.
const HIGHEST: usize = 600;

/// Links that cannot make a tree too high, whatever they are links of.
const FEW_LINKS: usize = 64;

/// Most atoms that are read for one answer.
const MOST_STEPS: usize = 50_000;

pub(crate) struct Parser {
    pub(crate) tokens: Vec<Token>,
    pub(crate) at: usize,
    pub(crate) depth: usize,
    /// Open `|…|` around the current place: the next bar closes instead of opening.
    pub(crate) open_bars: usize,
    /// Atoms read so far, those read twice counted twice.
    pub(crate) steps: usize,
    /// Links of chains read so far.
    links: usize,
}

impl Parser {
    pub(crate) fn new(tokens: Vec<Token>) -> Self {
        Self { tokens, at: 0, depth: 0, open_bars: 0, steps: 0, links: 0 }
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
        // Set builders and inverse functions are tried and read again: nested, that would double
        // the work with every level.
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(ReadError::TooLong);
        }
        let depth = self.depth;
        self.deepen()?;
        let result = inner(self);
        self.depth = depth;
        result
    }

    /// Runs `links`, which may go deeper link by link with [`Self::link`]: what a loop reads into a
    /// tree that leans to the left counts as nesting, because whoever walks the tree recurses.
    pub(crate) fn chained(&mut self, links: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        let depth = self.depth;
        let result = links(self);
        self.depth = depth;
        result
    }

    /// One more link of a chain.
    pub(crate) fn link(&mut self) -> Result<(), ReadError> {
        self.links += 1;
        self.deepen()
    }

    fn deepen(&mut self) -> Result<(), ReadError> {
        if self.depth >= DEEPEST {
            return Err(ReadError::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    /// Whether chains inside brackets inside chains made a tree that is too high to walk.
    pub(crate) fn is_too_high(&self, tree: &Expr) -> bool {
        self.links > FEW_LINKS && tree.is_higher_than(HIGHEST)
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

    /// Commas and words between elements; a logical sign between statements.
    fn eat_separator(&mut self) -> Option<Separator> {
        let mut found = None;
        loop {
            let next = if self.eat_symbol(',') {
                Separator::Comma
            } else if self.eat_command(&["and"]) {
                Separator::Word(Connective::And)
            } else if self.eat_command(&["or"]) {
                Separator::Word(Connective::Or)
            } else if self.eat_command(&["wedge", "land"]) {
                Separator::Sign(Connective::And)
            } else if self.eat_command(&["vee", "lor"]) {
                Separator::Sign(Connective::Or)
            } else {
                return found;
            };
            // `1, 2, and 3`: the word says more than the comma.
            found = Some(if next == Separator::Comma { found.unwrap_or(next) } else { next });
        }
    }

    /// Comma-separated elements; statements that a sign or a word joins are one element.
    pub(crate) fn elements(&mut self) -> Result<Vec<Expr>, ReadError> {
        let mut elements = vec![self.element()?];
        let mut separators = Vec::new();
        while let Some(separator) = self.eat_separator() {
            if self.is_done() {
                break;
            }
            separators.push(separator);
            elements.push(self.element()?);
        }
        joined(elements, &separators)
    }

    /// A chain of relations, or just an expression.
    pub(crate) fn element(&mut self) -> Parsed {
        if self.eat(&Token::Dots) {
            return Ok(Expr::Text("…".to_owned()));
        }
        // `\approx 1.4`, `= 5`: the left side stands before the box.
        while self.eat_symbol('=') || self.eat_command(&["approx", "simeq", "thickapprox"]) {}
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
        self.chained(Self::set_operations)
    }

    fn set_operations(&mut self) -> Parsed {
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
            self.link()?;
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
        if terms.len() == 1 {
            return Ok(terms.swap_remove(0));
        }
        Ok(with_unit_outside(terms, Expr::Ratio))
    }
}

/// What stands between two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separator {
    Comma,
    Word(Connective),
    Sign(Connective),
}

/// Conditions joined by `and`, `or` or a logical sign are one statement; a logical sign between
/// values and equations is only another comma, `x = 1 ∨ x = 2`.
fn joined(elements: Vec<Expr>, separators: &[Separator]) -> Result<Vec<Expr>, ReadError> {
    let is_condition = |item: &Expr| match item {
        Expr::Relation(_, comparators) => *comparators != [Comparator::Equal],
        Expr::Logic(..) => true,
        _ => false,
    };
    let is_value = |item: &Expr| {
        matches!(item, Expr::Relation(_, c) if *c == [Comparator::Equal]) || !item.has_names()
    };
    let connectives: Vec<Option<Connective>> = separators
        .iter()
        .map(|separator| match separator {
            Separator::Comma => None,
            Separator::Word(connective) => elements.iter().all(is_condition).then_some(*connective),
            Separator::Sign(connective) => (!elements.iter().all(is_value)).then_some(*connective),
        })
        .collect();
    match connectives.first().copied().flatten() {
        Some(first) if connectives.iter().all(|c| *c == Some(first)) => {
            Ok(vec![Expr::Logic(first, elements)])
        }
        _ if separators.iter().any(|s| matches!(s, Separator::Sign(_)))
            && connectives.iter().any(Option::is_some) =>
        {
            Err(ReadError::NotMathematics)
        }
        _ => Ok(elements),
    }
}

pub(crate) fn as_list(mut items: Vec<Expr>) -> Expr {
    if items.len() == 1 { items.swap_remove(0) } else { Expr::List(items) }
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
        Expr::Function(Function::Abs, items) => items.iter().all(is_only_symbols),
        Expr::Power(base, exponent) => is_only_symbols(base) && **exponent == Expr::integer(-1),
        _ => false,
    }
}
