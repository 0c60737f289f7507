//! `[budget]`: what a run may spend. Read by `crates/engine`.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

section! {
    /// What a run may spend; it ends at whichever limit is met first.
    pub struct Budget {
        /// Optimizer steps.
        steps: Option<u64> = None, Rule::AtLeast(1.0);
        /// Device-hours, all roles and idle time included.
        device_hours: Option<f64> = None, Rule::Above(0.0);
        /// Hours by the clock.
        wall_hours: Option<f64> = None, Rule::Above(0.0);
        /// Tokens generated for training.
        tokens: Option<u64> = None, Rule::AtLeast(1.0);
        /// The compute axis of the live forecast.
        axis: Axis = Axis::default();
    }
}

choice! {
    /// The compute axis of the live forecast.
    pub enum Axis {
        /// Device-seconds held / 3600. Source: ScaleRL counts GPU-hours.
        "device-hours" DeviceHours,
        /// Tokens generated and trained on.
        "tokens" Tokens,
        /// Model FLOPs.
        "flops" Flops,
        /// Optimizer steps.
        "steps" Steps,
    }
}

impl Budget {
    /// Whether anything is limited at all.
    pub fn has_limit(&self) -> bool {
        self.steps.is_some()
            || self.device_hours.is_some()
            || self.wall_hours.is_some()
            || self.tokens.is_some()
    }
}
