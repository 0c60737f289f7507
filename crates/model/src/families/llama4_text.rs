//! Llama 4, text only: a shared expert beside those behind a sigmoid router, layers with chunked
//! attention and neighbouring pairs rotated, layers without rotation whose queries grow.

use super::{Family, decoder, rotation};
use crate::config::{
    ExpertTensors, FeedForward, Gate, LayerConfig, ModelConfig, QueryGrowth, QueryKeyNorm,
    RotaryConfig, Span, TensorNames,
};
use crate::error::LoadError;
use crate::json::Keys;

pub(super) struct Llama4Text;

impl Family for Llama4Text {
    fn model_type(&self) -> &'static str {
        "llama4_text"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError> {
        decoder::refuse_other_activations(keys)?;
        decoder::refuse_partial_rotation(keys)?;
        let defaults =
            decoder::Defaults { norm_epsilon: 1e-5, theta: 500_000.0, ..Default::default() };
        let config = decoder::shaped(self.model_type(), keys, &defaults, layers(keys, &defaults)?)?;
        let names = TensorNames {
            feed_forward: "feed_forward",
            router: "router",
            experts: ExpertTensors::Together,
            ..config.names
        };
        Ok(ModelConfig { names, ..config })
    }
}

fn layers(keys: &Keys, defaults: &decoder::Defaults) -> Result<Vec<LayerConfig>, LoadError> {
    let count = decoder::layer_count(keys)?;
    let rotation = rotation::read(keys, defaults.theta)?;
    let rotation = RotaryConfig { interleaved: true, ..rotation };
    let chunk = keys.positions_or("attention_chunk_size", 8192)?;
    let growth = QueryGrowth {
        floor: keys.number_or("floor_scale", 8192.0)?,
        scale: keys.number_or("attn_scale", 0.1)?,
    };
    let grows = keys.flag_or("attn_temperature_tuning", true)?;
    let normed = keys.flag_or("use_qk_norm", true)?;
    let rotated = rotated(keys, count)?;
    let layer = |(index, feed_forward)| {
        let is_rotary: bool = rotated[index];
        let norm = if normed && is_rotary { QueryKeyNorm::Unit } else { QueryKeyNorm::None };
        LayerConfig {
            rotary: is_rotary.then_some(rotation),
            span: if is_rotary { Span::Chunk(chunk) } else { Span::Full },
            query_key_norm: norm,
            query_scale: None,
            query_growth: (grows && !is_rotary).then_some(growth),
            feed_forward,
        }
    };
    Ok(feed_forwards(keys, count)?.into_iter().enumerate().map(layer).collect())
}

/// Which layers rotate: `no_rope_layers` has a 1 for each that does.
fn rotated(keys: &Keys, layers: usize) -> Result<Vec<bool>, LoadError> {
    let listed = keys.indices_or_none("no_rope_layers")?.filter(|list| !list.is_empty());
    let Some(listed) = listed else {
        let interval = keys.count_or("no_rope_layer_interval", 4)?;
        return Ok((1..=layers as i64).map(|number| number % interval != 0).collect());
    };
    if listed.len() < layers {
        let problem = format!("has {} entries for {layers} layers", listed.len());
        return Err(keys.bad("no_rope_layers", "too short", problem));
    }
    Ok(listed.iter().map(|entry| *entry != 0).collect())
}

fn feed_forwards(keys: &Keys, layers: usize) -> Result<Vec<FeedForward>, LoadError> {
    let (count, active) = decoder::experts(keys, "num_local_experts", 1)?;
    let width = keys.count("intermediate_size")?;
    let gate = Gate::SigmoidInput;
    let experts = FeedForward::Experts { count, active, width, shared_width: Some(width), gate };
    let step = keys.count_or("interleave_moe_layer_step", 1)?;
    let listed = keys.indices_or_none("moe_layers")?;
    let has_experts = |index: i64| match &listed {
        Some(listed) => listed.contains(&index),
        None => (index + 1) % step == 0,
    };
    (0..layers as i64)
        .map(|index| {
            if has_experts(index) {
                Ok(experts)
            } else {
                Ok(FeedForward::Dense { width: keys.count("intermediate_size_mlp")? })
            }
        })
        .collect()
}
