//! What stands between brackets: groups, tuples, intervals, sets, absolute values.

use super::token::{ReadError, Token};
use super::{Parsed, Parser};
use crate::expr::{Comparator, Expr, Function};

impl Parser {
    /// What stands between an opening brace and `close`; several elements are a list.
    pub(super) fn group(&mut self, close: char) -> Parsed {
        let bars = std::mem::take(&mut self.open_bars);
        let inner = self.answer();
        self.open_bars = bars;
        let inner = inner?;
        if self.eat_symbol(close) { Ok(inner) } else { Err(ReadError::NotMathematics) }
    }

    /// After `(`, `[` or `]`: a group, a tuple or an interval.
    pub(super) fn bracket(&mut self, opens_open: bool) -> Parsed {
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

    pub(super) fn bars(&mut self, close: &Token) -> Parsed {
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
    pub(super) fn set(&mut self) -> Parsed {
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

    pub(super) fn named_set(&mut self) -> Parsed {
        let braced = self.eat_symbol('{');
        let Some(Token::Letter(letter)) = self.next() else {
            return Err(ReadError::NotMathematics);
        };
        if braced && !self.eat_symbol('}') {
            return Err(ReadError::NotMathematics);
        }
        Ok(Expr::NamedSet(letter))
    }

    pub(super) fn until(&mut self, close: &str, function: Function) -> Parsed {
        let inner = self.sum()?;
        if self.eat_command(&[close]) {
            Ok(Expr::Function(function, vec![inner]))
        } else {
            Err(ReadError::NotMathematics)
        }
    }
}
