//! The forecasting commands: `fit`, `compare`, `backtest`, `bench fit`.
//!
//! ```text
//! files --ingest--> runs --curve--> fits --> text | --json | --plot | --report
//! ```
//!
//! `options` holds what the commands share, `runs` reads the files, `history` the finished runs to
//! learn from. How fits are drawn and said is in `scalerl-report`.
//!
//! What is public is what the Python package shares with the commands, so that both say the same.

pub mod backtest;
pub(crate) mod bench;
pub mod compare;
pub mod fit;
pub mod history;
pub(crate) mod options;
pub(crate) mod output;
pub mod runs;
