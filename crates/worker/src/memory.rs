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
//! here. Measured against the allocator's own peak by scripts/h200/memory.sh.
//!
//! Not here: what to change where it does not fit (`fit.rs`).

mod activations;
mod fit;
pub mod table;
#[cfg(test)]
mod tests;

use scalerl_model::adapter::AdapterConfig;
use scalerl_model::config::ModelConfig;
use scalerl_model::error::LoadError;
use scalerl_model::layout::layout;
use scalerl_model::train::{ComputeKind, KeptIn};
use scalerl_recipe::{GeneratorChoice, Kl, Recipe};
use tch::Device;

pub use fit::{Change, Fit, fit, out_of_room};

use crate::options::{adapter_config, cache_tokens, learner_options};
use activations::{Pass, generating};

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

/// How trainer ranks share out their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Weights and gradients whole on every rank, masters and moments in parts (ZeRO stage 1).
    Optimizer,
    /// Everything in parts; the largest unit (a layer, or the embedding) is whole while it is used, and
    /// the next one on its way.
    Everything,
}

/// Where completions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GeneratorPlace {
    /// On the first trainer's device.
    Beside,
    Elsewhere,
}

/// A run, as far as memory asks.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    pub recipe: &'a Recipe,
    pub config: &'a ModelConfig,
    pub device: Device,
    /// Bytes of one device; `None` where nobody says.
    pub device_bytes: Option<u64>,
    pub ranks: u64,
    pub scheme: Scheme,
    pub generator: GeneratorPlace,
}

impl<'a> Setting<'a> {
    /// A recipe as this version runs it.
    pub fn of(
        recipe: &'a Recipe,
        config: &'a ModelConfig,
        device: Device,
        device_bytes: Option<u64>,
    ) -> Self {
        let is_beside =
            recipe.pipeline.generator == GeneratorChoice::Local && recipe.cluster.generators == 0;
        let generator = if is_beside { GeneratorPlace::Beside } else { GeneratorPlace::Elsewhere };
        let ranks = u64::from(recipe.cluster.trainers.max(1));
        Self { recipe, config, device, device_bytes, ranks, scheme: Scheme::Optimizer, generator }
    }
}

/// What one rank holds at its fullest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankMemory {
    bytes: [u64; Holder::ALL.len()],
    /// Tokens that the cache beside it has room for.
    pub cache_tokens: u64,
}

impl RankMemory {
    pub fn of(&self, holder: Holder) -> u64 {
        self.bytes[holder as usize]
    }

