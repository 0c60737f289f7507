//! A run as several processes over Gloo and Redis, as a user starts it, and what is left of it when
//! processes are killed, frozen or cut off.
//!
//! Each test has a Redis server of its own. `make test-cluster` finds or installs one and sets
//! SCALERL_REQUIRE_REDIS; without that the tests say that they skipped. Nothing waits for a fixed
//! time, and nothing is left running.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "numbers to read with --nocapture")]

#[path = "../../../engine/tests/audit/mod.rs"]
mod audit;
#[path = "../train/bench.rs"]
#[expect(dead_code, reason = "shared with the tests of one process")]
mod bench;
mod breaking;
mod cutting;
mod guarding;
mod hostile;
mod launching;
mod learning;
mod losing;
mod ranks;
mod run;
mod server;
