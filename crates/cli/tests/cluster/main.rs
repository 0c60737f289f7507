//! A run as several processes over Gloo and Redis, as a user starts it, and what is left of it when
//! processes are killed, frozen or taken away.
//!
//! Each test has a Redis server of its own. Without `redis-server` the tests say that they skipped;
//! with SCALERL_REQUIRE_REDIS they fail (`make test-cluster`).

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "numbers to read with --nocapture")]

#[path = "../train/bench.rs"]
#[expect(dead_code, reason = "shared with the tests of one process")]
mod bench;
mod breaking;
mod launching;
mod learning;
mod server;
