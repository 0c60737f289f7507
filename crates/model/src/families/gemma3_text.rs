//! Gemma 3, text only: layers that see a window and layers that see everything take turns, each sort
//! with a rotation of its own; norms before and after each half of a layer, with weights added to one;
//! embeddings multiplied by the root of the width, GELU, a scale of queries of its own, a tied head.
//!
//! Refused: soft caps on logits (Gemma 2), attention that looks ahead (`EmbeddingGemma`).

use serde_json::{Map, Value, json};

use super::{Family, decoder, rotation};
use crate::config::{
    Activation, FeedForward, LayerConfig, ModelConfig, NormWeight, QueryKeyNorm, Span, TensorNames,
};
use crate::error::LoadError;
use crate::json::Keys;

const GLOBAL_THETA: f64 = 1_000_000.0;
const LOCAL_THETA: f64 = 10_000.0;
/// One layer in six sees everything.
const PATTERN: i64 = 6;

pub(super) struct Gemma3Text;

impl Family for Gemma3Text {
    fn model_type(&self) -> &'static str {
        "gemma3_text"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError> {
        refuse(keys)?;
        let defaults = decoder::Defaults {
            max_positions: 131_072,
            head_width: Some(256),
            is_head_tied: true,
            ..Default::default()
        };
        let mut config = decoder::shaped(self.model_type(), keys, &defaults, layers(keys)?)?;
        let scalar = keys.positive_or("query_pre_attn_scalar", 256.0)?;
        let query_scale = (config.head_width as f64 / scalar).sqrt();
        for layer in &mut config.layers {
            layer.query_scale = Some(query_scale).filter(|scale| (scale - 1.0).abs() > 0.0);
        }
        let names = TensorNames {
            attention_output_norm: Some("post_attention_layernorm"),
            mlp_norm: "pre_feedforward_layernorm",
            mlp_output_norm: Some("post_feedforward_layernorm"),
            ..config.names
        };
        Ok(ModelConfig {
            names,
            norm_weight: NormWeight::OnePlus,
            activation: Activation::GeluTanh,
            embedding_scale: Some((config.width as f64).sqrt()),
            ..config
        })
    }

    /// Transformers 4 has keys for each of the two rotations, 5 an object for each.
    fn write_rotation(&self, config: &ModelConfig, raw: &mut Map<String, Value>) {
        let is_whole = |layer: &&LayerConfig| layer.span == Span::Full;
        let of = |layer: Option<&LayerConfig>| layer.and_then(|layer| layer.rotary);
        let global = of(config.layers.iter().find(is_whole));
        let local = of(config.layers.iter().find(|layer| !is_whole(layer)));
        let known = raw.get("rope_parameters").and_then(Value::as_object);
        let mut parameters = known.cloned().unwrap_or_default();
        if let Some(global) = global {
            rotation::write_scaling(&global, raw);
            raw.insert("rope_theta".into(), json!(global.theta));
            parameters.insert("full_attention".into(), rotation::parameters(&global));
        }
        if let Some(local) = local {
            raw.insert("rope_local_base_freq".into(), json!(local.theta));
            parameters.insert("sliding_attention".into(), rotation::parameters(&local));
        }
        raw.insert("rope_parameters".into(), Value::Object(parameters));
    }
}

fn refuse(keys: &Keys) -> Result<(), LoadError> {
    for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
        if keys.is_there(key) {
            return Err(keys.bad(key, keys.number(key)?, "soft caps on logits are not supported"));
        }
    }
    if keys.flag_or("use_bidirectional_attention", false)? {
        let problem = "only attention to what came before is supported";
        return Err(keys.bad("use_bidirectional_attention", true, problem));
    }
    match keys.text_or_none("hidden_activation")? {
        None | Some("gelu_pytorch_tanh") => Ok(()),
        Some(other) => {
            Err(keys.bad("hidden_activation", other, "only gelu_pytorch_tanh is supported"))
        }
    }
}

