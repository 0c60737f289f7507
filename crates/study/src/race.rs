//! Racing: which variants of a study go on, and which are paused because little is lost without them.
//!
//! ```text
//! all variants ──run to the next rung──> points ──forecast──> Outlook of each end
//!       ^                                                        │ decide: expected loss ≤ limit
//!       └── of those kept, the ones furthest behind <── kept ────┘
//! ```
//!
//! **The rule.** Top is the best end of the variants that are open. The one is paused whose absence
//! raises E[top − best of the rest] least, then the next, while that stays within a limit. Outlooks
//! of paused variants are kept: where doing without all of them is expected to cost more than a
//! larger limit, because those that went on disappoint, the one that helps most comes back. Nothing
//! is deleted: a paused run is an ordinary run that was asked to stop.
//!
//! **Ties.** Of two variants that will end alike one is paused, because little is lost; it is not
//! beaten by that. Who wins is said by the margins of a full study (`cli`), never by the race.
//!
//! Not here: processes (`cli`), forecasts (`curve`).

mod contest;
mod log;
mod outlook;
pub mod replay;
mod report;
mod rule;
pub mod simulated;

pub use contest::{Contestant, RacingRun};
pub use log::{Decision, Judged, RaceLog};
pub use outlook::Outlook;
pub use report::{Leader, RaceReport, VariantReport};
pub use rule::{Choice, Limits, Stage, choose, next_to_run};

/// Shares of the budget at which variants are compared; the last is the end. Not before a quarter:
/// at an eighth forecasts err by 0.02 to 0.08.
pub const RUNGS: [f64; 5] = [0.25, 0.375, 0.5, 0.75, 1.0];
/// A run is not forecast with fewer points.
pub const LEAST_POINTS: usize = 4;
/// The expected loss up to which variants are paused, in pass rate, and above which they come back.
/// Chosen on recorded studies and on simulated ones other than those of `docs/results/racing.md`.
pub const USUAL_LIMITS: Limits = Limits { pause: 0.004, back: 0.010 };
