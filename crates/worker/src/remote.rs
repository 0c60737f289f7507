//! Generators in other processes, reached over Redis Streams.
//!
//! ```text
//! engine --generate--> RedisGenerator ──XADD──► requests ──XREADGROUP──► serve() --> LocalGenerator
//!                          ▲   dispatcher ◄─XREAD── answers  ◄────XADD─────    │
//!                          │     └──XACK, when the answer is in the trainer's hands
//! engine --adopt--> WeightChannel ═══ c10d, never through Redis ═══► WeightMember
//! ```
//! The trainer's memory is the truth: it keeps every request until it has an answer, and whatever
//! Redis has lost it sends again. A generator that dies leaves its requests unacknowledged; another
//! claims them. Answers are told apart by the request's id, and the first good one counts. All of it is
//! signed with the session's token, which is not in Redis (`session.rs`).
//!
//! **Lag.** A request names the lowest version its tokens may have: what `adopt` had brought to all
//! healthy generators when it was asked. A generator without it waits for its weights first; an
//! answer with an older token is refused by the trainer. Hence the promise of `adopt`, that new
//! tokens come from the new weights, holds whoever was frozen or away in the meantime.
//!
//! Nothing here limits how much is under way: the engine's slots do.
//!
//! Not here: who starts processes (`cli`), what the fleet's signs mean (`engine::fleet`).

mod broker;
mod dispatch;
mod dispatcher;
mod intake;
mod serve;
mod session;
mod trainer;
mod wire;

use std::time::Duration;

use thiserror::Error;

pub use broker::Broker;
pub use serve::{Ended, ServeSetup, Served, serve};
pub use session::{Announcement, Found, find};
pub use trainer::{RedisGenerator, Signs};
pub use wire::{Beat, Unusable};

/// How long the two ends wait for each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RemoteOptions {
    /// Between two signs of life.
    pub heartbeat: Duration,
    /// A request that its generator has not touched for so long is another's.
    pub claim: Duration,
    /// For one answer of Redis.
    pub reply: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(1),
            claim: Duration::from_secs(20),
            reply: Duration::from_secs(10),
        }
    }
}

/// Why an end cannot go on. What passes by itself (Redis restarted) is waited for instead.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RemoteError {
    /// The address is none.
    #[error("`{url}` is no address of a Redis server: {reason}")]
    Address { url: String, reason: String },
    #[error("Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("the session of `{name}` cannot be used: {reason}")]
    Session { name: String, reason: String },
    #[error(transparent)]
    Channel(#[from] crate::channel::ChannelError),
    #[error(transparent)]
    Generator(#[from] scalerl_rollout::GeneratorError),
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

impl RemoteError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Address { .. } => "write redis://HOST:PORT, or rediss://:PASSWORD@HOST:PORT",
            Self::Redis(_) => "see whether the server runs and the password is right",
            Self::Session { .. } => {
                "start all processes from the same build and with the same SCALERL_TOKEN"
            }
            Self::Channel(error) => error.hint(),
            Self::Generator(_) => "see what ended the generator, then start it again",
            Self::Thread(_) => "see how many processes and threads this user may have",
        }
    }
}
