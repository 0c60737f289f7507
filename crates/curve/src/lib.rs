//! The compute-performance law of RL post-training: fit it, forecast with it, compare runs by it.
//!
#![doc = include_str!("../README.md")]
//!
//! ```text
//! points ─Series─> fit ──> Fit: parameters, verdict, forecast, more_compute, compute_for
//!           history ─┘       ├─ compare, lead: two runs      ├─ until_bounded: how long to wait
//!                            └─ backtest, Rival: how good?   └─ twins: other seeds
//! ```
//!
//! Types that callers fill in ([`Point`], [`FitOptions`], [`HistoryEntry`], [`Sigmoid`]) can be
//! written out; all that is handed back is `#[non_exhaustive]`.

#![deny(missing_docs)]

pub mod backtest;
pub mod compare;
mod compute;
pub mod fit;
pub mod forecast;
pub mod history;
pub mod law;
mod noise;
mod normal;
mod options;
pub mod points;
pub mod rivals;
pub mod sensitivity;
pub mod verdict;
mod wait;
pub mod window;

pub use backtest::{Backtest, Skipped, backtest};
pub use compare::{
    AHEAD, Lead, Pair, Separation, SharedFit, compare, fit_at_ceiling, lead, share_ceiling,
};
pub use compute::Compute;
pub use fit::{Ceiling, Estimate, Fit, FitError, Floor, FloorSource, HistoryShare, fit};
pub use forecast::{Forecast, MoreCompute, Outlook, Promise, Target};
pub use history::{HistoryEntry, Mismatch, Provenance, Twin, latest, twins};
pub use law::{PowerLaw, Sigmoid};
pub use noise::{FIXED_PROMPTS, Resolution, binomial_deviation, noise_over_binomial};
pub use normal::cdf as normal_cdf;
pub use options::{FitOptions, FloorChoice, Method, OptionError, Warmup};
pub use points::{Point, PointsError, Series, ValueRange};
pub use rivals::Rival;
pub use sensitivity::{CutRow, other_cuts};
pub use verdict::{UnknownVerdict, Verdict};
pub use wait::{Wait, until_bounded};
