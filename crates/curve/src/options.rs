//! What to fit and how: the method, the floor, the warm-up cut, the history.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::compute::Compute;
use crate::history::HistoryEntry;

/// How the curve is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// Exact mixture of normals over a grid, which can learn from finished runs.
    #[default]
    Mixture,
    /// Posterior over a grid with a local trend, read off random draws.
    Marginal,
    /// Least squares with profile-likelihood intervals.
    Profile,
    /// The grid of arXiv 2510.13786.
    Paper,
    /// R = A - D / C^B.
    PowerLaw,
}

impl Method {
    /// Every method, default first.
    pub const ALL: [Self; 5] =
        [Self::Mixture, Self::Marginal, Self::Profile, Self::Paper, Self::PowerLaw];

    /// Is it a posterior over a grid, which keeps every point and fits its floor?
    pub(crate) fn is_posterior(self) -> bool {
        matches!(self, Self::Mixture | Self::Marginal)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mixture => "mixture",
            Self::Marginal => "marginal",
            Self::Profile => "profile",
            Self::Paper => "paper",
            Self::PowerLaw => "power-law",
        })
    }
}

/// An option that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum OptionError {
    /// No method of that name.
    #[error("unknown method `{text}`: one of mixture, marginal, profile, paper, power-law")]
    Method { text: String },
    /// No floor.
    #[error("`{text}` is not `first`, `fit` or a number")]
    Floor { text: String },
    /// No warm-up cut.
    #[error("`{text}` is not `auto` or a compute")]
    Warmup { text: String },
}

impl FromStr for Method {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|method| method.to_string() == text);
        found.ok_or_else(|| OptionError::Method { text: text.to_owned() })
    }
}

/// Where the floor R0 comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FloorChoice {
    /// The first measured point, also when it lies before the warm-up cut.
    First,
    /// A free parameter.
    Fit,
    /// A known number.
    Given(f64),
}

impl FromStr for FloorChoice {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "first" => Ok(Self::First),
            "fit" => Ok(Self::Fit),
            number => number
                .parse()
                .ok()
                .filter(|value: &f64| value.is_finite())
                .map(Self::Given)
                .ok_or_else(|| OptionError::Floor { text: number.to_owned() }),
        }
    }
}

/// Which early points are left out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Warmup {
    /// The posteriors keep every point and let the data decide how far to trust the early ones;
    /// the other methods use the rule of [`crate::window`].
    #[default]
    Auto,
    /// Points before this compute are left out.
    Before(Compute),
}

impl FromStr for Warmup {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        text.parse()
            .ok()
            .filter(|value: &f64| value.is_finite() && *value >= 0.0)
            .map(|value| Self::Before(Compute(value)))
            .ok_or_else(|| OptionError::Warmup { text: text.to_owned() })
    }
}

/// What to fit and how. Made from its default, so that new options change no caller:
///
/// ```
/// use scalerl_curve::{Compute, FitOptions, Method};
/// let options = FitOptions {
///     method: Method::Profile,
///     until: Some(Compute(8_000.0)),
///     ..FitOptions::default()
/// };
/// assert!(options.history.is_empty());
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct FitOptions<'h> {
    /// The method.
    pub method: Method,
    /// The floor; `None` is `fit` for the posteriors and `first` for the others.
    pub floor: Option<FloorChoice>,
    /// The warm-up cut.
    pub warmup: Warmup,
    /// Points after this compute are left out.
    pub until: Option<Compute>,
    /// Holds the ceiling at this value (comparison at a shared ceiling).
    pub ceiling: Option<f64>,
    /// Finished runs of the same model and evaluation, the latest last; only `mixture` learns from
    /// them.
    pub history: &'h [HistoryEntry],
}

impl FitOptions<'_> {
    /// The floor that will be used.
    pub fn floor_choice(&self) -> FloorChoice {
        self.floor.unwrap_or(match self.method {
            method if method.is_posterior() => FloorChoice::Fit,
            _ => FloorChoice::First,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_read_by_the_name_it_prints() {
        for method in Method::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        let error = "magic".parse::<Method>().unwrap_err();
        assert!(error.to_string().contains("mixture"), "{error}");
    }

    #[test]
    fn floors_and_cuts_are_words_or_numbers() {
        assert_eq!("0.4".parse(), Ok(FloorChoice::Given(0.4)));
        assert_eq!("fit".parse(), Ok(FloorChoice::Fit));
        assert!("nan".parse::<FloorChoice>().is_err());
        assert_eq!("150".parse(), Ok(Warmup::Before(Compute(150.0))));
        assert!("-1".parse::<Warmup>().is_err());
    }
}
