//! A model: from a Hugging Face folder, from the hub, or from nothing but a config.

use std::path::{Path, PathBuf};

use tch::{Device, Kind, TchError, Tensor};

use crate::adapter::{self, Adapter, Place};
use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::layout::{Parameter, layout};
use crate::network::Network;
use crate::save::{ModelToSave, SaveKind, save_model};
use crate::unloaded::UnloadedModel;
use crate::weights::WeightFiles;

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
        let base = UnloadedModel::open(&place.base, device)?.load(kind)?;
        let Some(folder) = &place.adapter else { return Ok(base) };
        let adapter = Adapter::load(folder, &base)?;
        Ok(base.adapted(adapter)?)
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
        UnloadedModel::random(config, seed, device).load(kind)
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
