//! Advantages, filters, aggregation and losses of RL post-training, as plain numbers.
//!
//! ```text
//! Batch --prepare--> TrainBatch (advantage per completion, weight per token)
//!                     |            trainer's log-probs
//!                     +------------------+--> loss, gradient, ratio statistics
//! ```
//!
//! [`prepare()`] does everything that needs the whole batch, once: rewards, length penalty, filter,
//! advantages, masks, denominators. What is left for a trainer is a sum over tokens, so pieces of
//! a batch add up, on one device or many. [`loss()`] is the scalar reference of that sum in f64,
//! one file per surrogate; tensor forms are judged by it. Formulas: docs/objectives.md.
//!
//! Not here: tensors, and the choice of batches (`engine`).

#![deny(missing_docs)]

pub mod advantage;
pub mod aggregate;
pub mod filter;
pub mod kl;
pub mod length;
pub mod loss;
pub mod prepare;
pub mod ratio;
pub mod surrogate;

pub use loss::{BatchLoss, LossInputs, loss};
pub use prepare::{BatchCounts, PrepareError, PreparedBatch, prepare};
pub use ratio::RatioSums;
