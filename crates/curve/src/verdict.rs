//! What a fit is worth, in one word and one sentence.
//!
//! Checked in this order, the first that holds:
//!
//! | verdict | rule |
//! |---|---|
//! | too few points | fewer than 8: a fit of seven swings with the noise one assumes |
//! | falling | the last three evaluations lie below the peak by more than chance, 15 % of the gain and 0.01 |
//! | flat | the last third lies no higher than the first, beyond twice the standard error |
//! | not a sigmoid | the best sigmoid misses the points after the warm-up by more than 2.5 times their own noise, and by 0.01 |
//! | bounded | the ceiling's interval is at most 0.10 wide and ends below 1 |
//! | not bounded | otherwise |
//!
//! Many rows are averaged before they are judged: the highest of thousands of noisy points says
//! nothing about a peak.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::fit::{Solved, profile};
use crate::forecast::Predictor;
use crate::noise;
use crate::points::Point;
use crate::window::Window;

/// Fewer points than this are too few to judge a run by.
pub const FEW_POINTS: usize = 8;
/// Means that a run is judged by at most.
const MOST_JUDGED: usize = 48;
const FALL_SHARE: f64 = 0.15;
const FALL_LEAST: f64 = 0.01;
/// Median of three over one, in standard deviations.
const MEDIAN_OF_THREE: f64 = 0.67;
/// A fall exceeds what the highest of so many would exceed by chance by so many standard deviations.
const FALL_NOISES: f64 = 2.0;
/// A rise within so many standard errors is none.
const FLAT_ERRORS: f64 = 2.0;
const STRUCTURED_RATIO: f64 = 2.5;
const STRUCTURED_LEAST: f64 = 0.01;

/// What a fit is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The data bound the ceiling.
    Bounded,
    /// They do not.
    NotBounded,
    /// The run has not moved.
    Flat,
    /// The run has fallen below its own peak.
    Falling,
    /// The points do not follow a sigmoid.
    NotSigmoid,
    /// Too few points to say.
    TooFewPoints,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Self; 6] = [
        Self::Bounded,
        Self::NotBounded,
        Self::Flat,
        Self::Falling,
        Self::NotSigmoid,
        Self::TooFewPoints,
    ];

    /// `is_narrow`: do the data bound the ceiling?
    pub(crate) fn of(window: &Window, solved: &Solved, is_narrow: bool) -> Self {
        if window.rows.len() < FEW_POINTS {
            return Self::TooFewPoints;
        }
        let judged = Judged::new(window);
        if judged.has_fallen() {
            Self::Falling
        } else if judged.is_flat() {
            Self::Flat
        } else if is_structured(window, solved) {
            Self::NotSigmoid
        } else if is_narrow {
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
                "These points do not bound the ceiling yet: judge the recipe by the forecasts, not \
                 by its ceiling."
            }
            Self::Flat => {
                "The pass rate has not moved, so there is no curve to forecast by. Look before \
                 training on: do rewards differ within a group (all right or all wrong teaches \
                 nothing), is the learning rate large enough, is the trained policy the one that is \
                 evaluated? At 0 start from easier prompts or a better model."
            }
            Self::Falling => {
                "The run has fallen below its peak, so no ceiling is given: look for instability \
                 (truncations, ratios, learning rate) before spending more. The forecast assumes \
                 that the fall does not go on."
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
            Self::Flat => "flat",
            Self::Falling => "falling",
            Self::NotSigmoid => "not a sigmoid",
            Self::TooFewPoints => "too few points",
        })
    }
}

/// A word that is no verdict.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown verdict `{text}`")]
pub struct UnknownVerdict {
    /// What was read.
    pub text: String,
}

impl FromStr for Verdict {
    type Err = UnknownVerdict;

    /// Reads what [`fmt::Display`] prints, and `unstable`, the older word for falling.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|verdict| verdict.to_string() == text);
        let older = (text == "unstable").then_some(Self::Falling);
        named.or(older).ok_or_else(|| UnknownVerdict { text: text.to_owned() })
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Verdict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The run in at most [`MOST_JUDGED`] means of neighbours, with the noise of one mean.
struct Judged {
    values: Vec<f64>,
    noise: f64,
}

impl Judged {
    fn new(window: &Window) -> Self {
        let rows = &window.rows;
        let count = rows.len().div_ceil(MOST_JUDGED);
        let mean = |rows: &[Point]| rows.iter().map(|p| p.value).sum::<f64>() / rows.len() as f64;
        let values: Vec<f64> = rows.chunks(count).map(mean).collect();
        let one_row = match noise::binomial_scale(rows) {
            Some(scale) => scale.max(noise::scatter(rows).unwrap_or(0.0)),
            None => noise::neighbour_scale(rows).max(window.noise.scale),
        };
        Self { values, noise: one_row / (count as f64).sqrt() }
    }

    /// Medians of three neighbours, so that one odd evaluation is neither peak nor fall.
    fn smoothed(&self) -> Vec<f64> {
        self.values.windows(3).map(|w| noise::median(w.to_vec())).collect()
    }

    fn has_fallen(&self) -> bool {
        let smooth = self.smoothed();
        let peak = smooth.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (fall, gain) = (peak - smooth[smooth.len() - 1], peak - smooth[0].min(self.values[0]));
        let by_chance = MEDIAN_OF_THREE * (2.0 * (smooth.len() as f64).ln()).sqrt();
        fall > (by_chance + FALL_NOISES) * self.noise
            && fall > FALL_SHARE * gain
            && fall > FALL_LEAST
    }

    fn is_flat(&self) -> bool {
        let third = (self.values.len() / 3).max(1);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let rise = mean(&self.values[self.values.len() - third..]) - mean(&self.values[..third]);
        rise.abs() <= FLAT_ERRORS * self.noise * (2.0 / third as f64).sqrt()
    }
}

fn is_structured(window: &Window, solved: &Solved) -> bool {
    let points = window.steady();
    let residual_scale = match &solved.predictor {
        Predictor::Profile(profile) => profile.residual_scale(),
        Predictor::Mixture(_) | Predictor::Posterior(_) => {
            let relative = &window.noise.relative[window.unit.len() - points.len()..];
            profile::best_sigmoid(points, window.floor, relative).1
        }
    };
    let own = noise::neighbour_scale(points).max(window.noise.scale);
    residual_scale > STRUCTURED_RATIO * own && residual_scale > STRUCTURED_LEAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_is_read_by_the_word_it_prints() {
        for verdict in Verdict::ALL {
            let text = serde_json::to_string(&verdict).unwrap();
            assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
        }
    }

    #[test]
    fn older_words_are_read_and_others_refused() {
        assert_eq!("unstable".parse(), Ok(Verdict::Falling));
        let error = serde_json::from_str::<Verdict>("\"splendid\"").unwrap_err();
        assert!(error.to_string().contains("splendid"), "{error}");
    }
}
