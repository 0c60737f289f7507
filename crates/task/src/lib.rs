//! Tasks: from a row of data to a prompt, from a completion to a reward.
//!
//! ```text
//! recipe ─▶ problems (data, synthetic) ─ render ─▶ prompts ─ sampler, curriculum ─▶ what comes next
//! completion ─ format ─▶ answer ─ verifier ─▶ outcome ─ grader ─▶ reward
//! ```
//!
//! A recipe's choices are taken as they are, and what is handed on are `rollout`'s nouns. Verifiers
//! are in [`verify`], one file each; [`worker`] puts any of them behind a deadline. A verifier that
//! fails says [`Outcome::Error`], never "wrong". No tensors, no tokenizers here.

pub mod answer;
pub mod curriculum;
pub mod data;
pub mod grade;
pub mod grader;
pub mod interpreter;
pub mod outcome;
pub mod problem;
pub mod problems;
mod process;
mod process_pool;
pub mod prompts;
pub mod random;
mod record;
pub mod sampler;
mod sandbox;
pub mod second_opinion;
mod spawn;
pub mod synthetic;
pub mod verifier;
mod verifier_files;
pub mod verify;
pub mod worker;

pub use answer::{Answer, answer_end};
pub use grader::TaskGrader;
pub use interpreter::Interpreter;
pub use outcome::Outcome;
pub use problem::{Message, Problem};
pub use problems::{HELD_OUT, Problems, ProblemsError, ProblemsRecord, problems_of};
pub use process_pool::VerifierLog;
pub use prompts::{RenderError, Rendered, TaskPrompts};
pub use sandbox::SandboxLimits;
pub use verifier::{Resources, Verifier, VerifierError};
pub use worker::VerifierPool;
