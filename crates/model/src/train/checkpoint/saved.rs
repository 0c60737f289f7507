//! A checkpoint on a disk: which numbers of which parameter are where, whoever wrote them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::SafeTensors;
use tch::{Kind, Tensor};

use super::{CheckpointError, Manifest, SECTIONS, STEPS, damaged, read_manifest, sum};
use crate::layout::Parameter;
use crate::tensor_file::{broken, kind_of};
use crate::weights::map;

/// Numbers read at once: 16 MiB of float32.
const STRETCH: i64 = 1 << 22;

/// Numbers of a parameter that a file has.
#[derive(Debug)]
struct Piece {
    from: i64,
    to: i64,
    file: usize,
    /// Where in the file.
    byte: usize,
    kind: Kind,
}

/// A checkpoint, opened: it has every number of the parameters it was opened for, each once. Its sums
/// have not been compared.
#[derive(Debug)]
pub(super) struct Saved {
    path: PathBuf,
    pub(super) manifest: Manifest,
    files: Vec<Mmap>,
    /// By section and parameter, in order.
    pieces: BTreeMap<String, Vec<Piece>>,
    /// Steps as the optimizer counts them.
    pub(super) counted: f32,
}

impl Saved {
    /// Opens a checkpoint and finds out whether it is one of a learner with these parameters.
    pub(super) fn open(path: &Path, layout: &[Parameter]) -> Result<Self, CheckpointError> {
        let manifest = read_manifest(path)?;
        let files = manifest.files.len();
        Self::try_open(path, manifest, layout).or_else(|error| {
            // Rather than of another model, what does not fit may be of a disk that failed.
            let manifest = read_manifest(path)?;
            (0..files).try_for_each(|place| check_sum(path, &manifest, place))?;
            Err(error)
        })
    }

    fn try_open(
        path: &Path,
        manifest: Manifest,
        layout: &[Parameter],
    ) -> Result<Self, CheckpointError> {
        let names: Vec<&String> =
            manifest.files.keys().filter(|name| name.ends_with(".safetensors")).collect();
        let (mut files, mut pieces) = (Vec::new(), BTreeMap::<String, Vec<Piece>>::new());
        for name in names {
            let file_path = path.join(name);
            let file = map(&file_path).map_err(|error| damaged(path, name, error.to_string()))?;
            let read = SafeTensors::read_metadata(&file);
            let (length, head) = read.map_err(|error| broken(&file_path, error))?;
            // By name, so that what is said of a damaged file does not change from time to time.
            let tensors: BTreeMap<_, _> = head.tensors().into_iter().collect();
            for (tensor, place) in tensors {
                let kind = kind_of(place.dtype).ok_or_else(|| {
                    damaged(path, name, format!("`{tensor}` is {:?}", place.dtype))
                })?;
                let numbers = place.shape.iter().product::<usize>() as i64;
                let (of, from) = stretch_of(&tensor, numbers);
                let byte = 8 + length + place.data_offsets.0;
                let piece = Piece { from, to: from + numbers, file: files.len(), byte, kind };
                pieces.entry(of.to_owned()).or_default().push(piece);
            }
            files.push(file);
        }
        for pieces in pieces.values_mut() {
            pieces.sort_by_key(|piece| piece.from);
        }
        let mut saved = Self { path: path.to_path_buf(), manifest, files, pieces, counted: 0.0 };
        saved.counted = saved.take_count(layout)?;
        saved.check(layout)?;
        Ok(saved)
    }

    fn other(&self, problem: String) -> CheckpointError {
        CheckpointError::OtherModel { path: self.path.clone(), problem }
    }

    /// The one number of steps that all parameters have taken.
    fn take_count(&mut self, layout: &[Parameter]) -> Result<f32, CheckpointError> {
        let mut counts: Vec<Piece> = self.pieces.remove(STEPS).unwrap_or_default();
        for known in layout {
            counts
                .extend(self.pieces.remove(&format!("{STEPS}.{}", known.name)).unwrap_or_default());
        }
        let mut found = None;
        for piece in &counts {
            if piece.to - piece.from != 1 {
                return Err(
                    self.other("it counts its steps with more or less than one number".to_owned())
                );
            }
            let count = self.tensor(piece, 0, 1)?.f_double_value(&[0])? as f32;
            if found.is_some_and(|found: f32| found.to_bits() != count.to_bits()) {
                let problem = "its parameters have taken different numbers of steps".to_owned();
                return Err(self.other(problem));
            }
            found = Some(count);
        }
        found.ok_or_else(|| self.other("it counts no steps".to_owned()))
    }

