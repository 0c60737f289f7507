//! PEFT's adapter folder, in and out.
//!
//! ```text
//! FOLDER/adapter_config.json         rank, alpha, layers, and where the base is
//! FOLDER/adapter_model.safetensors   A and B of every layer, by PEFT's names
//! ```
//! What PEFT can do and we cannot is refused by the name of its key: an adapter read as something
//! else than it is would be a wrong model. Our folders also say which base they belong to
//! (`fingerprint.rs`), in the metadata of the weights, where PEFT does not look.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use tch::Device;

use super::{Adapter, AdapterConfig, AdapterError, LAYERS};
use crate::error::LoadError;
use crate::folder::Model;
use crate::json::{self, Keys};
use crate::save::{copy_companions, cut, in_new_folder, write_json};
use crate::tensor_file::{read_about, write_tensors_about};
use crate::weights::WeightFiles;
use crate::{config::ModelConfig, hub};

/// The file that makes a folder an adapter's.
pub const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
/// In the weights' metadata.
const BASE: &str = "base_fingerprint";

/// Keys that say nothing about what the adapter computes, or that are read below.
const HARMLESS: [&str; 22] = [
    "alpha",
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "ensure_weight_tying",
    "inference_mode",
    "init_lora_weights",
    "layers_pattern",
    "lora_alpha",
    "lora_dropout",
    "lora_ga_config",
    "eva_config",
    "megatron_core",
    "parent_library",
    "peft_type",
    "peft_version",
    "qalora_group_size",
    "r",
    "revision",
    "target_modules",
    "task_type",
    "use_rslora",
];

/// Where a model's parts are: a folder of its own, or an adapter's folder and its base's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Config, tokenizer and weights.
    pub base: PathBuf,
    pub adapter: Option<PathBuf>,
}

impl Place {
    /// Looks at a folder. An adapter's base is `base` where that is given, or what the adapter names:
    /// a folder, seen from here or from the adapter's, or a hub name.
    pub fn find(folder: &Path, base: Option<&str>) -> Result<Self, LoadError> {
        let path = folder.join(CONFIG);
        let Some(value) = json::read_if_there(&path)? else {
            if let Some(base) = base {
                let problem = format!("no {CONFIG} is there, and a base ({base}) was given");
                return Err(LoadError::NotAnAdapter { path: folder.into(), problem });
            }
            return Ok(Self { base: folder.to_path_buf(), adapter: None });
        };
        let named = value.get("base_model_name_or_path").and_then(Value::as_str);
        let key = "base_model_name_or_path";
        let name = base.or(named).ok_or(LoadError::MissingKey { path: path.clone(), key })?;
        let beside = folder.join(name);
        let base =
            if !Path::new(name).is_dir() && beside.is_dir() { beside } else { hub::resolve(name)? };
        if base.join(CONFIG).is_file() {
            let problem = "it is an adapter itself: merge that one first".to_owned();
            let found = name.to_owned();
            return Err(LoadError::BadValue { path, key, found, problem });
        }
        Ok(Self { base, adapter: Some(folder.to_path_buf()) })
    }
}

/// What an adapter's folder says about itself.
pub(crate) fn read_config(folder: &Path) -> Result<AdapterConfig, LoadError> {
    let path = folder.join(CONFIG);
    let value = json::read(&path)?;
    let Some(map) = value.as_object() else {
        let problem = "not a JSON object".to_owned();
        return Err(LoadError::NotAnAdapter { path, problem });
    };
    let fields = Keys::new(map, &path);
    let kind = fields.text("peft_type")?;
    if kind != "LORA" {
        return Err(fields.bad("peft_type", kind, "only LORA is read"));
    }
    if let Some(bias) = fields.text_or_none("bias")?.filter(|bias| *bias != "none") {
        return Err(fields.bad("bias", bias, "adapters with biases are not read"));
    }
    check_start(map, &path)?;
    check_features(map, &path)?;
    Ok(AdapterConfig {
        rank: fields.count("r")?,
        alpha: fields.positive("lora_alpha")?,
        layers: layers(map, &path)?,
        is_rank_stabilised: fields.flag_or("use_rslora", false)?,
    })
}

/// Starts that change the base's own weights: their adapters mean nothing on the plain base.
fn check_start(map: &Map<String, Value>, path: &Path) -> Result<(), LoadError> {
    let key = "init_lora_weights";
    match map.get(key) {
        None | Some(Value::Bool(_) | Value::Null) => Ok(()),
        Some(Value::String(name)) if ["gaussian", "orthogonal", "eva"].contains(&name.as_str()) => {
            Ok(())
        }
        Some(other) => Err(LoadError::BadValue {
            path: path.into(),
            key,
            found: other.to_string(),
            problem: "a start that changes the base's weights, which is not read".into(),
        }),
    }
}

