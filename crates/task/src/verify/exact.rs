//! The same text: for answers that have one spelling.

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::question::Question;
use crate::verifier::Verifier;

/// Options of the `exact` verifier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExactOptions {
    /// Only what follows the last occurrence of this mark counts; without the mark there is no
    /// answer. Empty: the whole completion.
    pub answer_after: String,
    /// What ends the answer, if it occurs. Empty: the end of the completion.
    pub answer_until: String,
    /// Upper and lower case are the same.
    pub ignore_case: bool,
    /// Runs of blanks are one blank, and none at the ends.
    pub ignore_blanks: bool,
}

impl Default for ExactOptions {
    fn default() -> Self {
        Self {
            answer_after: "</think>".to_owned(),
            answer_until: String::new(),
            ignore_case: false,
            ignore_blanks: true,
        }
    }
}

/// Compares text.
#[derive(Debug, Clone)]
pub struct ExactVerifier {
    options: ExactOptions,
}

impl ExactVerifier {
    /// A verifier with these options.
    pub fn new(options: ExactOptions) -> Self {
        Self { options }
    }

    fn normal(&self, text: &str) -> String {
        let text = if self.options.ignore_blanks {
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        } else {
            text.to_owned()
        };
        if self.options.ignore_case { text.to_lowercase() } else { text }
    }
}

impl Verifier for ExactVerifier {
    fn verify(&self, question: &Question, completion: &str) -> Outcome {
        let mark = self.options.answer_after.as_str();
        let answer = match (mark.is_empty(), completion.rfind(mark)) {
            (true, _) => completion,
            (false, Some(at)) => &completion[at + mark.len()..],
            (false, None) => return Outcome::Incorrect,
        };
        let end = self.options.answer_until.as_str();
        let answer = match answer.find(end).filter(|_| !end.is_empty()) {
            Some(at) => &answer[..at],
            None => answer,
        };
        Outcome::of(self.normal(answer) == self.normal(&question.answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_after_the_mark_counts() {
        let verifier = ExactVerifier::new(ExactOptions::default());
        let question = Question::with_answer("9");
        assert_eq!(verifier.verify(&question, "3+6=9</think> 9\n"), Outcome::Correct);
        assert_eq!(verifier.verify(&question, "9</think>8"), Outcome::Incorrect);
        assert_eq!(verifier.verify(&question, "9"), Outcome::Incorrect);
    }

    #[test]
    fn case_counts_unless_told_otherwise() {
        let options = ExactOptions { answer_after: String::new(), ..ExactOptions::default() };
        let question = Question::with_answer("Paris");
        assert_eq!(
            ExactVerifier::new(options.clone()).verify(&question, "paris"),
            Outcome::Incorrect
        );
        let options = ExactOptions { ignore_case: true, ..options };
        assert_eq!(ExactVerifier::new(options).verify(&question, "paris"), Outcome::Correct);
    }
}
