//! What a micro-batch keeps for its backward pass, and what is there for a moment.
//!
//! Numbers of one token in one dense layer, d wide, q query and v key (and value) numbers, f in the
//! feed-forward:
//!
//! ```text
//! kept       input d | normed d | q + 2 v | mixed q | sum d | normed d | gate and up 2 f | gated f
//! for a      gradients of the same layer while it goes back: 3 f + 2 d, and flash attention's float32
//! moment     sums of the queries' gradients
//! ```
//! With recomputation only the inputs of the layers stay, and one layer at a time has the rest. An
//! adapter keeps the small products of its seven matrices beside them. Experts that stay with their owners
//! are counted as if all had as many tokens; an owner whose experts are liked best has more.

use scalerl_generate::GeneratorOptions;
use scalerl_model::config::{FeedForward, LayerConfig, ModelConfig};
use scalerl_model::network::Activations;
use scalerl_recipe::Recipe;

use super::Setting;
use crate::options::{adapter_config, learner_options, longest_sequence, running};

/// Bytes of a micro-batch.
pub(super) struct Pass {
    /// By all layers, until they go back.
    pub(super) kept: u64,
    /// By the layer that goes back, beside what is kept.
    pub(super) one_layer: u64,
    /// Hidden states before and after the last norm, those of scored tokens, and their gradients.
    pub(super) around_the_head: u64,
    /// A chunk of float32 logits, and its gradient in bf16.
    pub(super) logits: u64,
}

impl Pass {
    pub(super) fn of(setting: &Setting, width: u64) -> Self {
        let (config, recipe) = (setting.config, setting.recipe);
        let options = learner_options(recipe, setting.device);
        let tokens = u64::from(recipe.pipeline.micro_batch_tokens).min(tokens_of_a_step(recipe));
        let rank = adapter_config(recipe).map_or(0, |adapter| adapter.rank as u64);
        let layer = |layer: &LayerConfig| {
            let mut own = Layer::of(config, layer, width, rank);
            if setting.owns_experts() {
                own.passing += travelling(config, layer, width);
            }
            own
        };
        let layers: Vec<Layer> = config.layers.iter().map(layer).collect();
        let whole: u64 = layers.iter().map(|layer| layer.kept).sum();
        let most = |of: fn(&Layer) -> u64| layers.iter().map(of).max().unwrap_or_default();
        let state = config.width as u64 * width;
        let (kept, one_layer) = match options.activations {
            Activations::Keep => (whole, most(|layer| layer.passing)),
            Activations::Recompute => {
                (state * layers.len() as u64, most(|layer| layer.kept + layer.passing))
            }
        };
        let row = 4 * config.vocabulary as u64;
        let chunk =
            options.head.chunk_bytes.map_or(tokens * row, |most| (most as u64).min(tokens * row));
        Self {
            kept: tokens * kept,
            one_layer: tokens * one_layer,
            around_the_head: 5 * tokens * state,
            logits: chunk + chunk / 2,
        }
    }
}

/// The most tokens that a step can have. An episode may leave several sequences, so with episodes nobody
/// knows.
fn tokens_of_a_step(recipe: &Recipe) -> u64 {
    let completions =
        u64::from(recipe.pipeline.groups_per_step) * u64::from(recipe.pipeline.group_size);
    if recipe.has_episodes() { u64::MAX } else { completions * longest_sequence(recipe) }
}

/// What a generator works in: a pass over a chunk of prompts, and logits of all that are written.
pub(super) fn generating(setting: &Setting, width: u64) -> u64 {
    let config = setting.config;
    let usual = GeneratorOptions::of(setting.device);
    let layer = |layer: &LayerConfig| Layer::of(config, layer, width, 0).passing;
    let chunk = config.layers.iter().map(layer).max().unwrap_or_default();
    let rows = running(setting.recipe, setting.device) * config.vocabulary as u64;
    usual.chunk_tokens as u64 * chunk + 2 * 4 * rows
}

/// Bytes of one token's rows on their way to experts and back, where all experts get as many: before and
/// after each journey, beside the rows that the experts compute with.
fn travelling(config: &ModelConfig, layer: &LayerConfig, width: u64) -> u64 {
    match layer.feed_forward {
        FeedForward::Experts { active, .. } => 4 * active as u64 * config.width as u64 * width,
        FeedForward::Dense { .. } => 0,
    }
}

/// Bytes of one token in one layer.
struct Layer {
    kept: u64,
    passing: u64,
}

impl Layer {
    /// With an adapter of this rank, 0 without one.
    fn of(config: &ModelConfig, layer: &LayerConfig, width: u64, rank: u64) -> Self {
        let d = config.width as u64;
        let q = (config.heads * config.head_width) as u64;
        let kv = (config.kv_heads * config.head_width) as u64;
        // Copies of a token, numbers of the feed-forward by all of them, and what is kept beside.
        let (copies, f, beside) = match layer.feed_forward {
            FeedForward::Dense { width } => (1, width as u64, 0),
            FeedForward::Experts { count, active, width, shared_width, .. } => {
                let shared = shared_width.unwrap_or_default() as u64;
                // Rows in the order of experts and back, and the router's float32 scores.
                let (active, count) = (active as u64, count as u64);
                (active, active * width as u64 + shared, 4 * active * d + 2 * count)
            }
        };
        let attention = 2 * d + 2 * q + 2 * kv;
        // Of queries, keys, values and the sum; gate, up and down.
        let low = (4 + 3 * copies) * rank;
        let numbers = attention + 2 * d + 3 * f + beside + low;
        Self {
            // Log-sums of attention are float32.
            kept: numbers * width + 4 * config.heads as u64,
            passing: (3 * f + 2 * d) * width + 4 * q,
        }
    }
}
