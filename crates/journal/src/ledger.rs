//! The compute ledger: device-seconds by role, tokens, operations.
//!
//! A [`Ledger`] is a running total of one line of history. Every device-second held is booked to
//! exactly one role, so the roles add up to the time held. Work that a kill has undone is not in
//! it; that is booked apart, as lost.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

const SECONDS_PER_HOUR: f64 = 3600.0;

/// Device-seconds by what the device was held for.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RoleSeconds {
    /// Sampling completions to train on.
    pub generate: f64,
    /// Optimizer steps, publishing and saving weights.
    pub train: f64,
    /// Sampling completions of evaluations.
    pub evaluate: f64,
    /// Held and not used.
    pub idle: f64,
}

impl RoleSeconds {
    /// All device-seconds held.
    pub fn total(&self) -> f64 {
        self.generate + self.train + self.evaluate + self.idle
    }
}

/// What was spent until some moment.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Device-seconds by role.
    pub device_seconds: RoleSeconds,
    /// Seconds in which the generator worked, for training or evaluation.
    pub generator_busy_s: f64,
    /// Seconds in which the trainer worked.
    pub trainer_busy_s: f64,
    /// Seconds by the clock.
    pub wall_s: f64,
    /// Tokens generated for training, injected ones included.
    pub tokens_generated: u64,
    /// Tokens run through the trainer, prompts included.
    pub tokens_trained: u64,
    /// Tokens generated for evaluations.
    pub tokens_evaluated: u64,
    /// Operations of the model in generating and training; evaluations are left out.
    pub flops: f64,
}

impl Ledger {
    /// Device-hours held, every role included: what a budget counts.
    pub fn device_hours(&self) -> f64 {
        self.device_seconds.total() / SECONDS_PER_HOUR
    }

    /// Device-hours without evaluations: the compute axis of a curve, which must not depend on
    /// how often somebody looked.
    pub fn training_hours(&self) -> f64 {
        (self.device_seconds.total() - self.device_seconds.evaluate) / SECONDS_PER_HOUR
    }

    /// Share of the time in which the generator had nothing to do.
    pub fn generator_idle_share(&self) -> f64 {
        idle_share(self.generator_busy_s, self.wall_s)
    }

    /// Share of the time in which the trainer had nothing to do.
    pub fn trainer_idle_share(&self) -> f64 {
        idle_share(self.trainer_busy_s, self.wall_s)
    }

    /// What was spent since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (a, b) = (self.device_seconds, earlier.device_seconds);
        Self {
            device_seconds: RoleSeconds {
                generate: (a.generate - b.generate).max(0.0),
                train: (a.train - b.train).max(0.0),
                evaluate: (a.evaluate - b.evaluate).max(0.0),
                idle: (a.idle - b.idle).max(0.0),
            },
            generator_busy_s: (self.generator_busy_s - earlier.generator_busy_s).max(0.0),
            trainer_busy_s: (self.trainer_busy_s - earlier.trainer_busy_s).max(0.0),
            wall_s: (self.wall_s - earlier.wall_s).max(0.0),
            tokens_generated: self.tokens_generated.saturating_sub(earlier.tokens_generated),
            tokens_trained: self.tokens_trained.saturating_sub(earlier.tokens_trained),
            tokens_evaluated: self.tokens_evaluated.saturating_sub(earlier.tokens_evaluated),
            flops: (self.flops - earlier.flops).max(0.0),
        }
    }

    /// The same with everything a clock has measured set to 0.
    #[must_use]
    pub fn without_times(self) -> Self {
        Self {
            device_seconds: RoleSeconds::default(),
            generator_busy_s: 0.0,
            trainer_busy_s: 0.0,
            wall_s: 0.0,
            ..self
        }
    }
}

fn idle_share(busy: f64, wall: f64) -> f64 {
    if wall > 0.0 { (1.0 - busy / wall).clamp(0.0, 1.0) } else { 0.0 }
}

impl Add for Ledger {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Ledger {
    fn add_assign(&mut self, other: Self) {
        let (a, b) = (&mut self.device_seconds, other.device_seconds);
        a.generate += b.generate;
        a.train += b.train;
        a.evaluate += b.evaluate;
        a.idle += b.idle;
        self.generator_busy_s += other.generator_busy_s;
        self.trainer_busy_s += other.trainer_busy_s;
        self.wall_s += other.wall_s;
        self.tokens_generated += other.tokens_generated;
        self.tokens_trained += other.tokens_trained;
        self.tokens_evaluated += other.tokens_evaluated;
        self.flops += other.flops;
    }
}
