//! How answers are looked for and compared.

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Where an answer may be found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum MatchType {
    /// LaTeX environments and `\boxed{}`.
    Latex,
    /// Numbers and sums in prose.
    Expr,
    /// The letters A to D of a multiple choice.
    String,
}

/// Options of the grader. The names are those of Math-Verify where it has them.
///
/// ```
/// use scalerl_grader::{Grader, Options, Verdict};
///
/// let mut options = Options::default();
/// options.precision = 4;
/// let grader = Grader::try_new(options)?;
/// assert_eq!(grader.grade("1/3", "0.3333"), Verdict::Equal);
///
/// let mut options = Options::default();
/// options.evaluated = true;
/// let grader = Grader::try_new(options)?;
/// assert_eq!(grader.grade("228", "\\boxed{56 + 52 + 72 + 48}"), Verdict::Different);
/// # Ok::<(), scalerl_grader::OptionsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize), serde(deny_unknown_fields, default))]
#[non_exhaustive]
pub struct Options {
    /// Where answers are looked for. Empty: everywhere, and a short gold answer is taken whole.
    pub match_types: Vec<MatchType>,
    /// Decimal places that must agree when one side is written as a decimal; at most 50.
    pub precision: u32,
    /// Whether names of variables, brackets and bases matter: `f(x)` is not `f(y)`, `\{1, 2\}` is
    /// not `(1, 2)`, `1010_2` is not 1010.
    pub strict: bool,
    /// Whether the prediction must be worked out as far as the gold answer is: a number where that
    /// is a number (`56 + 52` is none), no arithmetic left to do, and not a formula of the question.
    /// For training, where a policy is paid by the verdict.
    pub evaluated: bool,
    /// Whether an inequality may answer where the gold answer is an interval.
    pub allow_set_relation_comp: bool,
    /// Only what follows the last occurrence of this mark is searched. Empty: the whole text.
    pub answer_after: String,
    /// Time for one comparison, in milliseconds; a verdict that takes longer is undecided.
    pub timeout_ms: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            match_types: Vec::new(),
            precision: 6,
            strict: true,
            evaluated: false,
            allow_set_relation_comp: true,
            answer_after: "</think>".to_owned(),
            timeout_ms: 1_000,
        }
    }
}

/// Most decimal places that can be asked for.
const MOST_PLACES: u32 = 50;

/// Why a grader cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// More decimal places than are ever compared.
    #[error("{found} decimal places were asked for, at most {most} are compared")]
    Precision {
        /// What was asked for.
        found: u32,
        /// The largest precision there is.
        most: u32,
    },
    /// A comparison without any time.
    #[error("0 ms leave no time to compare anything")]
    NoTime,
}

impl OptionsError {
    /// The option that is wrong.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Precision { .. } => "precision",
            Self::NoTime => "timeout_ms",
        }
    }

    /// What to try next.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Precision { .. } => "6 is the default; 50 or fewer are possible",
            Self::NoTime => "1000 is the default; hard answers take a few milliseconds",
        }
    }
}

impl Options {
    /// Checks what the types cannot.
    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        if self.precision > MOST_PLACES {
            return Err(OptionsError::Precision { found: self.precision, most: MOST_PLACES });
        }
        if self.timeout_ms == 0 {
            return Err(OptionsError::NoTime);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_meant_are_refused_by_name() {
        let precise = Options { precision: 51, ..Options::default() };
        let error = precise.check().unwrap_err();
        assert_eq!((error.key(), error.to_string().contains("51")), ("precision", true));
        let hurried = Options { timeout_ms: 0, ..Options::default() };
        assert_eq!(hurried.check(), Err(OptionsError::NoTime));
        assert_eq!(Options::default().check(), Ok(()));
    }
}