    pub fn total(&self) -> u64 {
        self.bytes.iter().sum()
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

/// What can be used of a device of so many bytes.
pub fn usable(device_bytes: u64) -> u64 {
    (device_bytes as f64 * (1.0 - RESERVED_SHARE)) as u64
}

/// Numbers of a model and of its parts.
struct Numbers {
    all: u64,
    /// Of the matrix that the head multiplies with.
    head: u64,
    /// Of the largest layer, or of the embedding.
    largest_unit: u64,
    trained: u64,
    /// Bytes of a number that is computed with.
    width: u64,
    is_adapter: bool,
}

impl Numbers {
    fn of(setting: &Setting) -> Result<Self, LoadError> {
        let config = setting.config;
        let adapter: Option<AdapterConfig> = adapter_config(setting.recipe);
        let is_adapter = adapter.is_some();
        let count = adapter.map(|adapter| adapter.parameter_count(config)).transpose()?;
        let all = config.parameter_count() as u64;
        let mut units = std::collections::BTreeMap::<String, u64>::new();
        for parameter in layout(config) {
            let unit: Vec<&str> = parameter.name.splitn(3, '.').take(2).collect();
            *units.entry(unit.join(".")).or_default() +=
                parameter.shape.iter().product::<i64>() as u64;
        }
        let compute = learner_options(setting.recipe, setting.device).compute;
        Ok(Self {
            all,
            head: (config.vocabulary * config.width) as u64,
            largest_unit: units.into_values().max().unwrap_or_default(),
            trained: count.map_or(all, |count| count as u64),
            width: if compute == ComputeKind::Float32 { 4 } else { 2 },
            is_adapter,
        })
    }

    /// Whether the masters are what is computed with.
    fn is_wide(&self) -> bool {
        self.width == 4 || self.is_adapter
    }
}

/// What the `rank`-th trainer holds.
pub fn of(setting: &Setting, rank: u64) -> Result<RankMemory, LoadError> {
    let numbers = Numbers::of(setting)?;
    let mut bytes = [0; Holder::ALL.len()];
    let mut put = |holder: Holder, count: u64| bytes[holder as usize] = count;
    let share = |count: u64| count.div_ceil(setting.ranks);
    let is_sharded = setting.scheme == Scheme::Everything && setting.ranks > 1;
    let unit = numbers.largest_unit * numbers.width;
    let whole_copy = numbers.all * numbers.width;
    put(Holder::Weights, if is_sharded { share(whole_copy) + 2 * unit } else { whole_copy });
    put(
        Holder::Masters,
        match (numbers.is_adapter, numbers.is_wide()) {
            // Whole on every rank: it is what is computed with.
            (true, _) => 4 * numbers.trained,
            (false, true) => 0,
            (false, false) => share(4 * numbers.trained),
        },
    );
    let options = learner_options(setting.recipe, setting.device);
    let moment = options.optimizer.moments.kind().elt_size_in_bytes() as u64;
    put(Holder::Moments, share(2 * moment * numbers.trained));
    let has_reference = setting.recipe.objective.kl != Kl::None && !numbers.is_adapter;
    let reference = if is_sharded { share(whole_copy) } else { whole_copy };
    put(Holder::Reference, if has_reference { reference } else { 0 });
    let exchanged = if numbers.is_adapter { 4 * numbers.trained } else { whole_copy };
    let is_first = rank == 0;
    let is_beside = is_first && setting.generator == GeneratorPlace::Beside;
    if is_first && !setting.recipe.shares_weights() {
        let is_by_folder = setting.recipe.pipeline.generator != GeneratorChoice::Local;
        // Two copies take turns; servers read files.
        put(Holder::Published, if is_by_folder { 0 } else { 2 * exchanged });
    }
    if is_beside {
        let copy = if setting.recipe.shares_weights() { 0 } else { exchanged };
        put(Holder::Generator, copy + generating(setting, numbers.width));
    }
    let sums = gradients(setting, &numbers, is_sharded);
    let fullest = fullest_moment(setting, &numbers, &sums);
    put(Holder::Gradients, fullest.gradients);
    put(Holder::Activations, fullest.activations);
    put(Holder::Logits, fullest.logits);
    let mut memory = RankMemory { bytes, cache_tokens: 0 };
    if is_beside {
        let room = setting.device_bytes.map(|all| {
            // The generator is made before gradients and activations are.
            let later: u64 = [Holder::Gradients, Holder::Activations, Holder::Logits]
                .iter()
                .chain(&[Holder::Published])
                .map(|holder| memory.of(*holder))
                .sum();
            let free = usable(all).saturating_sub(memory.total() - later);
            (free, later)
        });
        let (tokens, each) = cache_tokens(setting.recipe, setting.config, setting.device, room);
        memory.cache_tokens = tokens;
        memory.bytes[Holder::Cache as usize] = tokens * each;
    }
    Ok(memory)
}

/// What will be taken on a device after a generator was made beside its trainer, and is not taken yet.
pub fn later(setting: &Setting) -> Result<u64, LoadError> {
    let memory = of(setting, 0)?;
    let holders = [Holder::Gradients, Holder::Activations, Holder::Logits, Holder::Published];
    Ok(holders.iter().map(|holder| memory.of(*holder)).sum())
}

/// Gradients of a step.
struct Gradients {
    /// From the first micro-batch to the optimizer.
    sums: u64,
    /// More of them at the end of each backward pass.
    of_one_pass: u64,
}

fn gradients(setting: &Setting, numbers: &Numbers, is_sharded: bool) -> Gradients {
    let (trained, share) = (numbers.trained, |count: u64| count.div_ceil(setting.ranks));
    let leaf = if numbers.is_adapter { 4 } else { numbers.width };
    let options = learner_options(setting.recipe, setting.device);
    if is_sharded {
        let unit = numbers.largest_unit.min(trained);
        return Gradients { sums: share(4 * trained), of_one_pass: unit * (4 + leaf) };
    }
    if options.gradients == KeptIn::BFloat16 && leaf == 2 {
        // The head's is float32.
        return Gradients { sums: 2 * trained + 2 * numbers.head, of_one_pass: 0 };
    }
    // Ranks hold the whole row, and their part of everybody's sum.
    let part = if setting.ranks > 1 { share(4 * trained) } else { 0 };
    Gradients { sums: 4 * trained + part, of_one_pass: leaf * trained }
}

/// The fullest moment of a micro-batch.
struct Fullest {
    gradients: u64,
    activations: u64,
    logits: u64,
}

fn fullest_moment(setting: &Setting, numbers: &Numbers, gradients: &Gradients) -> Fullest {
    let pass = Pass::of(setting, numbers.width, numbers.is_adapter);
    let moments = [
        // The head, with all that the layers have kept.
        Fullest {
            gradients: gradients.sums,
            activations: pass.kept + pass.around_the_head,
            logits: pass.logits,
        },
        // The last layer goes back.
        Fullest { gradients: gradients.sums, activations: pass.kept + pass.one_layer, logits: 0 },
        // The first layer goes back: all others' activations have become gradients.
        Fullest {
            gradients: gradients.sums + gradients.of_one_pass,
            activations: pass.one_layer,
            logits: 0,
        },
    ];
    let all = |moment: &Fullest| moment.gradients + moment.activations + moment.logits;
    moments.into_iter().max_by_key(all).expect("there are three")
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
