//! Tuples, lists, sets and intervals.
//!
//! | gold \ prediction | tuple | list | set | interval |
//! |---|---|---|---|---|
//! | tuple | in order | in the order written | never (strict) | as an open interval |
//! | list | any order | any order, repeats ignored | any order | as a set of reals |
//! | set | never (strict) | any order | any order, repeats ignored | as a set of reals |
//! | interval | as an open interval | as a set of reals | as a set of reals | ends and brackets |
//!
//! `(1, 3)` is a pair and an open interval at once: what it is compared with decides.

use super::budget::Spent;
use super::real_set::{RealSet, read_all};
use super::{Comparison, Same, is_assignment, is_relation, last_term};
use crate::expr::{Expr, SetOperator};

pub(crate) fn compare_collections(
    comparison: &Comparison<'_>,
    gold: &Expr,
    pred: &Expr,
) -> Result<Same, Spent> {
    match (gold, pred) {
        (
            Expr::Interval { low: a, high: b, low_open: p, high_open: q },
            Expr::Interval { low: c, high: d, low_open: r, high_open: s },
        ) => {
            if (p, q) != (r, s) {
                return Ok(Same::No);
            }
            Ok(comparison.same(a, c)?.and(comparison.same(b, d)?))
        }
        (Expr::Tuple(_), Expr::Set(_)) | (Expr::Set(_), Expr::Tuple(_))
            if comparison.rules.strict =>
        {
            Ok(Same::No)
        }
        (Expr::Tuple(a), Expr::Tuple(b) | Expr::List(b) | Expr::Set(b)) => {
            in_order(comparison, a, b)
        }
        (Expr::List(a), Expr::Tuple(b)) if a.iter().all(is_assignment) => {
            in_order(comparison, a, b)
        }
        _ if is_real_set(gold) || is_real_set(pred) => real_sets(comparison, gold, pred),
        (Expr::Tuple(_), _) | (_, Expr::Tuple(_)) if !(is_bag(gold) || is_bag(pred)) => {
            Ok(Same::No)
        }
        _ => {
            let same = any_order(comparison, &elements(gold), &elements(pred))?;
            same.or_else(|| conditions(comparison, gold, pred))
        }
    }
}

fn is_bag(expr: &Expr) -> bool {
    matches!(expr, Expr::List(_) | Expr::Set(_))
}

fn is_real_set(expr: &Expr) -> bool {
    matches!(expr, Expr::Interval { .. } | Expr::SetOperation(..) | Expr::NamedSet(_))
}

/// Elements with `±` opened and the values of later equations in place: `x = 1, x = 2`.
fn elements(expr: &Expr) -> Vec<Expr> {
    match expr {
        Expr::List(items) | Expr::Set(items) => items.iter().flat_map(opened).collect(),
        Expr::Tuple(items) => items.clone(),
        other => other.signs(),
    }
}

/// `x = 1 ± 2` and `x = {1, 2}` stand for several elements.
fn opened(item: &Expr) -> Vec<Expr> {
    if is_assignment(item) {
        let value = last_term(item);
        if let Expr::List(items) | Expr::Set(items) = value {
            return items.clone();
        }
    }
    item.signs()
}

fn in_order(comparison: &Comparison<'_>, a: &[Expr], b: &[Expr]) -> Result<Same, Spent> {
    if a.len() != b.len() {
        return Ok(Same::No);
    }
    let mut same = Same::Yes;
    for (x, y) in a.iter().zip(b) {
        same = same.and(comparison.same(x, y)?);
        if same == Same::No {
            break;
        }
    }
    Ok(same)
}

/// Each element of either side has an equal on the other.
pub(super) fn any_order(
    comparison: &Comparison<'_>,
    a: &[Expr],
    b: &[Expr],
) -> Result<Same, Spent> {
    if a.is_empty() || b.is_empty() {
        return Ok(Same::of(a.is_empty() && b.is_empty()));
    }
    let mut found_in_b = vec![Same::No; b.len()];
    let mut same = Same::Yes;
    for x in a {
        let mut best = Same::No;
        for (y, found) in b.iter().zip(&mut found_in_b) {
            let this = comparison.same(x, y)?;
            best = stronger(best, this);
            *found = stronger(*found, this);
        }
        same = same.and(best);
        if same == Same::No {
            return Ok(Same::No);
        }
    }
    Ok(found_in_b.into_iter().fold(same, Same::and))
}

fn stronger(a: Same, b: Same) -> Same {
    match (a, b) {
        (Same::Yes, _) | (_, Same::Yes) => Same::Yes,
        (Same::Unknown, _) | (_, Same::Unknown) => Same::Unknown,
        _ => Same::No,
    }
}

fn real_sets(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    if matches!(gold, Expr::List(items) if items.iter().all(is_relation)) {
        return conditions(comparison, gold, pred);
    }
    let budget = comparison.budget;
    let is_interval =
        |item: &Expr| is_real_set(item) || matches!(item, Expr::Tuple(ends) if ends.len() == 2);
    let read = |expr: &Expr| match expr {
        // Several intervals in a row are their union; several numbers are a set.
        Expr::List(items) if items.iter().all(is_interval) => {
            read_all(SetOperator::Union, items, budget)
        }
        Expr::List(items) => RealSet::read(&Expr::Set(items.clone()), budget),
        other => RealSet::read(other, budget),
    };
    if let (Some(a), Some(b)) = (read(gold)?, read(pred)?) {
        return Ok(Same::of(a.equals(&b, comparison.budget)?));
    }
    if matches!(gold, Expr::List(_)) || matches!(pred, Expr::List(_)) {
        let (a, b) = (elements(gold), elements(pred));
        if a.len() > 1 || b.len() > 1 {
            return any_order(comparison, &a, &b);
        }
    }
    structural(comparison, gold, pred)
}

/// Sets with unknown ends, compared piece by piece.
fn structural(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    match (gold, pred) {
        (Expr::SetOperation(p, a, b), Expr::SetOperation(q, c, d)) if p == q => {
            let straight = comparison.same(a, c)?.and(comparison.same(b, d)?);
            if *p == SetOperator::Difference {
                return Ok(straight);
            }
            straight.or_else(|| Ok(comparison.same(a, d)?.and(comparison.same(b, c)?)))
        }
        (Expr::NamedSet(a), Expr::NamedSet(b)) => Ok(Same::of(a == b)),
        // An interval is not a number, a matrix or a word.
        (set, other) | (other, set) if is_real_set(set) && !other.is_collection() => Ok(Same::No),
        _ => Ok(Same::Unknown),
    }
}

/// `x < 1 or x > 2` against a union: the conditions together, either way.
fn conditions(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    let Expr::List(items) = gold else { return Ok(Same::No) };
    if !items.iter().all(is_relation) {
        return Ok(Same::No);
    }
    let Some(target) = RealSet::read(pred, comparison.budget)? else { return Ok(Same::No) };
    for operator in [SetOperator::Union, SetOperator::Intersection] {
        if let Some(set) = read_all(operator, items, comparison.budget)?
            && set.equals(&target, comparison.budget)?
        {
            return Ok(Same::Yes);
        }
    }
    Ok(Same::No)
}
