//! Statements joined by `and` and `or`: `p ∧ q`, `x < 1 or x > 2`.

use super::budget::Spent;
use super::collection::any_order;
use super::real_set::{RealSet, read_all};
use super::{Comparison, Same};
use crate::expr::{Expr, SetOperator};

pub(super) fn compare_logic(
    comparison: &Comparison<'_>,
    gold: &Expr,
    pred: &Expr,
) -> Result<Same, Spent> {
    match (gold, pred) {
        (Expr::Logic(p, a), Expr::Logic(q, b)) => {
            if p != q {
                return Ok(Same::No);
            }
            any_order(comparison, a, b)?.or_else(|| as_sets(comparison, gold, pred))
        }
        // Conditions in a row, without a word that says how they belong together.
        (Expr::Logic(_, a), Expr::List(b)) | (Expr::List(a), Expr::Logic(_, b))
            if a.iter().chain(b).all(super::is_relation) =>
        {
            any_order(comparison, a, b)
        }
        (Expr::Logic(..), other) if other.is_collection() || super::is_relation(other) => {
            as_sets(comparison, gold, pred)
        }
        (other, Expr::Logic(..)) if super::is_relation(other) => as_sets(comparison, gold, pred),
        (other, Expr::Logic(..)) if other.is_collection() && comparison.rules.relation_for_set => {
            as_sets(comparison, gold, pred)
        }
        _ => Ok(Same::No),
    }
}

fn as_sets(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    let budget = comparison.budget;
    // Several intervals in a row are their union.
    let read = |expr: &Expr| match expr {
        Expr::List(items) => read_all(SetOperator::Union, items, budget),
        other => RealSet::read(other, budget),
    };
    Ok(match (read(gold)?, read(pred)?) {
        (Some(a), Some(b)) => Same::of(a.equals(&b, budget)?),
        _ => Same::No,
    })
}
