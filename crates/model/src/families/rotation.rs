//! The rotary embedding in config.json, read and written in both spellings: `rope_theta` with
//! `rope_scaling` (transformers 4) and `rope_parameters` (5).
//!
//! Not here: what the numbers do (`network/rotary.rs`).

use serde_json::{Map, Value, json};

use crate::config::{ModelConfig, RotaryConfig, RotaryScaling};
use crate::error::LoadError;
use crate::json::Keys;

/// The rotation of all layers.
pub(super) fn read(keys: &Keys, default_theta: f64) -> Result<RotaryConfig, LoadError> {
    let nested = keys.object_or_none("rope_parameters")?;
    let scaling = match &nested {
        Some(nested) => Some(nested.clone()),
        None => keys.object_or_none("rope_scaling")?,
    };
    let outer_theta = keys.number_or("rope_theta", default_theta)?;
    let theta = match &nested {
        Some(nested) => nested.number_or("rope_theta", outer_theta)?,
        None => outer_theta,
    };
    let scaling = scaling.map_or(Ok(None), |scaling| read_scaling(&scaling))?;
    Ok(RotaryConfig { theta, scaling, interleaved: false })
}

fn read_scaling(keys: &Keys) -> Result<Option<RotaryScaling>, LoadError> {
    let kind = match keys.text_or_none("rope_type")? {
        Some(kind) => Some(kind),
        None => keys.text_or_none("type")?,
    };
    match kind {
        None | Some("default") => Ok(None),
        Some("llama3") => Ok(Some(RotaryScaling {
            factor: keys.number("factor")?,
            low_frequency_factor: keys.number("low_freq_factor")?,
            high_frequency_factor: keys.number("high_freq_factor")?,
            original_positions: keys.number("original_max_position_embeddings")?,
        })),
        Some(other) => Err(keys.bad("rope_type", other, "only default and llama3 are supported")),
    }
}

/// Both spellings, so that transformers 4 (and vLLM builds on it) and 5 read the same numbers.
pub(super) fn write(config: &ModelConfig, raw: &mut Map<String, Value>) {
    let Some(rotation) = config.layers.iter().find_map(|layer| layer.rotary) else { return };
    if rotation.scaling.is_some() {
        raw.insert("rope_scaling".into(), scaling(&rotation));
    }
    raw.insert("rope_theta".into(), json!(rotation.theta));
    raw.insert("rope_parameters".into(), parameters(&rotation));
}

/// The spelling of transformers 5.
fn parameters(rotation: &RotaryConfig) -> Value {
    let mut parameters = scaling(rotation);
    parameters["rope_theta"] = json!(rotation.theta);
    parameters
}

fn scaling(rotation: &RotaryConfig) -> Value {
    match rotation.scaling {
        None => json!({"rope_type": "default"}),
        Some(scaling) => json!({
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_frequency_factor,
            "high_freq_factor": scaling.high_frequency_factor,
            "original_max_position_embeddings": scaling.original_positions as i64,
        }),
    }
}
