//! A model whose weights are still where they come from: known by its config, read one at a time.
//!
//! [`UnloadedModel::load`] makes a [`Model`] of it. Ranks that share out the weights read them one by one
//! instead (`train/shard/full.rs`), so no process needs room for all of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use tch::{Device, Kind, TchError, Tensor};

use crate::adapter::{Adapter, AdapterConfig, choose};
use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::folder::Model;
use crate::layout::{Parameter, Start, layout};
use crate::memory;
use crate::weights::WeightFiles;
use scalerl_torch::{device, shim};

enum Source {
    /// In memory already: a model that somebody has made.
    Made(Vec<Tensor>),
    Files(WeightFiles),
    /// Drawn with a seed.
    Random(i64),
}

/// A model that has not been read.
pub struct UnloadedModel {
    pub config: ModelConfig,
    pub layout: Vec<Parameter>,
    /// The folder whose tokenizer belongs to it.
    pub folder: Option<PathBuf>,
    /// Where it is to be.
    pub device: Device,
    /// To be trained on frozen weights.
    pub(crate) adapter: Option<Adapter>,
    /// One that goes into the weights as they are read.
    pub(crate) merged: Option<Adapter>,
    source: Source,
}

impl From<Model> for UnloadedModel {
    fn from(model: Model) -> Self {
        let device = model.device();
        let Model { config, layout, parameters, folder, adapter, .. } = model;
        let source = Source::Made(parameters);
        Self { config, layout, folder, device, adapter, merged: None, source }
    }
}

impl UnloadedModel {
    /// Opens a folder with config.json and safetensors.
    pub fn open(folder: &Path, device: Device) -> Result<Self, LoadError> {
        let config = ModelConfig::load(&folder.join("config.json"))?;
        let files = WeightFiles::open(folder)?;
        let opened = Self::over(config, Some(folder.to_path_buf()), device, Source::Files(files));
        Ok(opened)
    }

    /// A random model. The same seed gives the same numbers on every device: each parameter has a
    /// generator of its own.
    pub fn random(config: ModelConfig, seed: i64, device: Device) -> Self {
        Self::over(config, None, device, Source::Random(seed))
    }

    fn over(config: ModelConfig, folder: Option<PathBuf>, device: Device, source: Source) -> Self {
        device::open();
        let layout = layout(&config);
        Self { config, layout, folder, device, adapter: None, merged: None, source }
    }

    /// With the adapter that is asked for, fresh or going on from a folder's; or whole, with a folder's
    /// adapter in its weights.
    pub fn adapted(
        mut self,
        folder: Option<&Path>,
        asked: Option<AdapterConfig>,
        seed: u64,
    ) -> Result<Self, LoadError> {
        let is_trained = asked.is_some();
        let adapter = choose((&self.config, self.device), folder, asked, seed)?;
        if is_trained {
            self.adapter = adapter;
        } else {
            self.merged = adapter;
        }
        Ok(self)
    }

    /// Whether an adapter is trained, and the weights are frozen.
    pub fn has_adapter(&self) -> bool {
        self.adapter.is_some()
    }

    /// The same with all of its weights in memory.
    pub fn loaded(self, kind: Kind) -> Result<Self, LoadError> {
        Ok(self.load(kind)?.into())
    }

    /// One weight, in `kind` on the device, without any adapter.
    pub(crate) fn read(&self, index: usize, kind: Kind) -> Result<Tensor, LoadError> {
        let known = &self.layout[index];
        match &self.source {
            Source::Made(parameters) => {
                Ok(parameters[index].f_detach()?.f_to_device(self.device)?.f_to_kind(kind)?)
            }
            Source::Files(files) => files.read_one(known, kind, self.device),
            Source::Random(seed) => {
                let drawn = draw(known, self.config.initial_spread, own_seed(*seed, index))?;
                Ok(drawn.f_to_kind(kind)?.f_to_device(self.device)?)
            }
        }
    }

    /// As [`UnloadedModel::read`], for the last time: it is not kept where it is in memory.
    pub(crate) fn take(&mut self, index: usize, kind: Kind) -> Result<Tensor, LoadError> {
        let weight = self.read(index, kind)?;
        if let Source::Made(parameters) = &mut self.source {
            parameters[index] = Tensor::f_zeros([0], (kind, Device::Cpu))?;
        }
        Ok(weight)
    }

    /// Reads all of it, in `kind` where it is not in memory already.
    pub fn load(mut self, kind: Kind) -> Result<Model, LoadError> {
        let (adapter, merged) = (self.adapter.take(), self.merged.take());
        let parameters = if let Source::Made(parameters) = &mut self.source {
            std::mem::take(parameters)
        } else {
            memory::check(&self.config, kind, self.device)?;
            if let Source::Random(seed) = self.source {
                let spread = self.config.initial_spread;
                draw_all(&self.layout, (spread, seed), (kind, self.device))?
            } else {
                let read = (0..self.layout.len()).map(|index| self.read(index, kind));
                read.collect::<Result<_, _>>()?
            }
        };
        let base = Model::over(self.config, parameters, self.folder)?;
        let is_merged = merged.is_some();
        let Some(adapter) = adapter.or(merged) else { return Ok(base) };
        adapter.check_base_of(&base)?;
        let adapted = base.adapted(adapter)?;
        Ok(if is_merged { adapted.merged()? } else { adapted })
    }
}

/// Every parameter has a seed of its own: who draws it does not matter.
fn own_seed(seed: i64, index: usize) -> u64 {
    seed.wrapping_mul(1_000_003).wrapping_add(index as i64) as u64
}

/// All parameters of a model made from nothing, by one thread a parameter: billions of numbers take
/// minutes in a row.
fn draw_all(
    layout: &[Parameter],
    (spread, seed): (f64, i64),
    (kind, device): (Kind, Device),
) -> Result<Vec<Tensor>, TchError> {
    let next = AtomicUsize::new(0);
    let draw_some = || -> Result<Vec<(usize, Tensor)>, TchError> {
        let mut drawn = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(known) = layout.get(index) else { return Ok(drawn) };
            let tensor = draw(known, spread, own_seed(seed, index))?;
            drawn.push((index, tensor.f_to_kind(kind)?.f_to_device(device)?));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(layout.len());
    let parts = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(draw_some)).collect();
        let join = |thread: ScopedJoinHandle<_>| thread.join().expect("drawing does not panic");
        running.into_iter().map(join).collect::<Result<Vec<_>, TchError>>()
    })?;
    let mut drawn: Vec<(usize, Tensor)> = parts.into_iter().flatten().collect();
    drawn.sort_by_key(|(index, _)| *index);
    Ok(drawn.into_iter().map(|(_, tensor)| tensor).collect())
}

/// A parameter of a model made from nothing, on the CPU.
fn draw(known: &Parameter, spread: f64, seed: u64) -> Result<Tensor, TchError> {
    let (shape, cpu) = (&known.shape[..], (Kind::Float, Device::Cpu));
    match known.start {
        Start::Normal => {
            let tensor = Tensor::f_empty(shape, cpu)?;
            shim::fill_normal(&tensor, spread, seed)?;
            Ok(tensor)
        }
        Start::Ones => Tensor::f_ones(shape, cpu),
        Start::Zeros => Tensor::f_zeros(shape, cpu),
    }
}
