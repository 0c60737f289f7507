//! The shape of a parsed answer.
//!
//! One tree for everything that can be an answer: numbers, expressions, tuples, sets, intervals,
//! matrices, relations, words. Subtraction and division are written with [`Expr::Product`] and
//! [`Expr::Power`], so that equal things have fewer spellings.
//!
//! Not here: how text becomes a tree (`read.rs`) and when two trees mean the same
//! (`compare.rs`).

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, Zero};

use crate::read::Unit;

/// How a number was written; a decimal may be a rounding, everything else is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    Integer,
    Decimal,
    /// A fraction of two integers that is none itself, a mixed number, repeating digits.
    Fraction,
    /// The reader carried out what the writer had left open: `6/2`, `-(-3)`, `\frac{1/2}{3}`.
    Worked,
}

/// What joins statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connective {
    And,
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constant {
    Pi,
    Euler,
    Imaginary,
    Infinity,
}

/// Functions whose value is known. An unknown `f(x)` is an [`Expr::Call`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Arcsin,
    Arccos,
    Arctan,
    Sinh,
    Cosh,
    Tanh,
    Ln,
    /// `log`, with the base as second argument.
    Log,
    Exp,
    Abs,
    Floor,
    Ceil,
    Factorial,
    Binomial,
    Gcd,
    Lcm,
    Max,
    Min,
    Determinant,
    Real,
    ImaginaryPart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// `x ≈ y`: kept apart, because only one of its sides is meant.
    About,
    /// `x ∈ S`.
    In,
}

impl Comparator {
    /// The comparator that says the same with the sides exchanged.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetOperator {
    Union,
    Intersection,
    Difference,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Number(BigRational, Written),
    Symbol(String),
    Constant(Constant),
    /// Words in `\text{}` and the like, as written.
    Text(String),
    Sum(Vec<Expr>),
    Product(Vec<Expr>),
    Power(Box<Expr>, Box<Expr>),
    Function(Function, Vec<Expr>),
    Call(String, Vec<Expr>),
    Percent(Box<Expr>),
    Degrees(Box<Expr>),
    /// A value with the unit it was written with.
    Quantity(Box<Expr>, Unit),
    /// `a ± b`; one tree for two values, opened by [`Expr::signs`].
    PlusMinus(Box<Expr>, Box<Expr>),
    /// `a : b : c`.
    Ratio(Vec<Expr>),
    Matrix(Vec<Vec<Expr>>),
    /// Elements without brackets: `1, 2 and 3`.
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Set(Vec<Expr>),
    Interval {
        low: Box<Expr>,
        high: Box<Expr>,
        low_open: bool,
        high_open: bool,
    },
    SetOperation(SetOperator, Box<Expr>, Box<Expr>),
    /// `\mathbb{R}` and its like, by letter.
    NamedSet(char),
    /// A chain: `terms[0] comparators[0] terms[1] …`.
    Relation(Vec<Expr>, Vec<Comparator>),
    /// `p ∧ q`, `x < 1 or x > 2`.
    Logic(Connective, Vec<Expr>),
    /// A numeral with its base as subscript: `1011_2`.
    Based(String, String),
}

impl Expr {
    pub(crate) fn integer(value: i64) -> Self {
        Self::Number(BigRational::from_integer(BigInt::from(value)), Written::Integer)
    }

    /// `-1`, folded into a number where there is one.
    pub(crate) fn negated(self) -> Self {
        self.inside(|value| match value {
            Self::Number(value, _) if value.is_negative() => Self::Number(-value, Written::Worked),
            Self::Number(value, written) => Self::Number(-value, written),
            other => Self::product(vec![Self::integer(-1), other]),
        })
    }

    /// Changes the value under its percent sign, degrees or unit, which stay outside.
    pub(crate) fn inside(self, change: impl FnOnce(Self) -> Self) -> Self {
        match self {
            Self::Percent(inner) => Self::Percent(Box::new(inner.inside(change))),
            Self::Degrees(inner) => Self::Degrees(Box::new(inner.inside(change))),
            Self::Quantity(inner, unit) => Self::Quantity(Box::new(inner.inside(change)), unit),
            other => change(other),
        }
    }

    pub(crate) fn inverse(self) -> Self {
        Self::Power(Box::new(self), Box::new(Self::integer(-1)))
    }

    /// A quotient; of two exact numbers it is a number at once.
    pub(crate) fn quotient(self, divisor: Self) -> Self {
        match (self, divisor) {
            (Self::Number(a, p), Self::Number(b, q))
                if p != Written::Decimal && q != Written::Decimal && !b.is_zero() =>
            {
                let value = a / b;
                let is_fraction =
                    (p, q) == (Written::Integer, Written::Integer) && !value.is_integer();
                let written = if is_fraction { Written::Fraction } else { Written::Worked };
                Self::Number(value, written)
            }
            (Self::Quantity(inner, unit), divisor) => {
                Self::Quantity(Box::new(inner.quotient(divisor)), unit)
            }
            (dividend, divisor) => Self::product(vec![dividend, divisor.inverse()]),
        }
    }

