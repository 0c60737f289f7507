//! Multi-digit arithmetic with worked steps.
//!
//! ```text
//! 47+85=<think>7+5+0=12;4+8+1=13</think>132      digit by digit with the carry
//! 85-47=<think>5-7-0=8b;8-4-1=3</think>38        digit by digit, b for a borrow
//! 47*85=<think>47*5=235;47*80=3760;235+3760=3995</think>3995
//! ```
//!
//! Noise makes a step wrong and goes on from the wrong value, as in the chain.

use super::{
    Exercise, SftExample, SyntheticError, THINK_CLOSE, THINK_OPEN, check_range, check_share,
};
use crate::random::Random;

/// Which operations occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// a + b.
    Add,
    /// a − b with a ≥ b.
    Subtract,
    /// a · b.
    Multiply,
}

impl Operator {
    /// The operation of a sign.
    pub(super) fn of(sign: &str) -> Option<Self> {
        [Self::Add, Self::Subtract, Self::Multiply]
            .into_iter()
            .find(|operator| sign.chars().eq([operator.sign()]))
    }

    fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
        }
    }
}

/// Settings of multi-digit arithmetic.
#[derive(Debug, Clone, PartialEq)]
pub struct Arithmetic {
    /// Fewest and most digits of an operand.
    pub digits: (u32, u32),
    /// Operations, equally often.
    pub operators: Vec<Operator>,
    /// Chance that a step of an SFT trace is wrong.
    pub noise: f64,
}

impl Default for Arithmetic {
    fn default() -> Self {
        Self {
            digits: (2, 5),
            operators: vec![Operator::Add, Operator::Subtract, Operator::Multiply],
            noise: 0.05,
        }
    }
}

struct Operation {
    a: u64,
    b: u64,
    operator: Operator,
}

impl Operation {
    fn prompt(&self) -> String {
        format!("{}{}{}={THINK_OPEN}", self.a, self.operator.sign(), self.b)
    }

    fn value(&self) -> u64 {
        match self.operator {
            Operator::Add => self.a + self.b,
            Operator::Subtract => self.a - self.b,
            Operator::Multiply => self.a * self.b,
        }
    }
}

impl Arithmetic {
    pub(crate) fn validate(&self) -> Result<(), SyntheticError> {
        // Products of two nine-digit numbers fit 64 bits.
        check_range("digits", self.digits.0, self.digits.1, 9)?;
        if self.operators.is_empty() {
            let problem = "name at least one of add, subtract, multiply".to_owned();
            return Err(SyntheticError::BadSetting { key: "operators", problem });
        }
        check_share("noise", self.noise)
    }

    fn draw(&self, random: &mut Random) -> Operation {
        let operator = *random.pick(&self.operators);
        let number = |random: &mut Random| {
            let digits = random.between(i64::from(self.digits.0), i64::from(self.digits.1));
            let low = if digits == 1 { 0 } else { 10_i64.pow(digits as u32 - 1) };
            random.between(low, 10_i64.pow(digits as u32) - 1) as u64
        };
        let (mut a, mut b) = (number(random), number(random));
        if operator == Operator::Subtract && a < b {
            (a, b) = (b, a);
        }
        Operation { a, b, operator }
    }

    pub(crate) fn exercise(&self, seed: u64, index: u64) -> Exercise {
        let operation = self.draw(&mut Random::for_index(seed, "arithmetic", index));
        Exercise {
            prompt: operation.prompt(),
            answer: operation.value().to_string(),
            fields: serde_json::Map::new(),
        }
    }

    pub(crate) fn sft_example(&self, seed: u64, index: u64) -> SftExample {
        let operation = self.draw(&mut Random::for_index(seed, "arithmetic sft", index));
        let mut slips = Random::for_index(seed, "arithmetic slips", index);
        let mut slip = |value: u64| {
            if slips.chance(self.noise) { value / 10 * 10 + slips.below(10) } else { value }
        };
        let (steps, answer) = match operation.operator {
            Operator::Add => add(operation.a, operation.b, &mut slip),
            Operator::Subtract => subtract(operation.a, operation.b, &mut slip),
            Operator::Multiply => multiply(operation.a, operation.b, &mut slip),
        };
        let completion = format!("{}{THINK_CLOSE}{answer}", steps.join(";"));
        SftExample { prompt: operation.prompt(), completion }
    }
}

