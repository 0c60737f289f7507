//! Numeric value of an expression with a bound on its rounding error.
//!
//! Complex double precision. Every operation carries an upper bound of the error it can have, so
//! a comparison knows whether a small difference is rounding or real, and says neither when
//! cancellation has eaten the digits. Symbols take pseudo-random values that depend on the seed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use num_traits::ToPrimitive;

use super::budget::{Budget, Spent};
use super::fingerprint;
use crate::expr::{Constant, Expr, Function};

/// A complex number with an absolute error bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Value {
    pub(crate) re: f64,
    pub(crate) im: f64,
    pub(crate) error: f64,
}

/// Relative rounding error allowed for one operation; a few units in the last place.
const EPSILON: f64 = 1e-15;

impl Value {
    fn real(re: f64) -> Self {
        let is_exact = re.fract() == 0.0 && re.abs() < 1e15;
        Self { re, im: 0.0, error: if is_exact { 0.0 } else { EPSILON * re.abs() } }
    }

    fn size(self) -> f64 {
        self.re.hypot(self.im)
    }

    fn with_error(re: f64, im: f64, error: f64) -> Option<Self> {
        let value = Self { re, im, error: error + EPSILON * re.hypot(im) };
        (re.is_finite() && im.is_finite() && value.error.is_finite()).then_some(value)
    }

    fn plus(self, other: Self) -> Option<Self> {
        Self::with_error(self.re + other.re, self.im + other.im, self.error + other.error)
    }

    fn times(self, other: Self) -> Option<Self> {
        Self::with_error(
            self.re * other.re - self.im * other.im,
            self.re * other.im + self.im * other.re,
            self.size() * other.error + other.size() * self.error + self.error * other.error,
        )
    }

    fn inverse(self) -> Option<Self> {
        let square = self.re * self.re + self.im * self.im;
        let size = square.sqrt();
        if size <= self.error * 4.0 {
            return None;
        }
        Self::with_error(self.re / square, -self.im / square, 2.0 * self.error / square)
    }

    fn ln(self) -> Option<Self> {
        let size = self.size();
        if size <= self.error * 4.0 {
            return None;
        }
        // On the negative axis the sign of the imaginary part is rounding: the branch is +π.
        let im = if self.im.abs() <= self.error { self.im.abs() } else { self.im };
        Self::with_error(size.ln(), im.atan2(self.re), 2.0 * self.error / size)
    }

    fn exp(self) -> Option<Self> {
        let size = self.re.exp();
        Self::with_error(size * self.im.cos(), size * self.im.sin(), 2.0 * size * self.error)
    }

    fn is_real(self) -> bool {
        self.im.abs() <= self.error * 4.0
    }

    fn real_function(self, value: f64, slope: f64) -> Option<Self> {
        if !self.is_real() {
            return None;
        }
        Self::with_error(value, 0.0, 2.0 * slope.abs() * self.error)
    }
}

/// How two values compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closeness {
    Same,
    Apart,
    /// The error bound is too wide to tell.
    Unclear,
}

pub(crate) fn compare(a: Value, b: Value) -> Closeness {
    let distance = (a.re - b.re).hypot(a.im - b.im);
    let error = a.error + b.error;
    let size = a.size().max(b.size()).max(1.0);
    if distance > 4.0 * error + 1e-12 * a.size().max(b.size()) {
        Closeness::Apart
    } else if error <= 1e-9 * size {
        Closeness::Same
    } else {
        Closeness::Unclear
    }
}

/// One choice of values for the symbols.
pub(crate) struct Sample {
    pub(crate) seed: u64,
    /// Whether symbols may be negative; roots and logarithms often want them positive.
    pub(crate) signed: bool,
    /// One symbol with a value of its own.
    pub(crate) bound: Option<(String, f64)>,
}

