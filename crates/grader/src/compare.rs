//! When two answers mean the same.
//!
//! ```text
//! relations ─ an equation up to a factor, an inequality up to a positive one, `x = 5` as 5
//! statements ─ the same connective, parts in any order, or the same set of reals
//! collections ─ tuples in order, lists and sets in any order, intervals as sets of reals
//! words ─ letters only, whatever the case       matrices ─ cell by cell
//! scalars ─ exact rationals; else a proof in a finite field; else numbers at several points
//! ```
//!
//! The gold answer sets the form: a prediction may say `x = 5` for 5, and a bare 5 does for `x = 5`,
//! but not for `2x + z = 5`. The three-valued [`Same`] keeps "cannot tell" apart from "no".

mod budget;
mod collection;
mod evaluated;
mod exact;
mod fingerprint;
mod float;
mod logic;
mod matrix;
mod quantity;
mod real_set;
mod relation;
mod scalar;
mod words;

use std::time::Duration;

use num_bigint::BigInt;
use num_traits::Zero;

use crate::expr::{Comparator, Expr};
use crate::read::{is_only_symbols, parse};

pub(crate) use self::evaluated::is_number;
pub(crate) use self::words::is_words;

use self::budget::{Budget, Spent};
use self::collection::compare_collections;
use self::exact::exact;
use self::logic::compare_logic;
use self::matrix::matrix_value;
use self::relation::compare_relations;
use self::scalar::compare_scalars;
use self::words::compare_words;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Same {
    Yes,
    No,
    Unknown,
}

impl Same {
    pub(crate) fn of(same: bool) -> Self {
        if same { Self::Yes } else { Self::No }
    }

    pub(crate) fn or_else(
        self,
        other: impl FnOnce() -> Result<Self, Spent>,
    ) -> Result<Self, Spent> {
        if self == Self::Yes {
            return Ok(Self::Yes);
        }
        let second = other()?;
        Ok(if second == Self::No { self } else { second })
    }

    /// `Yes` only when both say so.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }
}

/// How strictly answers are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Decimal places that count when one side is written as a decimal.
    pub(crate) decimals: u32,
    /// Whether names of variables, brackets of sets and tuples, and bases of numerals matter.
    pub(crate) strict: bool,
    /// Whether an inequality may answer for an interval.
    pub(crate) relation_for_set: bool,
    /// Whether the prediction must be worked out as far as the gold answer is.
    pub(crate) evaluated: bool,
}

pub(crate) struct Comparison<'a> {
    pub(crate) rules: Rules,
    pub(crate) budget: &'a Budget,
}

pub(crate) fn compare(gold: &Expr, pred: &Expr, rules: Rules, steps: u64, time: Duration) -> Same {
    let budget = Budget::new(steps, time);
    let comparison = Comparison { rules, budget: &budget };
    let renamed;
    let mut pred = pred;
    if !rules.strict {
        renamed = with_names_of(pred, gold);
        pred = &renamed;
    }
    let result = comparison.same(gold, pred).unwrap_or(Same::Unknown);
    if budget.is_spent() { Same::Unknown } else { result }
}