type Worked = (Vec<String>, u64);

fn add(a: u64, b: u64, slip: &mut dyn FnMut(u64) -> u64) -> Worked {
    let (mut left, mut right, mut carry, mut place, mut total) = (a, b, 0, 1, 0);
    let mut steps = Vec::new();
    while left > 0 || right > 0 || steps.is_empty() {
        let (x, y) = (left % 10, right % 10);
        let sum = slip(x + y + carry);
        steps.push(format!("{x}+{y}+{carry}={sum}"));
        total += sum % 10 * place;
        (left, right, carry, place) = (left / 10, right / 10, sum / 10, place * 10);
    }
    (steps, total + carry * place)
}

fn subtract(a: u64, b: u64, slip: &mut dyn FnMut(u64) -> u64) -> Worked {
    let (mut left, mut right, mut borrow, mut place, mut total) = (a, b, 0, 1, 0);
    let mut steps = Vec::new();
    while left > 0 || right > 0 || steps.is_empty() {
        let (x, y) = (left % 10, right % 10);
        let borrows = x < y + borrow;
        let digit = slip(if borrows { x + 10 - y - borrow } else { x - y - borrow }) % 10;
        steps.push(format!("{x}-{y}-{borrow}={digit}{}", if borrows { "b" } else { "" }));
        total += digit * place;
        (left, right, borrow, place) = (left / 10, right / 10, u64::from(borrows), place * 10);
    }
    (steps, total)
}

fn multiply(a: u64, b: u64, slip: &mut dyn FnMut(u64) -> u64) -> Worked {
    let (mut rest, mut place) = (b, 1);
    let mut steps = Vec::new();
    let mut total: Option<u64> = None;
    while rest > 0 || total.is_none() {
        let part = rest % 10 * place;
        let product = slip(a * part);
        steps.push(format!("{a}*{part}={product}"));
        total = Some(match total {
            None => product,
            Some(before) => {
                let sum = slip(before + product);
                steps.push(format!("{before}+{product}={sum}"));
                sum
            }
        });
        (rest, place) = (rest / 10, place * 10);
    }
    (steps, total.unwrap_or(0))
}

/// The value of a prompt; `None` when it is none of this task.
pub fn evaluate(prompt: &str) -> Option<u64> {
    let text = prompt.strip_suffix(THINK_OPEN)?.strip_suffix('=')?;
    let at = text.find(['+', '-', '*'])?;
    let (a, b): (u64, u64) = (text[..at].parse().ok()?, text[at + 1..].parse().ok()?);
    match text.as_bytes()[at] {
        b'+' => a.checked_add(b),
        b'-' => a.checked_sub(b),
        _ => a.checked_mul(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn steps_are_worked_as_described() {
        let mut exact = |value| value;
        let steps = |worked: Worked| (worked.0.join(";"), worked.1);
        assert_eq!(steps(add(47, 85, &mut exact)), ("7+5+0=12;4+8+1=13".into(), 132));
        assert_eq!(steps(subtract(85, 47, &mut exact)), ("5-7-0=8b;8-4-1=3".into(), 38));
        assert_eq!(
            steps(multiply(47, 85, &mut exact)),
            ("47*5=235;47*80=3760;235+3760=3995".into(), 3995)
        );
    }

    proptest! {
        #[test]
        fn worked_steps_end_in_the_value(a in 0_u64..1_000_000_000, b in 0_u64..1_000_000_000) {
            let mut exact = |value| value;
            prop_assert_eq!(add(a, b, &mut exact).1, a + b);
            prop_assert_eq!(subtract(a.max(b), a.min(b), &mut exact).1, a.abs_diff(b));
            prop_assert_eq!(multiply(a, b, &mut exact).1, a * b);
        }
    }
}
