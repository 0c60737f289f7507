//! A pattern finds the answer; the last match counts.
//!
//! With a group named `answer` (or one group) its text must equal the gold answer; without any
//! group a match alone is right. The engine is linear in the text: no pattern of a recipe and no
//! completion makes it backtrack.

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::question::Question;
use crate::verifier::{Verifier, VerifierError};

/// Options of the `regex` verifier.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegexOptions {
    /// The pattern, in the syntax of Rust's regex crate.
    pub pattern: String,
}

/// Largest compiled pattern, so that `a{1000}{1000}` is refused instead of built.
const MOST_BYTES: usize = 1 << 20;

/// Finds the answer by a pattern.
#[derive(Debug, Clone)]
pub struct RegexVerifier {
    pattern: regex::Regex,
}

impl RegexVerifier {
    /// Compiles the pattern.
    pub fn try_new(options: &RegexOptions) -> Result<Self, VerifierError> {
        let pattern = regex::RegexBuilder::new(&options.pattern)
            .size_limit(MOST_BYTES)
            .build()
            .map_err(|error| VerifierError::BadPattern { problem: error.to_string() })?;
        Ok(Self { pattern })
    }
}

impl Verifier for RegexVerifier {
    fn verify(&self, question: &Question, completion: &str) -> Outcome {
        let Some(found) = self.pattern.captures_iter(completion).last() else {
            return Outcome::Incorrect;
        };
        match found.name("answer").or_else(|| found.get(1)) {
            Some(answer) => Outcome::of(answer.as_str().trim() == question.answer.trim()),
            None => Outcome::of(self.pattern.captures_len() == 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier(pattern: &str) -> RegexVerifier {
        RegexVerifier::try_new(&RegexOptions { pattern: pattern.to_owned() }).unwrap()
    }

    #[test]
    fn the_last_match_is_the_answer() {
        let verifier = verifier(r"<answer>(?<answer>[^<]*)</answer>");
        let question = Question::with_answer("12");
        let text = "<answer>11</answer> no: <answer> 12 </answer>";
        assert_eq!(verifier.verify(&question, text), Outcome::Correct);
        assert_eq!(verifier.verify(&question, "12"), Outcome::Incorrect);
    }

    #[test]
    fn a_catastrophic_pattern_is_linear_here() {
        let verifier = verifier(r"^(a+)+$");
        let text = format!("{}b", "a".repeat(200_000));
        // By backtracking this would not end.
        assert_eq!(verifier.verify(&Question::with_answer("a"), &text), Outcome::Incorrect);
    }

    #[test]
    fn a_pattern_that_would_not_fit_in_memory_is_refused() {
        let options = RegexOptions { pattern: "((a{1000}){1000}){1000}".to_owned() };
        assert!(matches!(RegexVerifier::try_new(&options), Err(VerifierError::BadPattern { .. })));
    }
}
