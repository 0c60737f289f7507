//! Countdown: an expression over the given numbers that reaches the target.
//!
//! The expression is the answer's last `<answer>…</answer>`, `\boxed{…}` or, without either, its last
//! line.
//! Allowed are `+ - * /` and brackets; each given number is used once (all of them, unless told
//! otherwise). Values are exact fractions in checked 128-bit integers: an overflow is a wrong
//! answer, because no target is that far away.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::verifier::Verifier;

/// Checks countdown answers.
#[derive(Debug, Clone)]
pub struct CountdownVerifier {
    /// Where the row holds the numbers, as a dotted path.
    pub numbers: String,
    /// Where the row holds the target, as a dotted path.
    pub target: String,
    /// Whether every number must be used.
    pub use_all: bool,
}

impl Verifier for CountdownVerifier {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        let text = answer.text().unwrap_or_default();
        let numbers = problem
            .field(&self.numbers)
            .and_then(Value::as_array)
            .and_then(|items| items.iter().map(Value::as_i64).collect::<Option<Vec<i64>>>());
        let target = problem.field(&self.target).and_then(Value::as_i64);
        match (numbers, target) {
            (Some(numbers), Some(target)) => {
                Outcome::of(reaches(expression(text), &numbers, target, self.use_all))
            }
            _ => Outcome::error(format!(
                "the row has no integers at `{}` and `{}`",
                self.numbers, self.target
            )),
        }
    }
}

/// The part of an answer that is the expression.
fn expression(answer: &str) -> &str {
    if let Some(at) = answer.rfind("<answer>") {
        let rest = &answer[at + "<answer>".len()..];
        return rest.split("</answer>").next().unwrap_or(rest);
    }
    if let Some(at) = answer.rfind("\\boxed{") {
        let rest = &answer[at + "\\boxed{".len()..];
        return rest.split('}').next().unwrap_or(rest);
    }
    answer.trim_end().lines().next_back().unwrap_or("")
}

/// Whether `text` is an expression over `numbers` with the value `target`.
pub fn reaches(text: &str, numbers: &[i64], target: i64, use_all: bool) -> bool {
    // `3 + 4 = 7`: what stands before the equals sign is the expression.
    let text = text.split('=').next().unwrap_or("");
    let text = text.replace(['×', '·'], "*").replace('÷', "/").replace("\\times", "*");
    if text.len() > 1_000 {
        return false;
    }
    let mut reader = Reader { bytes: text.as_bytes(), at: 0, depth: 0, used: Vec::new() };
    let Some(value) = reader.sum() else { return false };
    if reader.peek().is_some() || value != (Fraction { top: i128::from(target), bottom: 1 }) {
        return false;
    }
    let mut left: BTreeMap<i64, i64> = BTreeMap::new();
    for number in numbers {
        *left.entry(*number).or_default() += 1;
    }
    for used in &reader.used {
        *left.entry(*used).or_default() -= 1;
    }
    left.values().all(|count| if use_all { *count == 0 } else { *count >= 0 })
}

/// In lowest terms, with a positive denominator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fraction {
    top: i128,
    bottom: i128,
}

