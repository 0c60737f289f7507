//! Mathematical equality as a verifier: `scalerl-grader`, alone or with Math-Verify as a second
//! opinion on what it cannot decide.

use scalerl_grader::{Grader, Verdict};
pub use scalerl_grader::{MatchType, Options as MathOptions, last_boxed};

use crate::outcome::Outcome;
use crate::question::Question;
use crate::second_opinion::SecondOpinion;
use crate::verifier::{MathWithSecondOpinion, Verifier, VerifierError};

/// The native grader.
#[derive(Debug, Clone, Default)]
pub struct MathVerifier(Grader);

impl MathVerifier {
    /// A grader with these options.
    pub fn try_new(options: MathOptions) -> Result<Self, VerifierError> {
        let bad = |error: scalerl_grader::OptionsError| VerifierError::BadOption {
            key: error.key(),
            problem: error.to_string(),
        };
        Grader::try_new(options).map(Self).map_err(bad)
    }

    /// Whether `pred` gives the answer `gold` to `question`, which may be empty.
    pub fn compare_answer_to(&self, question: &str, gold: &str, pred: &str) -> Outcome {
        outcome(self.0.grade_answer_to(question, gold, pred))
    }
}

fn outcome(verdict: Verdict) -> Outcome {
    match verdict {
        Verdict::Equal => Outcome::Correct,
        Verdict::Different => Outcome::Incorrect,
        Verdict::Undecided(reason) => Outcome::undecided(reason.to_string()),
        other => Outcome::error(format!("the grader says `{other}`, which nobody here knows")),
    }
}

impl Verifier for MathVerifier {
    fn verify(&self, question: &Question, completion: &str) -> Outcome {
        self.compare_answer_to(&question.prompt, &question.answer, completion)
    }
}

/// The native grader, then Math-Verify where it is undecided.
pub(crate) struct MathWithSecondOpinionVerifier {
    native: MathVerifier,
    python: SecondOpinion,
}

impl MathWithSecondOpinionVerifier {
    pub(crate) fn try_new(options: &MathWithSecondOpinion) -> Result<Self, VerifierError> {
        Ok(Self {
            native: MathVerifier::try_new(options.math.clone())?,
            python: SecondOpinion::try_new(options.second_opinion.clone())?,
        })
    }
}

impl Verifier for MathWithSecondOpinionVerifier {
    fn verify(&self, question: &Question, completion: &str) -> Outcome {
        match self.native.verify(question, completion) {
            Outcome::Undecided { .. } => {
                self.python.compare(&question.answer, completion, self.native.0.options())
            }
            decided => decided,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_is_known_to_the_grader() {
        let mut options = MathOptions::default();
        options.evaluated = true;
        let verifier = MathVerifier::try_new(options).unwrap();
        let question = Question {
            prompt: "Expand $(x+1)(x-1)$.".to_owned(),
            answer: "x^2-1".to_owned(),
            ..Question::default()
        };
        assert_eq!(verifier.verify(&question, "\\boxed{(x+1)(x-1)}"), Outcome::Incorrect);
        assert_eq!(verifier.verify(&question, "\\boxed{x^2-1}"), Outcome::Correct);
    }

    #[test]
    fn an_option_that_cannot_be_meant_is_named() {
        let mut options = MathOptions::default();
        options.precision = 99;
        let error = MathVerifier::try_new(options).unwrap_err();
        assert!(matches!(error, VerifierError::BadOption { key: "precision", .. }), "{error}");
    }
}
