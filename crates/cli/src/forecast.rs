//! The forecasting commands: `fit`, `compare`, `backtest`, `bench fit`.
//!
//! ```text
//! files --ingest--> runs --curve--> fits --> text | --json | --plot | --report
//! ```
//!
//! `options` holds what the commands share, `runs` reads the files, `history` the finished runs to
//! learn from, `figures` maps fits onto drawings, `words` says them in sentences.

pub(crate) mod backtest;
pub(crate) mod bench;
pub(crate) mod compare;
pub(crate) mod figures;
pub(crate) mod fit;
pub(crate) mod history;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod runs;
pub(crate) mod table;
pub(crate) mod words;
