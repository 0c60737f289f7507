//! What an error of a device without room adds: who holds most there, and what would hold less.
//!
//! Counted when a trainer is made: a process that is out of memory should not have to count.

use scalerl_model::config::ModelConfig;
use scalerl_recipe::Recipe;
use scalerl_rollout::TrainerError;
use scalerl_torch::shim;
use tch::Device;

use super::fit::MOST_IS_HELD;
use super::{Setting, out_of_room};

/// The words of one rank's errors.
#[derive(Debug, Clone, Default)]
pub struct Holders(Option<String>);

impl Holders {
    /// Those of the `rank`-th trainer; none for a model that cannot be counted.
    pub fn of(setting: &Setting, rank: u64) -> Self {
        Self(out_of_room(setting, rank).ok())
    }

    /// Those of the `rank`-th trainer, on a device that says how much it has.
    pub(crate) fn on(device: Device, recipe: &Recipe, config: &ModelConfig, rank: u64) -> Self {
        let bytes = match device {
            Device::Cuda(_) => shim::device_memory(device).ok().map(|(_, all)| all),
            _ => None,
        };
        Self::of(&Setting::of(recipe, config, device, bytes), rank)
    }

    /// An error of a device without room says who holds it. Any other stays as it is, and so does one
    /// that says so already: of a rank whose device it was.
    pub(crate) fn name_in(&self, error: TrainerError) -> TrainerError {
        match (error, &self.0) {
            (TrainerError::OutOfMemory { version, reason }, Some(holders))
                if !reason.contains(MOST_IS_HELD) =>
            {
                // The allocator goes on with settings of torch's that nobody here has.
                let first = reason.lines().next().unwrap_or_default();
                TrainerError::OutOfMemory { version, reason: format!("{first}; {holders}") }
            }
            (other, _) => other,
        }
    }
}
