//! A model: from a Hugging Face folder, from the hub, or from nothing but a config.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use tch::{Device, Kind, TchError, Tensor};

use crate::adapter::{self, Adapter, Place};
use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::layout::{Parameter, Start, layout};
use crate::memory;
use crate::network::Network;
use crate::save::{ModelToSave, SaveKind, save_model};
use crate::weights::WeightFiles;
use scalerl_torch::device;
use scalerl_torch::shim;

/// A parameter's own numbers, float32 on the CPU.
fn random_parameter(
    parameter: &Parameter,
    index: usize,
    seed: i64,
    spread: f64,
) -> Result<Tensor, TchError> {
    let (shape, cpu) = (&parameter.shape[..], (Kind::Float, Device::Cpu));
    Ok(match parameter.start {
        Start::Normal => {
            let tensor = Tensor::f_empty(shape, cpu)?;
            let own_seed = seed.wrapping_mul(1_000_003).wrapping_add(index as i64);
            shim::fill_normal(&tensor, spread, own_seed as u64)?;
            tensor
        }
        Start::Ones => Tensor::f_ones(shape, cpu)?,
        Start::Zeros => Tensor::f_zeros(shape, cpu)?,
    })
}

/// A network with its parameters and where it came from.
pub struct Model {
    pub config: ModelConfig,
    pub layout: Vec<Parameter>,
    /// In the order of `layout`.
    pub parameters: Vec<Tensor>,
    pub network: Network,
    /// The folder whose tokenizer belongs to this model: the base's where it has an adapter.
    pub folder: Option<PathBuf>,
    /// On the parameters, which are frozen then.
    pub adapter: Option<Adapter>,
}

impl Model {
    /// Reads a folder with config.json and safetensors, or PEFT's folder of an adapter and its base's.
    pub fn load(folder: &Path, kind: Kind, device: Device) -> Result<Self, LoadError> {
        if !folder.is_dir() {
            return Err(LoadError::NoFolder { name: folder.display().to_string() });
        }
        Self::load_at(&Place::find(folder, None)?, kind, device)
    }

    /// As [`Model::load`], from folders that were found.
    pub fn load_at(place: &Place, kind: Kind, device: Device) -> Result<Self, LoadError> {
        let base = Self::load_base(&place.base, kind, device)?;
        let Some(folder) = &place.adapter else { return Ok(base) };
        let adapter = Adapter::load(folder, &base)?;
        Ok(base.adapted(adapter)?)
    }

    fn load_base(folder: &Path, kind: Kind, device: Device) -> Result<Self, LoadError> {
        device::open();
        let config = ModelConfig::load(&folder.join("config.json"))?;
        memory::check(&config, kind, device)?;
        let table = layout(&config);
        let parameters = WeightFiles::open(folder)?.read(&table, kind, device)?;
        Ok(Self::over(config, parameters, Some(folder.to_path_buf()))?)
    }

    /// Whether [`Model::load`] would find all it needs: every file, every tensor in its shape. Reads no
    /// weights.
    pub fn check(place: &Place) -> Result<(), LoadError> {
        let config = ModelConfig::load(&place.base.join("config.json"))?;
        WeightFiles::open(&place.base)?.check(&layout(&config))?;
        place.adapter.as_ref().map_or(Ok(()), |folder| Adapter::check(folder, &config).map(drop))
    }

    /// A random model. The same seed gives the same numbers on every device: each parameter has a
    /// generator of its own.
    pub fn random(
        config: ModelConfig,
        seed: i64,
        kind: Kind,
        device: Device,
    ) -> Result<Self, LoadError> {
        device::open();
        memory::check(&config, kind, device)?;
        let table = layout(&config);
        let next = AtomicUsize::new(0);
        // One thread a parameter: billions of numbers take minutes in a row.
        let draw = || -> Result<Vec<(usize, Tensor)>, TchError> {
            let mut drawn = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(parameter) = table.get(index) else { return Ok(drawn) };
                let tensor = random_parameter(parameter, index, seed, config.initial_spread)?;
                drawn.push((index, tensor.f_to_kind(kind)?.f_to_device(device)?));
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(table.len());
        let parts = std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(draw)).collect();
            let join = |thread: ScopedJoinHandle<_>| thread.join().expect("drawing does not panic");
            running.into_iter().map(join).collect::<Result<Vec<_>, TchError>>()
        })?;
        let mut drawn: Vec<(usize, Tensor)> = parts.into_iter().flatten().collect();
        drawn.sort_by_key(|(index, _)| *index);
        let parameters = drawn.into_iter().map(|(_, tensor)| tensor).collect();
        Ok(Self::over(config, parameters, None)?)
    }

    /// A model over parameters that follow the config's layout.
    pub fn over(
        config: ModelConfig,
        parameters: Vec<Tensor>,
        folder: Option<PathBuf>,
    ) -> Result<Self, TchError> {
        let layout = layout(&config);
        let network = Network::new(&config, (&layout, &parameters), None)?;
        Ok(Self { config, layout, parameters, network, folder, adapter: None })
    }

    /// Writes a folder that transformers and vLLM load, with the tokenizer this model came with; PEFT's
    /// folder where the model has an adapter.
    pub fn save(&self, folder: &Path, kind: SaveKind) -> Result<(), LoadError> {
        self.save_as(&self.parameters, folder, kind)
    }

    /// As [`Model::save`], with numbers of all parameters from elsewhere.
    pub(crate) fn save_as(
        &self,
        parameters: &[Tensor],
        folder: &Path,
        kind: SaveKind,
    ) -> Result<(), LoadError> {
        if let Some(adapter) = &self.adapter {
            return adapter::save(self, adapter, folder);
        }
        let model = ModelToSave {
            config: &self.config,
            parameters,
            kind,
            companions: self.folder.as_deref(),
        };
        save_model(&model, folder)
    }

    pub fn device(&self) -> Device {
        self.network.device()
    }
}
