//! A new model from nothing but its shape and a list of tokens: config.json and tokenizer.json, as
//! a folder that this crate and transformers read. Weights are drawn when it is first loaded
//! (`Model::random`).
//!
//! Not here: which tokens a task needs (`task`), training the tokenizer of a real language.

use std::path::Path;

use serde_json::{Value, json};

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::save::write_json;

/// Experts of every layer, and how many of them read a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    pub all: i64,
    pub active: i64,
}

/// The shape of a model to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshShape {
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
    pub kv_heads: i64,
    /// Of the dense part, or of one expert.
    pub feed_forward: i64,
    pub experts: Option<Experts>,
}

/// The tokens of a model to be made, in the order of their ids.
#[derive(Debug, Clone, Copy)]
pub struct FreshTokens<'a> {
    /// Single characters and tags; a text is cut into them, longest first.
    pub tokens: &'a [&'a str],
    /// Put before every text.
    pub start: &'a str,
    /// Ends a completion.
    pub end: &'a str,
    /// Tags that a reader must see, such as those of thinking. Others longer than a character are
    /// special: they vanish from decoded text.
    pub visible: &'a [&'a str],
}

impl FreshTokens<'_> {
    fn id(&self, token: &str) -> usize {
        let found = self.tokens.iter().position(|other| *other == token);
        found.expect("start and end are among the tokens")
    }

    /// tokenizer.json: one token per character or tag.
    fn tokenizer(&self) -> Value {
        let tags = self.tokens.iter().enumerate().filter(|(_, token)| token.chars().count() > 1);
        let added: Vec<Value> = tags
            .map(|(id, token)| {
                json!({"id": id, "content": token, "single_word": false, "lstrip": false,
                       "rstrip": false, "normalized": false,
                       "special": !self.visible.contains(token)})
            })
            .collect();
        let vocabulary: serde_json::Map<String, Value> = self
            .tokens
            .iter()
            .enumerate()
            .map(|(id, token)| ((*token).to_owned(), json!(id)))
            .collect();
        let start = json!({"SpecialToken": {"id": self.start, "type_id": 0}});
        let text = |letter: &str| json!({"Sequence": {"id": letter, "type_id": 0}});
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": null,
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[\\s\\S]"},
                              "behavior": "Isolated", "invert": false},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [start, text("A")],
                "pair": [start, text("A"), text("B")],
                "special_tokens": {self.start: {
                    "id": self.start, "ids": [self.id(self.start)], "tokens": [self.start],
                }},
            },
            "decoder": {"type": "Fuse"},
            // Not among the tokens: a character that the model does not know is an error.
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unknown>"},
        })
    }
}

fn config(shape: &FreshShape, tokens: &FreshTokens) -> Value {
    let mut config = json!({
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": tokens.tokens.len(),
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.width / shape.heads,
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": false,
        // 0.02, the usual value, is for widths of thousands.
        "initializer_range": 0.5 / (shape.width as f64).sqrt(),
        "bos_token_id": tokens.id(tokens.start),
        "eos_token_id": tokens.id(tokens.end),
    });
    if let Some(experts) = shape.experts {
        config["model_type"] = json!("qwen3_moe");
        config["architectures"] = json!(["Qwen3MoeForCausalLM"]);
        config["num_experts"] = json!(experts.all);
        config["num_experts_per_tok"] = json!(experts.active);
        config["moe_intermediate_size"] = json!(shape.feed_forward);
        config["norm_topk_prob"] = json!(true);
        config["decoder_sparse_step"] = json!(1);
        config["mlp_only_layers"] = json!([]);
    }
    config
}

/// Writes the folder of a new model.
pub fn write(folder: &Path, shape: &FreshShape, tokens: &FreshTokens) -> Result<(), LoadError> {
    let config = config(shape, tokens);
    let path = folder.join("config.json");
    ModelConfig::from_json(config.clone(), &path)?;
    std::fs::create_dir_all(folder).map_err(LoadError::io(folder))?;
    let put = |name: &str, value: &Value| write_json(&folder.join(name), value);
    put("tokenizer.json", &tokens.tokenizer())?;
    let tokenizer_class = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens.start,
        "eos_token": tokens.end,
    });
    put("tokenizer_config.json", &tokenizer_class)?;
    // Last: a folder with a config is whole.
    put("config.json", &config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Model;
    use crate::tokenizer::{Markers, Tokenizer};
    use tch::{Device, Kind};

    const TOKENS: FreshTokens = FreshTokens {
        tokens: &["1", "2", "+", "\n", "<bos>", "<think>", "</think>", "<eos>"],
        start: "<bos>",
        end: "<eos>",
        visible: &["<think>", "</think>"],
    };

    #[test]
    fn a_new_folder_has_a_tokenizer_that_keeps_visible_tags() {
        let folder = tempfile::tempdir().unwrap();
        let shape = FreshShape {
            layers: 1,
            width: 8,
            heads: 2,
            kv_heads: 1,
            feed_forward: 16,
            experts: None,
        };
        write(folder.path(), &shape, &TOKENS).unwrap();
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        let ids = tokenizer.encode("1+\n2<think>", Markers::Add).unwrap();
        assert_eq!(ids, [4, 0, 2, 3, 1, 5]);
        assert_eq!(tokenizer.decode(&[5, 1, 6, 0, 7]).unwrap(), "<think>2</think>1");
        assert_eq!(tokenizer.ends(), [7]);
        assert!(tokenizer.encode("7", Markers::Leave).is_err(), "an unknown character");
    }

    #[test]
    fn dense_and_expert_shapes_load_with_random_weights() {
        for experts in [None, Some(Experts { all: 4, active: 2 })] {
            let folder = tempfile::tempdir().unwrap();
            let shape = FreshShape {
                layers: 2,
                width: 8,
                heads: 2,
                kv_heads: 1,
                feed_forward: 16,
                experts,
            };
            write(folder.path(), &shape, &TOKENS).unwrap();
            let config = ModelConfig::load(&folder.path().join("config.json")).unwrap();
            let is_sparse = config.active_parameter_count() < config.parameter_count();
            assert_eq!(is_sparse, experts.is_some());
            assert!(Model::random(config, 1, Kind::Float, Device::Cpu).is_ok());
        }
    }
}
