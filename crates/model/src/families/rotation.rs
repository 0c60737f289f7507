//! The rotary embedding in config.json, read and written in both spellings: `rope_theta` with
//! `rope_scaling` (transformers 4) and `rope_parameters` (5).
//!
//! Not here: what the numbers do (`network/rotary.rs`).

use serde_json::{Map, Value, json};

use crate::config::{Llama3, ModelConfig, RotaryConfig, RotaryScaling, Yarn};
use crate::error::LoadError;
use crate::json::Keys;

/// The rotation of all layers.
pub(super) fn read(keys: &Keys, default_theta: f64) -> Result<RotaryConfig, LoadError> {
    let Some(nested) = keys.object_or_none("rope_parameters")? else {
        return read_flat(keys, default_theta);
    };
    let theta = keys.number_or("rope_theta", default_theta)?;
    read_parameters(&nested, theta, keys.positions_or_none("max_position_embeddings")?)
}

/// As transformers 4 spells it.
pub(super) fn read_flat(keys: &Keys, default_theta: f64) -> Result<RotaryConfig, LoadError> {
    let plain = plain(keys.number_or("rope_theta", default_theta)?);
    let Some(scaling) = keys.object_or_none("rope_scaling")? else { return Ok(plain) };
    let max_positions = keys.positions_or_none("max_position_embeddings")?;
    Ok(RotaryConfig { scaling: read_scaling(&scaling, max_positions)?, ..plain })
}

/// The `rope_parameters` of transformers 5.
pub(super) fn read_parameters(
    keys: &Keys,
    default_theta: f64,
    max_positions: Option<i64>,
) -> Result<RotaryConfig, LoadError> {
    let scaling = read_scaling(keys, max_positions)?;
    Ok(RotaryConfig { scaling, ..plain(keys.number_or("rope_theta", default_theta)?) })
}

pub(super) fn plain(theta: f64) -> RotaryConfig {
    RotaryConfig { theta, scaling: None, interleaved: false }
}

/// `max_positions` is what the model is for, where it says so.
fn read_scaling(
    keys: &Keys,
    max_positions: Option<i64>,
) -> Result<Option<RotaryScaling>, LoadError> {
    let kind = match keys.text_or_none("rope_type")? {
        Some(kind) => Some(kind),
        None => keys.text_or_none("type")?,
    };
    Ok(match kind {
        None | Some("default") => None,
        Some("linear") => Some(RotaryScaling::Linear { factor: keys.positive("factor")? }),
        Some("llama3") => Some(RotaryScaling::Llama3(Llama3 {
            factor: keys.number("factor")?,
            low_frequency_factor: keys.number("low_freq_factor")?,
            high_frequency_factor: keys.number("high_freq_factor")?,
            original_positions: keys.number("original_max_position_embeddings")?,
        })),
        Some("yarn") => Some(RotaryScaling::Yarn(read_yarn(keys, max_positions)?)),
        Some(other) => {
            let problem = "only default, linear, llama3 and yarn are supported";
            return Err(keys.bad("rope_type", other, problem));
        }
    })
}

/// What is left out follows from the rest as in transformers: positions of the pre-training are all,
/// the factor is their ratio, and the attention factor is the paper's.
fn read_yarn(keys: &Keys, max_positions: Option<i64>) -> Result<Yarn, LoadError> {
    let all = max_positions.map(|count| count as f64);
    let original_positions = match (keys.is_there("original_max_position_embeddings"), all) {
        (false, Some(all)) => all,
        _ => keys.positive("original_max_position_embeddings")?,
    };
    let factor = match (keys.is_there("factor"), all) {
        (false, Some(all)) => all / original_positions,
        _ => keys.positive("factor")?,
    };
    let scale = |weight: f64| if factor > 1.0 { 0.1 * weight * factor.ln() + 1.0 } else { 1.0 };
    let weights = [keys.number_or("mscale", 0.0)?, keys.number_or("mscale_all_dim", 0.0)?];
    let has_weights = weights.iter().all(|weight| weight.abs() > 0.0);
    let suggested = if has_weights { scale(weights[0]) / scale(weights[1]) } else { scale(1.0) };
    Ok(Yarn {
        factor,
        attention_factor: keys.positive_or("attention_factor", suggested)?,
        fast: keys.positive_or("beta_fast", 32.0)?,
        slow: keys.positive_or("beta_slow", 1.0)?,
        original_positions,
        is_truncated: keys.flag_or("truncate", true)?,
    })
}

