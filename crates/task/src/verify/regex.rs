//! A pattern finds the answer; the last match counts.
//!
//! With a group named `answer` (or one group) its text must equal the gold answer; without any
//! group a match alone is right. The engine is linear in the text: no pattern of a recipe and no
//! completion makes it backtrack.

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::verifier::{Verifier, VerifierError};

/// Largest compiled pattern, so that `a{1000}{1000}` is refused instead of built.
const MOST_BYTES: usize = 1 << 20;

/// Finds the answer by a pattern.
#[derive(Debug, Clone)]
pub struct RegexVerifier {
    pattern: regex::Regex,
}

impl RegexVerifier {
    /// Compiles the pattern.
    pub fn try_new(pattern: &str) -> Result<Self, VerifierError> {
        let pattern = regex::RegexBuilder::new(pattern)
            .size_limit(MOST_BYTES)
            .build()
            .map_err(|error| VerifierError::BadPattern { problem: error.to_string() })?;
        Ok(Self { pattern })
    }
}

impl Verifier for RegexVerifier {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        let text = answer.text().unwrap_or_default();
        let Some(found) = self.pattern.captures_iter(text).last() else {
            return Outcome::Incorrect;
        };
        match found.name("answer").or_else(|| found.get(1)) {
            Some(found) => Outcome::of(found.as_str().trim() == problem.answer.trim()),
            None => Outcome::of(self.pattern.captures_len() == 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pattern: &str, gold: &str, text: &str) -> Outcome {
        let verifier = RegexVerifier::try_new(pattern).unwrap();
        verifier.verify(&Problem::with_answer(gold), &Answer::whole(text))
    }

    #[test]
    fn the_last_match_is_the_answer() {
        let pattern = r"<answer>(?<answer>[^<]*)</answer>";
        let text = "<answer>11</answer> no: <answer> 12 </answer>";
        assert_eq!(verdict(pattern, "12", text), Outcome::Correct);
        assert_eq!(verdict(pattern, "12", "12"), Outcome::Incorrect);
    }

    #[test]
    fn a_catastrophic_pattern_ends_here() {
        // Would take longer than the universe has had, were the engine to backtrack.
        let text = format!("{}b", "a".repeat(200_000));
        assert_eq!(verdict(r"^(a+)+$", "a", &text), Outcome::Incorrect);
    }

    #[test]
    fn a_pattern_that_would_not_fit_in_memory_is_refused() {
        let huge = RegexVerifier::try_new("((a{1000}){1000}){1000}");
        assert!(matches!(huge, Err(VerifierError::BadPattern { .. })));
    }
}
