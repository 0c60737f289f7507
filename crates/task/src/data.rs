//! Problems out of files.
//!
//! ```text
//! file or folder ─ read ─▶ rows ─ template ─▶ problems ─ split ─▶ training, held out ─▶ pool
//! ```
//!
//! JSONL, JSON, CSV, Parquet and Hugging Face folders become rows of JSON; the recipe's template makes
//! each row a [`crate::Problem`]. Not here: which prompt comes next (`sampler.rs`).

mod duplicates;
mod fingerprints;
mod pool;
mod read;
mod split;
mod template;

pub use fingerprints::{Fingerprints, ProblemsChanged};
pub use pool::{DataError, Pool};
pub use read::{ReadError, Row, read_rows};
pub use split::{HeldOut, SplitError};
pub use template::{TemplateError, column};

pub(crate) use duplicates::without_measured;
pub(crate) use pool::{Files, Set, read_problems, seeds};
pub(crate) use template::AnswerColumn;
