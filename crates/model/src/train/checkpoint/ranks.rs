//! Checkpoints of ranks that hold parts: the very files that one process writes and reads.
//!
//! Rank 0 writes and reads; parts travel stretch by stretch, so no rank ever holds more than its own
//! memory and one stretch of each other's, and only rank 0 needs the disk. What N ranks wrote, any M
//! can take up, one process without ranks included.
//!
//! ```text
//! file   header | masters, in the order of the row | first moments | second moments | step counts
//! ```
//! A stretch of the row is a stretch of the file: it is written where it belongs as it comes in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};
use tch::{Device, Kind, Tensor};

use super::{About, CheckpointError, TENSORS, base, check_base, checked, read_notes, write_folder};
use crate::error::LoadError;
use crate::layout::Parameter;
use crate::tensor_file::broken;
use crate::train::learner::Learner;
use crate::train::shard::{RankError, Ranks, Row};
use crate::weights::map;

/// What a learner keeps for each number of the row, by the name it has in the file.
const SECTIONS: [&str; 3] = ["master", "first", "second"];
const STEPS: &str = "steps";

/// Numbers of a part that travel at once: 16 MiB a rank.
const STRETCH: i64 = 1 << 22;

/// Saves a checkpoint of the ranks. Rank 0 names the folder and the notes and gets the path.
pub fn save_together(
    learner: &Learner,
    ranks: &Ranks,
    target: Option<(&Value, &Path)>,
) -> Result<Option<PathBuf>, CheckpointError> {
    assert_eq!(target.is_some(), ranks.rank() == 0, "rank 0 writes");
    let Some((notes, folder)) = target else {
        collect(learner, ranks, |_, _, _| Ok(()))?;
        return Ok(None);
    };
    let about = About { step: learner.steps_taken, base: base(learner)?, notes };
    let mut has_collected = false;
    let written = write_folder(&about, folder, |path| {
        has_collected = true;
        write_state(learner, ranks, path)
    });
    if !has_collected {
        // No folder to write into: the others are on their way to us all the same.
        collect(learner, ranks, |_, _, _| Ok(()))?;
    }
    written.map(Some)
}

/// Gathers the masters at rank 0, whole and on the CPU; the others get nothing.
pub(crate) fn gather_masters(
    learner: &Learner,
    ranks: &Ranks,
) -> Result<Vec<Tensor>, CheckpointError> {
    let layout = learner.model.trained_layout();
    if ranks.rank() != 0 {
        section(learner, ranks, 0, &mut |_, _| Ok(()))?;
        return Ok(Vec::new());
    }
    let cpu = (Kind::Float, Device::Cpu);
    let row = Row::new(layout, ranks.size());
    let whole = Tensor::f_zeros([row.total()], cpu)?;
    section(learner, ranks, 0, &mut |start, numbers| {
        let length = numbers.size1()?;
        whole.f_narrow(0, start, length)?.f_copy_(numbers)?;
        Ok(())
    })?;
    let mut start = 0;
    let cut = |parameter: &Parameter| {
        let length = parameter.shape.iter().product::<i64>();
        start += length;
        whole.f_narrow(0, start - length, length)?.f_view(&parameter.shape[..])
    };
    Ok(layout.iter().map(cut).collect::<Result<_, _>>()?)
}

fn write_state(learner: &Learner, ranks: &Ranks, path: &Path) -> Result<(), CheckpointError> {
    let layout = learner.model.trained_layout();
    let total = Row::new(layout, ranks.size()).total() as u64;
    let header = header(layout);
    let data = header.len() as u64;
    let opened = File::create(path).and_then(|mut file| file.write_all(&header).map(|()| file));
    let opened = opened.map_err(LoadError::io(path));
    let file = opened.as_ref().ok();
    let write = |at: u64, numbers: &Tensor| -> Result<(), CheckpointError> {
        let Some(file) = file else { return Ok(()) };
        let mut bytes = vec![0; numbers.numel() * 4];
        numbers.f_copy_data_u8(&mut bytes, numbers.numel())?;
        Ok(file.write_all_at(&bytes, data + 4 * at).map_err(LoadError::io(path))?)
    };
    collect(learner, ranks, |index, start, numbers| {
        write(index as u64 * total + start as u64, numbers)
    })?;
    let steps = learner.optimizer.steps[0].f_to_device(Device::Cpu)?.f_view([1])?;
    for index in 0..layout.len() as u64 {
        write(SECTIONS.len() as u64 * total + index, &steps)?;
    }
    opened?.sync_all().map_err(LoadError::io(path))?;
    Ok(())
}

