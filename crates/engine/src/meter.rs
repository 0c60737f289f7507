//! Books every device-second to a role.
//!
//! Whoever uses a device holds a [`Busy`] guard. Whenever a guard comes or goes, the time since the
//! last change is booked by what was going on: devices that several roles use at once are divided
//! evenly among them, devices that nobody uses are idle. So the roles add up to the time held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scalerl_journal::Ledger;
use tokio::time::Instant;

use crate::settings::Devices;

/// What a device is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Generate,
    Evaluate,
    Train,
}

#[derive(Debug)]
struct Book {
    devices: Devices,
    /// Operations for one token of the generator.
    flops_per_token: f64,
    last: Instant,
    /// Guards held, by role.
    busy: [usize; 3],
    ledger: Ledger,
}

/// The ledger of a running engine; cheap to clone. The lock is held for arithmetic only.
#[derive(Debug, Clone)]
pub(crate) struct Meter(Arc<Mutex<Book>>);

/// Says that a role is at work until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    meter: Meter,
    role: Role,
}

impl Meter {
    /// Goes on from what was spent before.
    pub(crate) fn new(devices: Devices, flops_per_token: f64, ledger: Ledger) -> Self {
        let last = Instant::now();
        Self(Arc::new(Mutex::new(Book { devices, flops_per_token, last, busy: [0; 3], ledger })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn busy(&self, role: Role) -> Busy {
        let mut book = self.book();
        book.settle();
        book.busy[role as usize] += 1;
        Busy { meter: self.clone(), role }
    }

    /// What was spent until now.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut book = self.book();
        book.settle();
        book.ledger
    }

    pub(crate) fn add_generated(&self, prompt_tokens: u64, tokens: u64) {
        let mut book = self.book();
        book.ledger.tokens_generated += tokens;
        book.ledger.flops += book.flops_per_token * (prompt_tokens + tokens) as f64;
    }

    pub(crate) fn add_trained(&self, tokens: u64, flops: f64) {
        let mut book = self.book();
        book.ledger.tokens_trained += tokens;
        book.ledger.flops += flops;
    }

    pub(crate) fn add_evaluated(&self, tokens: u64) {
        self.book().ledger.tokens_evaluated += tokens;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut book = self.meter.book();
        book.settle();
        book.busy[self.role as usize] -= 1;
    }
}

impl Book {
    fn settle(&mut self) {
        let now = Instant::now();
        let seconds = now.duration_since(self.last).as_secs_f64();
        self.last = now;
        if seconds <= 0.0 {
            return;
        }
        let [generates, evaluates, trains] = self.busy.map(|count| count > 0);
        let ledger = &mut self.ledger;
        ledger.wall_s += seconds;
        ledger.generator_busy_s += if generates || evaluates { seconds } else { 0.0 };
        ledger.trainer_busy_s += if trains { seconds } else { 0.0 };
        let roles = &mut ledger.device_seconds;
        let mut divide = |held: f64, is_active: [bool; 3]| {
            let active = is_active.iter().filter(|is_active| **is_active).count();
            if active == 0 {
                roles.idle += held;
                return;
            }
            let share = |is_active: bool| if is_active { held / active as f64 } else { 0.0 };
            roles.generate += share(is_active[0]);
            roles.evaluate += share(is_active[1]);
            roles.train += share(is_active[2]);
        };
        match self.devices {
            Devices::Shared { count } => divide(seconds * count, [generates, evaluates, trains]),
            Devices::Apart { generator, trainer } => {
                divide(seconds * generator, [generates, evaluates, false]);
                divide(seconds * trainer, [false, false, trains]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    async fn work(devices: Devices) -> Ledger {
        let meter = Meter::new(devices, 0.0, Ledger::default());
        let second = Duration::from_secs(1);
        advance(second).await;
        let generate = meter.busy(Role::Generate);
        advance(second * 2).await;
        let train = meter.busy(Role::Train);
        advance(second * 4).await;
        drop(generate);
        advance(second * 8).await;
        drop(train);
        let _evaluate = meter.busy(Role::Evaluate);
        advance(second * 16).await;
        meter.ledger()
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} is not {expected}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_device_is_divided_and_the_roles_add_up() {
        let ledger = work(Devices::Shared { count: 2.0 }).await;
        let roles = ledger.device_seconds;
        close(roles.idle, 2.0);
        close(roles.generate, 4.0 + 4.0);
        close(roles.train, 4.0 + 16.0);
        close(roles.evaluate, 32.0);
        close(roles.total(), 2.0 * ledger.wall_s);
        close(ledger.trainer_busy_s, 12.0);
        close(ledger.generator_busy_s, 22.0);
    }

    #[tokio::test(start_paused = true)]
    async fn roles_with_their_own_devices_idle_apart() {
        let ledger = work(Devices::Apart { generator: 1.0, trainer: 3.0 }).await;
        let roles = ledger.device_seconds;
        close(roles.generate, 6.0);
        close(roles.evaluate, 16.0);
        close(roles.train, 36.0);
        close(roles.idle, (1.0 + 8.0) + 3.0 * (3.0 + 16.0));
        close(roles.total(), 4.0 * ledger.wall_s);
    }
}