fn layers(keys: &Keys) -> Result<Vec<LayerConfig>, LoadError> {
    let nested = keys.object_or_none("rope_parameters")?;
    let own = |key| match &nested {
        Some(nested) => nested.object_or_none(key),
        None => Ok(None),
    };
    let max_positions = keys.positions_or_none("max_position_embeddings")?;
    let global = match own("full_attention")? {
        Some(own) => rotation::read_parameters(&own, GLOBAL_THETA, max_positions)?,
        None => rotation::read_flat(keys, GLOBAL_THETA)?,
    };
    let local_theta = keys.number_or("rope_local_base_freq", LOCAL_THETA)?;
    let local = match own("sliding_attention")? {
        Some(own) => rotation::read_parameters(&own, local_theta, max_positions)?,
        None => rotation::plain(local_theta),
    };
    let window = Span::Window(keys.positions_or("sliding_window", 4096)?);
    let feed_forward = FeedForward::Dense { width: keys.count("intermediate_size")? };
    let layer = |is_whole| LayerConfig {
        span: if is_whole { Span::Full } else { window },
        query_key_norm: QueryKeyNorm::Weighted,
        ..decoder::plain(feed_forward, if is_whole { global } else { local })
    };
    Ok(whole_layers(keys, decoder::layer_count(keys)?)?.into_iter().map(layer).collect())
}

/// For each layer, whether it sees everything: listed (transformers 5), or every so many (4).
fn whole_layers(keys: &Keys, count: usize) -> Result<Vec<bool>, LoadError> {
    let Some(types) = keys.texts_or_none("layer_types")? else {
        let pattern = keys.count_or("_sliding_window_pattern", PATTERN)?;
        let pattern = keys.count_or("sliding_window_pattern", pattern)?;
        return Ok((1..=count as i64).map(|number| number % pattern == 0).collect());
    };
    if types.len() != count {
        let problem = format!("a list of {count} entries, one a layer, is needed");
        return Err(keys.bad("layer_types", format!("a list of {}", types.len()), problem));
    }
    types
        .into_iter()
        .map(|kind| match kind {
            "full_attention" => Ok(true),
            "sliding_attention" => Ok(false),
            other => {
                let problem = "only full_attention and sliding_attention are supported";
                Err(keys.bad("layer_types", other, problem))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn small() -> Value {
        json!({"model_type": "gemma3_text", "vocab_size": 32, "hidden_size": 8, "head_dim": 4,
            "intermediate_size": 16, "num_hidden_layers": 7, "num_attention_heads": 4,
            "num_key_value_heads": 2, "sliding_window": 512})
    }

    fn read(value: Value) -> Result<ModelConfig, LoadError> {
        ModelConfig::from_json(value, Path::new("gemma/config.json"))
    }

    /// As google/gemma-3-1b-it has it; newer files list layers and nest their rotations.
    #[test]
    fn both_spellings_of_the_two_rotations_mean_the_same() {
        let mut old = small();
        old["rope_theta"] = json!(1e6);
        old["rope_local_base_freq"] = json!(1e4);
        old["rope_scaling"] = json!({"rope_type": "linear", "factor": 8.0});
        let mut new = small();
        let [local, global] = ["sliding_attention", "full_attention"];
        new["layer_types"] = json!([local, local, local, local, local, global, local]);
        new["rope_parameters"] = json!({
            global: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            local: {"rope_type": "default", "rope_theta": 1e4},
        });
        let (old, new) = (read(old).unwrap(), read(new).unwrap());
        assert_eq!(old.layers, new.layers);
        assert!(old.is_head_tied, "where the file does not say so");
        let spans: Vec<bool> = old.layers.iter().map(|layer| layer.span == Span::Full).collect();
        assert_eq!(spans, [false, false, false, false, false, true, false]);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_key_and_file() {
        for (key, value) in [
            ("attn_logit_softcapping", json!(50.0)),
            ("final_logit_softcapping", json!(30.0)),
            ("use_bidirectional_attention", json!(true)),
            ("hidden_activation", json!("gelu")),
            ("layer_types", json!(["full_attention"])),
            ("layer_types", json!(vec!["chunked_attention"; 7])),
            ("layer_types", json!("full_attention")),
            ("query_pre_attn_scalar", json!(0)),
        ] {
            let mut config = small();
            config[key] = value;
            let said = read(config).unwrap_err().to_string();
            assert!(said.contains(key) && said.contains("gemma/config.json"), "{key}: {said}");
        }
    }
}
