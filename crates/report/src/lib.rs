//! Pages, tables and sentences about runs and studies.
//!
//! ```text
//! run folder --run::RunReport--> a page | a dozen numbers for the terminal | JSON
//! study      --study::{tables, pages}--> tables, figures, a page
//! forecasts  --predictions--> the page of every forecast beside what came
//! ```
//!
//! `words.rs`, `table.rs` and `figures.rs` say fits and forecasts the same way everywhere.
//!
//! Not here: charts and HTML themselves (`board`), reading and deciding (`journal`, `study`, `curve`),
//! options and terminals (`cli`).

pub mod command;
pub mod figures;
pub mod predictions;
pub mod run;
pub mod study;
pub mod table;
pub mod words;
