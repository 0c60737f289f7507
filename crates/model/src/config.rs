//! config.json, read once into what the network needs, layer by layer.
//!
//! Architectures differ in a few choices (biases, norms on queries and keys, rotary layout, expert
//! gates), so they are all written as one [`ModelConfig`] whose layers say what they are; the
//! network never asks for the architecture's name. The file's own JSON is kept: a saved model
//! carries every key that came in.
//!
//! Refused, by name: sliding windows, rotary scalings other than `llama3`, activations other than
//! SiLU, partial rotary embeddings. A wrong result would be worse than an error.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::LoadError;
use crate::json::{self, Keys};

/// Experts of all layers together; each has tensors of its own. Kimi K2 has 23 thousand.
const MOST_EXPERTS: i64 = 1 << 20;

/// Ten times what has been trained anywhere.
const MOST_PARAMETERS: i128 = 20_000_000_000_000;

/// Which family a folder belongs to; decides tensor names and defaults, nothing at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
    Qwen3Moe,
    Llama4Text,
}

/// Llama-3.1's stretching of the slow rotary frequencies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RotaryScaling {
    pub factor: f64,
    pub low_frequency_factor: f64,
    pub high_frequency_factor: f64,
    pub original_positions: f64,
}

/// Rotary position embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RotaryConfig {
    pub theta: f64,
    pub scaling: Option<RotaryScaling>,
    /// Pairs are neighbours (Llama 4) and not the two halves of a head.
    pub interleaved: bool,
}

/// What a query may look at, before causality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The whole sequence.
    Full,
    /// Only its own chunk of that many positions.
    Chunk(i64),
}

/// Norm on queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryKeyNorm {
    None,
    /// RMSNorm with a weight, before the rotation (Qwen 3).
    Weighted,
    /// RMS to one without a weight, after the rotation (Llama 4).
    Unit,
}

/// Queries grow with the logarithm of their position (Llama 4, layers without rotation).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryGrowth {
    pub floor: f64,
    pub scale: f64,
}

/// How a router turns scores into weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Softmax over all experts, the chosen ones' weights summing to one.
    SoftmaxNormalised,
    /// Softmax over all experts, as it is.
    Softmax,
    /// Sigmoid of the chosen score, applied to the expert's input.
    SigmoidInput,
}

/// The second half of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FeedForward {
    Dense { width: i64 },
    Experts { count: i64, active: i64, width: i64, shared_width: Option<i64>, gate: Gate },
}

/// One transformer layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerConfig {
    pub is_rotary: bool,
    pub span: Span,
    pub query_key_norm: QueryKeyNorm,
    pub query_growth: Option<QueryGrowth>,
    pub feed_forward: FeedForward,
}

/// Everything the network needs to know.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one key of config.json")]
pub struct ModelConfig {
    pub architecture: Architecture,
    pub vocabulary: i64,
    pub width: i64,
    pub heads: i64,
    pub kv_heads: i64,
    pub head_width: i64,
    pub max_positions: i64,
    pub norm_epsilon: f64,
    pub rotary: RotaryConfig,
    pub has_qkv_bias: bool,
    pub has_output_bias: bool,
    pub has_mlp_bias: bool,
    pub is_head_tied: bool,
    /// Standard deviation of a random start.
    pub initial_spread: f64,
    pub layers: Vec<LayerConfig>,
    /// config.json as it was read.
    pub raw: Map<String, Value>,
}

impl ModelConfig {
    /// Reads a config.json.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::from_json(json::read(path)?, path)
    }

    /// Reads a parsed config.json; `path` only serves messages.
    pub fn from_json(value: Value, path: &Path) -> Result<Self, LoadError> {
        let Value::Object(raw) = value else {
            return Err(LoadError::MissingKey { path: path.to_path_buf(), key: "model_type" });
        };
        let keys = Keys::new(&raw, path);
        let architecture = architecture(&keys)?;
        refuse_the_unsupported(&keys, architecture)?;
        let (width, heads) = (keys.count("hidden_size")?, keys.count("num_attention_heads")?);
        let kv_heads = keys.count_or("num_key_value_heads", heads)?;
        if heads % kv_heads != 0 {
            let problem = format!("num_attention_heads ({heads}) is not a multiple of it");
            return Err(keys.bad("num_key_value_heads", kv_heads, problem));
        }
        let head_width = keys.count_or("head_dim", width / heads)?;
        if head_width < 2 || head_width % 2 != 0 {
            return Err(keys.bad("head_dim", head_width, "rotary embedding needs an even width"));
        }
        let is_llama = matches!(architecture, Architecture::Llama | Architecture::Llama4Text);
        let attention_bias = keys.flag_or("attention_bias", false)?;
        let config = Self {
            architecture,
            vocabulary: keys.count("vocab_size")?,
            width,
            heads,
            kv_heads,
            head_width,
            max_positions: keys.positions_or("max_position_embeddings", 2048)?,
            norm_epsilon: keys.number_or("rms_norm_eps", if is_llama { 1e-5 } else { 1e-6 })?,
            rotary: rotary(&keys, architecture)?,
            has_qkv_bias: attention_bias || architecture == Architecture::Qwen2,
            has_output_bias: attention_bias && architecture != Architecture::Qwen2,
            has_mlp_bias: architecture == Architecture::Llama && keys.flag_or("mlp_bias", false)?,
            is_head_tied: keys.flag_or("tie_word_embeddings", false)?,
            initial_spread: keys.number_or("initializer_range", 0.02)?,
            layers: crate::layer_config::layers(&keys, architecture)?,
            raw: Map::new(),
        };
        config.refuse_the_absurd(path)?;
        Ok(Self { raw, ..config })
    }

    /// Each size may be sound and all together not: nothing is made for a model that no machine
    /// holds. From here on products of sizes fit their type.
    fn refuse_the_absurd(&self, path: &Path) -> Result<(), LoadError> {
        let tensors = |layer: &LayerConfig| match layer.feed_forward {
            FeedForward::Dense { .. } => 1,
            FeedForward::Experts { count, .. } => count,
        };
        let experts: i64 = self.layers.iter().map(tensors).sum();
        if experts > MOST_EXPERTS {
            let problem = format!("{experts} experts in all layers, at most {MOST_EXPERTS}");
            return Err(LoadError::TooLarge { path: path.to_path_buf(), problem });
        }
        let size = |shape: &[i64]| shape.iter().map(|size| i128::from(*size)).product::<i128>();
        let parameters: i128 = crate::layout::layout(self).iter().map(|p| size(&p.shape)).sum();
        if parameters > MOST_PARAMETERS {
            let problem = format!("{:.1e} parameters", parameters as f64);
            return Err(LoadError::TooLarge { path: path.to_path_buf(), problem });
        }
        Ok(())
    }

    /// Learned numbers, the tied head counted once.
    pub fn parameter_count(&self) -> i64 {
        crate::layout::layout(self).iter().map(|p| p.shape.iter().product::<i64>()).sum()
    }

    /// Learned numbers that one token passes through: of the experts only the active ones.
    pub fn active_parameter_count(&self) -> i64 {
        let idle: i64 = self
            .layers
            .iter()
            .map(|layer| match layer.feed_forward {
                FeedForward::Dense { .. } => 0,
                FeedForward::Experts { count, active, width, .. } => {
                    (count - active) * 3 * width * self.width
                }
            })
            .sum();
        self.parameter_count() - idle
    }
}

