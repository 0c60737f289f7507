//! Whether a run fits a device, the largest micro-batch that does, and what to change where it does not.

use scalerl_model::error::LoadError;
use scalerl_recipe::{
    Adapter, Experts, GeneratorChoice, Gradients, Moments, Recipe, Sharding, WeightSets,
};
use tch::Kind;

use super::{RankMemory, Setting, of, said, usable};
use crate::options::compute_kind;

/// One key of the recipe, and the memory of the first rank with it and all changes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As `--set` takes it.
    pub set: String,
    pub total: u64,
}

/// How a run stands to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The rank that was asked about.
    pub memory: RankMemory,
    /// Bytes that can be used of a device.
    pub usable: u64,
    /// Tokens of the largest micro-batch that fits, where one sequence of the longest kind does.
    pub largest_micro_batch: Option<u64>,
    /// What makes it fit, in the order in which it costs least; without an end that fits, all of it.
    /// Empty where it fits as it is.
    pub changes: Vec<Change>,
    /// What makes it fit on more devices, all of it together, where it does not fit these as it is.
    pub on_more: Option<OnMore>,
}

/// More trainers, each with a device, and everything shared out among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnMore {
    pub trainers: u32,
    /// As `--set` takes them.
    pub sets: Vec<String>,
    /// Of the fullest rank.
    pub total: u64,
}

impl Fit {
    pub fn fits(&self) -> bool {
        self.memory.total() <= self.usable
    }

    /// Whether the changes are enough.
    pub fn can_fit(&self) -> bool {
        self.fits() || self.changes.last().is_some_and(|last| last.total <= self.usable)
    }
}

/// The largest micro-batch that is looked for.
const MOST_TOKENS: u64 = 1 << 20;
/// The most trainers that are proposed.
const MOST_TRAINERS: u32 = 1024;

/// Asks whether the `rank`-th trainer fits a device of `device_bytes`; the first is the fullest.
pub fn fit(setting: &Setting, rank: u64, device_bytes: u64) -> Result<Fit, LoadError> {
    let setting = Setting { device_bytes: Some(device_bytes), ..setting.clone() };
    let (memory, usable) = (of(&setting, rank)?, usable(device_bytes));
    let largest_micro_batch = largest_micro_batch(&setting, rank, usable)?;
    let (mut changes, mut on_more) = (Vec::new(), None);
    if memory.total() > usable {
        on_more = more_trainers(&setting, usable)?;
        let mut recipe = setting.recipe.clone();
        let mut best = memory.total();
        for change in CHANGES {
            let mut changed = recipe.clone();
            let Some(set) = change(&mut changed, &setting) else { continue };
            // A model that takes no adapter has one change less.
            let Ok(memory) = of(&Setting { recipe: &changed, ..setting.clone() }, rank) else {
                continue;
            };
            let total = memory.total();
            if total >= best {
                continue;
            }
            (recipe, best) = (changed, total);
            changes.push(Change { set, total });
            if total <= usable {
                break;
            }
        }
    }
    Ok(Fit { memory, usable, largest_micro_batch, changes, on_more })
}

/// How [`out_of_room`] begins.
pub(super) const MOST_IS_HELD: &str = "most is held by";

/// What an error of the `rank`-th trainer without room adds: who holds most, and what would hold less
/// when the run goes on. An adapter would be another run.
pub fn out_of_room(setting: &Setting, rank: u64) -> Result<String, LoadError> {
    let memory = of(setting, rank)?;
    let largest = memory.largest(4);
    let largest: Vec<String> = largest
        .iter()
        .map(|(holder, bytes)| format!("{} {}", holder.name(), said(*bytes)))
        .collect();
    let mut remedies = Vec::new();
    for change in &CHANGES[..KEPT_ON_RESUME] {
        let mut recipe = setting.recipe.clone();
        let Some(set) = change(&mut recipe, setting) else { continue };
        let changed = of(&Setting { recipe: &recipe, ..setting.clone() }, rank);
        let Ok(changed) = changed else { continue };
        if let Some(less) = memory.total().checked_sub(changed.total()).filter(|less| *less > 0) {
            remedies.push(format!("{set} (saves {})", said(less)));
        }
    }
    let largest = largest.join(", ");
    if remedies.is_empty() {
        return Ok(format!("{MOST_IS_HELD} {largest}"));
    }
    Ok(format!("{MOST_IS_HELD} {largest}; --set {}", remedies.join(", or ")))
}

fn largest_micro_batch(
    setting: &Setting,
    rank: u64,
    usable: u64,
) -> Result<Option<u64>, LoadError> {
    let mut recipe = setting.recipe.clone();
    let mut holds = |tokens: u64| {
        recipe.pipeline.micro_batch_tokens = tokens as u32;
        Ok::<_, LoadError>(
            of(&Setting { recipe: &recipe, ..setting.clone() }, rank)?.total() <= usable,
        )
    };
    let mut least = setting.recipe.longest_sequence().max(1);
    let mut most = MOST_TOKENS.max(least);
    if !holds(least)? {
        return Ok(None);
    }
    while most - least > least / 64 {
        let middle = u64::midpoint(least, most);
        if holds(middle)? { least = middle } else { most = middle }
    }
    Ok(Some(least))
}

