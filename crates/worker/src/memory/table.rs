//! The table of docs/memory.md: bytes of a rank for two shapes on clusters of two kinds of GPU.

use std::fmt::Write as _;
use std::path::Path;

use scalerl_model::bench::Shape;
use scalerl_model::config::ModelConfig;
use scalerl_model::error::LoadError;
use scalerl_recipe::{Experts, Moments, Recipe, Sharding};
use serde_json::json;
use tch::Device;

use super::{Holder, Setting, of, usable};

/// GPUs of a run, and bytes of one, as their makers count them.
const CLUSTERS: [u32; 3] = [8, 64, 256];
const DEVICES: [(&str, u64); 2] = [("80 GB", 80_000_000_000), ("141 GB", 141_000_000_000)];

/// The paper's dense model.
pub fn eight_billion() -> Result<ModelConfig, LoadError> {
    let shape = Shape {
        layers: 32,
        width: 4096,
        heads: 32,
        kv_heads: 8,
        feed_forward: 14336,
        vocabulary: 128_256,
    };
    shape.config()
}

/// Llama 4 Scout, text only.
pub fn scout() -> Result<ModelConfig, LoadError> {
    let value = json!({
        "model_type": "llama4_text", "vocab_size": 202_048, "hidden_size": 5120,
        "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_hidden_layers": 48,
        "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
        "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1,
        "rms_norm_eps": 1e-5, "rope_theta": 500_000.0, "max_position_embeddings": 131_072,
        "tie_word_embeddings": false,
    });
    ModelConfig::from_json(value, Path::new("the shape of Llama 4 Scout"))
}

/// The recipe of the paper with one of its longest sequences at a time, recomputed by layer.
fn recipe(ranks: u32, sharding: Sharding, moments: Moments) -> Recipe {
    let mut recipe = Recipe::default();
    (recipe.cluster.trainers, recipe.cluster.generators) = (ranks, 1);
    recipe.cluster.sharding = sharding;
    recipe.model.activation_checkpointing = true;
    recipe.sampling.max_prompt_tokens = 2048;
    recipe.sampling.max_thinking_tokens = 12288;
    recipe.sampling.max_answer_tokens = 2048;
    recipe.pipeline.micro_batch_tokens = 16384;
    recipe.optimizer.moments = moments;
    recipe
}

/// What so many ranks can share out of a model.
fn schemes(config: &ModelConfig, ranks: u32) -> Vec<(Sharding, Experts, &'static str)> {
    let mut schemes = vec![
        (Sharding::Optimizer, Experts::Gathered, "optimizer"),
        (Sharding::Full, Experts::Gathered, "everything"),
    ];
    if config.can_be_owned_by(u64::from(ranks)) {
        schemes.push((Sharding::Full, Experts::Owned, "everything, experts owned"));
    }
    schemes
}

/// The table as Markdown. Generators are elsewhere: on GPUs of their own.
pub fn markdown() -> Result<String, LoadError> {
    let mut out = String::from(
        "| model | GPUs | shared out | moments | weights | masters | moments | gradients | activations, logits | a rank | 80 GB | 141 GB |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, config) in [("8B", eight_billion()?), ("Scout shape", scout()?)] {
        for ranks in CLUSTERS {
            for (sharding, experts, how) in schemes(&config, ranks) {
                for (moments, kept) in [(Moments::Float32, "float32"), (Moments::Bf16, "bf16")] {
                    let mut recipe = recipe(ranks, sharding.clone(), moments);
                    recipe.cluster.experts = experts.clone();
                    let setting = Setting::of(&recipe, &config, Device::Cuda(0), None);
                    // Not the first rank: what is published is the same in both schemes.
                    let memory = of(&setting, 1)?;
                    let gib = |bytes: u64| format!("{:.1}", bytes as f64 / (1_u64 << 30) as f64);
                    let by = |holder: Holder| gib(memory.of(holder));
                    let passing = memory.of(Holder::Activations) + memory.of(Holder::Logits);
                    // Writing to a string cannot fail.
                    let _ = write!(
                        out,
                        "| {name} | {ranks} | {how} | {kept} | {} | {} | {} | {} | {} | {} |",
                        by(Holder::Weights),
                        by(Holder::Masters),
                        by(Holder::Moments),
                        by(Holder::Gradients),
                        gib(passing),
                        gib(memory.total()),
                    );
                    for (_, bytes) in DEVICES {
                        let fits = memory.total() <= usable(bytes);
                        let _ = write!(out, " {} |", if fits { "fits" } else { "no" });
                    }
                    out.push('\n');
                }
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_are_those_of_the_models() {
        let billions = |count: i64| count as f64 / 1e9;
        let dense = eight_billion().unwrap();
        assert!((billions(dense.parameter_count()) - 8.03).abs() < 0.01);
        let scout = scout().unwrap();
        assert!((billions(scout.parameter_count()) - 107.8).abs() < 1.5);
        assert!((billions(scout.active_parameter_count()) - 17.0).abs() < 0.5);
    }

    #[test]
    fn the_table_of_the_guide_is_what_this_computes() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/memory.md");
        let guide = std::fs::read_to_string(path).unwrap();
        assert!(
            guide.contains(&markdown().unwrap()),
            "stale; run: cargo run -p scalerl-worker --example memory_table, and paste"
        );
    }
}
