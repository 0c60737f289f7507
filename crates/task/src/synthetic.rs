//! Tasks that need no data: prompts from a seed, exact verifiers, examples to warm a model up.
//!
//! | task | prompt | what makes it hard |
//! |---|---|---|
//! | [`chain`] | `3+5*2-7=` evaluated left to right modulo 10 | length |
//! | [`arithmetic`] | `4711*85=` with worked steps | digits |
//! | [`countdown`] | reach 28 with 44, 19, 35 | numbers, range |
//! | [`store`] | `ca?`, numbers to be read from an environment | turns |
//!
//! Prompt number i of a seed is always the same, whatever else is drawn. SFT examples have noise
//! put into their steps on purpose: a model warmed up on them is wrong at a known rate, and taking
//! that back is what RL can be seen to do.

pub mod arithmetic;
pub mod chain;
pub mod countdown;
pub mod store;

use std::collections::HashSet;
use std::io::Write;

use scalerl_recipe::{DataSource, WarmUpExamples};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::verifier::Verifier;
use arithmetic::{Arithmetic, Operator};
use chain::Chain;
use countdown::Countdown;
use store::Store;

/// Opens the thinking; the last thing of every synthetic prompt.
pub const THINK_OPEN: &str = "<think>";
/// Closes the thinking.
pub const THINK_CLOSE: &str = "</think>";

/// Begins every text of a model made for these tasks.
pub const START: &str = "<bos>";
/// Ends every completion of such a model.
pub const END: &str = "<eos>";

/// The characters of tasks with words in them.
const PRINTABLE: &str = "\n !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`\
                         abcdefghijklmnopqrstuvwxyz{|}~";

/// What a task makes of a random stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Exercise {
    /// The prompt with the opening tag at its end.
    pub prompt: String,
    /// The right answer.
    pub answer: String,
    /// What the verifier needs beyond the answer.
    pub fields: serde_json::Map<String, serde_json::Value>,
}

/// One line of an SFT file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SftExample {
    /// The prompt with the opening tag at its end.
    pub prompt: String,
    /// Steps, closing tag, answer. Right or, by the noise, wrong.
    pub completion: String,
}

/// A task without data.
#[derive(Debug, Clone, PartialEq)]
pub enum Synthetic {
    /// Chained arithmetic modulo 10.
    Chain(Chain),
    /// Multi-digit arithmetic.
    Arithmetic(Arithmetic),
    /// Reach a target from given numbers.
    Countdown(Countdown),
    /// Read and add numbers by turns.
    Store(Store),
}

/// Why a task cannot be made.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum SyntheticError {
    /// A setting that makes no exercise.
    #[error("{key}: {problem}")]
    BadSetting { key: &'static str, problem: String },
    /// Fewer different prompts than asked for.
    #[error("only {found} different prompts of the {wanted} asked for")]
    TooFew { wanted: usize, found: usize },
}

impl SyntheticError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadSetting { .. } => "docs/recipe-reference.md has the settings of each source",
            Self::TooFew { .. } => "ask for fewer prompts, or make the task harder",
        }
    }
}

pub(crate) fn check_range(
    key: &'static str,
    low: u32,
    high: u32,
    most: u32,
) -> Result<(), SyntheticError> {
    if low >= 1 && low <= high && high <= most {
        return Ok(());
    }
    let problem = format!("{low} to {high} is not a range within 1 to {most}");
    Err(SyntheticError::BadSetting { key, problem })
}

pub(crate) fn check_share(key: &'static str, share: f64) -> Result<(), SyntheticError> {
    if (0.0..=1.0).contains(&share) {
        return Ok(());
    }
    Err(SyntheticError::BadSetting { key, problem: format!("{share} is not within 0 and 1") })
}

/// The operations of a list of signs; the recipe has checked them.
fn operators(signs: &[String]) -> Vec<Operator> {
    signs.iter().filter_map(|sign| Operator::of(sign)).collect()
}

impl Synthetic {
    /// The task a recipe's data set names; `None` for files.
    pub fn of_source(source: &DataSource) -> Option<Self> {
        match source {
            DataSource::Files { .. } | DataSource::Seeds { .. } => None,
            DataSource::Store { min_reads, max_reads, .. } => {
                Some(Self::Store(Store { reads: (*min_reads, *max_reads), ..Store::default() }))
            }
            DataSource::Chain { min_steps, max_steps, .. } => {
                let operations = (*min_steps, *max_steps);
                Some(Self::Chain(Chain { operations, ..Chain::default() }))
            }
            DataSource::Arithmetic { min_digits, max_digits, operations, .. } => {
                Some(Self::Arithmetic(Arithmetic {
                    digits: (*min_digits, *max_digits),
                    operators: operators(operations),
                    ..Arithmetic::default()
                }))
            }
            DataSource::Countdown { min_numbers, max_numbers, max_value, .. } => {
                Some(Self::Countdown(Countdown {
                    numbers: (*min_numbers, *max_numbers),
                    largest_number: *max_value,
                    ..Countdown::default()
                }))
            }
        }
    }

