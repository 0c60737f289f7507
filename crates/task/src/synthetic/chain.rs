//! Left-to-right chained arithmetic modulo 10, for models of a million parameters.
//!
//! ```text
//! prompt       3+5*2-7=<think>                  a digit, then n pairs of operator and operand
//! completion   3+5=8;8*2=6;6-7=9</think>9       6n − 1 thinking tokens
//! ```
//!
//! Every token is one character or one tag, 21 in all. SFT traces replace a step's result by a
//! random digit with probability `noise` and go on from there; a share `cut` of the traces stops at
//! a random token and is followed by the true answer, which teaches to answer when interrupted.

use super::{
    Exercise, SftExample, SyntheticError, THINK_CLOSE, THINK_OPEN, check_range, check_share,
};
use crate::random::Random;

/// The tokens, in the order of their ids.
pub const VOCABULARY: [&str; 21] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "+", "-", "*", "=", ";", "?", "<bos>",
    "<think>", "</think>", "<eos>", "<pad>",
];

/// Settings of the chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chain {
    /// Fewest and most operations.
    pub operations: (u32, u32),
    /// Chance that a step of an SFT trace is wrong.
    pub noise: f64,
    /// Share of SFT traces that are cut.
    pub cut: f64,
}

impl Default for Chain {
    /// Measured to leave room for RL.
    fn default() -> Self {
        Self { operations: (2, 7), noise: 0.15, cut: 0.1 }
    }
}

/// One pair of operator and operand.
type Operation = (char, u8);

fn apply(value: u8, (operator, operand): Operation) -> u8 {
    match operator {
        '+' => (value + operand) % 10,
        '-' => (value + 10 - operand) % 10,
        _ => value * operand % 10,
    }
}

fn draw(random: &mut Random, (low, high): (u32, u32)) -> (u8, Vec<Operation>) {
    let count = random.between(i64::from(low), i64::from(high));
    let start = random.below(10) as u8;
    let operation =
        |random: &mut Random| (*random.pick(&['+', '-', '*']), random.between(1, 9) as u8);
    (start, (0..count).map(|_| operation(random)).collect())
}

fn prompt(start: u8, operations: &[Operation]) -> String {
    let mut text = start.to_string();
    for (operator, operand) in operations {
        text.push(*operator);
        text.push(char::from(b'0' + operand));
    }
    format!("{text}={THINK_OPEN}")
}

impl Chain {
    pub(crate) fn validate(&self) -> Result<(), SyntheticError> {
        check_range("operations", self.operations.0, self.operations.1, 1_000)?;
        check_share("noise", self.noise)?;
        check_share("cut", self.cut)
    }

    pub(crate) fn exercise(&self, seed: u64, index: u64) -> Exercise {
        let mut random = Random::for_index(seed, "chain", index);
        let (start, operations) = draw(&mut random, self.operations);
        let answer = operations.iter().fold(start, |value, operation| apply(value, *operation));
        let mut fields = serde_json::Map::new();
        fields.insert("operations".to_owned(), operations.len().into());
        Exercise { prompt: prompt(start, &operations), answer: answer.to_string(), fields }
    }

    pub(crate) fn sft_example(&self, seed: u64, index: u64) -> SftExample {
        let mut random = Random::for_index(seed, "chain sft", index);
        let (start, operations) = draw(&mut random, self.operations);
        let truth = operations.iter().fold(start, |value, operation| apply(value, *operation));
        let mut value = start;
        let mut steps = Vec::with_capacity(operations.len());
        for operation in &operations {
            let before = value;
            value = apply(value, *operation);
            if random.chance(self.noise) {
                value = random.below(10) as u8;
            }
            steps.push(format!("{before}{}{}={value}", operation.0, operation.1));
        }
        let mut trace = steps.join(";");
        if random.chance(self.cut) {
            trace.truncate(random.below(trace.len() as u64) as usize);
            value = truth;
        }
        let completion = format!("{trace}{THINK_CLOSE}{value}");
        SftExample { prompt: prompt(start, &operations), completion }
    }
}

/// The value of a prompt; `None` when it is none of this task.
pub fn evaluate(prompt: &str) -> Option<u8> {
    let chain = prompt.strip_suffix(THINK_OPEN)?.strip_suffix('=')?;
    let digit = |byte: u8| byte.is_ascii_digit().then(|| byte - b'0');
    let (first, rest) = chain.as_bytes().split_first()?;
    if !rest.len().is_multiple_of(2) {
        return None;
    }
    rest.chunks(2).try_fold(digit(*first)?, |value, pair| {
        let operator = char::from(pair[0]);
        "+-*".contains(operator).then_some(())?;
        Some(apply(value, (operator, digit(pair[1])?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;
    use crate::outcome::Outcome;
    use crate::problem::Problem;
    use crate::synthetic::Synthetic;
    use crate::verifier::Verifier as _;
    use scalerl_recipe::Format;

    #[test]
    fn chains_are_evaluated_left_to_right_modulo_ten() {
        assert_eq!(evaluate("3+5*2-7=<think>"), Some(9));
        assert_eq!(evaluate("4*3+8-5+6*7=<think>"), Some(7));
        assert_eq!(evaluate("3+5"), None);
    }

    #[test]
    fn only_one_right_digit_after_the_first_close_is_right() {
        let task = Synthetic::Chain(Chain::default());
        let problem = Problem::with_answer("9");
        for (completion, outcome) in [
            ("3+5=8;8*2=6;6-7=9</think>9", Outcome::Correct),
            ("</think>9<eos>", Outcome::Correct),
            ("</think>99", Outcome::Incorrect),
            ("</think>8", Outcome::Incorrect),
            ("</think>8</think>9", Outcome::Incorrect),
            ("3+5=9", Outcome::Incorrect),
        ] {
            let answer = Answer::cut(&Format::default(), completion);
            let found =
                answer.text().map_or(Outcome::Incorrect, |_| task.verify(&problem, &answer));
            assert_eq!(found, outcome, "{completion}");
        }
    }

    #[test]
    fn lengths_are_those_of_the_description() {
        let config = Chain { noise: 0.0, cut: 0.0, ..Chain::default() };
        for index in 0..50 {
            let example = config.sft_example(1, index);
            let n = (example.prompt.len() - "0=<think>".len()) / 2;
            let thinking = example.completion.split(THINK_CLOSE).next().unwrap();
            assert_eq!(thinking.len(), 6 * n - 1);
            // With <bos> and one token for the tag the prompt has 2n + 4 tokens.
            assert_eq!(example.prompt.len() - THINK_OPEN.len() + 2, 2 * n + 4);
        }
    }

    #[test]
    fn about_a_tenth_of_the_traces_is_cut_and_ends_in_the_truth() {
        let config = Chain { noise: 0.0, cut: 0.1, ..Chain::default() };
        let mut cut = 0;
        for index in 0..2_000 {
            let example = config.sft_example(2, index);
            let n = (example.prompt.len() - "0=<think>".len()) / 2;
            let (trace, answer) = example.completion.split_once(THINK_CLOSE).unwrap();
            assert_eq!(answer, evaluate(&example.prompt).unwrap().to_string());
            cut += usize::from(trace.len() < 6 * n - 1);
        }
        // Five standard deviations around 200.
        assert!((133..267).contains(&cut), "{cut}");
    }
}
