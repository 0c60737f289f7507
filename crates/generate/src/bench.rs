//! Timings of generation, and how far it is from the trainer's own numbers.

mod decode;
mod mismatch;

pub use decode::{DecodeBench, DecodeTiming, bench_decode, measured_bandwidth};
pub use mismatch::{Mismatch, bench_mismatch};