    /// The task that examples of a warm-up are drawn from; `None` where there are none or they are
    /// read.
    pub fn of_warm_up(examples: &WarmUpExamples) -> Option<Self> {
        match examples {
            WarmUpExamples::None | WarmUpExamples::File { .. } => None,
            WarmUpExamples::Chain { min_steps, max_steps, noise, cut } => {
                let operations = (*min_steps, *max_steps);
                Some(Self::Chain(Chain { operations, noise: *noise, cut: *cut }))
            }
            WarmUpExamples::Arithmetic { min_digits, max_digits, operations, noise } => {
                Some(Self::Arithmetic(Arithmetic {
                    digits: (*min_digits, *max_digits),
                    operators: operators(operations),
                    noise: *noise,
                }))
            }
            WarmUpExamples::Store { min_reads, max_reads, noise } => {
                Some(Self::Store(Store { reads: (*min_reads, *max_reads), noise: *noise }))
            }
            WarmUpExamples::Countdown { min_numbers, max_numbers, max_value, noise } => {
                Some(Self::Countdown(Countdown {
                    numbers: (*min_numbers, *max_numbers),
                    largest_number: *max_value,
                    noise: *noise,
                    ..Countdown::default()
                }))
            }
        }
    }

    /// Checks what the types cannot.
    pub fn validate(&self) -> Result<(), SyntheticError> {
        match self {
            Self::Chain(config) => config.validate(),
            Self::Arithmetic(config) => config.validate(),
            Self::Countdown(config) => config.validate(),
            Self::Store(config) => config.validate(),
        }
    }