impl Sample {
    fn draw(&self, key: impl Hash) -> f64 {
        let mut hasher = DefaultHasher::new();
        self.seed.hash(&mut hasher);
        key.hash(&mut hasher);
        let unit = (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64;
        let size = 0.3 + 2.4 * unit;
        if self.signed && hasher.finish() & 1 == 1 { -size } else { size }
    }

    pub(crate) fn evaluate(&self, expr: &Expr, budget: &Budget) -> Result<Option<Value>, Spent> {
        budget.spend(1)?;
        Ok(match expr {
            Expr::Number(value, _) => value.to_f64().filter(|v| v.is_finite()).map(Value::real),
            Expr::Symbol(name) => Some(match &self.bound {
                Some((bound, value)) if bound == name => Value::real(*value),
                _ => Value::real(self.draw(("symbol", name))),
            }),
            Expr::Text(words) => Some(Value::real(self.draw(("text", words)))),
            Expr::Constant(Constant::Pi) => Some(Value::real(std::f64::consts::PI)),
            Expr::Constant(Constant::Euler) => Some(Value::real(std::f64::consts::E)),
            Expr::Constant(Constant::Imaginary) => Some(Value { re: 0.0, im: 1.0, error: 0.0 }),
            Expr::Percent(inner) => {
                self.evaluate(inner, budget)?.and_then(|value| value.times(Value::real(0.01)))
            }
            Expr::Degrees(inner) | Expr::Quantity(inner, _) => self.evaluate(inner, budget)?,
            Expr::Sum(items) => self.fold(items, Value::real(0.0), Value::plus, budget)?,
            Expr::Product(items) => self.fold(items, Value::real(1.0), Value::times, budget)?,
            Expr::Ratio(items) if items.len() == 2 => {
                match (self.evaluate(&items[0], budget)?, self.evaluate(&items[1], budget)?) {
                    (Some(a), Some(b)) => b.inverse().and_then(|b| a.times(b)),
                    _ => None,
                }
            }
            Expr::Power(base, exponent) => self.power(base, exponent, budget)?,
            Expr::Function(function, items) => self.function(*function, items, budget)?,
            // The value of an unknown function is random, and the same for the same arguments.
            Expr::Call(..) => {
                let point = fingerprint::Point { seed: self.seed };
                let residue = point.evaluate(expr, budget)?.and_then(fingerprint::Residue::value);
                residue.map(|residue| Value::real(self.draw(("call", residue))))
            }
            _ => None,
        })
    }

    fn fold(
        &self,
        items: &[Expr],
        start: Value,
        combine: fn(Value, Value) -> Option<Value>,
        budget: &Budget,
    ) -> Result<Option<Value>, Spent> {
        let mut total = start;
        for item in items {
            let Some(value) = self.evaluate(item, budget)? else { return Ok(None) };
            match combine(total, value) {
                Some(next) => total = next,
                None => return Ok(None),
            }
        }
        Ok(Some(total))
    }

    fn power(&self, base: &Expr, exponent: &Expr, budget: &Budget) -> Result<Option<Value>, Spent> {
        let (Some(base), Some(power)) =
            (self.evaluate(base, budget)?, self.evaluate(exponent, budget)?)
        else {
            return Ok(None);
        };
        if power.is_real() && power.re.fract() == 0.0 && power.re.abs() <= 512.0 {
            return Ok(integer_power(base, power.re));
        }
        if base.size() <= base.error {
            return Ok((power.re > 0.0).then_some(Value {
                re: 0.0,
                im: 0.0,
                error: base.error.sqrt(),
            }));
        }
        // An odd root of a negative real number: people mean the real one.
        let degree = 1.0 / power.re;
        let is_odd_root =
            (degree - degree.round()).abs() < 1e-12 && degree.round().abs() % 2.0 > 0.5;
        if base.is_real() && base.re < 0.0 && is_odd_root {
            let positive = Value { re: -base.re, im: 0.0, error: base.error };
            let root = positive.ln().and_then(|l| l.times(power)).and_then(Value::exp);
            return Ok(root.map(|root| Value { re: -root.re, ..root }));
        }
        Ok(base.ln().and_then(|l| l.times(power)).and_then(Value::exp))
    }

    fn function(
        &self,
        function: Function,
        items: &[Expr],
        budget: &Budget,
    ) -> Result<Option<Value>, Spent> {
        let is_trigonometric = matches!(
            function,
            Function::Sin
                | Function::Cos
                | Function::Tan
                | Function::Cot
                | Function::Sec
                | Function::Csc
        );
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            let Some(mut value) = self.evaluate(item, budget)? else { return Ok(None) };
            if is_trigonometric && matches!(item, Expr::Degrees(_)) {
                let Some(radians) = value.times(Value::real(std::f64::consts::PI / 180.0)) else {
                    return Ok(None);
                };
                value = radians;
            }
            values.push(value);
        }
        Ok(apply(function, &values))
    }
}

fn integer_power(base: Value, power: f64) -> Option<Value> {
    let mut result = Value { re: 1.0, im: 0.0, error: 0.0 };
    let mut square = base;
    let mut left = power.abs() as u32;
    while left > 0 {
        if left & 1 == 1 {
            result = result.times(square)?;
        }
        left >>= 1;
        if left > 0 {
            square = square.times(square)?;
        }
    }
    if power < 0.0 { result.inverse() } else { Some(result) }
}

fn apply(function: Function, values: &[Value]) -> Option<Value> {
    let x = *values.first()?;
    let re = x.re;
    match function {
        Function::Sin => x.real_function(re.sin(), 1.0),
        Function::Cos => x.real_function(re.cos(), 1.0),
        Function::Tan => x.real_function(re.tan(), 1.0 + re.tan().powi(2)),
        Function::Cot => apply(Function::Tan, values)?.inverse(),
        Function::Sec => apply(Function::Cos, values)?.inverse(),
        Function::Csc => apply(Function::Sin, values)?.inverse(),
        Function::Arcsin if re.abs() < 1.0 => {
            x.real_function(re.asin(), 1.0 / (1.0 - re * re).sqrt())
        }
        Function::Arccos if re.abs() < 1.0 => {
            x.real_function(re.acos(), 1.0 / (1.0 - re * re).sqrt())
        }
        Function::Arcsin if re.abs() <= 1.0 && x.error == 0.0 => Some(Value::real(re.asin())),
        Function::Arccos if re.abs() <= 1.0 && x.error == 0.0 => Some(Value::real(re.acos())),
        Function::Arctan => x.real_function(re.atan(), 1.0),
        Function::Sinh => x.real_function(re.sinh(), re.cosh()),
        Function::Cosh => x.real_function(re.cosh(), re.sinh()),
        Function::Tanh => x.real_function(re.tanh(), 1.0),
        Function::Ln => x.ln(),
        Function::Log => x.ln()?.times(values.get(1)?.ln()?.inverse()?),
        Function::Exp => x.exp(),
        Function::Abs => Value::with_error(x.size(), 0.0, x.error),
        Function::Real => Value::with_error(re, 0.0, x.error),
        Function::ImaginaryPart => Value::with_error(x.im, 0.0, x.error),
        Function::Floor | Function::Ceil => {
            let nearest = re.round();
            // At a jump rounding decides: no value.
            if !x.is_real() || (re - nearest).abs() <= 8.0 * x.error {
                return None;
            }
            Some(Value::real(if function == Function::Floor { re.floor() } else { re.ceil() }))
        }
        Function::Max => values.iter().copied().reduce(|a, b| if a.re >= b.re { a } else { b }),
        Function::Min => values.iter().copied().reduce(|a, b| if a.re <= b.re { a } else { b }),
        _ => None,
    }
}
