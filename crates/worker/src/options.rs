//! A recipe's choices in the words of the learner and of the generator.

use scalerl_generate::{CacheAfterExchange, GeneratorOptions};
use scalerl_model::adapter::AdapterConfig;
use scalerl_model::config::ModelConfig;
use scalerl_model::head::{HeadMode, HeadOptions};
use scalerl_model::network::Activations;
use scalerl_model::train::{AdamWConfig, ComputeKind, ExpertWeights, KeptIn, LearnerOptions};
use scalerl_recipe::{
    Adapter, Compute, Experts, Gradients, HeadPrecision, KvAfterUpdate, Moments, OffPolicy, Recipe,
};
use scalerl_torch::shim;
use tch::{Device, Kind};

/// Share of a GPU's free memory for keys and values: the rest is for a trainer beside it.
const CUDA_CACHE_SHARE: f64 = 0.4;
/// Bytes for keys and values on a CPU.
const CPU_CACHE_BYTES: u64 = 1 << 30;
/// Most sequences written at once. Beyond these a step takes longer in proportion: on an H200
/// attention's reads outweigh the weights', on a CPU the products do much sooner.
const MOST_RUNNING: (u64, u64) = (1024, 256);

/// The adapter that the recipe trains; `None` where it trains all weights.
pub fn adapter_config(recipe: &Recipe) -> Option<AdapterConfig> {
    let Adapter::Lora { rank, alpha, layers } = &recipe.adapter else { return None };
    Some(AdapterConfig {
        rank: i64::from(*rank),
        alpha: *alpha,
        layers: layers.clone(),
        is_rank_stabilised: false,
    })
}

/// The kind in which the recipe's layers compute on a device.
pub fn compute_kind(recipe: &Recipe, device: Device) -> Kind {
    match learner_options(recipe, device).compute {
        ComputeKind::BFloat16 => Kind::BFloat16,
        ComputeKind::Float32 => Kind::Float,
    }
}

/// How the recipe's model is trained on a device.
pub fn learner_options(recipe: &Recipe, device: Device) -> LearnerOptions {
    let usual = LearnerOptions::of(device);
    LearnerOptions {
        compute: match recipe.model.compute {
            Compute::Auto => usual.compute,
            Compute::Bf16 => ComputeKind::BFloat16,
            Compute::F32 => ComputeKind::Float32,
        },
        activations: if recipe.model.activation_checkpointing {
            Activations::Recompute
        } else {
            Activations::Keep
        },
        head: head_options(recipe, device),
        optimizer: optimizer(recipe),
        gradients: match recipe.optimizer.gradients {
            Gradients::Float32 => KeptIn::Float32,
            Gradients::Bf16 => KeptIn::BFloat16,
        },
        experts: match recipe.cluster.experts {
            Experts::Gathered => ExpertWeights::Gathered,
            Experts::Owned => ExpertWeights::Owned,
        },
    }
}

/// How log-probs are computed: the same for trainer and generator, or their ratio means nothing.
pub fn head_options(recipe: &Recipe, device: Device) -> HeadOptions {
    let usual = HeadOptions::of(device);
    let mode = match recipe.objective.head_precision {
        HeadPrecision::Fp32 => usual.mode,
        HeadPrecision::Exact => HeadMode::Exact,
        HeadPrecision::Split => HeadMode::Split,
        HeadPrecision::Bf16 => HeadMode::Bf16,
    };
    // Carriers hold the temperature as f32; both sides divide by that very number.
    let temperature = f64::from(recipe.sampling.temperature as f32);
    HeadOptions { mode, temperature, ..usual }
}

/// Sizes of a generator that keeps up with the recipe's groups in flight, within the memory the
/// device has free now.
///
/// The cache always holds the longest single completion the recipe can ask for.
pub fn generator_options(
    recipe: &Recipe,
    config: &ModelConfig,
    device: Device,
) -> GeneratorOptions {
    generator_options_beside(recipe, config, device, 0)
}

/// The same beside a trainer that will take `later` bytes of what is free now.
pub fn generator_options_beside(
    recipe: &Recipe,
    config: &ModelConfig,
    device: Device,
    later: u64,
) -> GeneratorOptions {
    let usual = GeneratorOptions::of(device);
    // A device that cannot say what is free will say so when the cache is made.
    let free = || shim::device_memory(device).map_or(0, |(free, _)| free);
    let room = (device != Device::Cpu).then(|| (free(), later));
    let (cache_tokens, _) = cache_tokens(recipe, config, device, room);
    GeneratorOptions {
        cache_tokens: cache_tokens as usize,
        running: running(recipe, device) as usize,
        head: head_options(recipe, device).mode,
        keeps_prefixes: recipe.has_episodes(),
        ..usual
    }
}

/// Sequences that are written at once.
pub(crate) fn running(recipe: &Recipe, device: Device) -> u64 {
    let most = if device == Device::Cpu { MOST_RUNNING.1 } else { MOST_RUNNING.0 };
    completions_in_flight(recipe).clamp(1, most)
}

/// Tokens of the cache, and bytes of each. `room`: bytes that are free when it is made, and how many of
/// them others will take; of a GPU that nobody has measured the least is said.
pub(crate) fn cache_tokens(
    recipe: &Recipe,
    config: &ModelConfig,
    device: Device,
    room: Option<(u64, u64)>,
) -> (u64, u64) {
    let bytes = match (device, room) {
        (Device::Cpu, _) => CPU_CACHE_BYTES,
        (_, Some((free, later))) => {
            ((free as f64 * CUDA_CACHE_SHARE) as u64).min(free.saturating_sub(later))
        }
        (_, None) => 0,
    };
    let each = cache_bytes_per_token(recipe, config, device).max(1);
    let longest = longest_sequence(recipe);
    let tokens = (running(recipe, device) * longest).min(bytes / each).max(longest);
    (tokens.next_multiple_of(GeneratorOptions::of(device).page_tokens as u64), each)
}

