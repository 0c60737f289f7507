//! Timings of a training step and of the head, for shapes given as numbers.
//!
//! The shapes, the lengths of a mixed batch and the count of operations are those of
//! scripts/h200/peer_torch.py, so that the two can be read side by side.

mod head;
mod train;

use serde_json::json;

use crate::config::ModelConfig;
use crate::error::LoadError;

pub use head::{HeadBench, HeadTiming, bench_head};
pub use train::{TrainBench, TrainTiming, bench_train};

/// A llama-shaped model with an untied head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
    pub kv_heads: i64,
    pub feed_forward: i64,
    pub vocabulary: i64,
}

impl Shape {
    /// The config.json of this shape.
    pub fn config(&self) -> Result<ModelConfig, LoadError> {
        let value = json!({
            "model_type": "llama",
            "architectures": ["LlamaForCausalLM"],
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": false,
        });
        ModelConfig::from_json(value, std::path::Path::new("the shape given"))
    }
}
