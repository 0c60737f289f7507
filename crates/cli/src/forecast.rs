//! The forecasting commands: `fit`, `compare`, `backtest`, `bench fit`.
//!
//! ```text
//! files --ingest--> runs --curve--> fits --> text | --json | --plot | --report
//! ```
//!
//! `options` holds what the commands share, `runs` reads the files, `history` the finished runs to
//! learn from. How fits are drawn and said is in `scalerl-report`.

pub(crate) mod backtest;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod fit;
pub(crate) mod history;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod runs;