impl Comparison<'_> {
    pub(crate) fn same(&self, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
        self.budget.spend(1)?;
        if gold == pred {
            return Ok(Same::Yes);
        }
        let (gold, pred) = Self::unwrap_equations(gold, pred);
        let (gold, pred) = (&gold, &pred);
        if self.rules.evaluated && !self.is_worked_out(gold, pred)? {
            return Ok(Same::No);
        }
        if let Some(same) = self.quantities(gold, pred)? {
            return Ok(same);
        }
        if matches!(gold, Expr::Logic(..)) || matches!(pred, Expr::Logic(..)) {
            return compare_logic(self, gold, pred);
        }
        if is_relation(gold) || is_relation(pred) {
            return compare_relations(self, gold, pred);
        }
        let (gold_signs, pred_signs) = (gold.signs(), pred.signs());
        if gold_signs.len() > 1 || pred_signs.len() > 1 {
            let gold = if gold.is_collection() { gold.clone() } else { Expr::List(gold_signs) };
            let pred = if pred.is_collection() { pred.clone() } else { Expr::List(pred_signs) };
            return compare_collections(self, &gold, &pred);
        }
        if gold.is_collection() || pred.is_collection() {
            return compare_collections(self, gold, pred);
        }
        if let Some(same) = compare_words(gold, pred) {
            return Ok(same);
        }
        match (matrix_value(gold, self.budget)?, matrix_value(pred, self.budget)?) {
            (Some(a), Some(b)) => return self.matrices(&a, &b),
            (None, None) => {}
            _ => return Ok(Same::No),
        }
        self.single_values(gold, pred)
    }

    fn single_values(&self, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
        match (gold, pred) {
            (Expr::Based(a, p), Expr::Based(b, q)) => return Ok(Same::of(a == b && p == q)),
            // Without its base a numeral means another number, unless the question has named it.
            (Expr::Based(..), _) | (_, Expr::Based(..)) if self.rules.strict => {
                return Ok(Same::No);
            }
            (Expr::Based(digits, _), other) | (other, Expr::Based(digits, _)) => {
                let plain = parse(digits).map_err(|_| Spent)?;
                return compare_scalars(self, &plain, other);
            }
            (Expr::Ratio(a), Expr::Ratio(b)) if a.len() > 2 || b.len() > 2 => {
                return self.ratios(a, b);
            }
            (Expr::Ratio(_), Expr::Ratio(_)) => {}
            (Expr::Ratio(items), other) | (other, Expr::Ratio(items)) => {
                if let Some(same) = self.ratio_and_number(items, other)? {
                    return Ok(same);
                }
            }
            _ => {}
        }
        if let Some(same) = self.glued_values(gold, pred)? {
            return Ok(same);
        }
        let same = compare_scalars(self, &as_quotient(gold), &as_quotient(pred))?;
        if same == Same::Yes {
            return Ok(Same::Yes);
        }
        // `2X` for `2x`, unless an answer uses both cases as different names.
        let (lower_gold, lower_pred) = (lowercase(gold), lowercase(pred));
        let keeps_names = |a: &Expr, b: &Expr| a.symbols().len() == b.symbols().len();
        if (&lower_gold, &lower_pred) != (gold, pred)
            && keeps_names(gold, &lower_gold)
            && keeps_names(pred, &lower_pred)
        {
            return compare_scalars(self, &as_quotient(&lower_gold), &as_quotient(&lower_pred));
        }
        Ok(same)
    }

    /// A ratio that no number equals. `10:00` has no value as a ratio and is ten o'clock, which the
    /// number 10 may mean, or 22: there the verdict stays open.
    fn ratio_and_number(&self, ratio: &[Expr], other: &Expr) -> Result<Option<Same>, Spent> {
        let Some(number) = exact(other, self.budget)? else { return Ok(None) };
        let mut parts = Vec::with_capacity(ratio.len());
        for part in ratio {
            let Some(part) = exact(part, self.budget)? else { return Ok(None) };
            parts.push(part);
        }
        if parts.len() < 2 || parts.len() == 2 && !parts[1].is_zero() {
            return Ok(None);
        }
        let is_on_the_hour = parts[1..].iter().all(Zero::is_zero);
        let is_same_hour = ((&parts[0] - number) % BigInt::from(12)).is_zero();
        Ok(Some(if is_on_the_hour && is_same_hour { Same::Unknown } else { Same::No }))
    }

    /// `1 : 2 : 3` up to a common factor.
    fn ratios(&self, a: &[Expr], b: &[Expr]) -> Result<Same, Spent> {
        if a.len() != b.len() {
            return Ok(Same::No);
        }
        let mut same = Same::Yes;
        for i in 1..a.len() {
            let left = Expr::product(vec![a[0].clone(), b[i].clone()]);
            let right = Expr::product(vec![b[0].clone(), a[i].clone()]);
            same = same.and(compare_scalars(self, &left, &right)?);
        }
        Ok(same)
    }

    fn matrices(&self, a: &[Vec<Expr>], b: &[Vec<Expr>]) -> Result<Same, Spent> {
        let shape = |m: &[Vec<Expr>]| m.iter().map(Vec::len).collect::<Vec<_>>();
        if shape(a) != shape(b) {
            return Ok(Same::No);
        }
        let mut same = Same::Yes;
        for (x, y) in a.iter().flatten().zip(b.iter().flatten()) {
            same = same.and(self.same(x, y)?);
            if same == Same::No {
                break;
            }
        }
        Ok(same)
    }

    /// Shortens `x = 1 + 1 = 2` to `x = 2` and takes the value where only one side names it.
    fn unwrap_equations(gold: &Expr, pred: &Expr) -> (Expr, Expr) {
        let (mut gold, mut pred) = (shortened(gold), shortened(pred));
        if is_equation(&pred) && !is_equation(&gold) {
            pred = last_term(pred);
        } else if is_assignment(&gold) && !is_equation(&pred) {
            gold = last_term(gold);
        }
        (gold, pred)
    }
}

fn as_quotient(expr: &Expr) -> Expr {
    match expr {
        Expr::Ratio(items) if items.len() == 2 => items[0].clone().quotient(items[1].clone()),
        other => other.clone(),
    }
}

pub(crate) fn is_relation(expr: &Expr) -> bool {
    matches!(expr, Expr::Relation(..))
}

pub(crate) fn is_equation(expr: &Expr) -> bool {
    matches!(expr, Expr::Relation(_, comparators)
        if comparators.iter().all(|c| matches!(c, Comparator::Equal | Comparator::In)))
}

/// An equation whose left side is only a name.
pub(crate) fn is_assignment(expr: &Expr) -> bool {
    is_equation(expr) && matches!(expr, Expr::Relation(terms, _) if is_only_symbols(&terms[0]))
}

fn shortened(expr: &Expr) -> Expr {
    match expr {
        Expr::Relation(terms, _) if terms.len() > 2 && is_assignment(expr) => Expr::Relation(
            vec![terms[0].clone(), terms[terms.len() - 1].clone()],
            vec![Comparator::Equal],
        ),
        other => other.clone(),
    }
}

pub(crate) fn last_term(expr: Expr) -> Expr {
    match expr {
        Expr::Relation(mut terms, _) => terms.pop().unwrap_or(Expr::List(Vec::new())),
        other => other,
    }
}

fn lowercase(expr: &Expr) -> Expr {
    expr.map(&|node| match node {
        Expr::Symbol(name) => match name.to_lowercase().as_str() {
            "e" => Expr::Constant(crate::expr::Constant::Euler),
            "i" => Expr::Constant(crate::expr::Constant::Imaginary),
            lower => Expr::Symbol(lower.to_owned()),
        },
        other => other,
    })
}

/// `pred` with its variables renamed to those of `gold`, in alphabetical order.
fn with_names_of(pred: &Expr, gold: &Expr) -> Expr {
    let (from, to) = (pred.symbols(), gold.symbols());
    if from.len() != to.len() {
        return pred.clone();
    }
    pred.map(&|node| match node {
        Expr::Symbol(name) => match from.iter().position(|old| *old == name) {
            Some(index) => Expr::Symbol(to[index].clone()),
            None => Expr::Symbol(name),
        },
        other => other,
    })
}
