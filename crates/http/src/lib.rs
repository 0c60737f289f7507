//! Serving HTTP beside whatever else a process does: where a server may listen, how many may connect,
//! how it ends; keys; bodies that are written while they are read.
//!
//! Not here: routes. `serve` has those of a policy, `watch` those of the live page.

#![deny(missing_docs)]

pub mod key;
mod listener;
mod patience;
mod stream;

pub use listener::{ListenOptions, Listener, StartError};
pub use stream::{EventSender, event_stream};
