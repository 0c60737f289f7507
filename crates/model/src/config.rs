//! What a model is, layer by layer: read once from config.json, all that the network needs.
//!
//! Families differ in a few choices (biases, norms on queries and keys, rotary layout, expert gates),
//! so they are all written as one [`ModelConfig`] whose layers say what they are; the network never
//! asks for the family's name. The file's own JSON is kept: a saved model carries every key that
//! came in.
//!
//! Not here: which key of which family means what, and what is refused (`families`).

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::LoadError;
use crate::families;
use crate::json::{self, Keys};

/// Experts of all layers together; each has tensors of its own. Kimi K2 has 23 thousand.
const MOST_EXPERTS: i64 = 1 << 20;

/// Ten times what has been trained anywhere.
const MOST_PARAMETERS: i128 = 20_000_000_000_000;

/// How rotary frequencies are stretched for contexts longer than those of pre-training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RotaryScaling {
    /// All alike.
    Linear { factor: f64 },
    /// Llama 3.1: the slow ones.
    Llama3(Llama3),
    /// `YaRN` (arXiv 2309.00071): those that turn rarely over the original positions.
    Yarn(Yarn),
}

/// The numbers of Llama 3.1's stretching.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3 {
    pub factor: f64,
    pub low_frequency_factor: f64,
    pub high_frequency_factor: f64,
    pub original_positions: f64,
}

/// The numbers of `YaRN`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    /// Cosines and sines are multiplied by this.
    pub attention_factor: f64,
    /// Pairs that turn more often than `fast` over the original positions stay, those that turn less
    /// often than `slow` are divided by `factor`.
    pub fast: f64,
    pub slow: f64,
    pub original_positions: f64,
    /// Whether the bounds between which pairs are mixed are rounded to whole pairs.
    pub is_truncated: bool,
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
    /// Only that many positions, its own and those right before it.
    Window(i64),
}

impl Span {
    /// The first position that a query sees: what every attention here keeps to.
    pub fn first_seen(self, position: i64) -> i64 {
        match self {
            Self::Full => 0,
            Self::Chunk(size) => position / size * size,
            Self::Window(size) => (position + 1 - size).max(0),
        }
    }

    /// As loops and kernels take it: the size of a chunk and of a window, 0 where there is none.
    pub fn sizes(self) -> [i64; 2] {
        match self {
            Self::Full => [0, 0],
            Self::Chunk(size) => [size, 0],
            Self::Window(size) => [0, size],
        }
    }
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

/// What the learned weight of a norm is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormWeight {
    /// The factor itself.
    Plain,
    /// What is added to one (Gemma).
    OnePlus,
}

/// The function in the gate of a dense feed-forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    Silu,
    /// GELU by its tanh formula.
    GeluTanh,
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
    /// `None`: heads are not rotated.
    pub rotary: Option<RotaryConfig>,
    pub span: Span,
    pub query_key_norm: QueryKeyNorm,
    pub query_growth: Option<QueryGrowth>,
    /// Queries are multiplied by this, beside the usual root of the head's width.
    pub query_scale: Option<f64>,
    pub feed_forward: FeedForward,
}

/// How a file keeps the experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertTensors {
    /// Each expert has tensors of its own.
    Apart,
    /// One tensor holds all, with its last two dimensions the other way round (Llama 4).
    Together,
}

/// What a family's files call the parts of a layer in which families differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorNames {
    pub attention_norm: &'static str,
    /// On what attention made, before it is added; not every family has it.
    pub attention_output_norm: Option<&'static str>,
    pub mlp_norm: &'static str,
    /// The same of the feed-forward.
    pub mlp_output_norm: Option<&'static str>,
    pub feed_forward: &'static str,
    pub router: &'static str,
    pub experts: ExpertTensors,
}

impl Default for TensorNames {
    /// What most families call them.
    fn default() -> Self {
        Self {
            attention_norm: "input_layernorm",
            attention_output_norm: None,
            mlp_norm: "post_attention_layernorm",
            mlp_output_norm: None,
            feed_forward: "mlp",
            router: "gate",
            experts: ExpertTensors::Apart,
        }
    }
}

/// Everything the network needs to know.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one key of config.json")]
pub struct ModelConfig {
    /// Its `model_type`: who wrote config.json and in whose words it is saved, nothing at run time.
    pub family: &'static str,
    pub names: TensorNames,
    pub vocabulary: i64,
    pub width: i64,
    pub heads: i64,
    pub kv_heads: i64,
    pub head_width: i64,
    pub max_positions: i64,
    pub norm_epsilon: f64,
    pub norm_weight: NormWeight,
    /// Embeddings are multiplied by this.
    pub embedding_scale: Option<f64>,
    pub activation: Activation,
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
        let config = families::of(&keys)?.read(&keys)?;
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

    /// Experts of each layer that has any.
    fn expert_counts(&self) -> impl Iterator<Item = i64> + '_ {
        self.layers.iter().filter_map(|layer| match layer.feed_forward {
            FeedForward::Experts { count, .. } => Some(count),
            FeedForward::Dense { .. } => None,
        })
    }

    /// Experts of a layer that so many ranks cannot own in equal numbers.
    pub fn indivisible_experts(&self, ranks: u64) -> Option<i64> {
        self.expert_counts().find(|count| !count.cast_unsigned().is_multiple_of(ranks.max(1)))
    }

    /// Whether there are experts, and so many ranks can own them in equal numbers.
    pub fn can_be_owned_by(&self, ranks: u64) -> bool {
        self.expert_counts().next().is_some() && self.indivisible_experts(ranks).is_none()
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
        assert_eq!(old.layers, parse(new).unwrap().layers);
    }

    #[test]
    fn wrong_values_are_refused_by_their_key() {
        for (key, value) in [
            ("hidden_size", json!("eight")),
            ("num_attention_heads", json!(0)),
            ("num_key_value_heads", json!(3)),
            ("hidden_act", json!("gelu")),
            ("rope_parameters", json!({"rope_type": "longrope", "factor": 4.0})),
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