/// All sections, one after the other; `each` gets section, start in the row, and the numbers.
///
/// A failure of `each` is told at the end: the other ranks must find their partner until then.
fn collect(
    learner: &Learner,
    ranks: &Ranks,
    mut each: impl FnMut(usize, i64, &Tensor) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let mut failed = None;
    for index in 0..SECTIONS.len() {
        let outcome =
            section(learner, ranks, index, &mut |start, numbers| each(index, start, numbers));
        match outcome {
            Err(CheckpointError::Ranks(error)) => return Err(error.into()),
            Err(error) => failed = failed.or(Some(error)),
            Ok(()) => {}
        }
    }
    failed.map_or(Ok(()), Err)
}

fn part(learner: &Learner, section: usize) -> &Tensor {
    let optimizer = &learner.optimizer;
    [&learner.masters[0], &optimizer.first[0], &optimizer.second[0]][section]
}

fn section(
    learner: &Learner,
    ranks: &Ranks,
    index: usize,
    each: &mut dyn FnMut(i64, &Tensor) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let row = Row::new(learner.model.trained_layout(), ranks.size());
    let mut failed = None;
    for (range, length) in stretches(row.part) {
        let own = part(learner, index).f_narrow(0, range.start, length).map_err(RankError::from)?;
        // In the file every number is float32, whatever moments are kept in.
        let own = own.f_to_kind(Kind::Float).and_then(|own| own.f_to_device(Device::Cpu));
        let own = own.and_then(|own| own.f_contiguous());
        let own = own.map_err(RankError::from)?;
        let everybody = empty(ranks, length)?;
        ranks.control.gather(&everybody, &own).map_err(RankError::from)?;
        for (rank, numbers) in everybody.iter().enumerate() {
            let start = rank as i64 * row.part + range.start;
            let length = length.min(row.total() - start);
            if length > 0 && failed.is_none() {
                let numbers = numbers.f_narrow(0, 0, length)?;
                failed = each(start, &numbers).err();
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

fn stretches(part: i64) -> impl Iterator<Item = (Range<i64>, i64)> {
    (0..part).step_by(STRETCH as usize).map(move |start| {
        let end = (start + STRETCH).min(part);
        (start..end, end - start)
    })
}

/// Room for a stretch of every rank, at rank 0.
fn empty(ranks: &Ranks, length: i64) -> Result<Vec<Tensor>, RankError> {
    let count = if ranks.rank() == 0 { ranks.size() } else { 0 };
    let room = || Ok(Tensor::f_zeros([length], (Kind::Float, Device::Cpu))?);
    (0..count).map(|_| room()).collect()
}

/// The head of a safetensors file: its own length, then names, kinds, shapes and places as JSON.
fn header(layout: &[Parameter]) -> Vec<u8> {
    let mut entries = Map::new();
    // Transformers asks for this key before it reads a file.
    entries.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut at = 0;
    let mut add = |name: String, shape: &[i64]| {
        let end = at + 4 * shape.iter().product::<i64>();
        entries.insert(name, json!({"dtype": "F32", "shape": shape, "data_offsets": [at, end]}));
        at = end;
    };
    for section in SECTIONS {
        for parameter in layout {
            add(format!("{section}.{}", parameter.name), &parameter.shape);
        }
    }
    for parameter in layout {
        add(format!("{STEPS}.{}", parameter.name), &[]);
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    // Numbers begin at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut header = (text.len() as u64).to_le_bytes().to_vec();
    header.append(&mut text);
    header
}

/// A checkpoint that rank 0 has opened, checked, and found to fit: nothing has changed so far.
#[derive(Debug)]
pub struct RestorePlan {
    path: PathBuf,
    file: Mmap,
    /// Optimizer steps that were taken.
    pub step: u64,
    /// As the optimizer counts them.
    counted: f32,
    /// The caller's notes.
    pub notes: Value,
}

impl RestorePlan {
    /// Opens a checkpoint for ranks with this learner's model.
    pub fn open(learner: &Learner, path: &Path) -> Result<Self, CheckpointError> {
        let manifest = checked(path)?;
        check_base(learner, &manifest, path)?;
        let name = path.join(TENSORS);
        let file = map(&name)?;
        let tensors = SafeTensors::deserialize(&file).map_err(|error| broken(&name, error))?;
        let other =
            |problem: String| CheckpointError::OtherModel { path: path.to_path_buf(), problem };
        let layout = learner.model.trained_layout();
        let expected = layout.len() * (SECTIONS.len() + 1);
        if tensors.len() != expected {
            return Err(other(format!("{} tensors, {expected} expected", tensors.len())));
        }
        let mut counts = BTreeMap::new();
        for parameter in layout {
            for section in SECTIONS.into_iter().chain([STEPS]) {
                let name = format!("{section}.{}", parameter.name);
                let found = tensors.tensor(&name);
                let found = found.map_err(|_| other(format!("`{name}` is missing")))?;
                let shape: Vec<i64> = found.shape().iter().map(|size| *size as i64).collect();
                let wanted = if section == STEPS { &[] } else { &parameter.shape[..] };
                let is_moment = [SECTIONS[1], SECTIONS[2]].contains(&section);
                let is_kind =
                    found.dtype() == Dtype::F32 || (is_moment && found.dtype() == Dtype::BF16);
                if shape != wanted || !is_kind {
                    return Err(other(format!("`{name}` has shape {shape:?}")));
                }
                if section == STEPS {
                    let bytes = found.data().try_into().expect("one float32 has 4 bytes");
                    counts.insert(u32::from_le_bytes(bytes), name);
                }
            }
        }
        if counts.len() != 1 {
            let problem = "its parameters have taken different numbers of steps".to_owned();
            return Err(other(problem));
        }
        let counted = counts.keys().next().map_or(0.0, |bits| f32::from_bits(*bits));
        let notes = read_notes(path)?;
        Ok(Self { path: path.to_path_buf(), step: manifest.step, counted, notes, file })
    }

    /// Numbers of a stretch of the row; 0 in the padding.
    fn read(
        &self,
        tensors: &SafeTensors<'_>,
        layout: &[Parameter],
        row: &Row,
        (section, range): (&str, Range<i64>),
    ) -> Result<Tensor, CheckpointError> {
        let mut bytes = vec![0_u8; 4 * (range.end - range.start) as usize];
        for stretch in row.stretches(&range) {
            let name = format!("{section}.{}", layout[stretch.parameter].name);
            let path = self.path.join(TENSORS);
            let source = tensors.tensor(&name).map_err(|error| broken(&path, error))?;
            let [from, at, length] =
                [stretch.from, stretch.at, stretch.length].map(|number| number as usize);
            let target = &mut bytes[4 * at..4 * (at + length)];
            if source.dtype() == Dtype::BF16 {
                // The upper half of a float32.
                let halves = source.data()[2 * from..2 * (from + length)].chunks_exact(2);
                for (wide, half) in target.chunks_exact_mut(4).zip(halves) {
                    wide[2..].copy_from_slice(half);
                }
            } else {
                target.copy_from_slice(&source.data()[4 * from..4 * (from + length)]);
            }
        }
        Ok(Tensor::f_from_data_size(&bytes, &[range.end - range.start], Kind::Float)?)
    }
}

/// Puts the ranks into the state of a checkpoint. Rank 0 hands in the plan; all get the step.
pub fn restore_together(
    learner: &mut Learner,
    ranks: &Ranks,
    plan: Option<&RestorePlan>,
) -> Result<u64, CheckpointError> {
    assert_eq!(plan.is_some(), ranks.rank() == 0, "rank 0 reads");
    let _guard = tch::no_grad_guard();
    let row = Row::new(learner.model.trained_layout(), ranks.size());
    let tensors = plan.map(|plan| SafeTensors::deserialize(&plan.file)).transpose();
    let tensors = tensors.map_err(|error| broken(Path::new(TENSORS), error))?;
    for (index, section) in SECTIONS.into_iter().enumerate() {
        for (range, length) in stretches(row.part) {
            let mut everybody = Vec::new();
            if let (Some(plan), Some(tensors)) = (plan, &tensors) {
                for rank in 0..ranks.size() as i64 {
                    let range = rank * row.part + range.start..rank * row.part + range.end;
                    let layout = learner.model.trained_layout();
                    everybody.push(plan.read(tensors, layout, &row, (section, range))?);
                }
            }
            let own = Tensor::f_zeros([length], (Kind::Float, Device::Cpu))?;
            ranks.control.scatter(&own, &everybody).map_err(RankError::from)?;
            part(learner, index).f_narrow(0, range.start, length)?.f_copy_(&own)?;
        }
    }
    let counts = plan.map_or([0.0; 2], |plan| [plan.step as f64, f64::from(plan.counted)]);
    let counts = ranks.numbers(&counts)?.swap_remove(0);
    let _ = learner.optimizer.steps[0].f_fill_(counts[1])?;
    learner.steps_taken = counts[0] as u64;
    learner.renew_weights(ranks)?;
    learner.discard_gradients()?;
    Ok(learner.steps_taken)
}

impl Learner {
    /// The float32 weights of all ranks at rank 0, on the CPU, in the order of the model's layout;
    /// the others get nothing. Every rank calls it.
    pub fn gather_masters(&self, ranks: &Ranks) -> Result<Vec<Tensor>, CheckpointError> {
        gather_masters(self, ranks)
    }
}
