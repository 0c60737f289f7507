//! Numbers that stand behind letters, to be read and added by turns: a task that one completion
//! cannot solve, for models of a million parameters.
//!
//! ```text
//! prompt       ca?                     the letters whose numbers are to be added, modulo 10
//! policy       @c;                     tool 1: what stands behind c?
//! environment  7
//! policy       @a;
//! environment  5
//! policy       +75;                    tool 2: the sum of two digits, modulo 10
//! environment  2
//! policy       =2;                     the answer, and the end
//! ```
//!
//! What is none of these is answered with `!`. The numbers are not in the prompt, so only reading finds
//! them. SFT traces do the wrong thing with chance `noise` a turn: another letter, other digits.

use serde_json::{Map, Value};

use super::{END, Exercise, START, SftExample, SyntheticError, check_range, check_share};
use crate::random::Random;

/// Ends every turn of the policy.
pub const TURN_END: &str = ";";
/// Says that a turn was no call.
pub const REFUSAL: &str = "!";

const LETTERS: [char; 8] = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
/// The tokens, in the order of their ids.
pub const VOCABULARY: [&str; 27] = [
    "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f", "g", "h", "@",
    "+", "=", ";", "?", "!", START, END, "<pad>",
];

/// Settings of the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Store {
    /// Fewest and most letters to read.
    pub reads: (u32, u32),
    /// Chance that a turn of an SFT trace does the wrong thing.
    pub noise: f64,
}

impl Default for Store {
    fn default() -> Self {
        Self { reads: (2, 3), noise: 0.2 }
    }
}

/// The number behind each letter, in the order of the letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers(Vec<u8>);

/// What the environment makes of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// It is told this and goes on.
    Says(String),
    /// It has answered with this digit.
    Answered(u8),
}

impl Numbers {
    /// Those of a problem; `None` where it is of another task.
    pub fn of(fields: &Map<String, Value>) -> Option<Self> {
        let digits = fields.get("numbers")?.as_str()?;
        let numbers: Option<Vec<u8>> = digits.chars().map(digit).collect();
        numbers.filter(|numbers| numbers.len() == LETTERS.len()).map(Self)
    }

    fn behind(&self, letter: char) -> Option<u8> {
        Some(self.0[LETTERS.iter().position(|known| *known == letter)?])
    }

    /// Answers one turn of the policy.
    pub fn respond(&self, turn: &str) -> Response {
        let call: Vec<char> = turn.strip_suffix(TURN_END).unwrap_or(turn).chars().collect();
        let says = |value: Option<u8>| {
            Response::Says(value.map_or_else(|| REFUSAL.to_owned(), |value| value.to_string()))
        };
        match call[..] {
            ['@', letter] => says(self.behind(letter)),
            ['+', a, b] => says(digit(a).zip(digit(b)).map(|(a, b)| (a + b) % 10)),
            ['=', answer] => digit(answer).map_or_else(|| says(None), Response::Answered),
            _ => says(None),
        }
    }
}

fn digit(character: char) -> Option<u8> {
    character.to_digit(10).map(|digit| digit as u8)
}

/// Letters to read, and the numbers behind all of them.
fn draw(random: &mut Random, (low, high): (u32, u32)) -> (Vec<char>, Numbers) {
    let count = random.between(i64::from(low), i64::from(high)) as usize;
    let mut letters = LETTERS;
    random.shuffle(&mut letters);
    let numbers = LETTERS.iter().map(|_| random.below(10) as u8).collect();
    (letters[..count].to_vec(), Numbers(numbers))
}

fn prompt(letters: &[char]) -> String {
    letters.iter().collect::<String>() + "?"
}

impl Store {
    pub(crate) fn validate(&self) -> Result<(), SyntheticError> {
        check_range("reads", self.reads.0, self.reads.1, 6)?;
        check_share("noise", self.noise)
    }

