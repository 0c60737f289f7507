//! Qwen 3 with experts behind a softmax router, in all layers but those that are named dense.

use super::{Family, decoder, rotation};
use crate::config::{FeedForward, Gate, LayerConfig, ModelConfig, QueryKeyNorm};
use crate::error::LoadError;
use crate::json::Keys;

pub(super) struct Qwen3Moe;

impl Family for Qwen3Moe {
    fn model_type(&self) -> &'static str {
        "qwen3_moe"
    }

    fn read(&self, keys: &Keys) -> Result<ModelConfig, LoadError> {
        decoder::refuse_other_activations(keys)?;
        decoder::refuse_windows(keys)?;
        decoder::refuse_partial_rotation(keys)?;
        let defaults = decoder::Defaults::default();
        let rotation = rotation::read(keys, defaults.theta)?;
        let layers = feed_forwards(keys, decoder::layer_count(keys)?)?
            .into_iter()
            .map(|feed_forward| LayerConfig {
                query_key_norm: QueryKeyNorm::Weighted,
                ..decoder::plain(feed_forward, rotation)
            })
            .collect();
        decoder::shaped(self.model_type(), keys, &defaults, layers)
    }
}

fn feed_forwards(keys: &Keys, layers: usize) -> Result<Vec<FeedForward>, LoadError> {
    let (count, active) = decoder::experts(keys, "num_experts", 8)?;
    let dense_only = keys.indices_or_none("mlp_only_layers")?.unwrap_or_default();
    let every = keys.count_or("decoder_sparse_step", 1)?;
    let gate = if keys.flag_or("norm_topk_prob", false)? {
        Gate::SoftmaxNormalised
    } else {
        Gate::Softmax
    };
    let width = keys.count("moe_intermediate_size")?;
    let experts = FeedForward::Experts { count, active, width, shared_width: None, gate };
    (0..layers as i64)
        .map(|index| {
            if dense_only.contains(&index) || (index + 1) % every != 0 {
                Ok(FeedForward::Dense { width: keys.count("intermediate_size")? })
            } else {
                Ok(experts)
            }
        })
        .collect()
}