impl Fraction {
    fn new(top: i128, bottom: i128) -> Option<Self> {
        if bottom == 0 || top == i128::MIN || bottom == i128::MIN {
            return None;
        }
        let (mut a, mut b) = (top.abs(), bottom.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let sign = bottom.signum();
        Some(Self { top: sign * top / a.max(1), bottom: bottom.abs() / a.max(1) })
    }

    fn plus(self, other: Self) -> Option<Self> {
        let top =
            self.top.checked_mul(other.bottom)?.checked_add(other.top.checked_mul(self.bottom)?)?;
        Self::new(top, self.bottom.checked_mul(other.bottom)?)
    }

    fn times(self, other: Self) -> Option<Self> {
        Self::new(self.top.checked_mul(other.top)?, self.bottom.checked_mul(other.bottom)?)
    }

    fn negated(self) -> Self {
        Self { top: -self.top, ..self }
    }
}

/// Deepest nesting of brackets.
const DEEPEST: usize = 50;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    used: Vec<i64>,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(|b| b.is_ascii_whitespace() || *b == b'$') {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn sum(&mut self) -> Option<Fraction> {
        let mut total = self.product()?;
        while let Some(sign @ (b'+' | b'-')) = self.peek() {
            self.at += 1;
            let term = self.product()?;
            total = total.plus(if sign == b'-' { term.negated() } else { term })?;
        }
        Some(total)
    }

    fn product(&mut self) -> Option<Fraction> {
        let mut total = self.atom()?;
        while let Some(operator @ (b'*' | b'/')) = self.peek() {
            self.at += 1;
            let factor = self.atom()?;
            let factor =
                if operator == b'/' { Fraction::new(factor.bottom, factor.top)? } else { factor };
            total = total.times(factor)?;
        }
        Some(total)
    }

    fn atom(&mut self) -> Option<Fraction> {
        match self.peek()? {
            b'(' if self.depth < DEEPEST => {
                self.at += 1;
                self.depth += 1;
                let inner = self.sum()?;
                self.depth -= 1;
                (self.peek()? == b')').then_some(())?;
                self.at += 1;
                Some(inner)
            }
            b'0'..=b'9' => {
                let start = self.at;
                while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
                    self.at += 1;
                }
                let text = std::str::from_utf8(&self.bytes[start..self.at]).ok()?;
                let value: i64 = text.parse().ok()?;
                self.used.push(value);
                Fraction::new(i128::from(value), 1)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_must_be_reached_with_the_given_numbers() {
        assert!(reaches("(44 + 19) - 35", &[44, 19, 35], 28, true));
        assert!(reaches("44 + 19 - 35 = 28", &[44, 19, 35], 28, true));
        assert!(!reaches("44 + 19 - 35", &[44, 19, 35], 29, true));
        assert!(!reaches("28", &[44, 19, 35], 28, true));
        assert!(!reaches("44 + 44 - 60", &[44, 60], 28, true));
        assert!(!reaches("44 - 16", &[44, 16, 3], 28, true));
        assert!(reaches("44 - 16", &[44, 16, 3], 28, false));
    }

    #[test]
    fn division_is_exact() {
        assert!(reaches("6 / (1 - 3/4)", &[6, 1, 3, 4], 24, true));
        assert!(!reaches("7 / 2", &[7, 2], 3, true));
        assert!(!reaches("1 / 0", &[1, 0], 0, true));
    }

    #[test]
    fn hostile_expressions_are_wrong_not_fatal() {
        let deep = format!("{}1{}", "(".repeat(400), ")".repeat(400));
        assert!(!reaches(&deep, &[1], 1, true));
        assert!(!reaches(&"9*".repeat(400), &[9], 1, true));
        assert!(!reaches("__import__('os')", &[1], 1, true));
        assert!(!reaches(&"1+".repeat(1_000_000), &[1], 1, true));
    }

    #[test]
    fn the_answer_is_found_in_tags_boxes_or_the_last_line() {
        let verifier =
            CountdownVerifier { numbers: "nums".into(), target: "target".into(), use_all: true };
        let fields = serde_json::json!({"nums": [1, 2, 3], "target": 7});
        let problem =
            Problem { fields: fields.as_object().unwrap().clone(), ..Problem::with_answer("") };
        for text in ["x <answer>2*3+1</answer>", "so \\boxed{1 + 2*3}.", "thinking\n1+2*3"] {
            let verdict = verifier.verify(&problem, &Answer::whole(text));
            assert_eq!(verdict, Outcome::Correct, "{text}");
        }
        let without = verifier.verify(&Problem::with_answer(""), &Answer::whole("1"));
        assert!(matches!(without, Outcome::Error { .. }));
    }
}
