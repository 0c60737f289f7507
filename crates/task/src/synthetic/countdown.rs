//! Countdown: reach a target from given numbers, each used once.
//!
//! ```text
//! 44 19 35 -> 28 <think>44+19=63;63-35=28</think>(44+19)-35
//! ```
//!
//! A target is made by combining the numbers at random, so every exercise has a solution; only
//! whole, positive values occur on the way. Harder with more numbers and a wider range.

use serde_json::{Map, Value, json};

use super::{
    Exercise, SftExample, SyntheticError, THINK_CLOSE, THINK_OPEN, check_range, check_share,
};
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::random::Random;
use crate::verify::countdown::reaches;

/// Settings of countdown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Countdown {
    /// Fewest and most numbers.
    pub numbers: (u32, u32),
    /// Largest number.
    pub largest_number: u32,
    /// Largest target.
    pub largest_target: u32,
    /// Chance that an SFT trace has a wrong step, and with it a wrong answer.
    pub noise: f64,
}

impl Default for Countdown {
    fn default() -> Self {
        Self { numbers: (3, 4), largest_number: 99, largest_target: 99, noise: 0.15 }
    }
}

/// A way to a target.
struct Solution {
    numbers: Vec<i64>,
    target: i64,
    steps: Vec<(i64, char, i64, i64)>,
    expression: String,
}

fn combine(a: i64, operator: char, b: i64) -> Option<i64> {
    match operator {
        '+' => Some(a + b),
        '-' => Some(a - b).filter(|value| *value > 0),
        '*' => a.checked_mul(b).filter(|value| *value < 1_000_000),
        _ => (b != 0 && a % b == 0).then(|| a / b),
    }
}

impl Countdown {
    pub(crate) fn validate(&self) -> Result<(), SyntheticError> {
        check_range("numbers", self.numbers.0.max(1), self.numbers.1, 8)?;
        if self.numbers.0 < 2 {
            let problem = "one number reaches only itself".to_owned();
            return Err(SyntheticError::BadSetting { key: "numbers", problem });
        }
        check_range("largest_number", 2, self.largest_number, 10_000)?;
        check_range("largest_target", 10, self.largest_target, 1_000_000)?;
        check_share("noise", self.noise)
    }

    fn draw(&self, random: &mut Random) -> Solution {
        let count = random.between(i64::from(self.numbers.0), i64::from(self.numbers.1));
        loop {
            let numbers: Vec<i64> =
                (0..count).map(|_| random.between(1, i64::from(self.largest_number))).collect();
            // Some draws cannot reach a small target; sums of few small numbers soon do.
            for _ in 0..20 {
                if let Some(solution) = attempt(&numbers, random)
                    && solution.target <= i64::from(self.largest_target)
                {
                    return solution;
                }
            }
        }
    }

    pub(crate) fn exercise(&self, seed: u64, index: u64) -> Exercise {
        let solution = self.draw(&mut Random::for_index(seed, "countdown", index));
        Exercise {
            prompt: prompt(&solution),
            answer: solution.expression.clone(),
            fields: fields(&solution.numbers, solution.target),
        }
    }

    pub(crate) fn sft_example(&self, seed: u64, index: u64) -> SftExample {
        let solution = self.draw(&mut Random::for_index(seed, "countdown sft", index));
        let mut random = Random::for_index(seed, "countdown slips", index);
        let mut steps: Vec<String> =
            solution.steps.iter().map(|(a, o, b, c)| format!("{a}{o}{b}={c}")).collect();
        let mut expression = solution.expression.clone();
        if random.chance(self.noise) {
            // A slip in the last step: a sign is turned, and the answer with it.
            let (a, operator, b, c) = solution.steps[solution.steps.len() - 1];
            let wrong = if operator == '+' { '-' } else { '+' };
            let last = steps.len() - 1;
            steps[last] = format!("{a}{wrong}{b}={c}");
            expression = turned(&expression, operator, wrong);
        }
        let completion = format!("{}{THINK_CLOSE}{expression}", steps.join(";"));
        SftExample { prompt: prompt(&solution), completion }
    }
}

/// Whether the expression reaches the problem's target.
pub(crate) fn verify(problem: &Problem, answer: &str) -> Outcome {
    let numbers: Option<Vec<i64>> = problem
        .field("nums")
        .and_then(Value::as_array)
        .and_then(|items| items.iter().map(Value::as_i64).collect());
    match (numbers, problem.field("target").and_then(Value::as_i64)) {
        (Some(numbers), Some(target)) => Outcome::of(reaches(answer, &numbers, target, true)),
        _ => Outcome::error("the prompt has no `nums` and `target`"),
    }
}

/// Combines two of the values left, at random, until one is left.
fn attempt(numbers: &[i64], random: &mut Random) -> Option<Solution> {
    let mut left: Vec<(i64, String)> = numbers.iter().map(|n| (*n, n.to_string())).collect();
    let mut steps = Vec::new();
    while left.len() > 1 {
        let a = left.swap_remove(random.below(left.len() as u64) as usize);
        let b = left.swap_remove(random.below(left.len() as u64) as usize);
        let operator = *random.pick(&['+', '-', '*', '/']);
        let value = combine(a.0, operator, b.0)?;
        steps.push((a.0, operator, b.0, value));
        let text = format!("{}{operator}{}", a.1, b.1);
        left.push((value, if left.is_empty() { text } else { format!("({text})") }));
    }
    let (target, expression) = left.pop()?;
    Some(Solution { numbers: numbers.to_vec(), target, steps, expression })
}

/// The outermost operator exchanged.
fn turned(expression: &str, operator: char, wrong: char) -> String {
    let mut depth = 0;
    let mut text = String::with_capacity(expression.len());
    for c in expression.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        text.push(if c == operator && depth == 0 { wrong } else { c });
    }
    text
}

fn fields(numbers: &[i64], target: i64) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("nums".to_owned(), json!(numbers));
    fields.insert("target".to_owned(), json!(target));
    fields
}

fn prompt(solution: &Solution) -> String {
    let numbers: Vec<String> = solution.numbers.iter().map(i64::to_string).collect();
    format!("{} -> {} {THINK_OPEN}", numbers.join(" "), solution.target)
}

/// Numbers and target of a prompt, as the fields of its question.
pub fn read_prompt(text: &str) -> Option<Map<String, Value>> {
    let (numbers, target) = text.strip_suffix(THINK_OPEN)?.split_once("->")?;
    let numbers: Vec<i64> =
        numbers.split_whitespace().map(|n| n.parse().ok()).collect::<Option<_>>()?;
    Some(fields(&numbers, target.trim().parse().ok()?))
}