/// The least number of trainers, doubled from what there are, whose first fits with everything in parts.
fn more_trainers(setting: &Setting, usable: u64) -> Result<Option<OnMore>, LoadError> {
    // With several trainers the first one's process generates on its own device.
    let setting = setting.clone().with_generator_on(setting.device);
    let mut recipe = setting.recipe.clone();
    let mut sets = vec!["cluster.sharding=full".to_owned()];
    recipe.cluster.sharding = Sharding::Full;
    if !recipe.model.activation_checkpointing {
        recipe.model.activation_checkpointing = true;
        sets.push("model.activation_checkpointing=true".to_owned());
    }
    // What goes with one trainer alone.
    if recipe.pipeline.weights == WeightSets::Shared {
        recipe.pipeline.weights = WeightSets::Copied;
        sets.push("pipeline.weights=copied".to_owned());
    }
    if recipe.optimizer.gradients == Gradients::Bf16 {
        recipe.optimizer.gradients = Gradients::Float32;
        sets.push("optimizer.gradients=float32".to_owned());
    }
    let mut trainers = u32::try_from(setting.ranks).unwrap_or(MOST_TRAINERS).max(1) * 2;
    while trainers <= MOST_TRAINERS {
        recipe.cluster.trainers = trainers;
        if recipe.cluster.experts == Experts::Owned
            && !setting.config.can_be_owned_by(u64::from(trainers))
        {
            recipe.cluster.experts = Experts::Gathered;
            sets.push("cluster.experts=gathered".to_owned());
        }
        let more = Setting { recipe: &recipe, ..setting.clone() }.with_ranks(u64::from(trainers));
        let total = of(&more, 0)?.total();
        if total <= usable {
            sets.insert(0, format!("cluster.trainers={trainers}"));
            return Ok(Some(OnMore { trainers, sets, total }));
        }
        trainers *= 2;
    }
    Ok(None)
}

type Try = fn(&mut Recipe, &Setting) -> Option<String>;

/// Of the changes below, the first that a resumed run may make.
const KEPT_ON_RESUME: usize = 7;

/// From what costs nothing to what changes the run.
const CHANGES: [Try; 8] = [
    |recipe, setting| {
        let can_share = setting.ranks == 1
            && setting.has_generator_beside()
            && recipe.pipeline.generator == GeneratorChoice::Local
            && compute_kind(recipe, setting.device) == Kind::BFloat16
            && !recipe.shares_weights();
        recipe.pipeline.weights = WeightSets::Shared;
        can_share.then(|| "pipeline.weights=shared".to_owned())
    },
    |recipe, _| {
        let is_new = !recipe.model.activation_checkpointing;
        recipe.model.activation_checkpointing = true;
        is_new.then(|| "model.activation_checkpointing=true".to_owned())
    },
    |recipe, setting| {
        // Layers in parts are computed again.
        let is_new = setting.ranks > 1
            && recipe.cluster.sharding != Sharding::Full
            && recipe.model.activation_checkpointing;
        recipe.cluster.sharding = Sharding::Full;
        is_new.then(|| "cluster.sharding=full".to_owned())
    },
    |recipe, setting| {
        let is_new = setting.ranks > 1
            && recipe.cluster.sharding == Sharding::Full
            && recipe.cluster.experts != Experts::Owned
            && setting.config.can_be_owned_by(setting.ranks);
        recipe.cluster.experts = Experts::Owned;
        is_new.then(|| "cluster.experts=owned".to_owned())
    },
    |recipe, _| {
        let least = u32::try_from(recipe.longest_sequence()).ok()?;
        let is_less = least < recipe.pipeline.micro_batch_tokens;
        recipe.pipeline.micro_batch_tokens = least;
        is_less.then(|| format!("pipeline.micro_batch_tokens={least}"))
    },
    |recipe, _| {
        let is_new = recipe.optimizer.moments != Moments::Bf16;
        recipe.optimizer.moments = Moments::Bf16;
        is_new.then(|| "optimizer.moments=bf16".to_owned())
    },
    |recipe, setting| {
        let is_new = recipe.optimizer.gradients != Gradients::Bf16 && setting.ranks == 1;
        recipe.optimizer.gradients = Gradients::Bf16;
        is_new.then(|| "optimizer.gradients=bf16".to_owned())
    },
    |recipe, _| {
        let is_new = recipe.adapter == Adapter::None;
        let (rank, alpha) = (32, 64.0);
        recipe.adapter = Adapter::Lora { rank, alpha, layers: Vec::new() };
        is_new.then(|| format!("adapter={{ type = \"lora\", rank = {rank}, alpha = {alpha:.1} }}"))
    },
];
