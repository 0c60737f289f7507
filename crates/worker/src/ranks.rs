//! The trainer as several processes: data parallel, memory shared out.
//!
//! ```text
//! rank 0   RankedTrainer: check, split by tokens ─┐
//!                              command + shares    │ control (Gloo)
//! rank n   follow():     wait for a command ◄──────┘
//! all      pieces -> gradients -> sums of all ranks      control
//!          norm -> AdamW on the own parts                data (NCCL or Gloo)
//! ```
//! What else is shared out is `cluster.sharding` (`scalerl_model`, train/shard.rs).
//!
//! Weights of tokens have the whole batch's denominators in them (`objective::prepare`), so sums over
//! ranks are the sums of one process, to rounding. Rank 0 has the engine and the disk; the others
//! have neither and do what they are told.
//!
//! Nothing waits for ever ([`Deadlines`]). A rank that is lost ends rank 0's call with an error that
//! says so; the run then ends and is resumed from its checkpoint, with as many ranks as there are.
//! Checkpoints are written while steps go on (`saving.rs`).
//!
//! Not here: generators (`channel`), how processes are started (docs/scaling.md).

mod command;
mod follower;
mod launch;
mod leader;
mod pulse;
mod roll;
mod saving;
mod share;
mod start;
mod step;
mod team;
mod wire;

pub use follower::{FollowError, follow};
pub use launch::{Launch, LaunchError, StoreHost, TOKEN};
pub use leader::RankedTrainer;
pub use roll::{RankProcess, Roll, RollState};
pub use share::split;
pub(crate) use step::rank_error;
pub use team::{Deadlines, Team, WriteWatch};
