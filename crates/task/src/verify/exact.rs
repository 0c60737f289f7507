//! The same text: for answers that have one spelling.

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::verifier::Verifier;

/// Compares text.
#[derive(Debug, Clone, Copy)]
pub struct ExactVerifier {
    /// Upper and lower case are the same.
    pub ignore_case: bool,
    /// Runs of blanks are one blank, and none at the ends.
    pub ignore_blanks: bool,
}

impl ExactVerifier {
    fn normal(self, text: &str) -> String {
        let text = if self.ignore_blanks {
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        } else {
            text.to_owned()
        };
        if self.ignore_case { text.to_lowercase() } else { text }
    }
}

impl Verifier for ExactVerifier {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        let is_same = |text| self.normal(text) == self.normal(&problem.answer);
        Outcome::of(answer.text().is_some_and(is_same))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXACT: ExactVerifier = ExactVerifier { ignore_case: false, ignore_blanks: true };

    fn verdict(verifier: ExactVerifier, gold: &str, text: &str) -> Outcome {
        verifier.verify(&Problem::with_answer(gold), &Answer::whole(text))
    }

    #[test]
    fn blanks_and_case_count_as_told() {
        assert_eq!(verdict(EXACT, "New York", " New\n York "), Outcome::Correct);
        let strict = ExactVerifier { ignore_blanks: false, ..EXACT };
        assert_eq!(verdict(strict, "New York", "New York "), Outcome::Incorrect);
        assert_eq!(verdict(EXACT, "Paris", "paris"), Outcome::Incorrect);
        let lenient = ExactVerifier { ignore_case: true, ..EXACT };
        assert_eq!(verdict(lenient, "Paris", "paris"), Outcome::Correct);
    }
}
