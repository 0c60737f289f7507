//! Bounds how old a rollout can be when it is trained on.
//!
//! A prompt group takes a slot before it is sampled and keeps it until the step that trained on it
//! has reached the generator. There are `(steps_behind + 1) * groups_per_step` slots; together with
//! the rule by which finished groups are batched (`window.rs`) this keeps every group within
//! `steps_behind` steps (docs/design/staleness.md).
//!
//! ```text
//! prompts --take--> sample --> batch --> train --> adopt --drop--> free
//! ```
//!
//! Dropping a [`Slot`] frees it, so there is no `release` call to forget, and a group that fails or
//! is filtered out needs no code of its own. Nobody waits here: the conductor takes slots whenever
//! something has changed, and it is the only one that frees them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The right to have one prompt group anywhere between sampling and training.
#[derive(Debug)]
pub struct Slot(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// Hands out [`Slot`]s.
#[derive(Debug)]
pub struct Slots(Arc<Semaphore>);

impl Slots {
    /// `count` slots, all free.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// A free slot, if there is one.
    pub fn take(&self) -> Option<Slot> {
        self.0.clone().try_acquire_owned().ok().map(Slot)
    }

    /// Slots nobody holds.
    pub fn free(&self) -> usize {
        self.0.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipeline_makes_the_next_group_wait_until_one_is_dropped() {
        let slots = Slots::new(4);
        let mut held: Vec<Slot> = (0..4).map(|_| slots.take().unwrap()).collect();
        assert!(slots.take().is_none(), "a fifth group must wait");
        held.truncate(2);
        assert_eq!(slots.free(), 2);
        assert!(slots.take().is_some());
    }
}
