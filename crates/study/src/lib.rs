//! Many runs as one question: which variant of a recipe has the higher ceiling, which is faster?
//!
//! ```text
//! STUDY.toml ──file──> StudyFile ──plan──> Plan: variants × seeds, every recipe checked
//!                                            │ (the CLI runs `scalerl train` for each)
//! run folders ──state──> where each stands   │
//!      └───────record──> RunRecord ──────────┴─analysis──> fits, margins, verdicts
//!                          │  └─export──> points.csv + runs.jsonl, small enough to commit
//!                          └──ledger────> forecast at half the compute against what came
//! ```
//!
//! A study keeps no state of its own: what has been done is what the run folders say.
//!
//! Not here: processes, figures, words (`cli`), fitting (`curve`).

#![deny(missing_docs)]

pub mod analysis;
pub mod date;
mod error;
pub mod export;
pub mod fake;
mod file;
pub mod history;
pub mod ledger;
pub mod margin;
pub mod pilot;
mod plan;
pub mod power;
pub mod prediction;
pub mod race;
pub mod record;
pub mod shipped;
pub mod state;
pub mod summary;
pub mod tuning;

pub use error::StudyError;
pub use file::{BudgetTable, StudyFile, TuneTable, VariantTable};
pub use plan::{Budget, Job, Plan, Purpose, Tune, Variant, is_of_sweep};