    fn check(&self, layout: &[Parameter]) -> Result<(), CheckpointError> {
        for section in SECTIONS {
            for known in layout {
                let name = format!("{section}.{}", known.name);
                let pieces = self.pieces.get(&name);
                let pieces = pieces.ok_or_else(|| self.other(format!("`{name}` is missing")))?;
                let end =
                    pieces.iter().try_fold(0, |end, piece| (piece.from == end).then_some(piece.to));
                let numbers = known.shape.iter().product::<i64>();
                if end != Some(numbers) {
                    let has = pieces.iter().map(|piece| format!("{}..{}", piece.from, piece.to));
                    let has = has.collect::<Vec<_>>().join(", ");
                    let problem = format!("`{name}` has numbers {has}, 0..{numbers} expected");
                    return Err(self.other(problem));
                }
            }
        }
        let expected = SECTIONS.len() * layout.len();
        if self.pieces.len() != expected {
            let problem = format!("{} tensors, {expected} expected", self.pieces.len());
            return Err(self.other(problem));
        }
        Ok(())
    }

    /// Compares a file, by its place in the manifest, with its size and sum.
    pub(super) fn check_sum(&self, place: usize) -> Result<(), CheckpointError> {
        check_sum(&self.path, &self.manifest, place)
    }

    /// `count` numbers of a piece, from its `at`th.
    fn tensor(&self, piece: &Piece, at: i64, count: i64) -> Result<Tensor, CheckpointError> {
        let width = piece.kind.elt_size_in_bytes();
        let start = piece.byte + at as usize * width;
        let bytes = &self.files[piece.file][start..start + count as usize * width];
        Ok(Tensor::f_from_data_size(bytes, &[count], piece.kind)?)
    }

    /// Fills `target` with the numbers of a section's parameter that begin at `from`.
    pub(super) fn read(
        &self,
        (section, parameter): (&str, &str),
        from: i64,
        target: &Tensor,
    ) -> Result<(), CheckpointError> {
        let to = from + target.size1()?;
        let pieces = self.pieces.get(&format!("{section}.{parameter}"));
        for piece in pieces.expect("a parameter it was opened for") {
            let (mut at, end) = (from.max(piece.from), to.min(piece.to));
            while at < end {
                let count = STRETCH.min(end - at);
                let numbers = self.tensor(piece, at - piece.from, count)?;
                target.f_narrow(0, at - from, count)?.f_copy_(&numbers)?;
                at += count;
            }
        }
        Ok(())
    }
}

fn check_sum(path: &Path, manifest: &Manifest, place: usize) -> Result<(), CheckpointError> {
    let Some((name, expected)) = manifest.files.iter().nth(place) else { return Ok(()) };
    let found = sum(&path.join(name));
    let found = found.map_err(|error| damaged(path, name, error.to_string()))?;
    if found.bytes != expected.bytes {
        let problem = format!("{} bytes, {} were written", found.bytes, expected.bytes);
        return Err(damaged(path, name, problem));
    }
    if found.sha256 != expected.sha256 {
        return Err(damaged(path, name, "its SHA-256 has changed".to_owned()));
    }
    Ok(())
}

/// The parameter that a tensor belongs to, and which of its numbers is the first.
fn stretch_of(tensor: &str, numbers: i64) -> (&str, i64) {
    let parse = || {
        let (name, range) = tensor.strip_suffix(']')?.rsplit_once('[')?;
        let (from, to) = range.split_once(':')?;
        let (from, to) = (from.parse::<i64>().ok()?, to.parse::<i64>().ok()?);
        (from >= 0 && to.checked_sub(from) == Some(numbers)).then_some((name, from))
    };
    parse().unwrap_or((tensor, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_numbers_they_have() {
        assert_eq!(stretch_of("master.norm[8:12]", 4), ("master.norm", 8));
        assert_eq!(stretch_of("master.norm", 4), ("master.norm", 0));
        for wrong in ["a[8:13]", "a[-4:0]", "a[:4]", "a[9223372036854775807:3]", "a[0:4"] {
            assert_eq!(stretch_of(wrong, 4), (wrong, 0), "it is nobody's");
        }
    }
}
