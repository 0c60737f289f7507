//! What a run holds on each device, in bytes, before anything is made.
//!
//! ```text
//! weights      what the network computes with           published   copies on their way to generators
//! masters      float32 weights that are trained         generator   its own copy of the weights, and its work
//! moments      the optimizer's two means                cache       keys and values
//! gradients    sums, and those of one backward pass     activations of one micro-batch (activations.rs)
//! reference    the model of a KL penalty                logits      a chunk of them, and its gradient
//! ```
//! The sizes follow from the model's shape and the recipe. `train --dry-run`, the refusal of a run that
//! cannot fit, the size of the cache, an out-of-memory error and the table in docs/memory.md all ask
//! here. Measured against what tensors take on a CPU by tests/memory.rs, against the allocator's own
//! peak on a GPU by scripts/h200/memory.sh.
//!
//! Not here: which moment of a step is the fullest (`moments.rs`), what to change where it does not fit
//! (`fit.rs`), what an error adds (`holders.rs`).

mod activations;
mod fit;
mod holders;
mod moments;
mod numbers;
pub mod table;
#[cfg(test)]
mod tests;

use scalerl_model::config::ModelConfig;
use scalerl_model::error::LoadError;
use scalerl_recipe::{Experts, GeneratorChoice, Kl, Recipe, Sharding};
use tch::Device;

pub use fit::{Change, Fit, OnMore, fit, out_of_room};
pub use holders::Holders;

use crate::options::{cache_tokens, learner_options};
use activations::generating;
use moments::{fullest, lasting_gradients};
use numbers::Numbers;

/// Of a device's memory: what the driver, libraries and torch's allocator keep for themselves.
const RESERVED_SHARE: f64 = 0.04;

/// Who holds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    Weights,
    Masters,
    Moments,
    Gradients,
    Reference,
    Published,
    Generator,
    Cache,
    Activations,
    Logits,
}

impl Holder {
    pub const ALL: [Self; 10] = [
        Self::Weights,
        Self::Masters,
        Self::Moments,
        Self::Gradients,
        Self::Reference,
        Self::Published,
        Self::Generator,
        Self::Cache,
        Self::Activations,
        Self::Logits,
    ];

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Masters => "masters",
            Self::Moments => "moments",
            Self::Gradients => "gradients",
            Self::Reference => "reference",
            Self::Published => "published copies",
            Self::Generator => "generator",
            Self::Cache => "KV cache",
            Self::Activations => "activations",
            Self::Logits => "logits",
        }
    }
}

/// A run, as far as memory asks.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    pub recipe: &'a Recipe,
    pub config: &'a ModelConfig,
    /// The trainer's.
    pub device: Device,
    /// Bytes of one device; `None` where nobody says.
    pub device_bytes: Option<u64>,
    /// Where this process generates, if it does.
    pub generator_device: Device,
    /// Trainers. A launcher may have started more than the recipe says.
    pub ranks: u64,
}

impl<'a> Setting<'a> {
    /// A recipe as this version runs it, its generator on the trainer's device.
    pub fn of(
        recipe: &'a Recipe,
        config: &'a ModelConfig,
        device: Device,
        device_bytes: Option<u64>,
    ) -> Self {
        let ranks = u64::from(recipe.cluster.trainers.max(1));
        Self { recipe, config, device, device_bytes, generator_device: device, ranks }
    }

    /// The same with its generator on another device.
    #[must_use]
    pub fn with_generator_on(self, generator_device: Device) -> Self {
        Self { generator_device, ..self }
    }

    /// The same on so many trainers.
    #[must_use]
    pub fn with_ranks(self, ranks: u64) -> Self {
        Self { ranks, ..self }
    }

    /// Whether weights are shared out too. One trainer has nobody to share with.
    pub fn is_in_parts(&self) -> bool {
        self.recipe.cluster.sharding == Sharding::Full && self.ranks > 1
    }

    /// Whether each trainer has some experts whole, and tokens travel.
    fn owns_experts(&self) -> bool {
        self.is_in_parts() && self.recipe.cluster.experts == Experts::Owned
    }

    /// Whether the first trainer's process generates.
    fn has_own_generator(&self) -> bool {
        self.recipe.pipeline.generator == GeneratorChoice::Local
            && self.recipe.cluster.generators == 0
    }

    /// Whether it does so on the trainer's device.
    pub fn has_generator_beside(&self) -> bool {
        self.has_own_generator() && self.generator_device == self.device
    }

    fn share(&self, count: u64) -> u64 {
        count.div_ceil(self.ranks)
    }
}

/// What one rank holds at its fullest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankMemory {
    bytes: [u64; Holder::ALL.len()],
    /// Tokens that the cache beside it has room for.
    pub cache_tokens: u64,
    /// What is taken after a generator was made beside it.
    later: u64,
}

impl RankMemory {
    pub fn of(&self, holder: Holder) -> u64 {
        self.bytes[holder as usize]
    }

    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// The same where completions are written elsewhere.
    pub fn total_without_generator(&self) -> u64 {
        self.total() - self.of(Holder::Generator) - self.of(Holder::Cache)
    }

    /// The largest holders, largest first.
    pub fn largest(&self, count: usize) -> Vec<(Holder, u64)> {
        let mut all: Vec<(Holder, u64)> =
            Holder::ALL.iter().map(|holder| (*holder, self.of(*holder))).collect();
        all.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        all.truncate(count);
        all
    }
}

/// What the first trainer's machine holds beside its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// Copies on their way to generators, of weights that no device has room for.
    pub published: u64,
    /// Copies of masters and moments while they are written, of all ranks where they are on one machine.
    pub checkpoint: u64,
}

