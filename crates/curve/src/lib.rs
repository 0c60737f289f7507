//! The compute-performance law of RL post-training: fit it, forecast with it, compare runs by it.
//!
//! Pass rate follows a sigmoid in the logarithm of compute (arXiv 2510.13786), so a run can be
//! fitted early and its end forecast. This crate knows numbers only: no files, no tensors, no
//! async.

#![deny(missing_docs)]

pub mod law;
pub mod points;

pub use law::{PowerLaw, Sigmoid};
pub use points::{Point, PointsError, Series, ValueRange};
