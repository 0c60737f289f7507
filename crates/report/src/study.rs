//! What a study found: tables and sentences (`tables.rs`), figures and the page (`pages.rs`),
//! what a race has paused (`race.rs`).

pub mod pages;
pub mod race;
pub mod tables;
