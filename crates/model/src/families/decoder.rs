//! What nearly all families share: a decoder of equal layers, read from the usual keys.
//!
//! A family reads this and changes what is its own.

use serde_json::Map;

use super::rotation;
use crate::config::{
    Activation, FeedForward, LayerConfig, ModelConfig, NormWeight, QueryKeyNorm, RotaryConfig,
    Span, TensorNames,
};
use crate::error::LoadError;
use crate::json::Keys;

/// What a key means where a config.json leaves it out: the defaults of transformers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Defaults {
    pub(super) norm_epsilon: f64,
    pub(super) theta: f64,
    pub(super) max_positions: i64,
    /// `None`: the width, shared out over the heads.
    pub(super) head_width: Option<i64>,
    pub(super) is_head_tied: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            norm_epsilon: 1e-6,
            theta: 10_000.0,
            max_positions: 2048,
            head_width: None,
            is_head_tied: false,
        }
    }
}

/// Dense layers, rotated, with full attention and SiLU.
pub(super) fn read(
    family: &'static str,
    keys: &Keys,
    defaults: &Defaults,
) -> Result<ModelConfig, LoadError> {
    refuse_other_activations(keys)?;
    refuse_partial_rotation(keys)?;
    let rotation = rotation::read(keys, defaults.theta)?;
    let feed_forward = FeedForward::Dense { width: keys.count("intermediate_size")? };
    let layers = vec![plain(feed_forward, rotation); layer_count(keys)?];
    shaped(family, keys, defaults, layers)
}

/// The sizes and biases around the layers.
pub(super) fn shaped(
    family: &'static str,
    keys: &Keys,
    defaults: &Defaults,
    layers: Vec<LayerConfig>,
) -> Result<ModelConfig, LoadError> {
    let (width, heads) = (keys.count("hidden_size")?, keys.count("num_attention_heads")?);
    let kv_heads = keys.count_or("num_key_value_heads", heads)?;
    if heads % kv_heads != 0 {
        let problem = format!("num_attention_heads ({heads}) is not a multiple of it");
        return Err(keys.bad("num_key_value_heads", kv_heads, problem));
    }
    let head_width = keys.count_or("head_dim", defaults.head_width.unwrap_or(width / heads))?;
    if head_width < 2 || head_width % 2 != 0 {
        return Err(keys.bad("head_dim", head_width, "rotary embedding needs an even width"));
    }
    let has_bias = keys.flag_or("attention_bias", false)?;
    Ok(ModelConfig {
        family,
        names: TensorNames::default(),
        vocabulary: keys.count("vocab_size")?,
        width,
        heads,
        kv_heads,
        head_width,
        max_positions: keys.positions_or("max_position_embeddings", defaults.max_positions)?,
        norm_epsilon: keys.number_or("rms_norm_eps", defaults.norm_epsilon)?,
        norm_weight: NormWeight::Plain,
        embedding_scale: None,
        activation: Activation::Silu,
        has_qkv_bias: has_bias,
        has_output_bias: has_bias,
        has_mlp_bias: false,
        is_head_tied: keys.flag_or("tie_word_embeddings", defaults.is_head_tied)?,
        initial_spread: keys.number_or("initializer_range", 0.02)?,
        layers,
        raw: Map::new(),
    })
}

pub(super) fn plain(feed_forward: FeedForward, rotation: RotaryConfig) -> LayerConfig {
    LayerConfig {
        rotary: Some(rotation),
        span: Span::Full,
        query_key_norm: QueryKeyNorm::None,
        query_growth: None,
        query_scale: None,
        feed_forward,
    }
}

pub(super) fn layer_count(keys: &Keys) -> Result<usize, LoadError> {
    let count = keys.count("num_hidden_layers")?;
    if count > 4096 {
        return Err(keys.bad("num_hidden_layers", count, "more than 4096 layers"));
    }
    Ok(count as usize)
}

/// How many experts a layer has under `key`, and how many of them read a token. `active` is the
/// family's default.
pub(super) fn experts(
    keys: &Keys,
    key: &'static str,
    active: i64,
) -> Result<(i64, i64), LoadError> {
    // Transformers 5 writes `num_local_experts` where 4 wrote the family's own key.
    let count = match keys.count(key) {
        Err(LoadError::MissingKey { .. }) => keys.count("num_local_experts")?,
        count => count?,
    };
    let active = keys.count_or("num_experts_per_tok", active)?;
    if active > count {
        let problem = format!("there are only {count} experts");
        return Err(keys.bad("num_experts_per_tok", active, problem));
    }
    Ok((count, active))
}

pub(super) fn refuse_other_activations(keys: &Keys) -> Result<(), LoadError> {
    match keys.text_or_none("hidden_act")? {
        None | Some("silu") => Ok(()),
        Some(other) => Err(keys.bad("hidden_act", other, "only silu is supported")),
    }
}

pub(super) fn refuse_partial_rotation(keys: &Keys) -> Result<(), LoadError> {
    let share = keys.number_or("partial_rotary_factor", 1.0)?;
    if share < 1.0 {
        return Err(keys.bad("partial_rotary_factor", share, "only 1.0 is supported"));
    }
    Ok(())
}

pub(super) fn refuse_windows(keys: &Keys) -> Result<(), LoadError> {
    if keys.flag_or("use_sliding_window", false)? {
        let problem = "sliding windows are not supported in this family";
        return Err(keys.bad("use_sliding_window", true, problem));
    }
    Ok(())
}
