//! Equality of single values: exact, proven, or measured at several points.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero, pow};

use super::budget::Spent;
use super::exact::{bits, divides_by_zero, exact};
use super::fingerprint::proves_equal;
use super::float::{Closeness, Sample, Value, compare};
use super::real_set::infinity;
use super::{Comparison, Same};
use crate::expr::{Expr, Written};

/// Integers above this many bits hide small differences inside roots: `\sqrt{10^{20} + 1}`.
const WIDE: u64 = 40;
/// Points at which expressions that could not be proven equal are evaluated.
const SAMPLES: u64 = 6;

pub(crate) fn compare_scalars(
    comparison: &Comparison<'_>,
    gold: &Expr,
    pred: &Expr,
) -> Result<Same, Spent> {
    if infinity(gold).is_some() || infinity(pred).is_some() {
        return Ok(Same::of(infinity(gold) == infinity(pred)));
    }
    match (gold, pred) {
        (Expr::Percent(a), Expr::Percent(b)) => return values(comparison, a, b),
        // `28%` may be answered by 28 and by 0.28.
        (Expr::Percent(inner), other) | (other, Expr::Percent(inner)) => {
            let is_number = matches!(other, Expr::Number(value, written)
                if *written == Written::Decimal || value.is_integer());
            if is_number && values(comparison, inner, other)? == Same::Yes {
                return Ok(Same::Yes);
            }
        }
        _ => {}
    }
    values(comparison, gold, pred)
}

fn values(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    let budget = comparison.budget;
    let decimals = comparison.rules.decimals;
    let has_decimal = is_decimal(gold) || is_decimal(pred);
    let (a, b) = (exact(gold, budget)?, exact(pred, budget)?);
    if let (Some(a), Some(b)) = (&a, &b) {
        return Ok(Same::of(a == b || has_decimal && rounds_equal(a, b, decimals)));
    }
    if a.is_some() && b.is_none() && divides_by_zero(pred, budget)? {
        return Ok(Same::No);
    }
    if proves_equal(gold, pred, budget)? {
        return Ok(Same::Yes);
    }
    if has_decimal && !gold.has_names() && !pred.has_names() {
        let sample = Sample { seed: 1, signed: false, bound: None };
        let (a, b) = (sample.evaluate(gold, budget)?, sample.evaluate(pred, budget)?);
        return Ok(match (a, b) {
            (Some(a), Some(b)) => Same::of(rounds_near(a, b, decimals)),
            _ => Same::Unknown,
        });
    }
    measured(comparison, gold, pred)
}

/// A bare decimal, perhaps a percentage: the only thing that may be a rounding.
fn is_decimal(expr: &Expr) -> bool {
    match expr {
        Expr::Number(_, written) => *written == Written::Decimal,
        Expr::Percent(inner) | Expr::Degrees(inner) | Expr::Quantity(inner, _) => is_decimal(inner),
        Expr::Product(items) => match items.as_slice() {
            [sign, value] if *sign == Expr::integer(-1) => is_decimal(value),
            _ => false,
        },
        _ => false,
    }
}

fn rounds_equal(a: &BigRational, b: &BigRational, decimals: u32) -> bool {
    let scale = BigRational::from_integer(pow(BigInt::from(10), decimals.min(50) as usize));
    if (a * &scale).round() != (b * &scale).round() {
        return false;
    }
    // Below the last place that counts everything rounds to 0; a thousandth must still agree.
    let larger = if a.abs() > b.abs() { a.abs() } else { b.abs() };
    let is_small = &larger * BigInt::from(1_000) < BigRational::one();
    !is_small || larger.is_zero() || (a - b).abs() * BigInt::from(1_000) <= larger
}

fn rounds_near(a: Value, b: Value, decimals: u32) -> bool {
    let unit = 0.1_f64.powi(decimals.min(12).cast_signed());
    let distance = (a.re - b.re).hypot(a.im - b.im);
    let size = a.re.hypot(a.im).max(b.re.hypot(b.im));
    distance <= 0.5 * unit + 1e-14 * size && (size >= 1e-3 || distance <= 1e-3 * size)
}

/// Agreement at several points, with an eye on rounding; disagreement at one decides.
fn measured(comparison: &Comparison<'_>, gold: &Expr, pred: &Expr) -> Result<Same, Spent> {
    let budget = comparison.budget;
    let mut agreements = 0;
    let mut is_unclear = false;
    let count = if gold.has_names() || pred.has_names() { SAMPLES } else { 1 };
    for seed in 0..count {
        let sample = Sample { seed: 0x5eed + seed, signed: seed % 2 == 1, bound: None };
        let (a, b) = (sample.evaluate(gold, budget)?, sample.evaluate(pred, budget)?);
        match (a, b) {
            (Some(a), Some(b)) => match compare(a, b) {
                Closeness::Apart => return Ok(Same::No),
                Closeness::Same => agreements += 1,
                Closeness::Unclear => is_unclear = true,
            },
            // Defined on one side only: not the same function, unless it was an overflow.
            _ => is_unclear |= count == 1,
        }
    }
    let needed = if count == 1 { 1 } else { 3 };
    let is_wide = |expr: &Expr| {
        expr.any(&|node| {
            matches!(node, Expr::Number(value, written)
            if *written != Written::Decimal && bits(value) > WIDE)
        })
    };
    if is_unclear || agreements < needed || is_wide(gold) || is_wide(pred) {
        return Ok(Same::Unknown);
    }
    Ok(Same::Yes)
}
