//! Proof of equality by evaluation in a finite field.
//!
//! A rational expression is evaluated at random points modulo the prime 2⁶¹ − 1. Two expressions
//! that are the same rational function agree at every point; two different ones of degree d agree
//! at a random point with probability below d / 2⁶¹ (Schwartz–Zippel). π, e and every part that is
//! not rational (a root, a logarithm, `f(x)`) count as a random number of their own, the same for
//! the same arguments. So agreement proves equality, while disagreement proves nothing where such
//! parts occur (√2·√2): then `float.rs` decides. The cost is one visit per node: nothing expands.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::budget::{Budget, Spent};
use super::exact::exact;
use crate::expr::{Constant, Expr, Written};

const PRIME: u64 = (1 << 61) - 1;

/// A fraction of residues; kept apart so that an equation's numerator can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Residue {
    pub(crate) numerator: u64,
    pub(crate) denominator: u64,
}

fn multiply(a: u64, b: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) % u128::from(PRIME)).unwrap_or(0)
}

fn add(a: u64, b: u64) -> u64 {
    (a + b) % PRIME
}

fn raise(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    result
}

impl Residue {
    fn whole(numerator: u64) -> Self {
        Self { numerator, denominator: 1 }
    }

    /// One residue for the fraction; `None` for a division by zero.
    pub(crate) fn value(self) -> Option<u64> {
        (self.denominator != 0)
            .then(|| multiply(self.numerator, raise(self.denominator, PRIME - 2)))
    }
}

/// One random point: the seed decides what every symbol stands for.
pub(crate) struct Point {
    pub(crate) seed: u64,
}

fn hashed(seed: u64, key: impl Hash) -> u64 {
    // `DefaultHasher::new` is keyed with constants: the same in every run.
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    key.hash(&mut hasher);
    hasher.finish() % (PRIME - 2) + 1
}

impl Point {
    /// `None` where the expression has no scalar value (sets, words, division by zero).
    pub(crate) fn evaluate(&self, expr: &Expr, budget: &Budget) -> Result<Option<Residue>, Spent> {
        budget.spend(1)?;
        Ok(match expr {
            Expr::Number(value, _) => Some(Residue {
                numerator: reduce(value.numer()),
                denominator: reduce(value.denom()),
            }),
            Expr::Symbol(name) => Some(Residue::whole(hashed(self.seed, ("symbol", name)))),
            Expr::Text(words) => Some(Residue::whole(hashed(self.seed, ("text", words)))),
            Expr::Constant(Constant::Infinity) => None,
            Expr::Constant(constant) => {
                Some(Residue::whole(hashed(self.seed, ("constant", *constant as u8))))
            }
            Expr::Percent(inner) => self
                .evaluate(inner, budget)?
                .map(|value| Residue { denominator: multiply(value.denominator, 100), ..value }),
            Expr::Degrees(inner) | Expr::Quantity(inner, _) => self.evaluate(inner, budget)?,
            Expr::Sum(items) => {
                let mut total = Residue::whole(0);
                for item in items {
                    let Some(value) = self.evaluate(item, budget)? else { return Ok(None) };
                    total = sum(total, value);
                }
                Some(total)
            }
            Expr::Product(items) => {
                let mut total = Residue::whole(1);
                for item in items {
                    let Some(value) = self.evaluate(item, budget)? else { return Ok(None) };
                    total = Residue {
                        numerator: multiply(total.numerator, value.numerator),
                        denominator: multiply(total.denominator, value.denominator),
                    };
                }
                Some(total)
            }
            Expr::Power(base, exponent) => self.power(base, exponent, budget)?,
            Expr::Function(function, items) => {
                self.opaque(&("function", *function), items, budget)?
            }
            Expr::Call(name, items) => self.opaque(&("call", name), items, budget)?,
            _ => None,
        })
    }

    fn power(
        &self,
        base: &Expr,
        exponent: &Expr,
        budget: &Budget,
    ) -> Result<Option<Residue>, Spent> {
        let integer = exact(exponent, budget)?
            .filter(num_rational::Ratio::is_integer)
            .and_then(|value| value.numer().to_i64());
        let Some(times) = integer else {
            if let Some(value) =
                exact(&Expr::Power(Box::new(base.clone()), Box::new(exponent.clone())), budget)?
            {
                return self.evaluate(&Expr::Number(value, Written::Worked), budget);
            }
            return self.opaque(&"power", &[base.clone(), exponent.clone()], budget);
        };
        let Some(value) = self.evaluate(base, budget)? else { return Ok(None) };
        let raised = Residue {
            numerator: raise(value.numerator, times.unsigned_abs()),
            denominator: raise(value.denominator, times.unsigned_abs()),
        };
        if times >= 0 {
            return Ok(Some(raised));
        }
        Ok((raised.numerator != 0)
            .then_some(Residue { numerator: raised.denominator, denominator: raised.numerator }))
    }

    /// A random number that depends on the name and the arguments' values only.
    fn opaque(
        &self,
        name: &impl Hash,
        items: &[Expr],
        budget: &Budget,
    ) -> Result<Option<Residue>, Spent> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            match self.evaluate(item, budget)?.and_then(Residue::value) {
                Some(value) => values.push(value),
                None => return Ok(None),
            }
        }
        Ok(Some(Residue::whole(hashed(self.seed, (name, values)))))
    }
}

fn sum(a: Residue, b: Residue) -> Residue {
    if a.denominator == b.denominator {
        return Residue { numerator: add(a.numerator, b.numerator), ..a };
    }
    Residue {
        numerator: add(multiply(a.numerator, b.denominator), multiply(b.numerator, a.denominator)),
        denominator: multiply(a.denominator, b.denominator),
    }
}

fn reduce(value: &BigInt) -> u64 {
    let residue = value.mod_floor(&BigInt::from(PRIME));
    debug_assert!(!residue.is_negative());
    if residue.is_zero() || residue.is_one() {
        return u64::from(residue.is_one());
    }
    residue.to_u64().unwrap_or(0)
}

/// Whether both are the same function, proven; `false` proves nothing.
pub(crate) fn proves_equal(a: &Expr, b: &Expr, budget: &Budget) -> Result<bool, Spent> {
    for seed in [0x5ca1_e001, 0x5ca1_e002] {
        let point = Point { seed };
        let (Some(a), Some(b)) = (point.evaluate(a, budget)?, point.evaluate(b, budget)?) else {
            return Ok(false);
        };
        let (left, right) =
            (multiply(a.numerator, b.denominator), multiply(b.numerator, a.denominator));
        if left != right || a.denominator == 0 || b.denominator == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the numerators are constant multiples of each other: the equations a = 0 and b = 0
/// then say the same.
pub(crate) fn proves_proportional(a: &Expr, b: &Expr, budget: &Budget) -> Result<bool, Spent> {
    let mut first = None;
    for seed in [0x5ca1_e011, 0x5ca1_e012, 0x5ca1_e013] {
        let point = Point { seed };
        let (Some(a), Some(b)) = (point.evaluate(a, budget)?, point.evaluate(b, budget)?) else {
            return Ok(false);
        };
        if a.numerator == 0 || b.numerator == 0 {
            return Ok(a.numerator == b.numerator && first.is_none());
        }
        let ratio = multiply(a.numerator, raise(b.numerator, PRIME - 2));
        if *first.get_or_insert(ratio) != ratio {
            return Ok(false);
        }
    }
    Ok(true)
}