fn architecture(keys: &Keys) -> Result<Architecture, LoadError> {
    Ok(match keys.text("model_type")? {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        "qwen3_moe" => Architecture::Qwen3Moe,
        "llama4_text" => Architecture::Llama4Text,
        other => {
            let (path, found) = (keys.path().to_path_buf(), other.to_owned());
            return Err(LoadError::UnsupportedArchitecture { path, found });
        }
    })
}

fn refuse_the_unsupported(keys: &Keys, architecture: Architecture) -> Result<(), LoadError> {
    if let Some(activation) = keys.text_or_none("hidden_act")?
        && activation != "silu"
    {
        return Err(keys.bad("hidden_act", activation, "only silu is supported"));
    }
    let windowed = keys.flag_or("use_sliding_window", false)?;
    if windowed && architecture != Architecture::Llama4Text {
        return Err(keys.bad("use_sliding_window", true, "sliding windows are not supported"));
    }
    if keys.number_or("partial_rotary_factor", 1.0)? < 1.0 {
        let found = keys.number_or("partial_rotary_factor", 1.0)?;
        return Err(keys.bad("partial_rotary_factor", found, "only 1.0 is supported"));
    }
    Ok(())
}

/// Both spellings: `rope_theta` with `rope_scaling` (transformers 4) and `rope_parameters` (5).
fn rotary(keys: &Keys, architecture: Architecture) -> Result<RotaryConfig, LoadError> {
    let default_theta = if architecture == Architecture::Llama4Text { 500_000.0 } else { 10_000.0 };
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
    let scaling = scaling.map_or(Ok(None), |scaling| rotary_scaling(&scaling))?;
    Ok(RotaryConfig { theta, scaling, interleaved: architecture == Architecture::Llama4Text })
}

fn rotary_scaling(keys: &Keys) -> Result<Option<RotaryScaling>, LoadError> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(value: Value) -> Result<ModelConfig, LoadError> {
        ModelConfig::from_json(value, Path::new("config.json"))
    }

    fn small() -> Value {
        json!({"model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
               "num_hidden_layers": 2, "num_attention_heads": 4, "rope_theta": 5e5})
    }

    #[test]
    fn both_spellings_of_the_rotary_embedding_mean_the_same() {
        let old = parse(small()).unwrap();
        let mut new = small();
        new.as_object_mut().unwrap().remove("rope_theta");
        new["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 5e5});
        assert_eq!(old.rotary, parse(new).unwrap().rotary);
    }

    #[test]
    fn wrong_values_are_refused_by_their_key() {
        for (key, value) in [
            ("hidden_size", json!("eight")),
            ("num_attention_heads", json!(0)),
            ("num_key_value_heads", json!(3)),
            ("hidden_act", json!("gelu")),
            ("rope_parameters", json!({"rope_type": "yarn", "factor": 4.0})),
            ("num_hidden_layers", json!(-1)),
        ] {
            let mut config = small();
            config[key] = value;
            let said = parse(config).unwrap_err().to_string();
            let named = if key == "rope_parameters" { "rope_type" } else { key };
            assert!(said.contains(named), "{key}: {said}");
        }
    }

    #[test]
    fn parameters_of_the_experts_count_as_active_only_where_a_token_passes() {
        let mut config = small();
        for (key, value) in [
            ("model_type", json!("qwen3_moe")),
            ("num_experts", json!(4)),
            ("num_experts_per_tok", json!(1)),
            ("moe_intermediate_size", json!(10)),
        ] {
            config[key] = value;
        }
        let config = parse(config).unwrap();
        assert_eq!(config.parameter_count() - config.active_parameter_count(), 2 * 3 * 3 * 10 * 8);
    }
}
