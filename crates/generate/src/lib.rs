//! Generation: continuous batching over a paged KV cache, on the trainer's own layers.
//!
//! In reading order: `request.rs` (what goes in and comes out), `generator.rs` (the step),
//! `flight.rs` (a step under way and the one after it),
//! `schedule.rs` (who runs next, on which pages), `sequence.rs` (one completion), `pool.rs` (free
//! pages), `cache.rs` (tensors of the cache and attention over it), `sampler.rs` and `noise.rs`
//! (from logits to tokens), `stop.rs` (stop strings), `continuation.rs` (the same rules for tokens
//! that another engine draws). `cuda` has the kernels and graphs of a GPU,
//! `check.rs` compares them with torch operations.

pub mod bench;
mod cache;
mod check;
mod continuation;
mod cuda;
mod end_tag;
mod flight;
mod generator;
mod loops;
mod noise;
mod pool;
mod request;
mod sampler;
mod schedule;
mod sequence;
mod stop;

pub use check::check_kernels;
pub use continuation::Continuation;
pub use cuda::breakdown::PartTime;
pub use end_tag::{AnswerStop, EndTag};
pub use generator::{CacheAfterExchange, Generator, GeneratorOptions, StepReport};
pub use pool::PoolUsage;
pub use request::{
    Completion, Finish, GREEDY, GenerateError, Interruption, Request, RequestError, RequestId,
    Sampling, Thinking, Token,
};
