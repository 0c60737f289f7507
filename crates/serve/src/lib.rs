//! A policy behind HTTP, spoken as OpenAI's and vLLM's clients speak it.
//!
//! ```text
//! client --HTTP--> routes --messages--> conversation --prompt ids--> Policy (a generator, or an
//!   episode of a run) --tokens as they are drawn--> choice --text, tool calls--> client
//! ```
//! In reading order: `server.rs` (start, stop; listening itself is crate `http`), `caller.rs` (whose key, which policy),
//! `session.rs` (a key of its own for a policy), `fields.rs` and `sampling.rs` (what is asked, what
//! is refused), `conversation.rs` (from messages to tokens, without making tokens from text again),
//! `flight.rs` (requests under way), `choice.rs` and `text.rs` (from tokens to text), `tools`
//! (calls in the forms that models write), `stream.rs` (events of a stream), `routes` (one file per
//! route).
//!
//! Not here: models and tokenizers. What the server needs of them is [`ChatFormat`].

#![deny(missing_docs)]

mod caller;
mod chat_format;
mod choice;
mod conversation;
mod error;
mod fields;
mod flight;
mod job;
mod logprobs;
mod metrics;
mod routes;
mod sampling;
mod server;
mod session;
mod stream;
mod text;
pub mod tools;
mod versions;

pub use chat_format::{ChatError, ChatFormat, Extras, Special};
pub use conversation::gap;
pub use scalerl_http::StartError;
pub use server::{Limits, Load, LoadOf, Server, ServerOptions};
pub use session::Session;
