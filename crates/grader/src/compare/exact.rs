//! The exact rational value of an expression, where it has one and it is of bounded size.
//!
//! `9^{9^9}` has more digits than memory: a power is computed only when its result fits
//! [`MOST_BITS`]. Irrational parts (roots that do not come out, π, logarithms) give `None`.

use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::budget::{Budget, Spent};
use crate::expr::{Expr, Function};

/// Largest numerator or denominator that is computed.
const MOST_BITS: u64 = 16_384;
/// Largest factorial argument.
const MOST_FACTORIAL: u32 = 1_000;

pub(crate) fn exact(expr: &Expr, budget: &Budget) -> Result<Option<BigRational>, Spent> {
    budget.spend(1)?;
    Ok(match expr {
        Expr::Number(value, _) => Some(value.clone()),
        Expr::Sum(items) => fold(items, budget, BigRational::zero(), |a, b| a + b)?,
        Expr::Product(items) => fold(items, budget, BigRational::one(), |a, b| a * b)?,
        Expr::Percent(inner) => exact(inner, budget)?.map(|value| value / BigInt::from(100)),
        Expr::Degrees(inner) | Expr::Quantity(inner, _) => exact(inner, budget)?,
        Expr::Power(base, exponent) => match (exact(base, budget)?, exact(exponent, budget)?) {
            (Some(base), Some(exponent)) => power(&base, &exponent, budget)?,
            _ => None,
        },
        Expr::Ratio(items) if items.len() == 2 => {
            match (exact(&items[0], budget)?, exact(&items[1], budget)?) {
                (Some(a), Some(b)) if !b.is_zero() => Some(a / b),
                _ => None,
            }
        }
        Expr::Function(function, items) => {
            let mut values = Vec::with_capacity(items.len());
            for item in items {
                match exact(item, budget)? {
                    Some(value) => values.push(value),
                    None => return Ok(None),
                }
            }
            apply(*function, &values, budget)?
        }
        _ => None,
    })
}

/// Whether it divides by zero somewhere, and so has no value at all.
pub(crate) fn divides_by_zero(expr: &Expr, budget: &Budget) -> Result<bool, Spent> {
    budget.spend(1)?;
    if let Expr::Power(base, exponent) = expr
        && exact(exponent, budget)?.is_some_and(|exponent| exponent.is_negative())
        && exact(base, budget)?.is_some_and(|base| base.is_zero())
    {
        return Ok(true);
    }
    for child in expr.children() {
        if divides_by_zero(child, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn fold(
    items: &[Expr],
    budget: &Budget,
    start: BigRational,
    combine: impl Fn(BigRational, BigRational) -> BigRational,
) -> Result<Option<BigRational>, Spent> {
    let mut total = start;
    for item in items {
        let Some(value) = exact(item, budget)? else { return Ok(None) };
        total = combine(total, value);
        budget.spend(bits(&total) / 64)?;
        if bits(&total) > MOST_BITS {
            return Ok(None);
        }
    }
    Ok(Some(total))
}

pub(crate) fn bits(value: &BigRational) -> u64 {
    value.numer().bits().max(value.denom().bits())
}

fn power(
    base: &BigRational,
    exponent: &BigRational,
    budget: &Budget,
) -> Result<Option<BigRational>, Spent> {
    if base.is_zero() {
        return Ok(exponent.is_positive().then(BigRational::zero));
    }
    let (Some(numerator), Some(denominator)) =
        (exponent.numer().to_i64(), exponent.denom().to_u32())
    else {
        return Ok(base.is_one().then(BigRational::one));
    };
    let Some(rooted) = root(base, denominator) else { return Ok(None) };
    let times = numerator.unsigned_abs();
    if bits(&rooted).saturating_mul(times) > MOST_BITS && !rooted.abs().is_one() {
        return Ok(None);
    }
    budget.spend(times.min(MOST_BITS) / 16)?;
    let raised = if rooted.abs().is_one() {
        if times.is_multiple_of(2) { BigRational::one() } else { rooted }
    } else {
        num_traits::pow(rooted, usize::try_from(times).unwrap_or(0))
    };
    Ok(Some(if numerator < 0 { raised.recip() } else { raised }))
}

/// The real `degree`-th root, where it is rational.
fn root(value: &BigRational, degree: u32) -> Option<BigRational> {
    if degree == 1 {
        return Some(value.clone());
    }
    if degree > 64 || (value.is_negative() && degree.is_even()) {
        return None;
    }
    // The principal value of an odd root of a negative number is complex; people mean the real one.
    let rooted = |part: &BigUint| {
        let root = part.nth_root(degree);
        (num_traits::pow(root.clone(), degree as usize) == *part).then_some(root)
    };
    let numerator = rooted(value.numer().magnitude())?;
    let denominator = rooted(value.denom().magnitude())?;
    let sign = if value.is_negative() { Sign::Minus } else { Sign::Plus };
    Some(BigRational::new(
        BigInt::from_biguint(sign, numerator),
        BigInt::from_biguint(Sign::Plus, denominator),
    ))
}

fn apply(
    function: Function,
    values: &[BigRational],
    budget: &Budget,
) -> Result<Option<BigRational>, Spent> {
    Ok(match (function, values) {
        (Function::Abs, [x]) => Some(x.abs()),
        (Function::Floor, [x]) => Some(x.floor()),
        (Function::Ceil, [x]) => Some(x.ceil()),
        (Function::Factorial, [n]) => match small(n) {
            Some(n) => {
                budget.spend(u64::from(n))?;
                let product = (2..=n).fold(BigInt::one(), |product, k| product * BigInt::from(k));
                Some(BigRational::from_integer(product))
            }
            None => None,
        },
        (Function::Binomial, [n, k]) => match (small(n), small(k)) {
            (Some(n), Some(k)) if k <= n => {
                budget.spend(u64::from(n))?;
                let mut result = BigInt::one();
                for i in 0..k.min(n - k) {
                    result = result * BigInt::from(n - i) / BigInt::from(i + 1);
                }
                Some(BigRational::from_integer(result))
            }
            _ => None,
        },
        (Function::Gcd, [a, b]) if a.is_integer() && b.is_integer() => {
            Some(BigRational::from_integer(a.numer().gcd(b.numer())))
        }
        (Function::Lcm, [a, b]) if a.is_integer() && b.is_integer() => {
            Some(BigRational::from_integer(a.numer().lcm(b.numer())))
        }
        (Function::Max, values) => values.iter().max().cloned(),
        (Function::Min, values) => values.iter().min().cloned(),
        (Function::Real, [x]) => Some(x.clone()),
        _ => None,
    })
}

fn small(value: &BigRational) -> Option<u32> {
    (value.is_integer()).then(|| value.numer().to_u32()).flatten().filter(|n| *n <= MOST_FACTORIAL)
}
