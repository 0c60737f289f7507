//! A model: from a Hugging Face folder, from the hub, or from nothing but a config.

use std::path::{Path, PathBuf};

use tch::{Device, Kind, TchError, Tensor};

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::layout::{Parameter, Start, layout};
use crate::memory;
use crate::network::Network;
use crate::save::{ModelToSave, SaveKind, save_model};
use crate::weights::WeightFiles;
use scalerl_torch::device;
use scalerl_torch::shim;

/// A network with its parameters and where it came from.
pub struct Model {
    pub config: ModelConfig,
    pub layout: Vec<Parameter>,
    /// In the order of `layout`.
    pub parameters: Vec<Tensor>,
    pub network: Network,
    /// The folder whose tokenizer belongs to this model.
    pub folder: Option<PathBuf>,
}

impl Model {
    /// Reads a folder with config.json and safetensors.
    pub fn load(folder: &Path, kind: Kind, device: Device) -> Result<Self, LoadError> {
        device::open();
        if !folder.is_dir() {
            return Err(LoadError::NoFolder { name: folder.display().to_string() });
        }
        let config = ModelConfig::load(&folder.join("config.json"))?;
        memory::check(&config, kind, device)?;
        let table = layout(&config);
        let parameters = WeightFiles::open(folder)?.read(&table, kind, device)?;
        Ok(Self::over(config, parameters, Some(folder.to_path_buf()))?)
    }

    /// Whether [`Model::load`] would find all it needs: every file, every tensor in its shape. Reads no
    /// weights.
    pub fn check(folder: &Path) -> Result<(), LoadError> {
        let config = ModelConfig::load(&folder.join("config.json"))?;
        WeightFiles::open(folder)?.check(&layout(&config))
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
        let cpu = (Kind::Float, Device::Cpu);
        let parameters = layout(&config)
            .iter()
            .enumerate()
            .map(|(index, parameter)| {
                let shape = &parameter.shape[..];
                let tensor = match parameter.start {
                    Start::Normal => {
                        let tensor = Tensor::f_empty(shape, cpu)?;
                        let own_seed = seed.wrapping_mul(1_000_003).wrapping_add(index as i64);
                        shim::fill_normal(&tensor, config.initial_spread, own_seed as u64)?;
                        tensor
                    }
                    Start::Ones => Tensor::f_ones(shape, cpu)?,
                    Start::Zeros => Tensor::f_zeros(shape, cpu)?,
                };
                tensor.f_to_kind(kind)?.f_to_device(device)
            })
            .collect::<Result<Vec<_>, TchError>>()?;
        Ok(Self::over(config, parameters, None)?)
    }

    /// A model over parameters that follow the config's layout.
    pub fn over(
        config: ModelConfig,
        parameters: Vec<Tensor>,
        folder: Option<PathBuf>,
    ) -> Result<Self, TchError> {
        let layout = layout(&config);
        let network = Network::new(&config, &layout, &parameters)?;
        Ok(Self { config, layout, parameters, network, folder })
    }

    /// Writes a folder that transformers and vLLM load, with the tokenizer this model came with.
    pub fn save(&self, folder: &Path, kind: SaveKind) -> Result<(), LoadError> {
        let model = ModelToSave {
            config: &self.config,
            parameters: &self.parameters,
            kind,
            companions: self.folder.as_deref(),
        };
        save_model(&model, folder)
    }

    pub fn device(&self) -> Device {
        self.network.device()
    }
}
