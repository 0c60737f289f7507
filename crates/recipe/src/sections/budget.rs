//! `[budget]`: what a run may spend. Read by `crates/engine`.

use serde::{Deserialize, Deserializer, de::Error as _};

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

impl Copy for Axis {}
impl Eq for Axis {}

impl Axis {
    /// The axis of that name, spelled as in a file.
    pub fn named(name: &str) -> Option<Self> {
        Self::of(name)
    }

    /// Name and unit, for figures and tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::DeviceHours => "device-hours",
            Self::Tokens => "tokens generated",
            Self::Flops => "FLOPs",
            Self::Steps => "optimizer steps",
        }
    }
}

/// As a journal has written it.
impl<'de> Deserialize<'de> for Axis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::unknown_variant(&name, Self::NAMES))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_and_a_recipe_spell_an_axis_alike() {
        for name in Axis::NAMES {
            let written = format!("\"{name}\"");
            let axis: Axis = serde_json::from_str(&written).unwrap();
            assert_eq!((axis.name(), serde_json::to_string(&axis).unwrap()), (*name, written));
        }
        let error = serde_json::from_str::<Axis>("\"gpu-hours\"").unwrap_err().to_string();
        assert!(error.contains("expected one of `device-hours`"), "{error}");
    }
}
