//! What one comparison may cost.
//!
//! Every node that is visited and every digit that is computed is paid for here. When the budget
//! or the deadline is spent the comparison ends as undecided: hostile input cannot buy more work.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The budget is spent; the comparison stays undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spent;

pub(crate) struct Budget {
    left: Cell<u64>,
    until_clock: Cell<u32>,
    deadline: Instant,
}

/// Steps between two looks at the clock, which costs more than a step.
const CLOCK_EVERY: u32 = 2_048;

impl Budget {
    pub(crate) fn new(steps: u64, time: Duration) -> Self {
        Self {
            left: Cell::new(steps),
            until_clock: Cell::new(CLOCK_EVERY),
            deadline: Instant::now() + time,
        }
    }

    pub(crate) fn spend(&self, steps: u64) -> Result<(), Spent> {
        let Some(left) = self.left.get().checked_sub(steps) else {
            self.left.set(0);
            return Err(Spent);
        };
        self.left.set(left);
        let clock = self.until_clock.get().saturating_sub(1);
        self.until_clock.set(if clock == 0 { CLOCK_EVERY } else { clock });
        if clock == 0 && Instant::now() > self.deadline {
            self.left.set(0);
            return Err(Spent);
        }
        Ok(())
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}
