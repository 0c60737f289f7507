//! The server over loopback HTTP, with a policy and a chat format that are known to the token.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chat;
mod client;
mod completions;
mod fake;
mod generate;
mod keys;
mod limits;
mod sessions;
mod streams;
