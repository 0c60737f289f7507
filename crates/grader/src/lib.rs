//! Whether a mathematical answer is right.
//!
//! ```
//! use scalerl_grader::{Grader, Verdict};
//!
//! let grader = Grader::default();
//! assert_eq!(grader.grade("1/2", "So the probability is $\\boxed{0.5}$."), Verdict::Equal);
//! assert_eq!(grader.grade("x^2-1", "$(x-1)(x+1)$"), Verdict::Equal);
//! assert_eq!(grader.grade("(-\\infty, 3)", "\\boxed{x < 3}"), Verdict::Equal);
//! assert_eq!(grader.grade("\\{1, 2\\}", "The roots are 2 and 3."), Verdict::Different);
//! ```
//!
//! As a reward it must not be cheap to please. [`Options::evaluated`] asks for an answer that is
//! worked out:
//!
//! ```
//! use scalerl_grader::{Grader, Options, Verdict};
//!
//! let mut options = Options::default();
//! options.evaluated = true;
//! let judge = Grader::try_new(options)?;
//! assert_eq!(judge.grade("228", "\\boxed{228}"), Verdict::Equal);
//! assert_eq!(judge.grade("228", "\\boxed{56 + 52 + 72 + 48}"), Verdict::Different);
//! assert_eq!(judge.grade("228", "The answer is 227 or 228."), Verdict::Different);
//! # Ok::<(), scalerl_grader::OptionsError>(())
//! ```
//!
//! A completion is searched for its answer, the answer is read into a tree, and two trees are
//! compared:
//!
//! ```text
//! completion ── find ──▶ candidate ── read ──▶ tree ─┐
//! gold answer ────────────────────── read ──▶ tree ─┴─ compare ──▶ Equal | Different | Undecided
//! ```
//!
//! Safe by construction on whatever a model writes: the length of an answer, its nesting, the size
//! of its numbers and the steps of a comparison are bounded; patterns run on a linear engine; a
//! deadline closes what is left; a mebibyte of stack is enough. What cannot be decided is
//! [`Verdict::Undecided`] with its [`Reason`], never a guess.
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

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

pub use grader::{Grader, last_boxed};
pub use options::{MatchType, Options, OptionsError};
pub use verdict::{Reason, Verdict};