    /// The name under which metrics are kept.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Chain(_) => "chain",
            Self::Arithmetic(_) => "arithmetic",
            Self::Countdown(_) => "countdown",
            Self::Store(_) => "store",
        }
    }

    /// The tokens its texts are made of, in the order of their ids: characters and tags.
    pub fn tokens(&self) -> Vec<&'static str> {
        match self {
            Self::Chain(_) => chain::VOCABULARY.to_vec(),
            Self::Store(_) => store::VOCABULARY.to_vec(),
            Self::Arithmetic(_) | Self::Countdown(_) => {
                let letters = PRINTABLE.char_indices().map(|(at, _)| &PRINTABLE[at..=at]);
                letters.chain([START, THINK_OPEN, THINK_CLOSE, END]).collect()
            }
        }
    }

    /// Exercise number `index` of a seed.
    pub fn exercise(&self, seed: u64, index: u64) -> Exercise {
        match self {
            Self::Chain(config) => config.exercise(seed, index),
            Self::Arithmetic(config) => config.exercise(seed, index),
            Self::Countdown(config) => config.exercise(seed, index),
            Self::Store(config) => config.exercise(seed, index),
        }
    }

    /// SFT example number `index` of a seed.
    pub fn sft_example(&self, seed: u64, index: u64) -> SftExample {
        match self {
            Self::Chain(config) => config.sft_example(seed, index),
            Self::Arithmetic(config) => config.sft_example(seed, index),
            Self::Countdown(config) => config.sft_example(seed, index),
            Self::Store(config) => config.sft_example(seed, index),
        }
    }

    /// `count` problems of the data set `name`, no two alike.
    pub fn problems(
        &self,
        name: &str,
        seed: u64,
        count: usize,
    ) -> Result<Vec<Problem>, SyntheticError> {
        self.validate()?;
        let mut seen = HashSet::new();
        let mut problems = Vec::new();
        let mut repeats = 0;
        // Small tasks run out of different prompts: ten tries for each is a clear enough sign, and
        // so is a long row of nothing new.
        for index in 0..(count as u64).saturating_mul(10) {
            if problems.len() == count || repeats > 10_000 + 20 * problems.len() {
                break;
            }
            let Exercise { prompt, answer, fields } = self.exercise(seed, index);
            let hidden = match self {
                Self::Store(_) => fields.get("numbers").map(ToString::to_string),
                _ => None,
            };
            let hidden = hidden.unwrap_or_default();
            if !seen.insert((prompt.clone(), hidden.clone())) {
                repeats += 1;
                continue;
            }
            repeats = 0;
            let problem = Problem::plain(prompt, answer).named(name, format!("{seed}-{index}"));
            problems.push(Problem { fields, hidden, ..problem });
        }
        if problems.len() < count {
            return Err(SyntheticError::TooFew { wanted: count, found: problems.len() });
        }
        Ok(problems)
    }

    /// Writes SFT examples as JSONL with `prompt` and `completion`.
    pub fn write_sft(&self, seed: u64, count: u64, out: &mut impl Write) -> std::io::Result<()> {
        for index in 0..count {
            serde_json::to_writer(&mut *out, &self.sft_example(seed, index))?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// The exact verifier of a synthetic task.
impl Verifier for Synthetic {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        let text = answer.text().unwrap_or_default();
        let text = text.strip_suffix(END).unwrap_or(text);
        match self {
            // Exactly the digit: these models emit no blanks, and a second digit is a wrong answer.
            Self::Chain(_) => Outcome::of(text == problem.answer),
            Self::Arithmetic(_) => Outcome::of(text.trim() == problem.answer),
            Self::Countdown(_) => countdown::verify(problem, text),
            // The environment judges; what is asked here is a last turn by itself.
            Self::Store(_) => {
                let answer = text.strip_suffix(store::TURN_END).unwrap_or(text);
                Outcome::of(answer.strip_prefix('=') == Some(problem.answer.as_str()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scalerl_recipe::Format;

    /// Those whose whole problem is in their prompt; [`store`] tests itself.
    fn all() -> Vec<Synthetic> {
        vec![
            Synthetic::Chain(Chain::default()),
            Synthetic::Arithmetic(Arithmetic::default()),
            Synthetic::Countdown(Countdown::default()),
        ]
    }

    #[test]
    fn noise_free_examples_are_right_and_noisy_ones_are_sometimes_wrong() {
        for task in all() {
            let quiet = without_noise(&task);
            let mut wrong = 0;
            for index in 0..300 {
                let (noisy, right) = (task.sft_example(11, index), quiet.sft_example(11, index));
                // The exercise of an SFT example is found again from its prompt.
                let problem = problem_of(&quiet, &right.prompt);
                let verdict = |c: &str| quiet.verify(&problem, &Answer::cut(&Format::default(), c));
                assert_eq!(verdict(&right.completion), Outcome::Correct, "{right:?}");
                if noisy.prompt == right.prompt {
                    wrong += usize::from(verdict(&noisy.completion) == Outcome::Incorrect);
                }
            }
            assert!((10..250).contains(&wrong), "{}: {wrong} of 300", task.name());
        }
    }

    fn without_noise(task: &Synthetic) -> Synthetic {
        match task.clone() {
            Synthetic::Chain(c) => Synthetic::Chain(Chain { noise: 0.0, ..c }),
            Synthetic::Arithmetic(c) => Synthetic::Arithmetic(Arithmetic { noise: 0.0, ..c }),
            Synthetic::Countdown(c) => Synthetic::Countdown(Countdown { noise: 0.0, ..c }),
            Synthetic::Store(c) => Synthetic::Store(Store { noise: 0.0, ..c }),
        }
    }

    fn problem_of(task: &Synthetic, prompt: &str) -> Problem {
        let (answer, fields) = match task {
            Synthetic::Chain(_) => (chain::evaluate(prompt).unwrap().to_string(), None),
            Synthetic::Arithmetic(_) => (arithmetic::evaluate(prompt).unwrap().to_string(), None),
            Synthetic::Countdown(_) => (String::new(), countdown::read_prompt(prompt)),
            Synthetic::Store(_) => unreachable!("its prompt does not hold the problem"),
        };
        Problem { fields: fields.unwrap_or_default(), ..Problem::plain(prompt, answer) }
    }

    #[test]
    fn prompts_are_distinct_and_the_same_for_a_seed() {
        for task in all() {
            let problems = task.problems("d", 3, 200).unwrap();
            assert_eq!(problems, task.problems("d", 3, 200).unwrap());
            assert_ne!(problems[0], task.problems("d", 4, 200).unwrap()[0]);
            let texts: HashSet<String> = problems.iter().map(Problem::text).collect();
            assert_eq!(texts.len(), 200);
        }
    }

    #[test]
    fn every_text_of_a_task_is_made_of_its_tokens() {
        for task in all() {
            let tokens: HashSet<&str> = task.tokens().into_iter().collect();
            assert_eq!(tokens.len(), task.tokens().len(), "no token twice");
            for index in 0..200 {
                let SftExample { prompt, completion } = task.sft_example(5, index);
                let text = format!("{prompt}{completion}");
                let text = text.replace(THINK_OPEN, "").replace(THINK_CLOSE, "");
                for (at, letter) in text.char_indices() {
                    assert!(tokens.contains(&text[at..at + letter.len_utf8()]), "{letter:?}");
                }
            }
        }
    }

    #[test]
    fn a_task_without_enough_prompts_says_so() {
        let tiny = Chain { operations: (1, 1), ..Chain::default() };
        // Nothing is made for a number that is only asked for.
        for wanted in [100_000, usize::MAX] {
            let error = Synthetic::Chain(tiny).problems("d", 1, wanted).unwrap_err();
            assert!(matches!(error, SyntheticError::TooFew { found: 270, .. }), "{error}");
        }
    }

    #[test]
    fn settings_are_checked() {
        let backwards = Chain { operations: (5, 2), ..Chain::default() };
        let error = Synthetic::Chain(backwards).validate().unwrap_err();
        assert!(error.to_string().starts_with("operations: 5 to 2"), "{error}");
    }
}
