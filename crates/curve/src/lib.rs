//! The compute-performance law of RL post-training: fit it, forecast with it, compare runs by it.
//!
//! Pass rate follows a sigmoid in the logarithm of compute (arXiv 2510.13786), so a run can be
//! fitted early and its end forecast. This crate knows numbers only: no files, no tensors, no
//! async.

#![deny(missing_docs)]

pub mod backtest;
pub mod compare;
pub mod fit;
pub mod forecast;
pub mod law;
mod noise;
mod normal;
pub mod points;
pub mod sensitivity;
pub mod verdict;
pub mod window;

pub use backtest::{Backtest, Skipped, backtest};
pub use compare::{Pair, Separation, SharedFit, compare, fit_at_ceiling, share_ceiling};
pub use fit::{
    Ceiling, Estimate, Fit, FitError, FitOptions, Floor, FloorChoice, FloorSource, Method, Warmup,
    fit,
};
pub use forecast::{Forecast, Outlook, Target};
pub use law::{PowerLaw, Sigmoid};
pub use points::{Point, PointsError, Series, ValueRange};
pub use sensitivity::{CutRow, other_cuts};
pub use verdict::Verdict;