    pub(crate) fn exercise(&self, seed: u64, index: u64) -> Exercise {
        let mut random = Random::for_index(seed, "store", index);
        let (letters, numbers) = draw(&mut random, self.reads);
        let behind = letters.iter().filter_map(|letter| numbers.behind(*letter));
        let answer = behind.fold(0, |sum, number| (sum + number) % 10);
        let digits: String = numbers.0.iter().map(ToString::to_string).collect();
        let fields = Map::from_iter([("numbers".to_owned(), Value::from(digits))]);
        Exercise { prompt: prompt(&letters), answer: answer.to_string(), fields }
    }

    pub(crate) fn sft_example(&self, seed: u64, index: u64) -> SftExample {
        let mut random = Random::for_index(seed, "store sft", index);
        let (letters, numbers) = draw(&mut random, self.reads);
        let mut completion = String::new();
        // A trace believes what the environment told it, as the policy will.
        let mut call = |right: String, wrong: String, random: &mut Random| {
            let turn = if random.chance(self.noise) { wrong } else { right };
            completion.push_str(&turn);
            completion.push_str(TURN_END);
            match numbers.respond(&turn) {
                Response::Says(text) => {
                    completion.push_str(&text);
                    text.chars().next().and_then(digit).unwrap_or(0)
                }
                Response::Answered(value) => value,
            }
        };
        let mut sum = None;
        for letter in &letters {
            let other = format!("@{}", random.pick(&LETTERS));
            let read = call(format!("@{letter}"), other, &mut random);
            sum = Some(match sum {
                None => read,
                Some(sum) => {
                    let other = format!("+{}{}", random.below(10), random.below(10));
                    call(format!("+{sum}{read}"), other, &mut random)
                }
            });
        }
        let other = format!("={}", random.below(10));
        call(format!("={}", sum.unwrap_or(0)), other, &mut random);
        SftExample { prompt: prompt(&letters), completion }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> Numbers {
        Numbers(vec![5, 1, 7, 0, 9, 3, 2, 8])
    }

    #[test]
    fn the_environment_reads_adds_and_ends() {
        let says = |text: &str| Response::Says(text.to_owned());
        for (turn, expected) in [
            ("@c;", says("7")),
            ("@c", says("7")),
            ("+75;", says("2")),
            ("=2;", Response::Answered(2)),
            ("@z;", says("!")),
            ("+7;", says("!")),
            ("=22;", says("!")),
            (";", says("!")),
            ("", says("!")),
            ("@@@@@@", says("!")),
        ] {
            assert_eq!(numbers().respond(turn), expected, "{turn}");
        }
    }

    /// A quiet trace, played against the environment turn by turn, says what the trace says and ends
    /// with the right answer.
    #[test]
    fn a_trace_without_noise_is_an_episode_that_passes() {
        let store = Store { reads: (1, 6), noise: 0.0 };
        for index in 0..200 {
            let mut random = Random::for_index(3, "store sft", index);
            let (letters, numbers) = draw(&mut random, store.reads);
            let example = store.sft_example(3, index);
            let mut rest = example.completion.as_str();
            let mut turns = 0;
            let answered = loop {
                let end = rest.find(TURN_END).unwrap() + 1;
                turns += 1;
                match numbers.respond(&rest[..end]) {
                    Response::Says(text) => {
                        rest = rest[end..].strip_prefix(text.as_str()).unwrap();
                    }
                    Response::Answered(value) => break (value, &rest[end..]),
                }
            };
            let sum: u32 = letters.iter().map(|l| u32::from(numbers.behind(*l).unwrap())).sum();
            assert_eq!(answered, ((sum % 10) as u8, ""), "{example:?}");
            assert_eq!(turns, 2 * letters.len(), "one read each, one sum between, one answer");
        }
    }

    #[test]
    fn the_prompt_hides_the_numbers_and_the_problem_keeps_them() {
        let store = Store::default();
        let (one, two) = (store.exercise(1, 5), store.exercise(1, 6));
        assert!(!one.prompt.contains(|c: char| c.is_ascii_digit()), "{one:?}");
        assert_ne!(one.fields, two.fields);
        assert!(Numbers::of(&one.fields).is_some());
        assert!(Numbers::of(&Map::new()).is_none());
    }
}