    pub(crate) fn product(factors: Vec<Self>) -> Self {
        let mut flat = Vec::with_capacity(factors.len());
        for factor in factors {
            match factor {
                Self::Product(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        if flat.len() == 1 { flat.swap_remove(0) } else { Self::Product(flat) }
    }

    pub(crate) fn difference(self, other: Self) -> Self {
        Self::Sum(vec![self, other.negated()])
    }

    /// Whether a child passes; the one place that knows where children are.
    fn any_child<'a>(&'a self, test: &mut dyn FnMut(&'a Self) -> bool) -> bool {
        match self {
            Self::Number(..)
            | Self::Symbol(_)
            | Self::Constant(_)
            | Self::Text(_)
            | Self::NamedSet(_)
            | Self::Based(..) => false,
            Self::Sum(items)
            | Self::Product(items)
            | Self::Function(_, items)
            | Self::Call(_, items)
            | Self::Ratio(items)
            | Self::List(items)
            | Self::Tuple(items)
            | Self::Set(items)
            | Self::Logic(_, items)
            | Self::Relation(items, _) => items.iter().any(test),
            Self::Matrix(rows) => rows.iter().flatten().any(test),
            Self::Percent(inner) | Self::Degrees(inner) | Self::Quantity(inner, _) => test(inner),
            Self::Power(a, b) | Self::PlusMinus(a, b) | Self::SetOperation(_, a, b) => {
                test(a) || test(b)
            }
            Self::Interval { low, high, .. } => test(low) || test(high),
        }
    }

    /// Children, for walks over the whole tree.
    pub(crate) fn children(&self) -> Vec<&Self> {
        let mut children = Vec::new();
        self.any_child(&mut |child| {
            children.push(child);
            false
        });
        children
    }

    /// The same tree with every node passed through `change`, leaves first.
    pub(crate) fn map(&self, change: &dyn Fn(Self) -> Self) -> Self {
        let all = |items: &[Self]| items.iter().map(|item| item.map(change)).collect::<Vec<_>>();
        let one = |item: &Self| Box::new(item.map(change));
        let mapped = match self {
            Self::Number(..)
            | Self::Symbol(_)
            | Self::Constant(_)
            | Self::Text(_)
            | Self::NamedSet(_)
            | Self::Based(..) => self.clone(),
            Self::Sum(items) => Self::Sum(all(items)),
            Self::Product(items) => Self::Product(all(items)),
            Self::Function(function, items) => Self::Function(*function, all(items)),
            Self::Call(name, items) => Self::Call(name.clone(), all(items)),
            Self::Ratio(items) => Self::Ratio(all(items)),
            Self::List(items) => Self::List(all(items)),
            Self::Tuple(items) => Self::Tuple(all(items)),
            Self::Set(items) => Self::Set(all(items)),
            Self::Relation(items, comparators) => Self::Relation(all(items), comparators.clone()),
            Self::Matrix(rows) => Self::Matrix(rows.iter().map(|row| all(row)).collect()),
            Self::Logic(connective, items) => Self::Logic(*connective, all(items)),
            Self::Percent(inner) => Self::Percent(one(inner)),
            Self::Degrees(inner) => Self::Degrees(one(inner)),
            Self::Quantity(inner, unit) => Self::Quantity(one(inner), unit.clone()),
            Self::Power(a, b) => Self::Power(one(a), one(b)),
            Self::PlusMinus(a, b) => Self::PlusMinus(one(a), one(b)),
            Self::SetOperation(operator, a, b) => Self::SetOperation(*operator, one(a), one(b)),
            Self::Interval { low, high, low_open, high_open } => Self::Interval {
                low: one(low),
                high: one(high),
                low_open: *low_open,
                high_open: *high_open,
            },
        };
        change(mapped)
    }

    /// Whether the tree has more than `limit` levels. The one walk that does not recurse.
    pub(crate) fn is_higher_than(&self, limit: usize) -> bool {
        let mut rest = vec![(self, 1)];
        while let Some((node, level)) = rest.pop() {
            if level > limit {
                return true;
            }
            rest.extend(node.children().into_iter().map(|child| (child, level + 1)));
        }
        false
    }

    /// Nodes of the tree.
    pub(crate) fn size(&self) -> u64 {
        1 + self.children().iter().map(|child| child.size()).sum::<u64>()
    }

    /// Whether a node passes.
    pub(crate) fn any(&self, test: &dyn Fn(&Self) -> bool) -> bool {
        test(self) || self.any_child(&mut |child| child.any(test))
    }

    pub(crate) fn has_signs(&self) -> bool {
        self.any(&|node| matches!(node, Self::PlusMinus(..)))
    }

    /// Opens `±`: one tree where there is none, else two (all signs chosen together).
    pub(crate) fn signs(&self) -> Vec<Self> {
        if !self.has_signs() {
            return vec![self.clone()];
        }
        let plus = self.map(&|node| match node {
            Self::PlusMinus(a, b) => Self::Sum(vec![*a, *b]),
            other => other,
        });
        let minus = self.map(&|node| match node {
            Self::PlusMinus(a, b) => a.difference(*b),
            other => other,
        });
        vec![plus, minus]
    }

    /// Names of the symbols, sorted, each once.
    pub(crate) fn symbols(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.collect_symbols(&mut names);
        names.sort();
        names.dedup();
        names
    }

    fn collect_symbols(&self, names: &mut Vec<String>) {
        if let Self::Symbol(name) = self {
            names.push(name.clone());
        }
        for child in self.children() {
            child.collect_symbols(names);
        }
    }

    /// Whether it has a name in it, so that its value depends on something.
    pub(crate) fn has_names(&self) -> bool {
        self.any(&|node| matches!(node, Self::Symbol(_) | Self::Text(_) | Self::Call(..)))
    }

    /// Sets, tuples, intervals and lists, which are compared by their elements.
    pub(crate) fn is_collection(&self) -> bool {
        matches!(
            self,
            Self::List(_)
                | Self::Tuple(_)
                | Self::Set(_)
                | Self::Interval { .. }
                | Self::SetOperation(..)
                | Self::NamedSet(_)
        )
    }
}
