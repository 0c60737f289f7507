//! Which GPUs the runs of a study may see when several run at a time.
//!
//! A run that is told nothing takes the first GPU, and the second for its generator. So runs that
//! go on together are each given a share of the GPUs through CUDA_VISIBLE_DEVICES.

use std::path::{Path, PathBuf};

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const MPS_FOLDER: &str = "CUDA_MPS_PIPE_DIRECTORY";
/// Where NVIDIA's daemon lies unless it is told otherwise.
const USUAL_MPS_FOLDER: &str = "/tmp/nvidia-mps";

/// The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them.
#[derive(Debug)]
pub(crate) struct Gpus(Vec<String>);

impl Gpus {
    pub(crate) fn of_this_machine() -> Self {
        if let Ok(names) = std::env::var(VISIBLE) {
            return Self::named(&names);
        }
        let is_there = |index: &u32| Path::new(&format!("/dev/nvidia{index}")).exists();
        Self((0..64).filter(is_there).map(|index| index.to_string()).collect())
    }

    fn named(names: &str) -> Self {
        let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self(names.map(str::to_owned).collect())
    }

    /// What the run at `place` of `at_once` is told, as a variable and its value. `None` where it
    /// may have all.
    pub(crate) fn for_place(&self, place: usize, at_once: usize) -> Option<(&'static str, String)> {
        let count = self.0.len();
        if count < 2 || at_once < 2 {
            return None;
        }
        let each = (count / at_once).max(1);
        let share = (0..each).map(|k| self.0[(place * each + k) % count].as_str());
        Some((VISIBLE, share.collect::<Vec<_>>().join(",")))
    }

    /// Will runs take turns on a GPU? They compute at the same time only under MPS.
    pub(crate) fn are_taken_in_turns(&self, at_once: usize) -> bool {
        let folder = std::env::var_os(MPS_FOLDER).map_or(USUAL_MPS_FOLDER.into(), PathBuf::from);
        !self.0.is_empty() && at_once > self.0.len() && !folder.join("control").exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(gpus: &str, at_once: usize) -> Vec<String> {
        let gpus = Gpus::named(gpus);
        let share = |place| gpus.for_place(place, at_once).map(|told| told.1).unwrap_or_default();
        (0..at_once).map(share).collect()
    }

    #[test]
    fn runs_at_the_same_time_have_gpus_of_their_own_where_there_are_enough() {
        assert_eq!(shares("0,1,2,3", 4), ["0", "1", "2", "3"]);
        assert_eq!(shares("0,1,2,3", 2), ["0,1", "2,3"]);
        assert_eq!(shares("4, 6,7", 2), ["4", "6"]);
        assert_eq!(shares("0,1", 3), ["0", "1", "0"]);
    }

    #[test]
    fn one_gpu_or_one_run_is_left_as_it_is() {
        assert_eq!(shares("", 2), ["", ""]);
        assert_eq!(shares("0", 2), ["", ""]);
        assert_eq!(shares("0,1", 1), [""]);
    }
}
