//! Values with units. Other units are other values; a missing unit is none.

use super::budget::Spent;
use super::scalar::compare_scalars;
use super::{Comparison, Same};
use crate::expr::Expr;
use crate::read::Unit;

impl Comparison<'_> {
    /// `None` where neither side has a unit.
    pub(super) fn quantities(&self, gold: &Expr, pred: &Expr) -> Result<Option<Same>, Spent> {
        let is_quantity = |expr: &Expr| matches!(expr, Expr::Quantity(..));
        if !is_quantity(gold) && !is_quantity(pred) {
            return Ok(None);
        }
        let (gold, pred) = (glued_unit(gold, pred), glued_unit(pred, gold));
        let (gold, gold_unit) = without_unit(&gold);
        let (pred, pred_unit) = without_unit(&pred);
        if let (Some(a), Some(b)) = (gold_unit, pred_unit)
            && a.contradicts(&b)
        {
            return Ok(Some(Same::No));
        }
        self.same(gold, pred).map(Some)
    }

    /// `439m` for 439 is the number with a unit. The other way round nobody can say whether the
    /// gold answer's letter is a unit or a name.
    pub(super) fn glued_values(&self, gold: &Expr, pred: &Expr) -> Result<Option<Same>, Spent> {
        let (number, glued, verdict) = match (gold, pred) {
            (Expr::Number(..), Expr::Product(_)) => (gold, pred, Same::Yes),
            (Expr::Product(_), Expr::Number(..)) => (pred, gold, Same::Unknown),
            _ => return Ok(None),
        };
        let Some((value, _)) = split_glued(glued) else { return Ok(None) };
        let same = compare_scalars(self, number, value)?;
        Ok((same == Same::Yes).then_some(verdict))
    }
}

fn without_unit(expr: &Expr) -> (&Expr, Option<Unit>) {
    match expr {
        Expr::Quantity(inner, unit) => (inner, Some(unit.clone())),
        Expr::Degrees(inner) => (inner, Some(Unit::degree())),
        other => (other, None),
    }
}

/// `439m`: a number and a letter that may be its unit.
pub(super) fn split_glued(expr: &Expr) -> Option<(&Expr, Unit)> {
    let Expr::Product(factors) = expr else { return None };
    match factors.as_slice() {
        [value @ Expr::Number(..), Expr::Symbol(letter)] => {
            Unit::of_letter(letter).map(|unit| (value, unit))
        }
        _ => None,
    }
}

/// Beside a value with a unit the letter of `439m` is a unit too, not a name.
fn glued_unit(expr: &Expr, other: &Expr) -> Expr {
    match split_glued(expr) {
        Some((value, unit)) if matches!(other, Expr::Quantity(..)) => {
            Expr::Quantity(Box::new(value.clone()), unit)
        }
        _ => expr.clone(),
    }
}
