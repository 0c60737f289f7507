//! Rewards in Python, with a plain `python3` and no packages: every form a function may have, and every
//! way in which it can go wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests, outside of any test")]

mod bench;
mod failing;
mod forms;
mod guide;
mod keeping;
mod refusing;
