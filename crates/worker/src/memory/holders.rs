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

    /// Those of the `rank`-th of so many trainers, on a device that says how much it has.
    pub(crate) fn on(
        device: Device,
        recipe: &Recipe,
        config: &ModelConfig,
        (rank, ranks): (usize, usize),
    ) -> Self {
        let bytes = match device {
            Device::Cuda(_) => shim::device_memory(device).ok().map(|(_, all)| all),
            _ => None,
        };
        let setting = Setting::of(recipe, config, device, bytes).with_ranks(ranks as u64);
        Self::of(&setting, rank as u64)
    }

    /// An error of a device without room says who holds it. Any other stays as it is, and so does one
    /// that says so already: of a rank whose device it was.
    pub(crate) fn name_in(&self, error: TrainerError) -> TrainerError {
        match (error, &self.0) {
            (TrainerError::OutOfMemory { version, reason }, Some(holders))
                if !reason.contains(MOST_IS_HELD) =>
            {
                let said = of_allocator(&reason);
                TrainerError::OutOfMemory { version, reason: format!("{said}; {holders}") }
            }
            (other, _) => other,
        }
    }
}

/// What the allocator says of its memory. It goes on with settings of torch's that nobody here has, and
/// other ranks hear only so much.
fn of_allocator(reason: &str) -> &str {
    const ADVICE: &str = " If reserved but unallocated";
    let line = reason.lines().next().unwrap_or_default();
    let line = line.find(ADVICE).map_or(line, |at| &line[..at]);
    let longest = line.floor_char_boundary(LONGEST.min(line.len()));
    line[..longest].trim_end_matches('.')
}

/// Bytes of it.
const LONGEST: usize = 400;

#[cfg(test)]
mod tests {
    use scalerl_model::train::Ranks;
    use scalerl_rollout::PolicyVersion;

    use super::super::table;
    use super::*;

    #[test]
    fn other_ranks_hear_the_holders_after_all_that_cuda_says() {
        let cuda = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 3 has a total capacity of 139.80 GiB \
                    of which 1.25 GiB is free. Process 4123456 has 138.50 GiB memory in use. Of the allocated \
                    memory 131.02 GiB is allocated by PyTorch, and 6.71 GiB is reserved by PyTorch but \
                    unallocated. If reserved but unallocated memory is large try setting \
                    PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation \
                    for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html)";
        let (config, mut recipe) = (table::eight_billion().unwrap(), Recipe::default());
        recipe.cluster.trainers = 8;
        recipe.objective.kl = scalerl_recipe::Kl::K3 { coefficient: 0.01 };
        let setting = Setting::of(&recipe, &config, Device::Cuda(0), None);
        for cuda in [cuda, &cuda.replace("20.00 GiB", &"9".repeat(600))] {
            let version = PolicyVersion(0);
            let error = TrainerError::OutOfMemory { version, reason: cuda.to_owned() };
            let TrainerError::OutOfMemory { reason, .. } = Holders::of(&setting, 3).name_in(error)
            else {
                panic!("another error")
            };
            assert!(reason.starts_with("CUDA out of memory. Tried to allocate"), "{reason}");
            assert!(reason.contains(MOST_IS_HELD) && !reason.contains("PYTORCH"), "{reason}");
            assert!(reason.len() <= Ranks::SENTENCE, "{} bytes: {reason}", reason.len());
        }
    }
}
