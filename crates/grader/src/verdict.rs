//! What the grader says about one answer.

use std::fmt;

/// Whether a prediction gives the gold answer.
///
/// Three words, because "cannot tell" is not "wrong": whoever learns from verdicts should leave
/// [`Verdict::Undecided`] out, or ask somebody else.
///
/// ```
/// use scalerl_grader::{Grader, Verdict};
///
/// let grader = Grader::default();
/// assert_eq!(grader.grade("4", "The answer is 4."), Verdict::Equal);
/// let verdict = grader.grade("6", "$\\sum_{k=1}^{3} k$");
/// assert!(matches!(verdict, Verdict::Undecided(_)), "sums over an index are not read");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The same answer.
    Equal,
    /// Another answer, or none.
    Different,
    /// Could be neither proven nor refuted.
    Undecided(Reason),
}

/// Why there is no verdict. [`fmt::Display`] says it in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The gold answer is empty, or nothing in its text looks like an answer.
    NoGold,
    /// The gold answer is there but cannot be read as mathematics.
    UnreadableGold,
    /// The prediction is there but cannot be read as mathematics.
    UnreadablePrediction,
    /// Neither can be read as mathematics, and their words do not settle it.
    UnreadableBoth,
    /// Both were read; their equality was neither proven nor refuted.
    Unproven,
    /// The comparison used up its steps or its time.
    OutOfBudget,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGold => "the gold answer has nothing to compare with",
            Self::UnreadableGold => "the gold answer cannot be read as mathematics",
            Self::UnreadablePrediction => "the prediction cannot be read as mathematics",
            Self::UnreadableBoth => "neither answer can be read as mathematics",
            Self::Unproven => "equality could be neither proven nor refuted",
            Self::OutOfBudget => "the comparison needs more steps or time than it may take",
        })
    }
}

impl fmt::Display for Verdict {
    /// One word: `equal`, `different` or `undecided`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "equal",
            Self::Different => "different",
            Self::Undecided(_) => "undecided",
        })
    }
}