/// What the host of a GPU run holds.
pub fn host(setting: &Setting) -> Result<HostMemory, LoadError> {
    let numbers = Numbers::of(setting)?;
    let moments = 2 * moment_bytes(setting);
    Ok(HostMemory {
        published: if publishes_to_host(setting, &numbers) { 2 * numbers.exchanged() } else { 0 },
        checkpoint: (4 + moments) * numbers.trained,
    })
}

/// What can be used of a device of so many bytes.
pub fn usable(device_bytes: u64) -> u64 {
    (device_bytes as f64 * (1.0 - RESERVED_SHARE)) as u64
}

fn moment_bytes(setting: &Setting) -> u64 {
    let options = learner_options(setting.recipe, setting.device);
    options.optimizer.moments.kind().elt_size_in_bytes() as u64
}

/// Whether trainers leave copies in memory: servers read files, and one set needs none.
fn publishes(setting: &Setting) -> bool {
    setting.recipe.pipeline.generator == GeneratorChoice::Local && !setting.recipe.shares_weights()
}

/// No device has room for weights that are in parts; an adapter is whole on every rank.
fn publishes_to_host(setting: &Setting, numbers: &Numbers) -> bool {
    publishes(setting) && setting.is_in_parts() && !numbers.is_adapter
}

/// Weights that a generator of this process has for itself.
fn generator_weights(setting: &Setting, numbers: &Numbers) -> u64 {
    let adapter = if numbers.is_adapter { numbers.exchanged() } else { 0 };
    // A base that lies whole beside it is held once.
    let has_base = setting.has_generator_beside() && !setting.is_in_parts();
    match (setting.recipe.shares_weights(), numbers.is_adapter && has_base) {
        (true, _) => 0,
        (false, true) => adapter,
        (false, false) => numbers.whole_copy() + adapter,
    }
}

/// What the `rank`-th trainer holds.
pub fn of(setting: &Setting, rank: u64) -> Result<RankMemory, LoadError> {
    let numbers = Numbers::of(setting)?;
    let mut bytes = [0; Holder::ALL.len()];
    let mut put = |holder: Holder, count: u64| bytes[holder as usize] = count;
    let moment = fullest(setting, &numbers);
    let whole_copy = numbers.whole_copy();
    let lasting = if setting.is_in_parts() { setting.share(whole_copy) } else { whole_copy };
    put(Holder::Weights, lasting + moment.weights);
    put(
        Holder::Masters,
        match (numbers.is_adapter, numbers.is_wide()) {
            // Whole on every rank: it is what is computed with.
            (true, _) => 4 * numbers.trained,
            (false, true) => 0,
            (false, false) => setting.share(4 * numbers.trained),
        },
    );
    put(Holder::Moments, setting.share(2 * moment_bytes(setting) * numbers.trained));
    let has_reference = setting.recipe.objective.kl != Kl::None && !numbers.is_adapter;
    put(Holder::Reference, if has_reference { lasting } else { 0 });
    put(Holder::Gradients, lasting_gradients(setting, &numbers) + moment.gradients);
    put(Holder::Activations, moment.activations);
    put(Holder::Logits, moment.logits);
    let is_first = rank == 0;
    let is_published = is_first && publishes(setting) && !publishes_to_host(setting, &numbers);
    // Two copies take turns.
    let published = if is_published { 2 * numbers.exchanged() } else { 0 };
    put(Holder::Published, published);
    let is_beside = is_first && setting.has_generator_beside();
    if is_beside {
        let own = generator_weights(setting, &numbers);
        put(Holder::Generator, own + generating(setting, numbers.width));
    }
    let mut memory = RankMemory { bytes, cache_tokens: 0, later: moment.total() + published };
    if is_beside {
        let room = setting
            .device_bytes
            .map(|all| (usable(all).saturating_sub(memory.total() - memory.later), memory.later));
        put_cache(&mut memory, setting, room);
    }
    Ok(memory)
}

fn put_cache(memory: &mut RankMemory, setting: &Setting, room: Option<(u64, u64)>) {
    let (tokens, each) = cache_tokens(setting.recipe, setting.config, setting.device, room);
    memory.cache_tokens = tokens;
    memory.bytes[Holder::Cache as usize] = tokens * each;
}

/// What the device of a generator apart from its trainer holds; `None` where this process has none.
pub fn of_generator_apart(setting: &Setting) -> Result<Option<RankMemory>, LoadError> {
    if !setting.has_own_generator() || setting.has_generator_beside() {
        return Ok(None);
    }
    let numbers = Numbers::of(setting)?;
    let mut memory = RankMemory { bytes: [0; Holder::ALL.len()], cache_tokens: 0, later: 0 };
    memory.bytes[Holder::Generator as usize] =
        generator_weights(setting, &numbers) + generating(setting, numbers.width);
    let room = setting.device_bytes.map(|all| (usable(all).saturating_sub(memory.total()), 0));
    put_cache(&mut memory, setting, room);
    Ok(Some(memory))
}

/// What a cache that is made beside a trainer leaves: what will be taken on that device and is not yet,
/// by the trainer and in the generator's own passes, and what nobody can use.
pub fn later(setting: &Setting) -> Result<u64, LoadError> {
    let width = Numbers::of(setting)?.width;
    let reserved = setting.device_bytes.map_or(0, |all| all - usable(all));
    Ok(of(setting, 0)?.later + generating(setting, width) + reserved)
}

/// Bytes in words.
pub fn said(bytes: u64) -> String {
    const GIB: f64 = (1_u64 << 30) as f64;
    if (bytes as f64) < 0.1 * GIB {
        format!("{:.1} MiB", bytes as f64 / (1_u64 << 20) as f64)
    } else {
        format!("{:.2} GiB", bytes as f64 / GIB)
    }
}
