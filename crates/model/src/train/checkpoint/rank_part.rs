//! What one rank has of a learner, ready to be written: names, places, and the numbers.
//!
//! ```text
//! learner-00002-of-00003.safetensors
//!     master.layers.0.qkv[4096:8192]    numbers 4096 to 8191 of a parameter, in the order of its rows
//!     first.… second.…                  the moments of the same
//!     steps                             as the optimizer counts them
//! ```
//! The names say everything, so neither the number of ranks nor their scheme matters to who reads it.

use std::path::Path;

use tch::{Device, TchError, Tensor};

use super::{SECTIONS, STEPS};
use crate::error::LoadError;
use crate::tensor_writer::{Entry, FileSum, TensorWriter};
use crate::train::learner::Learner;

/// The file of a rank.
pub(super) fn file_name(rank: usize, size: usize) -> String {
    format!("learner-{:05}-of-{size:05}.safetensors", rank + 1)
}

/// What is to be written. Before [`RankPart::copied`] the tensors are the learner's own: a step in between
/// would be in them.
pub(super) struct RankPart {
    tensors: Vec<(String, Tensor)>,
}

impl RankPart {
    /// Of a learner whose memory is shared out.
    pub(super) fn of(learner: &Learner) -> Result<Self, TchError> {
        let shard = learner.shard.as_ref().expect("a learner of ranks");
        let layout = learner.model.trained_layout();
        let mut tensors = Vec::new();
        for (section, list) in SECTIONS.into_iter().zip(learner.sections()) {
            for (row, part) in shard.rows.iter().zip(list) {
                for stretch in row.stretches(&shard.own_part(row)) {
                    let (from, to) = (stretch.from, stretch.from + stretch.length);
                    let name = format!("{section}.{}[{from}:{to}]", layout[stretch.parameter].name);
                    let numbers = part.f_detach()?.f_narrow(0, stretch.at, stretch.length)?;
                    tensors.push((name, numbers));
                }
            }
        }
        tensors.push((STEPS.to_owned(), learner.optimizer.steps[0].f_detach()?));
        Ok(Self { tensors })
    }

    /// Bytes that a copy takes.
    pub(super) fn bytes(&self) -> u64 {
        let size = |tensor: &Tensor| tensor.numel() * tensor.kind().elt_size_in_bytes();
        self.tensors.iter().map(|(_, tensor)| size(tensor) as u64).sum()
    }

    /// The same numbers in memory of their own, on the host.
    pub(super) fn copied(self) -> Result<Self, TchError> {
        let copied = |(name, tensor): (String, Tensor)| {
            let is_here = tensor.device() == Device::Cpu;
            let copy =
                if is_here { tensor.f_detach_copy() } else { tensor.f_to_device(Device::Cpu) };
            copy.map(|copy| (name, copy))
        };
        Ok(Self { tensors: self.tensors.into_iter().map(copied).collect::<Result<_, _>>()? })
    }

    /// Writes the file and waits until it is on the disk. `watch` is called before each tensor.
    pub(super) fn write(&self, path: &Path, watch: &dyn Fn()) -> Result<FileSum, LoadError> {
        let entry = |(name, tensor): &(String, Tensor)| Entry {
            name: name.clone(),
            kind: tensor.kind(),
            shape: tensor.size(),
        };
        let mut writer = TensorWriter::create(path, self.tensors.iter().map(entry).collect())?;
        self.tensors.iter().try_for_each(|(_, tensor)| {
            watch();
            writer.write(tensor)
        })?;
        writer.finish()
    }
}
