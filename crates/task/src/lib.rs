//! Tasks: where prompts come from and whether an answer is right.
//!
//! ```text
//! data ─▶ prompts ─▶ sampler (what comes next) ─▶ completion ─▶ verifier ─▶ Outcome ─▶ curriculum
//! ```
//!
//! Verifiers are in [`verify`], one file each; [`worker`] puts any of them behind a deadline. A
//! verifier that fails says [`Outcome::Error`], never "wrong". No tensors, no async here.

pub mod curriculum;
pub mod data;
pub mod grade;
pub mod outcome;
mod process;
pub mod question;
pub mod random;
mod record;
pub mod sampler;
mod sandbox;
pub mod second_opinion;
mod spawn;
pub mod synthetic;
pub mod verifier;
pub mod verify;
pub mod worker;

pub use outcome::Outcome;
pub use question::Question;
pub use sandbox::SandboxLimits;
pub use verifier::{Verifier, VerifierConfig, VerifierError};
pub use worker::VerifierPool;