/// What the recipe does with half-written completions.
pub fn cache_after_exchange(recipe: &Recipe) -> CacheAfterExchange {
    match recipe.pipeline.kv_after_update {
        KvAfterUpdate::Stale => CacheAfterExchange::Stale,
        KvAfterUpdate::Recompute => CacheAfterExchange::Recompute,
    }
}

/// Completions between their first token and their step, at most.
fn completions_in_flight(recipe: &Recipe) -> u64 {
    let batches = match recipe.objective.off_policy {
        OffPolicy::Pipeline { steps_behind } => u64::from(steps_behind) + 1,
        OffPolicy::PpoOffPolicy { steps_per_phase } => u64::from(steps_per_phase),
    };
    let pipeline = &recipe.pipeline;
    batches * u64::from(pipeline.groups_per_step) * u64::from(pipeline.group_size)
}

/// Tokens of the longest completion with its prompt. A token has at least one byte, so the bytes
/// of the interruption's phrase bound its tokens.
pub(crate) fn longest_sequence(recipe: &Recipe) -> u64 {
    let format = &recipe.format;
    let phrase = format.thinking_close().map_or(0, |close| format.interruption.len() + close.len());
    recipe.longest_sequence() + phrase as u64
}

fn cache_bytes_per_token(recipe: &Recipe, config: &ModelConfig, device: Device) -> u64 {
    let width = match learner_options(recipe, device).compute {
        ComputeKind::BFloat16 => 2,
        ComputeKind::Float32 => 4,
    };
    2 * width * config.layers.len() as u64 * (config.kv_heads * config.head_width) as u64
}

fn optimizer(recipe: &Recipe) -> AdamWConfig {
    let optimizer = &recipe.optimizer;
    AdamWConfig {
        lr: optimizer.lr,
        warmup_steps: u64::from(optimizer.warmup_steps),
        decay_steps: 0,
        beta1: optimizer.beta1,
        beta2: optimizer.beta2,
        epsilon: optimizer.epsilon,
        weight_decay: optimizer.weight_decay,
        max_gradient_norm: optimizer.max_gradient_norm.unwrap_or(0.0),
        moments: match optimizer.moments {
            Moments::Float32 => KeptIn::Float32,
            Moments::Bf16 => KeptIn::BFloat16,
        },
        seed: recipe.seed,
    }
}

#[cfg(test)]
mod tests {
    use scalerl_model::bench::Shape;

    use super::*;

    #[test]
    fn the_default_recipe_is_the_learners_default() {
        let options = learner_options(&Recipe::default(), Device::Cpu);
        assert_eq!(
            options.optimizer,
            AdamWConfig { seed: Recipe::default().seed, ..AdamWConfig::default() }
        );
        assert_eq!(options.head, HeadOptions::of(Device::Cpu));
        assert_eq!(options.compute, ComputeKind::Float32);
    }

    #[test]
    fn the_generators_sizes_follow_the_recipe_and_the_memory() {
        let shape = |layers| Shape {
            layers,
            width: 64,
            heads: 4,
            kv_heads: 2,
            feed_forward: 64,
            vocabulary: 32,
        };
        let mut recipe = Recipe::default();
        recipe.pipeline.groups_per_step = 4;
        recipe.pipeline.group_size = 4;
        recipe.sampling.max_prompt_tokens = 30;
        recipe.sampling.max_thinking_tokens = 50;
        recipe.sampling.max_answer_tokens = 10;
        recipe.format.thinking = scalerl_recipe::Thinking::None;
        recipe.objective.off_policy = OffPolicy::Pipeline { steps_behind: 2 };
        let small = generator_options(&recipe, &shape(2).config().unwrap(), Device::Cpu);
        assert_eq!((small.running, small.cache_tokens), (48, 48 * 90));
        recipe.objective.off_policy = OffPolicy::PpoOffPolicy { steps_per_phase: 2 };
        let phased = generator_options(&recipe, &shape(2).config().unwrap(), Device::Cpu);
        assert_eq!(phased.running, 32);
        // 2 x 4 bytes x 4096 layers x 32 numbers: a mebibyte per token, 1024 tokens in all.
        recipe.pipeline.groups_per_step = 400;
        let large = generator_options(&recipe, &shape(4096).config().unwrap(), Device::Cpu);
        assert_eq!((large.running, large.cache_tokens), (256, 1024));
        recipe.sampling.max_thinking_tokens = 5000;
        let long = generator_options(&recipe, &shape(4096).config().unwrap(), Device::Cpu);
        assert_eq!(long.cache_tokens, 5040, "one completion always fits");
    }

    #[test]
    fn no_limit_on_the_gradient_is_the_learners_zero() {
        let mut recipe = Recipe::default();
        recipe.optimizer.max_gradient_norm = None;
        recipe.objective.head_precision = HeadPrecision::Bf16;
        let options = learner_options(&recipe, Device::Cpu);
        assert!(options.optimizer.max_gradient_norm.abs() < f64::EPSILON);
        assert_eq!(options.head.mode, HeadMode::Bf16);
    }
}
