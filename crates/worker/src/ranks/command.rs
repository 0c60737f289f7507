//! What rank 0 tells the others to do next.
//!
//! A command is three numbers, broadcast; a step's shares follow, each to its rank.

use scalerl_model::train::{RankError, Ranks};
use scalerl_rollout::{PolicyVersion, TrainBatch};
use scalerl_torch::collective::CollectiveError;
use tch::{Device, Kind, Tensor};
use thiserror::Error;

use super::wire::{WireError, decode, encode};

/// A command as a follower gets it.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    /// Nothing to do; somebody is still there.
    Wait,
    Step {
        version: PolicyVersion,
        share: TrainBatch,
    },
    Save,
    Restore,
    ShowWeights,
    End,
}

/// A command as rank 0 gives it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order<'a> {
    Wait,
    /// One share a rank, rank 0's first.
    Step {
        version: PolicyVersion,
        shares: &'a [TrainBatch],
    },
    Save,
    Restore,
    /// Weights in parts, unit by unit.
    ShowWeights,
    End,
}

/// Why a command was not given or not understood.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CommandError {
    #[error(transparent)]
    Ranks(#[from] RankError),
    #[error("rank 0 sent command {code}, which this version does not know")]
    Unknown { code: i64 },
    #[error("rank 0 announced a share of {bytes} bytes, more than the {MOST_BYTES} allowed")]
    TooLarge { bytes: i64 },
    #[error("rank 0 sent a broken share: {0}")]
    Broken(String),
}

impl From<CollectiveError> for CommandError {
    fn from(error: CollectiveError) -> Self {
        Self::Ranks(error.into())
    }
}

impl From<tch::TchError> for CommandError {
    fn from(error: tch::TchError) -> Self {
        Self::Ranks(error.into())
    }
}

impl From<WireError> for CommandError {
    fn from(error: WireError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Half a billion tokens for one rank in one step.
const MOST_BYTES: i64 = 8 << 30;

const CPU_BYTES: (Kind, Device) = (Kind::Uint8, Device::Cpu);

/// Rank 0 tells everybody.
pub(super) fn give(ranks: &Ranks, order: Order<'_>) -> Result<(), CommandError> {
    let mut shares = Vec::new();
    let (code, version) = match order {
        Order::Wait => (0, 0),
        Order::Step { version, shares: batches } => {
            shares = batches.iter().map(encode).collect();
            // Rank 0 keeps its own.
            shares[0].clear();
            (1, version.0)
        }
        Order::Save => (2, 0),
        Order::Restore => (3, 0),
        Order::End => (5, 0),
        Order::ShowWeights => (6, 0),
    };
    let longest = shares.iter().map(Vec::len).max().unwrap_or(0);
    let head = Tensor::f_from_slice(&[code, version as i64, longest as i64])?;
    ranks.control.broadcast(&[&head], 0)?;
    if longest > 0 {
        let mut padded = Vec::with_capacity(shares.len());
        for mut share in shares {
            share.resize(longest, 0);
            padded.push(Tensor::f_from_slice(&share)?);
        }
        let own = Tensor::f_zeros([longest as i64], CPU_BYTES)?;
        ranks.control.scatter(&own, &padded)?;
    }
    Ok(())
}

/// The others wait to be told.
pub(super) fn take(ranks: &Ranks) -> Result<Command, CommandError> {
    let head = Tensor::f_zeros([3], (Kind::Int64, Device::Cpu))?;
    ranks.control.broadcast(&[&head], 0)?;
    let (code, version, bytes) =
        (head.f_int64_value(&[0])?, head.f_int64_value(&[1])?, head.f_int64_value(&[2])?);
    Ok(match code {
        0 => Command::Wait,
        1 => {
            if !(0..=MOST_BYTES).contains(&bytes) {
                return Err(CommandError::TooLarge { bytes });
            }
            let own = Tensor::f_zeros([bytes], CPU_BYTES)?;
            ranks.control.scatter(&own, &[])?;
            let share = decode(&Vec::<u8>::try_from(own)?)?;
            Command::Step { version: PolicyVersion(version as u64), share }
        }
        2 => Command::Save,
        3 => Command::Restore,
        5 => Command::End,
        6 => Command::ShowWeights,
        code => return Err(CommandError::Unknown { code }),
    })
}
