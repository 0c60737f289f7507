//! One safetensors file, written and read whole. Used by model folders and checkpoints alike.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use safetensors::tensor::View;
use safetensors::{Dtype, SafeTensorError, SafeTensors, serialize_to_file};
use tch::{Device, Kind, Tensor};

use crate::error::LoadError;
use crate::weights::map;

pub(crate) fn kind_of(dtype: Dtype) -> Option<Kind> {
    Some(match dtype {
        Dtype::F32 => Kind::Float,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F16 => Kind::Half,
        Dtype::F64 => Kind::Double,
        Dtype::I64 => Kind::Int64,
        _ => return None,
    })
}

pub(crate) fn dtype_of(kind: Kind) -> Dtype {
    match kind {
        Kind::Float => Dtype::F32,
        Kind::BFloat16 => Dtype::BF16,
        Kind::Half => Dtype::F16,
        Kind::Double => Dtype::F64,
        Kind::Int64 => Dtype::I64,
        other => panic!("{other:?} tensors are never saved"),
    }
}

/// Writes named tensors and waits until they are on the disk.
pub fn write_tensors(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), LoadError> {
    write_tensors_about(path, tensors, [])
}

/// As [`write_tensors`], with words about them in the file's metadata.
pub(crate) fn write_tensors_about<const N: usize>(
    path: &Path,
    tensors: &[(String, Tensor)],
    about: [(String, String); N],
) -> Result<(), LoadError> {
    let mut views = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let tensor = tensor.f_contiguous()?;
        let shape = tensor.size().iter().map(|size| *size as usize).collect();
        views.push((name, TensorToWrite { tensor, shape }));
    }
    // Transformers asks for this key before it reads a file.
    let format = ("format".to_owned(), "pt".to_owned());
    let about = about.into_iter().chain([format]).collect();
    serialize_to_file(views, Some(about), path).map_err(|error| broken(path, error))?;
    // It comes into being as a private file, and servers under another name read it too.
    std::fs::set_permissions(path, Permissions::from_mode(0o644)).map_err(LoadError::io(path))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(LoadError::io(path))
}

/// A tensor whose bytes come into the host's memory when it is its turn to be written.
struct TensorToWrite {
    tensor: Tensor,
    shape: Vec<usize>,
}

impl View for TensorToWrite {
    fn dtype(&self) -> Dtype {
        dtype_of(self.tensor.kind())
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = vec![0; self.data_len()];
        // The trait has no errors: a device that fails here panics, which ends the trainer.
        self.tensor.to_device(Device::Cpu).copy_data_u8(&mut bytes, self.tensor.numel());
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        self.tensor.numel() * self.tensor.kind().elt_size_in_bytes()
    }
}

/// The words in a file's metadata.
pub(crate) fn read_about(path: &Path) -> Result<HashMap<String, String>, LoadError> {
    let mapped = map(path)?;
    let (_, header) = SafeTensors::read_metadata(&mapped).map_err(|error| broken(path, error))?;
    Ok(header.metadata().clone().unwrap_or_default())
}

/// Reads every tensor of a file, by name.
pub fn read_tensors(path: &Path) -> Result<Vec<(String, Tensor)>, LoadError> {
    let file = scalerl_files::open(path).map_err(LoadError::io(path))?;
    let bytes = scalerl_files::read_whole(file, u64::MAX).map_err(LoadError::io(path))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| broken(path, error))?;
    file.iter()
        .map(|(name, view)| {
            let kind = kind_of(view.dtype()).ok_or_else(|| LoadError::WrongKind {
                path: path.to_path_buf(),
                tensor: name.to_owned(),
                found: format!("{:?}", view.dtype()),
            })?;
            let shape: Vec<i64> = view.shape().iter().map(|size| *size as i64).collect();
            Ok((name.to_owned(), Tensor::f_from_data_size(view.data(), &shape, kind)?))
        })
        .collect()
}

/// A disk that fails, or is full, leaves no doubt about the file; everything else does.
pub(crate) fn broken(path: &Path, error: SafeTensorError) -> LoadError {
    match error {
        SafeTensorError::IoError(error) => LoadError::io(path)(error),
        other => LoadError::BrokenWeights { path: path.to_path_buf(), problem: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn others_may_read_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adapter_model.safetensors");
        write_tensors(&path, &[("one".to_owned(), Tensor::from_slice(&[1_f32]))]).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_full_disk_is_named_and_not_taken_for_a_broken_file() {
        // As the writer of safetensors passes it on.
        let error = SafeTensorError::IoError(ErrorKind::StorageFull.into());
        let error = broken(Path::new("out/model.safetensors"), error);
        assert!(matches!(error, LoadError::DiskFull { .. }), "{error:?}");
        let said = error.to_string();
        assert!(said.starts_with("disk full: cannot write "), "{said}");
        assert!(said.contains("model.safetensors"), "{said}");
        assert!(error.hint().contains("--resume"), "{}", error.hint());
    }
}
