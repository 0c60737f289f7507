//! Reading safetensors into parameters: one file or a sharded set, every tensor checked by name.
//!
//! Files are memory-mapped and read one tensor at a time, so a model needs its own size in memory
//! and no more. Not here: writing (`save.rs`).

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::error::LoadError;
use crate::json;
use crate::layout::{Parameter, Source};
use crate::tensor_file::{broken, kind_of};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The weight files of a folder, opened and checked for wholeness.
pub struct WeightFiles {
    folder: PathBuf,
    files: Vec<(PathBuf, Mmap)>,
    /// Tensor name to file, for sharded sets.
    shards: Option<HashMap<String, usize>>,
}

impl WeightFiles {
    /// Opens model.safetensors, or every shard that the index names.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        let (single, index) = (folder.join(SINGLE), folder.join(INDEX));
        let mut opened = Self { folder: folder.to_path_buf(), files: Vec::new(), shards: None };
        if index.exists() {
            opened.open_shards(&index)?;
        } else if single.exists() {
            opened.files.push((single.clone(), map(&single)?));
        } else {
            return Err(LoadError::NoWeights { path: folder.to_path_buf() });
        }
        Ok(opened)
    }

    /// Opens one file of any name.
    pub(crate) fn open_one(path: &Path) -> Result<Self, LoadError> {
        let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
        Ok(Self { folder, files: vec![(path.to_path_buf(), map(path)?)], shards: None })
    }

    /// The first tensor that is none of the parameters'.
    pub(crate) fn other_than(&self, parameters: &[Parameter]) -> Result<Option<String>, LoadError> {
        let known: HashSet<&str> =
            parameters.iter().flat_map(|p| &p.sources).map(|s| s.tensor.as_str()).collect();
        let parsed = self.parse()?;
        let mut names = parsed.iter().flat_map(SafeTensors::names);
        Ok(names.find(|name| !known.contains(*name)).map(ToString::to_string))
    }

    fn open_shards(&mut self, index: &Path) -> Result<(), LoadError> {
        let value = json::read(index)?;
        let Some(map_of) = value.get("weight_map").and_then(Value::as_object) else {
            return Err(LoadError::MissingKey { path: index.to_path_buf(), key: "weight_map" });
        };
        let (mut shards, mut numbers) = (HashMap::new(), HashMap::new());
        for (tensor, file) in map_of {
            let Some(file) = file.as_str().filter(|file| !file.contains(['/', '\\'])) else {
                let problem = format!("tensor `{tensor}` needs the name of a file in this folder");
                return Err(LoadError::BadValue {
                    path: index.to_path_buf(),
                    key: "weight_map",
                    found: file.to_string(),
                    problem,
                });
            };
            let number = if let Some(number) = numbers.get(file) {
                *number
            } else {
                let path = self.folder.join(file);
                let mapped = map(&path)?;
                self.files.push((path, mapped));
                numbers.insert(file.to_owned(), self.files.len() - 1);
                self.files.len() - 1
            };
            shards.insert(tensor.clone(), number);
        }
        self.shards = Some(shards);
        Ok(())
    }

    /// Checks that every parameter is there in its shape and a kind that is read, without reading a
    /// number of it.
    pub fn check(&self, parameters: &[Parameter]) -> Result<(), LoadError> {
        let parsed = self.parse()?;
        let mut sources = parameters.iter().flat_map(|parameter| &parameter.sources);
        sources.try_for_each(|source| self.find(&parsed, source).map(drop))
    }

    fn parse(&self) -> Result<Vec<SafeTensors<'_>>, LoadError> {
        let files = self.files.iter().map(|(path, mapped)| {
            SafeTensors::deserialize(mapped).map_err(|error| broken(path, error))
        });
        files.collect()
    }

    /// Reads parameters in order, in `kind` on `device`.
    pub fn read(
        &self,
        parameters: &[Parameter],
        kind: Kind,
        device: Device,
    ) -> Result<Vec<Tensor>, LoadError> {
        let parsed = self.parse()?;
        parameters.iter().map(|parameter| self.one(&parsed, parameter, kind, device)).collect()
    }

    /// Reads one parameter, in `kind` on `device`.
    pub fn read_one(
        &self,
        parameter: &Parameter,
        kind: Kind,
        device: Device,
    ) -> Result<Tensor, LoadError> {
        self.one(&self.parse()?, parameter, kind, device)
    }

    fn one(
        &self,
        files: &[SafeTensors],
        parameter: &Parameter,
        kind: Kind,
        device: Device,
    ) -> Result<Tensor, LoadError> {
        let parts = parameter
            .sources
            .iter()
            .map(|source| {
                let (view, stored) = self.find(files, source)?;
                let part = Tensor::f_from_data_size(view.data(), &source.shape, stored)?;
                let part = part.f_to_kind(kind)?;
                Ok(if source.is_transposed { part.f_transpose(-1, -2)? } else { part })
            })
            .collect::<Result<Vec<_>, LoadError>>()?;
        let whole = match &parts[..] {
            [one] => one.f_contiguous()?,
            many => Tensor::f_cat(many, 0)?.f_view(&parameter.shape[..])?,
        };
        Ok(whole.f_to_device(device)?)
    }

    /// A tensor in its place, in the shape it must have.
    fn find<'a>(
        &self,
        files: &[SafeTensors<'a>],
        source: &Source,
    ) -> Result<(TensorView<'a>, Kind), LoadError> {
        let number = match &self.shards {
            Some(shards) => shards.get(&source.tensor).copied(),
            None => Some(0),
        };
        let missing = |path: &Path| LoadError::MissingTensor {
            path: path.into(),
            tensor: source.tensor.clone(),
        };
        let number = number.ok_or_else(|| missing(&self.folder.join(INDEX)))?;
        let path = &self.files[number].0;
        let view = files[number].tensor(&source.tensor).map_err(|_| missing(path))?;
        let found: Vec<i64> = view.shape().iter().map(|size| *size as i64).collect();
        if found != source.shape {
            return Err(LoadError::WrongShape {
                path: path.clone(),
                tensor: source.tensor.clone(),
                found,
                expected: source.shape.clone(),
            });
        }
        let readable = matches!(view.dtype(), Dtype::F32 | Dtype::BF16 | Dtype::F16);
        let kind =
            kind_of(view.dtype()).filter(|_| readable).ok_or_else(|| LoadError::WrongKind {
                path: path.clone(),
                tensor: source.tensor.clone(),
                found: format!("{:?}", view.dtype()),
            })?;
        Ok((view, kind))
    }
}

#[expect(unsafe_code, reason = "a memory map has no safe constructor")]
pub(crate) fn map(path: &Path) -> Result<Mmap, LoadError> {
    let file = scalerl_files::open(path).map_err(LoadError::io(path))?;
    // SAFETY: model files are not changed while a process reads them; our own writers replace
    // files by renaming and never write into them.
    let mapped = unsafe { Mmap::map(&file) }.map_err(LoadError::io(path))?;
    SafeTensors::deserialize(&mapped).map_err(|error| broken(path, error))?;
    Ok(mapped)
}
