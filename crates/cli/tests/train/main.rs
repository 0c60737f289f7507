//! `scalerl train` as a user runs it: a small model on a small task on a CPU, judged from the run
//! folders it leaves.
//!
//! All runs start from one warm-up (`bench.rs`), which is most of the time this takes.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "numbers to read with --nocapture")]

mod adapter;
#[path = "../../../engine/tests/audit/mod.rs"]
mod audit;
mod bench;
mod episodes;
mod exactness;
mod history;
mod hostile;
mod killing;
mod learning;
mod old_run;
mod refusing;
mod rewards;
#[path = "../../../engine/tests/spoil/mod.rs"]
mod spoil;
mod stopping;
