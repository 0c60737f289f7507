//! Whether an answer is worked out, or leaves its arithmetic to the reader.
//!
//! A policy that is paid for `56 + 52 + 72 + 48` where the answer is 228 learns to copy numbers out
//! of the question. So, where the option asks for it:
//!
//! - a number is answered by a number ([`is_number`]): digits, with a sign, a point, a fraction
//!   bar, a power of ten, a percent sign, a unit;
//! - where the gold answer leaves nothing to carry out ([`has_work`]), neither may the prediction:
//!   `\sqrt{4^2+5^2}` is no answer to `\sqrt{41}`.
//!
//! A fraction need not be reduced, `2/4` answers `1/2`; but a fraction that is an integer, `456/2`,
//! is a division.

use num_traits::Zero;

use super::budget::{Budget, Spent};
use super::exact::exact;
use super::quantity::split_glued;
use super::{Comparison, is_equation};
use crate::expr::{Constant, Expr, Function, Written};
use crate::read::is_only_symbols;

impl Comparison<'_> {
    /// Whether `pred` is worked out as far as `gold` is.
    pub(super) fn is_worked_out(&self, gold: &Expr, pred: &Expr) -> Result<bool, Spent> {
        if is_number(gold) {
            // Anything else is no number, whatever its value. `439m` may be one with its unit.
            return Ok(is_number(pred) || split_glued(pred).is_some() || !is_scalar(pred));
        }
        let functions = gold.any(&|node| matches!(node, Expr::Function(..)));
        Ok(has_work(gold, true, self.budget)? || !has_work(pred, functions, self.budget)?)
    }
}

/// What is compared as one value, not by its elements.
fn is_scalar(expr: &Expr) -> bool {
    !(expr.is_collection() || matches!(expr, Expr::Relation(..) | Expr::Logic(..)))
}

/// A number written out, with nothing left to carry out.
pub(crate) fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Number(_, written) => *written != Written::Worked,
        Expr::Percent(inner) | Expr::Degrees(inner) | Expr::Quantity(inner, _) => is_number(inner),
        Expr::Power(..) => is_power_of_ten(expr),
        // `-10^5`, `3.8 · 10^5`.
        Expr::Product(factors) => match factors.as_slice() {
            [Expr::Number(_, Written::Integer | Written::Decimal), power] => is_power_of_ten(power),
            _ => false,
        },
        Expr::Ratio(items) => match items.as_slice() {
            [Expr::Number(a, Written::Integer), Expr::Number(b, Written::Integer)] => {
                !b.is_zero() && !(a / b).is_integer()
            }
            _ => false,
        },
        _ => false,
    }
}

fn is_power_of_ten(expr: &Expr) -> bool {
    matches!(expr, Expr::Power(base, exponent)
        if **base == Expr::integer(10) && matches!(&**exponent, Expr::Number(_, Written::Integer)))
}

/// Whether arithmetic on numbers is left to carry out anywhere in it. The value of a function
/// counts as work unless the gold answer has functions too.
pub(crate) fn has_work(expr: &Expr, functions: bool, budget: &Budget) -> Result<bool, Spent> {
    budget.spend(1)?;
    let is_work_itself = match expr {
        Expr::Number(_, written) => *written == Written::Worked,
        Expr::Sum(items) => count_matrices(items) > 1 || count_rational(items, budget)? > 1,
        Expr::Product(items) => count_matrices(items) > 1 || product_has_work(items),
        Expr::Power(base, exponent) => power_has_work(expr, base, exponent, budget)?,
        Expr::Function(function, items) => {
            !items.iter().any(Expr::has_names)
                && (!functions || is_discrete(*function) || exact(expr, budget)?.is_some())
        }
        // Of `x = 2 + 3 = 5` only the last part is the answer.
        Expr::Relation(terms, _) if is_equation(expr) => {
            if let [first, .., last] = terms.as_slice()
                && (is_only_symbols(first) || !first.has_names())
            {
                return has_work(last, functions, budget);
            }
            false
        }
        _ => false,
    };
    if is_work_itself {
        return Ok(true);
    }
    for child in expr.children() {
        if has_work(child, functions, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Functions whose value at numbers is a number that can be written out.
fn is_discrete(function: Function) -> bool {
    matches!(
        function,
        Function::Floor
            | Function::Ceil
            | Function::Factorial
            | Function::Binomial
            | Function::Gcd
            | Function::Lcm
            | Function::Max
            | Function::Min
            | Function::Determinant
    )
}

fn count_matrices(items: &[Expr]) -> usize {
    items.iter().filter(|item| matches!(item, Expr::Matrix(_))).count()
}

fn count_rational(items: &[Expr], budget: &Budget) -> Result<usize, Spent> {
    let mut count = 0;
    for item in items {
        count += usize::from(!item.has_names() && exact(item, budget)?.is_some());
    }
    Ok(count)
}

/// More than one number above the bar or below it, or one that the other divides.
fn product_has_work(factors: &[Expr]) -> bool {
    let number = |expr: &Expr| match expr {
        // A minus sign is read as a factor.
        Expr::Number(..) if *expr == Expr::integer(-1) => None,
        Expr::Number(value, _) => Some(value.clone()),
        _ => None,
    };
    let divisor = |expr: &Expr| match expr {
        Expr::Power(base, exponent) if **exponent == Expr::integer(-1) => number(base),
        _ => None,
    };
    let above: Vec<_> = factors.iter().filter_map(number).collect();
    let below: Vec<_> = factors.iter().filter_map(divisor).collect();
    match (above.as_slice(), below.as_slice()) {
        ([a], [b]) => b.is_zero() || (a / b).is_integer(),
        _ => above.len() > 1 || below.len() > 1,
    }
}

/// A power that comes out, or one that could be multiplied out: `(1+\sqrt2)^2`, `i^2`.
fn power_has_work(
    expr: &Expr,
    base: &Expr,
    exponent: &Expr,
    budget: &Budget,
) -> Result<bool, Spent> {
    if *exponent == Expr::integer(-1) || is_power_of_ten(expr) {
        return Ok(false);
    }
    if base.has_names() || exponent.has_names() {
        return Ok(false);
    }
    if exact(expr, budget)?.is_some() {
        return Ok(true);
    }
    let is_atom = matches!(base, Expr::Constant(Constant::Pi | Constant::Euler));
    let is_whole = matches!(exponent, Expr::Number(_, Written::Integer));
    Ok(is_whole && !is_atom)
}
