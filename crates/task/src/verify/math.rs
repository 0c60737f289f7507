//! Mathematical equality as a verifier: `scalerl-grader`, alone or with Math-Verify as a second
//! opinion on what it cannot decide.

use scalerl_grader::{Grader, Verdict};
pub use scalerl_grader::{MatchType, Options as MathOptions, last_boxed};

use crate::answer::Answer;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::second_opinion::{SecondOpinion, SecondOpinionOptions};
use crate::verifier::{Verifier, VerifierError};

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

/// What a grader reads: between marks there is nothing but the answer.
fn prediction(answer: &Answer) -> String {
    let text = answer.text().unwrap_or_default();
    if answer.is_marked() { format!("\\boxed{{{text}}}") } else { text.to_owned() }
}

impl Verifier for MathVerifier {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        self.compare_answer_to(&problem.text(), &problem.answer, &prediction(answer))
    }
}

/// The native grader, then Math-Verify where it is undecided.
pub(crate) struct MathWithSecondOpinion {
    native: MathVerifier,
    python: SecondOpinion,
}

impl MathWithSecondOpinion {
    pub(crate) fn try_new(
        math: MathOptions,
        python: SecondOpinionOptions,
    ) -> Result<Self, VerifierError> {
        Ok(Self { native: MathVerifier::try_new(math)?, python: SecondOpinion::try_new(python)? })
    }
}

impl Verifier for MathWithSecondOpinion {
    fn verify(&self, problem: &Problem, answer: &Answer) -> Outcome {
        match self.native.verify(problem, answer) {
            Outcome::Undecided { .. } => {
                let options = self.native.0.options();
                self.python.compare(&problem.answer, &prediction(answer), options)
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
        let problem = Problem::plain("Expand $(x+1)(x-1)$.", "x^2-1");
        let verdict = |text: &str| verifier.verify(&problem, &Answer::whole(text));
        assert_eq!(verdict("\\boxed{(x+1)(x-1)}"), Outcome::Incorrect);
        assert_eq!(verdict("\\boxed{x^2-1}"), Outcome::Correct);
    }

    #[test]
    fn an_option_that_cannot_be_meant_is_named() {
        let mut options = MathOptions::default();
        options.precision = 99;
        let error = MathVerifier::try_new(options).unwrap_err();
        assert!(matches!(error, VerifierError::BadOption { key: "precision", .. }), "{error}");
    }
}
