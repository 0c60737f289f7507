//! Equations and inequalities.
//!
//! Two equations say the same when their differences are multiples of each other, two
//! inequalities when the factor is positive (or negative with the sign turned). A relation in one
//! variable can also be compared as the set it describes.

use super::budget::Spent;
use super::fingerprint::proves_proportional;
use super::float::Sample;
use super::real_set::RealSet;
use super::{Comparison, Same, is_assignment, is_equation, is_relation};
use crate::expr::{Comparator, Expr};

pub(crate) fn compare_relations(
    comparison: &Comparison<'_>,
    gold: &Expr,
    pred: &Expr,
) -> Result<Same, Spent> {
    if !is_relation(gold) || !is_relation(pred) {
        let may_describe = pred.is_collection() || comparison.rules.relation_for_set;
        return if may_describe { as_sets(comparison, gold, pred) } else { Ok(Same::No) };
    }
    if is_equation(gold) != is_equation(pred) {
        return Ok(Same::No);
    }
    if is_assignment(gold) && is_assignment(pred) {
        return assignments(comparison, gold, pred);
    }
    let (Expr::Relation(a, p), Expr::Relation(b, q)) = (gold, pred) else {
        return Ok(Same::No);
    };
    let same = chains(comparison, (a, p), (b, q))?;
    if same == Same::Yes || is_equation(gold) {
        return Ok(same);
    }
    let (Some(x), Some(y)) =
        (RealSet::read(gold, comparison.budget)?, RealSet::read(pred, comparison.budget)?)
    else {
        return Ok(same);
    };
    Ok(Same::of(x.variable == y.variable && x.equals(&y, comparison.budget)?))
}

fn as_sets(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    let (Some(a), Some(b)) =
        (RealSet::read(gold, comparison.budget)?, RealSet::read(pred, comparison.budget)?)
    else {
        // A scalar is no inequality; a set of reals that could not be read may be one.
        let is_readable = gold.is_collection() || pred.is_collection();
        return Ok(if is_readable { Same::Unknown } else { Same::No });
    };
    Ok(Same::of(a.equals(&b, comparison.budget)?))
}

fn assignments(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    let (Expr::Relation(a, _), Expr::Relation(b, _)) = (gold, pred) else {
        return Ok(Same::No);
    };
    let (last_a, last_b) = (&a[a.len() - 1], &b[b.len() - 1]);
    let names = comparison.same(&a[0], &b[0])?;
    let values = comparison.same(last_a, last_b)?;
    if names.and(values) == Same::Yes {
        return Ok(Same::Yes);
    }
    if last_a.is_collection() || last_b.is_collection() || last_a.has_signs() {
        return Ok(names.and(values));
    }
    difference(comparison, (&a[0], Comparator::Equal, last_a), (&b[0], Comparator::Equal, last_b))
}

type Chain<'a> = (&'a [Expr], &'a [Comparator]);

/// Link by link, forwards or backwards.
fn chains(comparison: &Comparison<'_>, gold: Chain<'_>, pred: Chain<'_>) -> Result<Same, Spent> {
    if gold.1.len() != pred.1.len() {
        return Ok(Same::No);
    }
    let reversed_terms: Vec<Expr> = pred.0.iter().rev().cloned().collect();
    let reversed: Vec<Comparator> = pred.1.iter().rev().map(|c| c.flipped()).collect();
    let forwards = links(comparison, gold, pred)?;
    forwards.or_else(|| links(comparison, gold, (&reversed_terms, &reversed)))
}

fn links(comparison: &Comparison<'_>, gold: Chain<'_>, pred: Chain<'_>) -> Result<Same, Spent> {
    let mut same = Same::Yes;
    for i in 0..gold.1.len() {
        let left = (&gold.0[i], gold.1[i], &gold.0[i + 1]);
        let right = (&pred.0[i], pred.1[i], &pred.0[i + 1]);
        same = same.and(difference(comparison, left, right)?);
        if same == Same::No {
            break;
        }
    }
    Ok(same)
}

type Link<'a> = (&'a Expr, Comparator, &'a Expr);

fn difference(comparison: &Comparison<'_>, gold: Link<'_>, pred: Link<'_>) -> Result<Same, Spent> {
    let (a, b) =
        (gold.0.clone().difference(gold.2.clone()), pred.0.clone().difference(pred.2.clone()));
    let is_order = !matches!(gold.1, Comparator::Equal | Comparator::In | Comparator::NotEqual);
    let sign = factor_sign(comparison, &a, &b)?;
    let Some(sign) = sign else {
        return Ok(if a.symbols() == b.symbols() { unproven(&a, &b) } else { Same::No });
    };
    let turned = if is_order && sign < 0.0 { pred.1.flipped() } else { pred.1 };
    Ok(Same::of(turned == gold.1))
}

/// Without a common factor polynomials differ; other functions may still have the same zeros.
fn unproven(a: &Expr, b: &Expr) -> Same {
    let is_polynomial = |expr: &Expr| {
        !expr.any(&|node| {
            matches!(node, Expr::Function(..))
                || matches!(node, Expr::Power(_, e)
            if !matches!(&**e, Expr::Number(value, _) if value.is_integer()))
        })
    };
    if is_polynomial(a) && is_polynomial(b) { Same::No } else { Same::Unknown }
}

/// The sign of the constant c in a = c·b, where there is one.
fn factor_sign(comparison: &Comparison<'_>, a: &Expr, b: &Expr) -> Result<Option<f64>, Spent> {
    let budget = comparison.budget;
    let mut ratios = Vec::new();
    for seed in 0..4 {
        let sample = Sample { seed: 0xfac7 + seed, signed: seed % 2 == 1, bound: None };
        if let (Some(x), Some(y)) = (sample.evaluate(a, budget)?, sample.evaluate(b, budget)?) {
            let is_clear =
                x.re.abs() > 1e-6 * x.error.max(1e-6) && y.re.abs() > 1e-6 * y.error.max(1e-6);
            if is_clear && x.im.abs() <= 4.0 * x.error && y.im.abs() <= 4.0 * y.error {
                ratios.push(x.re / y.re);
            }
        }
    }
    let sign = ratios.first().map_or(1.0, |ratio| ratio.signum());
    if proves_proportional(a, b, budget)? {
        return Ok(Some(sign));
    }
    let is_constant = ratios.len() >= 3
        && ratios.iter().all(|ratio| (ratio - ratios[0]).abs() <= 1e-9 * ratios[0].abs());
    Ok(is_constant.then_some(sign))
}
