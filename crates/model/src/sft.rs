//! Supervised fine-tuning: examples with answers in, a Hugging Face folder out.
//!
//! `data.rs` turns JSONL into tokens and says which of them are answers; `run.rs` is the loop.

mod data;
mod order;
mod run;

pub use data::{DataError, Example, Reader};
pub use run::{OnProgress, Progress, SftError, SftOptions, SftOutcome, run};
