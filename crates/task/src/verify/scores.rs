//! Scores that verifiers of the user's give: their range, and from which on they count as right.

use crate::outcome::Outcome;

/// What the recipe says of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scores {
    /// Smallest and largest; another one is an error of the verifier.
    pub range: (f64, f64),
    /// A score at or above this counts as right.
    pub pass: f64,
}

impl Default for Scores {
    fn default() -> Self {
        Self { range: (0.0, 1.0), pass: 0.5 }
    }
}

impl Scores {
    /// The score is the reward as it is.
    pub(crate) fn judge(&self, score: f64) -> Outcome {
        let (low, high) = self.range;
        if !(low..=high).contains(&score) {
            return Outcome::error(format!(
                "the score is {score}, and scores go from {low} to {high} (min_score, max_score)"
            ));
        }
        Outcome::Scored { score, is_correct: score >= self.pass }
    }
}
