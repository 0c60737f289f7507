//! Tasks: where prompts come from and whether an answer is right.

pub mod outcome;
pub mod verify;

pub use outcome::Outcome;
