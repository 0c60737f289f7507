//! What each layer of a config.json is: dense or experts, rotary or not, full or chunked.

use crate::config::{
    Architecture, FeedForward, Gate, LayerConfig, QueryGrowth, QueryKeyNorm, Span,
};
use crate::error::LoadError;
use crate::json::Keys;

pub(crate) fn layers(
    keys: &Keys,
    architecture: Architecture,
) -> Result<Vec<LayerConfig>, LoadError> {
    let count = keys.count("num_hidden_layers")?;
    if count > 4096 {
        return Err(keys.bad("num_hidden_layers", count, "more than 4096 layers"));
    }
    match architecture {
        Architecture::Llama | Architecture::Qwen2 | Architecture::Qwen3 => dense(keys, count),
        Architecture::Qwen3Moe => qwen3_moe(keys, count),
        Architecture::Llama4Text => llama4(keys, count),
    }
    .map(|layers| with_norms(layers, architecture))
}

fn with_norms(mut layers: Vec<LayerConfig>, architecture: Architecture) -> Vec<LayerConfig> {
    if matches!(architecture, Architecture::Qwen3 | Architecture::Qwen3Moe) {
        for layer in &mut layers {
            layer.query_key_norm = QueryKeyNorm::Weighted;
        }
    }
    layers
}

fn plain(feed_forward: FeedForward) -> LayerConfig {
    LayerConfig {
        is_rotary: true,
        span: Span::Full,
        query_key_norm: QueryKeyNorm::None,
        query_growth: None,
        feed_forward,
    }
}

fn dense(keys: &Keys, count: i64) -> Result<Vec<LayerConfig>, LoadError> {
    let width = keys.count("intermediate_size")?;
    Ok((0..count).map(|_| plain(FeedForward::Dense { width })).collect())
}

fn experts_and_active(keys: &Keys, key: &'static str) -> Result<(i64, i64), LoadError> {
    // Transformers 5 writes `num_local_experts` where 4 wrote the family's own key.
    let experts = match keys.count(key) {
        Ok(count) => count,
        Err(LoadError::MissingKey { .. }) if key == "num_experts" => {
            keys.count("num_local_experts")?
        }
        Err(error) => return Err(error),
    };
    let active = keys.count_or("num_experts_per_tok", if key == "num_experts" { 8 } else { 1 })?;
    if active > experts {
        let problem = format!("there are only {experts} experts");
        return Err(keys.bad("num_experts_per_tok", active, problem));
    }
    Ok((experts, active))
}

fn qwen3_moe(keys: &Keys, layers: i64) -> Result<Vec<LayerConfig>, LoadError> {
    let (count, active) = experts_and_active(keys, "num_experts")?;
    let dense_only = keys.indices_or_none("mlp_only_layers")?.unwrap_or_default();
    let every = keys.count_or("decoder_sparse_step", 1)?;
    let width = keys.count("moe_intermediate_size")?;
    let gate = if keys.flag_or("norm_topk_prob", false)? {
        Gate::SoftmaxNormalised
    } else {
        Gate::Softmax
    };
    let experts = FeedForward::Experts { count, active, width, shared_width: None, gate };
    (0..layers)
        .map(|index| {
            if dense_only.contains(&index) || (index + 1) % every != 0 {
                Ok(plain(FeedForward::Dense { width: keys.count("intermediate_size")? }))
            } else {
                Ok(plain(experts))
            }
        })
        .collect()
}

fn llama4(keys: &Keys, layers: i64) -> Result<Vec<LayerConfig>, LoadError> {
    let (count, active) = experts_and_active(keys, "num_local_experts")?;
    let width = keys.count("intermediate_size")?;
    let experts = FeedForward::Experts {
        count,
        active,
        width,
        shared_width: Some(width),
        gate: Gate::SigmoidInput,
    };
    let step = keys.count_or("interleave_moe_layer_step", 1)?;
    let expert_layers = keys
        .indices_or_none("moe_layers")?
        .unwrap_or_else(|| (0..layers).filter(|index| (index + 1) % step == 0).collect());
    let interval = keys.count_or("no_rope_layer_interval", 4)?;
    let rotary = keys.indices_or_none("no_rope_layers")?.filter(|list| !list.is_empty());
    let rotary = rotary.unwrap_or_else(|| {
        (0..layers).map(|index| i64::from((index + 1) % interval != 0)).collect()
    });
    if (rotary.len() as i64) < layers {
        let problem = format!("has {} entries for {layers} layers", rotary.len());
        return Err(keys.bad("no_rope_layers", "too short", problem));
    }
    let chunk = keys.positions_or("attention_chunk_size", 8192)?;
    let growth = QueryGrowth {
        floor: keys.number_or("floor_scale", 8192.0)?,
        scale: keys.number_or("attn_scale", 0.1)?,
    };
    let grows = keys.flag_or("attn_temperature_tuning", true)?;
    let normed = keys.flag_or("use_qk_norm", true)?;
    (0..layers)
        .map(|index| {
            let is_rotary = rotary[index as usize] != 0;
            let feed_forward = if expert_layers.contains(&index) {
                experts
            } else {
                FeedForward::Dense { width: keys.count("intermediate_size_mlp")? }
            };
            let norm = if normed && is_rotary { QueryKeyNorm::Unit } else { QueryKeyNorm::None };
            Ok(LayerConfig {
                is_rotary,
                span: if is_rotary { Span::Chunk(chunk) } else { Span::Full },
                query_key_norm: norm,
                query_growth: (grows && !is_rotary).then_some(growth),
                feed_forward,
            })
        })
        .collect()
}
