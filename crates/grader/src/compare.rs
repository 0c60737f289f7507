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

use std::borrow::Cow;
use std::time::Duration;

use num_bigint::BigInt;
use num_traits::Zero;

use crate::expr::{Comparator, Expr};
use crate::read::{is_only_symbols, parse};

pub(crate) use self::budget::Spent;
pub(crate) use self::evaluated::is_number;
pub(crate) use self::words::is_words;

use self::budget::Budget;
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

/// Whether both mean the same, within so many steps and so much time.
pub(crate) fn compare(
    gold: &Expr,
    pred: &Expr,
    rules: Rules,
    steps: u64,
    time: Duration,
) -> Result<Same, Spent> {
    let budget = Budget::new(steps, time);
    let comparison = Comparison { rules, budget: &budget };
    let renamed;
    let mut pred = pred;
    if !rules.strict {
        renamed = with_names_of(pred, gold);
        pred = &renamed;
    }
    let same = comparison.same(gold, pred)?;
    if budget.is_spent() { Err(Spent) } else { Ok(same) }
}

impl Comparison<'_> {
    pub(crate) fn same(&self, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
        self.budget.spend(1)?;
        if gold == pred {
            return Ok(Same::Yes);
        }
        let (gold, pred) = unwrap_equations(gold, pred);
        let (gold, pred) = (&*gold, &*pred);
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
        if gold.has_signs() || pred.has_signs() {
            let opened = |expr: &Expr| {
                if expr.is_collection() { expr.clone() } else { Expr::List(expr.signs()) }
            };
            return compare_collections(self, &opened(gold), &opened(pred));
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
        if !has_capitals(gold) && !has_capitals(pred) {
            return Ok(same);
        }
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
}

/// Shortens `x = 1 + 1 = 2` to `x = 2` and takes the value where only one side names it.
fn unwrap_equations<'a>(gold: &'a Expr, pred: &'a Expr) -> (Cow<'a, Expr>, Cow<'a, Expr>) {
    if is_equation(pred) && !is_equation(gold) {
        return (shortened(gold), Cow::Borrowed(last_term(pred)));
    }
    if is_assignment(gold) && !is_equation(pred) {
        return (Cow::Borrowed(last_term(gold)), shortened(pred));
    }
    (shortened(gold), shortened(pred))
}

fn as_quotient(expr: &Expr) -> Cow<'_, Expr> {
    match expr {
        Expr::Ratio(items) if items.len() == 2 => {
            Cow::Owned(items[0].clone().quotient(items[1].clone()))
        }
        other => Cow::Borrowed(other),
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

fn shortened(expr: &Expr) -> Cow<'_, Expr> {
    match expr {
        Expr::Relation(terms, _) if terms.len() > 2 && is_assignment(expr) => {
            let ends = vec![terms[0].clone(), last_term(expr).clone()];
            Cow::Owned(Expr::Relation(ends, vec![Comparator::Equal]))
        }
        other => Cow::Borrowed(other),
    }
}

/// The right side of an equation.
pub(crate) fn last_term(expr: &Expr) -> &Expr {
    match expr {
        Expr::Relation(terms, _) => terms.last().unwrap_or(expr),
        other => other,
    }
}

fn has_capitals(expr: &Expr) -> bool {
    expr.any(&|node| matches!(node, Expr::Symbol(name) if name.contains(char::is_uppercase)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules =
        Rules { decimals: 6, strict: true, relation_for_set: true, evaluated: false };

    /// LaTeX that can mostly be read.
    fn answer() -> impl Strategy<Value = String> {
        let atom = prop::sample::select(vec![
            "1",
            "2",
            "12",
            "0.5",
            "x",
            "y",
            "\\pi",
            "\\frac{1}{2}",
            "\\sqrt{3}",
            "f(x)",
            "5\\text{ m}",
            "10^{20}",
            "\\infty",
            "3\\%",
            "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
        ]);
        let join = prop::sample::select(vec![
            "+", "-", "\\cdot ", "/", "^", "=", "<", ",", "\\cup ", ":", "\\pm ", "\\lor ", " ",
        ]);
        let wrap = prop::sample::select(vec![
            ("", ""),
            ("(", ")"),
            ("[", "]"),
            ("\\{", "\\}"),
            ("\\sin(", ")"),
            ("|", "|"),
            ("\\sqrt{", "}"),
        ]);
        prop::collection::vec((wrap, atom, join), 1..8).prop_map(|parts| {
            let mut text = String::new();
            for ((open, close), atom, join) in parts {
                text = format!("{open}{text}{atom}{close}{join}");
            }
            text + "2"
        })
    }

    proptest! {
        /// What a verdict costs is bounded, and a smaller budget withholds it instead of changing it.
        #[test]
        fn a_small_budget_gives_the_same_verdict_or_none(
            gold in answer(), pred in answer(), steps in 0_u64..3_000, evaluated: bool,
        ) {
            let (Ok(gold), Ok(pred)) = (parse(&gold), parse(&pred)) else { return Ok(()) };
            let rules = Rules { evaluated, ..RULES };
            let hour = Duration::from_hours(1);
            let full = compare(&gold, &pred, rules, u64::MAX, hour);
            if let Ok(same) = compare(&gold, &pred, rules, steps, hour) {
                prop_assert_eq!(Ok(same), full);
            }
        }

        #[test]
        fn an_answer_equals_itself(text in answer()) {
            let Ok(value) = parse(&text) else { return Ok(()) };
            let same = compare(&value, &value, RULES, u64::MAX, Duration::from_hours(1));
            prop_assert_eq!(same, Ok(Same::Yes));
        }
    }
}
