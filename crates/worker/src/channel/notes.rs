//! The notes that the two ends leave for each other in the store.
//!
//! A member's notes are numbered by rounds: offer, answer, go, done, then the next round. Both ends
//! count alike, because a round is over for both when there was a `go`, whatever became of it.

use std::time::Duration;

use scalerl_torch::collective::Store;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ChannelError;

/// Members take numbers here, from 1; the last that was given.
pub(super) const TICKETS: &str = "weights/tickets";

/// Names and shapes of ten thousand tensors are a megabyte.
const MOST_BYTES: usize = 4 << 20;

/// Trainer: these weights are to be had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub(super) version: u64,
    pub(super) kind: String,
    pub(super) shapes: Vec<Vec<i64>>,
}

/// Member: I am there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    Ready { name: String },
    Refused { name: String, reason: String },
}

/// Trainer: meet in this group, or do not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Go {
    Meet { epoch: u64, rank: usize, size: usize, is_nccl: bool },
    Dropped { reason: String },
}

/// Member: how it went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Done {
    Taken,
    Failed { reason: String },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Note {
    Offer,
    Answer,
    Go,
    Done,
}

pub(super) fn key(member: u64, round: u64, note: Note) -> String {
    let name = match note {
        Note::Offer => "offer",
        Note::Answer => "answer",
        Note::Go => "go",
        Note::Done => "done",
    };
    format!("weights/{member}/{round}/{name}")
}

/// Name of a group: never used twice.
pub(super) fn group(epoch: u64) -> String {
    format!("weights/group/{epoch}")
}

pub(super) fn write<T: Serialize>(store: &Store, key: &str, note: &T) -> Result<(), ChannelError> {
    let text = serde_json::to_vec(note).expect("plain data becomes JSON");
    Ok(store.set(key, &text)?)
}

/// Waits for a note.
pub(super) fn read<T: DeserializeOwned>(
    store: &Store,
    key: &str,
    timeout: Duration,
) -> Result<T, ChannelError> {
    let bytes = store.get(key, timeout)?;
    if bytes.len() > MOST_BYTES {
        let text = format!("{} bytes, {MOST_BYTES} allowed", bytes.len());
        return Err(ChannelError::Unreadable { key: key.to_owned(), text });
    }
    serde_json::from_slice(&bytes).map_err(|_| {
        let text = String::from_utf8_lossy(&bytes).chars().take(80).collect();
        ChannelError::Unreadable { key: key.to_owned(), text }
    })
}

/// Forgets the notes of a round that is over for good.
pub(super) fn forget(store: &Store, member: u64, round: u64) -> Result<(), ChannelError> {
    for note in [Note::Offer, Note::Answer, Note::Go, Note::Done] {
        store.delete(&key(member, round, note))?;
    }
    Ok(())
}