/// Both spellings, so that transformers 4 (and vLLM builds on it) and 5 read the same numbers.
pub(super) fn write(config: &ModelConfig, raw: &mut Map<String, Value>) {
    let Some(rotation) = config.layers.iter().find_map(|layer| layer.rotary) else { return };
    write_scaling(&rotation, raw);
    raw.insert("rope_theta".into(), json!(rotation.theta));
    raw.insert("rope_parameters".into(), parameters(&rotation));
}

pub(super) fn write_scaling(rotation: &RotaryConfig, raw: &mut Map<String, Value>) {
    if rotation.scaling.is_some() {
        raw.insert("rope_scaling".into(), scaling(rotation));
    }
}

/// The spelling of transformers 5.
pub(super) fn parameters(rotation: &RotaryConfig) -> Value {
    let mut parameters = scaling(rotation);
    parameters["rope_theta"] = json!(rotation.theta);
    parameters
}

fn scaling(rotation: &RotaryConfig) -> Value {
    let positions = |count: f64| count as i64;
    match rotation.scaling {
        None => json!({"rope_type": "default"}),
        Some(RotaryScaling::Linear { factor }) => json!({"rope_type": "linear", "factor": factor}),
        Some(RotaryScaling::Llama3(llama3)) => json!({
            "rope_type": "llama3",
            "factor": llama3.factor,
            "low_freq_factor": llama3.low_frequency_factor,
            "high_freq_factor": llama3.high_frequency_factor,
            "original_max_position_embeddings": positions(llama3.original_positions),
        }),
        Some(RotaryScaling::Yarn(yarn)) => json!({
            "rope_type": "yarn",
            "factor": yarn.factor,
            "attention_factor": yarn.attention_factor,
            "beta_fast": yarn.fast,
            "beta_slow": yarn.slow,
            "original_max_position_embeddings": positions(yarn.original_positions),
            "truncate": yarn.is_truncated,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read_from(value: &Value) -> Result<RotaryConfig, LoadError> {
        read(&Keys::new(value.as_object().unwrap(), Path::new("config.json")), 10_000.0)
    }

    fn yarn(value: &Value) -> Yarn {
        match read_from(value).unwrap().scaling {
            Some(RotaryScaling::Yarn(yarn)) => yarn,
            other => panic!("{other:?}"),
        }
    }

    /// As the Qwen 2.5 and Qwen 3 cards tell their users to write it.
    #[test]
    fn yarn_is_read_as_model_cards_spell_it_and_the_rest_follows_from_the_paper() {
        let old = json!({"max_position_embeddings": 32768, "rope_theta": 1e6,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}});
        let found = yarn(&old);
        assert!((found.attention_factor - (0.1 * 4_f64.ln() + 1.0)).abs() < 1e-12);
        let [fast, slow] = [found.fast, found.slow];
        assert!((fast - 32.0).abs() + (slow - 1.0).abs() < 1e-12 && found.is_truncated);
        let new = json!({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
            "original_max_position_embeddings": 32768}});
        assert_eq!(read_from(&old).unwrap(), read_from(&new).unwrap());
        let short = json!({"max_position_embeddings": 131_072,
            "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 32768}});
        assert!((yarn(&short).factor - 4.0).abs() < 1e-12, "the ratio of the positions");
        let weighted = json!({"rope_scaling": {"type": "yarn", "factor": 40.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}});
        assert!((yarn(&weighted).attention_factor - 1.0).abs() < 1e-12, "DeepSeek's weights");
    }

    #[test]
    fn scalings_that_make_no_sense_are_refused_by_their_key() {
        for (key, scaling) in [
            ("factor", json!({"type": "yarn", "original_max_position_embeddings": 64})),
            (
                "factor",
                json!({"type": "yarn", "factor": 0, "original_max_position_embeddings": 64}),
            ),
            ("original_max_position_embeddings", json!({"type": "yarn", "factor": 2.0})),
            ("factor", json!({"type": "linear"})),
            ("rope_type", json!({"type": "dynamic", "factor": 2.0})),
        ] {
            let said = read_from(&json!({"rope_scaling": scaling})).unwrap_err().to_string();
            assert!(said.contains(key) && said.contains("config.json"), "{key}: {said}");
        }
    }
}
