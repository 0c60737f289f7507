//! What a fit is worth, in one word and one sentence.
//!
//! Checked in this order, the first that holds:
//!
//! | verdict | rule |
//! |---|---|
//! | too few points | fewer than 5 |
//! | unstable | the smoothed end lies below the smoothed peak by more than 3 noise scales and 15 % of the gain |
//! | not a sigmoid | the best sigmoid misses the points after the warm-up by more than 2.5 times their own noise, and by 0.01 |
//! | bounded | the ceiling's interval is at most 0.10 wide, ends below 1, and the run has moved |
//! | not bounded | otherwise |

use std::fmt;

use serde::{Serialize, Serializer};

use crate::fit::{Solved, profile};
use crate::forecast::Predictor;
use crate::noise;
use crate::points::Point;
use crate::window::Window;

const FEW_POINTS: usize = 5;
const UNSTABLE_NOISES: f64 = 3.0;
const UNSTABLE_SHARE: f64 = 0.15;
const UNSTABLE_LEAST: f64 = 0.01;
const STRUCTURED_RATIO: f64 = 2.5;
const STRUCTURED_LEAST: f64 = 0.01;

/// What a fit is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The data bound the ceiling.
    Bounded,
    /// They do not.
    NotBounded,
    /// The run falls well below its own peak.
    Unstable,
    /// The points do not follow a sigmoid.
    NotSigmoid,
    /// Too few points to say.
    TooFewPoints,
}

impl Verdict {
    pub(crate) fn of(window: &Window, solved: &Solved) -> Self {
        let points = &window.unit;
        if points.len() < FEW_POINTS {
            Self::TooFewPoints
        } else if has_fallen(points, window.noise.scale) {
            Self::Unstable
        } else if is_structured(window, solved) {
            Self::NotSigmoid
        } else if solved.is_bounded {
            Self::Bounded
        } else {
            Self::NotBounded
        }
    }

    /// A plain sentence on what it means and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Bounded => {
                "The ceiling is bounded by these points: judge more compute by the forecast."
            }
            Self::NotBounded => {
                "These points do not bound the ceiling yet: train on before judging the recipe by \
                 it, and use the forecasts, not the ceiling."
            }
            Self::Unstable => {
                "The run has fallen well below its peak: look for instability (truncations, \
                 ratios, learning rate) before spending more; a forecast assumes that the fall \
                 does not go on."
            }
            Self::NotSigmoid => {
                "The points do not follow a sigmoid (a jump, a second stage, a change of data?): \
                 fit the stages apart with --warmup and --until."
            }
            Self::TooFewPoints => {
                "Too few points for a ceiling: evaluate more often; intervals are wide for a \
                 reason."
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bounded => "bounded",
            Self::NotBounded => "not bounded",
            Self::Unstable => "unstable",
            Self::NotSigmoid => "not a sigmoid",
            Self::TooFewPoints => "too few points",
        })
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Medians of three neighbours, so that one odd evaluation is neither peak nor fall.
fn smoothed(points: &[Point]) -> Vec<f64> {
    points.windows(3).map(|w| noise::median(w.iter().map(|p| p.value).collect())).collect()
}

fn has_fallen(points: &[Point], noise: f64) -> bool {
    let smooth = smoothed(points);
    let peak = smooth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let tail = &points[points.len() - (points.len() / 4).max(3)..];
    let end = noise::median(tail.iter().map(|p| p.value).collect());
    let (fall, gain) = (peak - end, peak - smooth[0].min(points[0].value));
    fall > UNSTABLE_NOISES * noise && fall > UNSTABLE_SHARE * gain && fall > UNSTABLE_LEAST
}

fn is_structured(window: &Window, solved: &Solved) -> bool {
    let points = window.steady();
    let residual_scale = match &solved.predictor {
        Predictor::Profile(profile) => profile.residual_scale(),
        Predictor::Mixture(_) | Predictor::Posterior(_) => profile::best_sigmoid(points, window.floor).1,
    };
    let own = noise::neighbour_scale(points).max(window.noise.scale);
    residual_scale > STRUCTURED_RATIO * own && residual_scale > STRUCTURED_LEAST
}
