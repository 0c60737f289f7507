//! What a study found: tables and sentences (`tables.rs`), figures and the page (`pages.rs`).

pub mod pages;
pub mod tables;
