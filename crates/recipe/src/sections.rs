//! The sections of a recipe, one file each, and the limits that several of them share.
//!
//! A number that decides what is made, started or waited for has an upper limit: far above what
//! anybody means, and below what would end the process instead of with an error.

pub mod adapter;
pub mod budget;
pub mod cluster;
pub mod episode;
pub mod evaluation;
pub mod format;
pub mod model;
pub mod objective;
pub mod optimizer;
pub mod output;
pub mod pipeline;
pub mod sampling;
pub mod stopping;
pub mod task;
pub mod track;
pub mod warm_up;

/// Seconds of the longest wait, twelve days. Every clock can add that to now.
pub(crate) const LONGEST_S: f64 = 1e6;

/// Synthetic problems, all of which are held in memory.
pub(crate) const MOST_PROBLEMS: f64 = 1e7;

/// Operations of one synthetic problem.
pub(crate) const MOST_OPERATIONS: f64 = 1000.0;

/// Tokens of a prompt, of thinking, of an answer.
pub(crate) const MOST_TOKENS: f64 = 16_777_216.0;

/// Completions of one prompt, processes of one run, requests to one server.
pub(crate) const MOST_AT_ONCE: f64 = 65_536.0;

/// Prompts or examples of one step.
pub(crate) const MOST_PER_STEP: f64 = 1e6;
