//! Whether a mathematical answer is right.
//!
//! ```
//! use scalerl_grader::{Grader, Verdict};
//!
//! let grader = Grader::default();
//! assert_eq!(grader.grade("1/2", "So the probability is $\\boxed{0.5}$."), Verdict::Equal);
//! assert_eq!(grader.grade("x^2-1", "$(x-1)(x+1)$"), Verdict::Equal);
//! assert_eq!(grader.grade("\\{1, 2\\}", "The roots are 2 and 3."), Verdict::Different);
//! ```
//!
//! A completion is searched for its answer ([`find`]), the answer is read into a tree ([`read`]),
//! and two trees are compared ([`compare`]):
//!
//! ```text
//! completion ── find ──▶ candidate ── read ──▶ tree ─┐
//! gold answer ────────────────────── read ──▶ tree ─┴─ compare ──▶ Equal | Different | Undecided
//! ```
//!
//! Safe by construction on whatever a model writes: the length of an answer, its nesting, the size
//! of its numbers and the steps of a comparison are bounded; patterns run on a linear engine; a
//! deadline closes what is left. What cannot be decided is [`Verdict::Undecided`], never a guess.
//!
//! Not here: data sets, prompts, other kinds of answers, and anything that touches files, threads
//! or the network.
#![deny(missing_docs)]

mod compare;
mod expr;
mod find;
mod grader;
mod options;
mod read;
mod verdict;

pub use grader::{Grader, last_boxed};
pub use options::{MatchType, Options, OptionsError};
pub use verdict::{Reason, Verdict};
