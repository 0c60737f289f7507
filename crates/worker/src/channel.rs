//! Weights from the trainer to generators in other processes.
//!
//! ```text
//! trainer    step -> publish -> WeightStore ─┐           (copy on the device; the step goes on)
//! channel    own thread:               ▼
//!            offer ─────────────► members            who is there?
//!                  ◄───────────── answer             ready, or not this model
//!            go (group, rank) ──► members
//!            broadcast ═════════► all of them at once, over Gloo or NCCL
//!                  ◄───────────── done
//! generator  between decode steps: take the newest from its own WeightStore
//! ```
//! Small notes go through the channel's store, weights through a process group. The group is formed
//! from those who answered, kept while they are the same, and formed anew, under a new name, when
//! somebody has come or gone. Who does not answer or does not finish in time is dropped, told so,
//! and the round is repeated for the others: nobody else waits for a dead member more than once.
//!
//! A member that comes, or comes back, takes a new number and is sent the current weights before
//! anything else; until then it has nothing to serve with. If weights come faster than they can be
//! sent, the newest are sent: versions only grow, and may skip.
//!
//! Not here: when a generator switches (its own loop), who restarts a dead one (`engine`, launcher).

mod leader;
mod member;
mod notes;
mod round;

use std::time::Duration;

use scalerl_torch::collective::Transport;
use thiserror::Error;

pub use leader::{ChannelEvent, MemberStatus, WeightChannel};
pub use member::{Received, WeightMember};

/// How the ends of a channel meet, and how long they wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelOptions {
    /// For the store to be reached, at the start.
    pub meeting: Duration,
    /// For a member to say that it is there.
    pub answer: Duration,
    /// For all weights to arrive.
    pub transfer: Duration,
    /// How weights travel; the trainer decides for all. `None`: NCCL for weights on a GPU, which
    /// wants a GPU for each process. Processes that share one need Gloo.
    pub transport: Option<Transport>,
}

/// Groups form in well under a second; who dies in that moment holds all others up for so long.
const FORMING: Duration = Duration::from_secs(20);

impl ChannelOptions {
    /// For a group to form.
    fn forming(&self) -> Duration {
        self.transfer.min(FORMING)
    }
}

impl Default for ChannelOptions {
    /// 16 GB at 1 GB/s are 16 s; a member answers from a thread of its own.
    fn default() -> Self {
        Self {
            meeting: Duration::from_mins(10),
            answer: Duration::from_secs(10),
            transfer: Duration::from_mins(2),
            transport: None,
        }
    }
}

/// Why an end of a channel cannot go on.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ChannelError {
    #[error(transparent)]
    Collective(#[from] scalerl_torch::collective::CollectiveError),
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
    /// The other end speaks another version.
    #[error("`{key}` holds `{text}`, which this version cannot read")]
    Unreadable { key: String, text: String },
    #[error("the trainer sends another model: {reason}")]
    OtherModel { reason: String },
}

impl ChannelError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Collective(error) => error.hint(),
            Self::Torch(_) => "check the free memory",
            Self::Unreadable { .. } => "start all processes from the same build",
            Self::OtherModel { .. } => "give trainer and generators the same recipe",
        }
    }
}
