//! A safetensors file written tensor by tensor: none but the one being written need be in memory.
//!
//! Names and shapes come first, as they do in the file. Its SHA-256 is taken on the way.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tch::{Device, Kind, Tensor};

use crate::error::LoadError;
use crate::tensor_file::dtype_of;

/// Numbers on their way from the device at once: 16 MiB of float32.
const STRETCH: i64 = 1 << 22;

/// A tensor that will be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<i64>,
}

/// Size and SHA-256 of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileSum {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl FileSum {
    pub(crate) fn of(bytes: u64, hash: Sha256) -> Self {
        let mut sha256 = String::with_capacity(64);
        for byte in hash.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(sha256, "{byte:02x}");
        }
        Self { bytes, sha256 }
    }
}

/// A file in the making.
pub(crate) struct TensorWriter {
    path: PathBuf,
    file: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
    /// What is still to come.
    left: VecDeque<Entry>,
}

impl TensorWriter {
    /// Makes the file and writes its head.
    pub(crate) fn create(path: &Path, entries: Vec<Entry>) -> Result<Self, LoadError> {
        let file = BufWriter::new(File::create(path).map_err(LoadError::io(path))?);
        let head = head(&entries);
        let (path, left) = (path.to_path_buf(), entries.into());
        let mut writer = Self { path, file, hash: Sha256::new(), bytes: 0, left };
        writer.put(&head)?;
        Ok(writer)
    }

    /// Whether all that was named is written.
    pub(crate) fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        self.file.write_all(bytes).map_err(LoadError::io(&self.path))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// The next tensor, in whatever kind and on whatever device it is.
    pub(crate) fn write(&mut self, tensor: &Tensor) -> Result<(), LoadError> {
        let next = self.left.pop_front().expect("as many tensors as were named");
        assert_eq!(next.shape, tensor.size(), "`{}`", next.name);
        let flat = tensor.f_detach()?.f_contiguous()?.f_view(-1)?;
        let (mut at, length) = (0, flat.size1()?);
        while at < length {
            let count = STRETCH.min(length - at);
            let stretch = flat.f_narrow(0, at, count)?.f_to_kind(next.kind)?;
            let stretch = stretch.f_to_device(Device::Cpu)?;
            let mut bytes = vec![0; stretch.numel() * next.kind.elt_size_in_bytes()];
            stretch.f_copy_data_u8(&mut bytes, stretch.numel())?;
            self.put(&bytes)?;
            at += count;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    pub(crate) fn finish(self) -> Result<FileSum, LoadError> {
        assert!(self.is_done(), "every tensor that was named is written");
        let file = self.file.into_inner();
        let file = file.map_err(|error| LoadError::io(&self.path)(error.into_error()))?;
        file.sync_all().map_err(LoadError::io(&self.path))?;
        Ok(FileSum::of(self.bytes, self.hash))
    }
}

/// The head of a safetensors file: its own length, then names, kinds, shapes and places as JSON.
fn head(entries: &[Entry]) -> Vec<u8> {
    let mut places = Map::new();
    // Transformers asks for this key before it reads a file.
    places.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut at = 0;
    for Entry { name, kind, shape } in entries {
        let end = at + kind.elt_size_in_bytes() as i64 * shape.iter().product::<i64>();
        let dtype = match dtype_of(*kind) {
            Dtype::F32 => "F32",
            Dtype::BF16 => "BF16",
            other => panic!("{other:?} tensors are not written"),
        };
        let place = json!({"dtype": dtype, "shape": shape, "data_offsets": [at, end]});
        places.insert(name.clone(), place);
        at = end;
    }
    let mut text = Value::Object(places).to_string().into_bytes();
    // Numbers begin at a multiple of 8.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut head = (text.len() as u64).to_le_bytes().to_vec();
    head.append(&mut text);
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor_file::read_tensors;

    #[test]
    fn what_was_written_one_by_one_is_read_by_name_and_its_sum_is_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let entry = |name: &str, kind, shape: &[i64]| Entry {
            name: name.to_owned(),
            kind,
            shape: shape.to_vec(),
        };
        let entries = vec![
            entry("b", Kind::Float, &[2, 3]),
            entry("a[1:4]", Kind::BFloat16, &[3]),
            entry("none", Kind::Float, &[0]),
            entry("count", Kind::Float, &[]),
        ];
        let matrix = Tensor::arange(6, (Kind::Float, Device::Cpu)).view([3, 2]).tr();
        let row = Tensor::from_slice(&[1.0_f32, 0.5, -3.0]);
        let mut writer = TensorWriter::create(&path, entries).unwrap();
        for tensor in [&matrix, &row, &Tensor::zeros([0], (Kind::Float, Device::Cpu))] {
            writer.write(tensor).unwrap();
        }
        writer.write(&Tensor::from(7.0_f32)).unwrap();
        let sum = writer.finish().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let (length, hash) = (bytes.len() as u64, Sha256::new_with_prefix(&bytes));
        assert_eq!(sum, FileSum::of(length, hash));
        let read: std::collections::BTreeMap<_, _> =
            read_tensors(&path).unwrap().into_iter().collect();
        assert!(read["b"].equal(&matrix) && read["none"].numel() == 0);
        assert_eq!(read["a[1:4]"].kind(), Kind::BFloat16);
        assert!(read["a[1:4]"].to_kind(Kind::Float).equal(&row));
        assert!((read["count"].double_value(&[]) - 7.0).abs() < 1e-9);
    }
}