/// Refuses whatever else is switched on.
fn check_features(map: &Map<String, Value>, path: &Path) -> Result<(), LoadError> {
    let is_off = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
        _ => false,
    };
    let mut on =
        map.iter().filter(|(key, value)| !HARMLESS.contains(&key.as_str()) && !is_off(value));
    match on.next() {
        None => Ok(()),
        Some((key, value)) => {
            let problem =
                format!("`{key}` is {value}, which is a feature of PEFT that is not read");
            Err(LoadError::NotAnAdapter { path: path.into(), problem })
        }
    }
}

fn layers(map: &Map<String, Value>, path: &Path) -> Result<Vec<String>, LoadError> {
    let key = "target_modules";
    let bad = |found: &Value| LoadError::BadValue {
        path: path.into(),
        key,
        found: found.to_string(),
        problem: "a list of layers' names is needed, or \"all-linear\"".into(),
    };
    match map.get(key) {
        Some(Value::String(all)) if all == "all-linear" => Ok(Vec::new()),
        Some(list @ Value::Array(names)) if !names.is_empty() => {
            let name = |name: &Value| name.as_str().map(str::to_owned).ok_or_else(|| bad(list));
            let mut names = names.iter().map(name).collect::<Result<Vec<_>, _>>()?;
            names.sort();
            Ok(names)
        }
        other => Err(bad(other.unwrap_or(&Value::Null))),
    }
}

impl Adapter {
    /// Checks what can be checked of an adapter's folder without reading a number of it.
    pub fn check(folder: &Path, model: &ModelConfig) -> Result<AdapterConfig, LoadError> {
        let (config, _, layout) = Self::layout_of(read_config(folder)?, model)?;
        let files = WeightFiles::open_one(&folder.join(WEIGHTS))?;
        for_this_model(files.check(&layout))?;
        if let Some(other) = files.other_than(&layout)? {
            let problem = format!("{WEIGHTS} has `{other}`, which is no LoRA matrix of its layers");
            return Err(LoadError::NotAnAdapter { path: folder.into(), problem });
        }
        Ok(config)
    }

    /// Reads an adapter for this base, which stays as it is.
    pub fn load(folder: &Path, base: &Model) -> Result<Self, LoadError> {
        let adapter = Self::read(folder, &base.config, base.device())?;
        adapter.check_base_of(base)?;
        Ok(adapter)
    }

    /// Reads an adapter for a base that is yet to be looked at.
    pub(crate) fn read(
        folder: &Path,
        model: &ModelConfig,
        device: Device,
    ) -> Result<Self, LoadError> {
        Self::check(folder, model)?;
        let (config, targets, layout) = Self::layout_of(read_config(folder)?, model)?;
        let path = folder.join(WEIGHTS);
        let parameters = WeightFiles::open_one(&path)?.read(&layout, tch::Kind::Float, device)?;
        let mut adapter = Self::made(config, layout, parameters, targets, false);
        adapter.claim = read_about(&path)?.remove(BASE).map(|base| (path, base));
        Ok(adapter)
    }
}

/// Shapes that differ mean another base; the words of a broken model folder would mislead.
fn for_this_model(checked: Result<(), LoadError>) -> Result<(), LoadError> {
    match checked {
        Err(LoadError::WrongShape { path, tensor, found, expected }) => {
            let file = path.display();
            let problem =
                format!("{file}: `{tensor}` has shape {found:?}, this base needs {expected:?}");
            Err(AdapterError::OtherBase { problem }.into())
        }
        other => other,
    }
}

/// Writes the adapter of a model as PEFT's folder, with the base's tokenizer, replacing one that is
/// there.
pub(crate) fn save(model: &Model, adapter: &Adapter, folder: &Path) -> Result<(), LoadError> {
    let base = model.folder.as_deref().map(std::path::absolute).transpose();
    let base = base.map_err(LoadError::io(folder))?;
    let about = [(BASE.to_owned(), adapter.fingerprint_of(model)?)];
    in_new_folder(folder, |work| {
        write_json(&work.join(CONFIG), &config_of(&adapter.config, base.as_deref()))?;
        let mut tensors = Vec::new();
        for (known, tensor) in adapter.layout.iter().zip(&adapter.parameters) {
            for (part, source) in known.sources.iter().enumerate() {
                let tensor = cut(known, tensor, part)?.f_to_device(Device::Cpu)?;
                tensors.push((source.tensor.clone(), tensor));
            }
        }
        write_tensors_about(&work.join(WEIGHTS), &tensors, about)?;
        model.folder.as_deref().map_or(Ok(()), |from| copy_companions(from, work))
    })
}

fn config_of(config: &AdapterConfig, base: Option<&Path>) -> Value {
    let all = || LAYERS.map(str::to_owned).to_vec();
    let layers = if config.layers.is_empty() { all() } else { config.layers.clone() };
    json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.map(|base| base.display().to_string()),
        "r": config.rank,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "target_modules": layers,
        "use_rslora": config.is_rank_stabilised,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "modules_to_save": null,
        "revision": null,
    })
}
