//! LoRA: two small matrices beside each frozen one (Hu et al., arXiv 2106.09685), as PEFT has them.
//!
//! ```text
//! y = x Wᵀ + scale · (x Aᵀ) Bᵀ      W [out, in] frozen, A [rank, in], B [out, rank]
//! scale = alpha / rank              or alpha / √rank (rsLoRA)
//! ```
//! B starts at zero, so a fresh adapter is the model it is put on. A and B are float32 whatever the
//! model computes in, and are all that is trained, saved, and handed to generators.
//!
//! The network holds queries, keys and values in one matrix (`layout.rs`); their adapters are
//! stacked in the same way, so PEFT's tensors are the sources of ours.
//!
//! Not here: PEFT's folders (`adapter/peft.rs`), the product (`adapter/low_rank.rs`), which base an
//! adapter was made for (`adapter/fingerprint.rs`).

mod fingerprint;
mod low_rank;
mod peft;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, TchError, Tensor};
use thiserror::Error;

pub(crate) use fingerprint::Fingerprint;
pub use fingerprint::fingerprint;
pub(crate) use low_rank::LowRank;
pub(crate) use peft::save;
pub use peft::{CONFIG as PEFT_CONFIG, Place};

use crate::config::ModelConfig;
use crate::error::LoadError;
use crate::folder::Model;
use crate::layout::{Parameter, Source, Start, layout};
use crate::split_mix::split_mix;
use crate::unloaded::UnloadedModel;

/// The projections of a layer, by the names that PEFT and Hugging Face have for them.
pub const LAYERS: [&str; 7] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

/// What an adapter is, without its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdapterConfig {
    pub rank: i64,
    pub alpha: f64,
    /// Names of projections, or ends of their paths, by PEFT's rule; empty takes all of [`LAYERS`].
    pub layers: Vec<String>,
    /// Scales by alpha / √rank.
    #[serde(default)]
    pub is_rank_stabilised: bool,
}

/// Why an adapter does not fit a model.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum AdapterError {
    #[error("the adapter's rank is {rank}: at least 1 is needed")]
    NoRank { rank: i64 },
    #[error("the adapter's alpha is {alpha}: a number above 0 is needed")]
    BadAlpha { alpha: f64 },
    #[error("the adapter's rank is {rank}, and `{layer}` has only {width} inputs")]
    RankTooLarge { rank: i64, layer: String, width: i64 },
    #[error("no linear layer of this model is called `{name}`; there are {}", known.join(", "))]
    UnknownLayer { name: String, known: Vec<String> },
    /// One tensor for all experts: PEFT has no LoRA matrices of that form.
    #[error("the experts of this model are one tensor, which has no adapters; name other layers")]
    ExpertsTogether,
    /// A stack of experts is adapted as one.
    #[error("`{name}` names some experts of a layer and not all")]
    SomeExperts { name: String },
    /// Training goes on only with the adapter that is there.
    #[error("the starting adapter has {found}, and {asked} is asked for")]
    OtherSettings { asked: String, found: String },
    #[error("this adapter is for another base: {problem}")]
    OtherBase { problem: String },
}

impl AdapterError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoRank { .. } | Self::BadAlpha { .. } => "8 to 64 is usual for rank and alpha",
            Self::RankTooLarge { .. } => "choose a smaller rank, or train all weights",
            Self::UnknownLayer { .. } | Self::SomeExperts { .. } => {
                "name layers by the last word of their path, or none for all of them"
            }
            Self::ExpertsTogether => {
                "q_proj, k_proj, v_proj and o_proj can be adapted: set adapter.layers"
            }
            Self::OtherSettings { .. } => {
                "ask for the folder's own settings to go on with it, or merge it first"
            }
            Self::OtherBase { .. } => "give the base that the adapter was trained on",
        }
    }
}

impl AdapterConfig {
    /// What the product of the two matrices is multiplied by.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.is_rank_stabilised { rank.sqrt() } else { rank }
    }

    /// The numbers that are trained on a model of this config.
    pub fn parameter_count(&self, config: &ModelConfig) -> Result<i64, AdapterError> {
        let table = targets(config, self)?;
        let table = table.iter().flat_map(|target| target.parameters(self.rank));
        Ok(table.map(|parameter| parameter.shape.iter().product::<i64>()).sum())
    }

    fn check(&self) -> Result<(), AdapterError> {
        if self.rank < 1 {
            return Err(AdapterError::NoRank { rank: self.rank });
        }
        if !(self.alpha.is_finite() && self.alpha > 0.0) {
            return Err(AdapterError::BadAlpha { alpha: self.alpha });
        }
        Ok(())
    }
}

/// Rows of a stacked matrix that have an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first_row: i64,
    pub(crate) rows: i64,
}

/// A parameter of the model that has adapters on some of its parts.
#[derive(Debug, Clone)]
struct Target {
    /// Place in the model's layout.
    index: usize,
    name: String,
    /// Paths of the modules, expert by expert and part by part, with their rows.
    modules: Vec<(String, i64)>,
    /// Of one expert, or of the matrix.
    parts: Vec<Part>,
    /// Experts; `None` for a plain matrix.
    experts: Option<i64>,
    inputs: i64,
}

impl Target {
    /// The two matrices, whose sources are PEFT's tensors.
    fn parameters(&self, rank: i64) -> [Parameter; 2] {
        let experts = self.experts.into_iter();
        let count = self.parts.len() as i64;
        let rows: i64 = self.parts.iter().map(|part| part.rows).sum();
        let one =
            |letter: &str, shape: [i64; 2], source: &dyn Fn(i64) -> Vec<i64>, start| Parameter {
                name: format!("{}.lora_{}", self.name, letter.to_lowercase()),
                shape: experts.clone().chain(shape).collect(),
                sources: self
                    .modules
                    .iter()
                    .map(|(module, rows)| Source {
                        tensor: format!("base_model.model.{module}.lora_{letter}.weight"),
                        shape: source(*rows),
                        is_transposed: false,
                    })
                    .collect(),
                start,
            };
        [
            one("A", [count * rank, self.inputs], &|_| vec![rank, self.inputs], Start::Normal),
            one("B", [rows, rank], &|rows| vec![rows, rank], Start::Zeros),
        ]
    }
}

/// Adapters of a model: A and B of every adapted matrix, in the order of `layout`.
pub struct Adapter {
    pub config: AdapterConfig,
    pub layout: Vec<Parameter>,
    /// In the order of `layout`; float32 on the model's device.
    pub parameters: Vec<Tensor>,
    /// Made here, and not read from a folder: at the start it changes nothing.
    pub is_fresh: bool,
    targets: Vec<Target>,
    /// Of the base, once somebody has asked.
    base: OnceLock<String>,
    /// The folder it was read from, and the fingerprint of the base that it says it is for.
    claim: Option<(PathBuf, String)>,
}

impl Adapter {
    /// Its place in a model, with no numbers yet.
    fn layout_of(
        config: AdapterConfig,
        model: &ModelConfig,
    ) -> Result<(AdapterConfig, Vec<Target>, Vec<Parameter>), AdapterError> {
        let targets = targets(model, &config)?;
        let layout = targets.iter().flat_map(|target| target.parameters(config.rank)).collect();
        Ok((config, targets, layout))
    }

    /// A new adapter: A uniform within 1/√inputs (PEFT's Kaiming with a = √5), B zero. The same seed
    /// gives the same numbers on every device.
    pub fn fresh(
        config: AdapterConfig,
        model: &ModelConfig,
        seed: u64,
        device: Device,
    ) -> Result<Self, LoadError> {
        let (config, targets, layout) = Self::layout_of(config, model)?;
        let parameters = layout.iter().enumerate().map(|(index, parameter)| {
            let cpu = (Kind::Float, Device::Cpu);
            let tensor = if parameter.start == Start::Zeros {
                Tensor::f_zeros(&parameter.shape[..], cpu)?
            } else {
                let inputs = parameter.shape[parameter.shape.len() - 1];
                let own = seed.wrapping_mul(1_000_003).wrapping_add(index as u64);
                uniform(&parameter.shape, 1.0 / (inputs as f64).sqrt(), own)?
            };
            tensor.f_to_device(device)
        });
        let parameters = parameters.collect::<Result<Vec<_>, TchError>>()?;
        Ok(Self::made(config, layout, parameters, targets, true))
    }

    fn made(
        config: AdapterConfig,
        layout: Vec<Parameter>,
        parameters: Vec<Tensor>,
        targets: Vec<Target>,
        is_fresh: bool,
    ) -> Self {
        Self { config, layout, parameters, is_fresh, targets, base: OnceLock::new(), claim: None }
    }

    /// The fingerprint of the base it is on; taken once, because the base never changes.
    pub fn fingerprint_of(&self, base: &Model) -> Result<String, TchError> {
        if let Some(known) = self.base.get() {
            return Ok(known.clone());
        }
        let found = fingerprint(base)?;
        Ok(self.base.get_or_init(|| found).clone())
    }

    /// Notes the fingerprint of a base that nobody can look at whole.
    pub(crate) fn know_base(&self, letters: String) {
        let _ = self.base.set(letters);
    }

    /// Refuses a base of this fingerprint where the adapter was trained on another.
    pub(crate) fn check_base(&self, ours: &str) -> Result<(), AdapterError> {
        let Some((path, theirs)) = self.claim.as_ref().filter(|(_, theirs)| theirs != ours) else {
            return Ok(());
        };
        let path = path.display();
        let problem =
            format!("{path} was trained on weights of fingerprint {theirs}, these have {ours}");
        Err(AdapterError::OtherBase { problem })
    }

    /// The same of a base that is in memory; one that the adapter says nothing of is not looked at.
    pub(crate) fn check_base_of(&self, base: &Model) -> Result<(), LoadError> {
        if self.claim.is_some() {
            self.check_base(&self.fingerprint_of(base)?)?;
        }
        Ok(())
    }

    /// The same adapter over other numbers.
    pub(crate) fn over(&self, parameters: Vec<Tensor>) -> Self {
        assert_eq!(self.layout.len(), parameters.len(), "parameters do not follow the layout");
        Self {
            config: self.config.clone(),
            layout: self.layout.clone(),
            parameters,
            is_fresh: self.is_fresh,
            targets: self.targets.clone(),
            base: self.base.clone(),
            claim: self.claim.clone(),
        }
    }

    /// Numbers that are trained.
    pub fn parameter_count(&self) -> i64 {
        self.parameters.iter().map(|parameter| parameter.numel() as i64).sum()
    }

    fn low_rank_at(&self, place: usize) -> LowRank {
        let pair = &self.parameters[2 * place..2 * place + 2];
        LowRank {
            a: pair[0].shallow_clone(),
            b: pair[1].shallow_clone(),
            parts: self.targets[place].parts.clone(),
            scale: self.config.scale(),
        }
    }

    /// The adapter on the parameter of this name, where it has one.
    pub(crate) fn on(&self, name: &str) -> Option<LowRank> {
        let place = self.targets.iter().position(|target| target.name == name)?;
        Some(self.low_rank_at(place))
    }

    /// A weight of the base with the adapter in it: in the kind of the base, rounded once. One without an
    /// adapter is the base's own.
    pub(crate) fn merged_one(&self, index: usize, weight: &Tensor) -> Result<Tensor, TchError> {
        let place = self.targets.iter().position(|target| target.index == index);
        match place {
            None => Ok(weight.shallow_clone()),
            Some(place) => tch::no_grad(|| self.low_rank_at(place).merged(weight)),
        }
    }
}

/// Uniform numbers in [-bound, bound).
fn uniform(shape: &[i64], bound: f64, seed: u64) -> Result<Tensor, TchError> {
    let mut state = seed;
    let unit = 1.0 / (1_u64 << 53) as f64;
    let count = shape.iter().product::<i64>();
    let numbers: Vec<f32> = (0..count)
        .map(|_| {
            let fraction = (split_mix(&mut state) >> 11) as f64 * unit;
            ((2.0 * fraction - 1.0) * bound) as f32
        })
        .collect();
    Tensor::f_from_slice(&numbers)?.f_view(shape)
}

/// Whether PEFT would put an adapter on this module.
fn is_named(module: &str, name: &str) -> bool {
    module.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The module of a source, where it is a linear layer: what has `_proj` in its name.
fn module(source: &Source) -> Option<&str> {
    source.tensor.strip_suffix(".weight").filter(|module| module.ends_with("_proj"))
}

/// What the adapter is put on, in the order of the model's layout.
fn targets(model: &ModelConfig, config: &AdapterConfig) -> Result<Vec<Target>, AdapterError> {
    config.check()?;
    let table = layout(model);
    let is_all = config.layers.is_empty();
    if is_all && table.iter().any(|p| p.shape.len() == 3 && p.sources[0].is_transposed) {
        return Err(AdapterError::ExpertsTogether);
    }
    let modules = || table.iter().flat_map(|p| &p.sources).filter_map(module);
    if let Some(name) = config.layers.iter().find(|name| !modules().any(|m| is_named(m, name))) {
        let last = |module: &str| module.rsplit('.').next().unwrap_or(module).to_owned();
        let mut known: Vec<String> = modules().map(last).collect();
        known.sort();
        known.dedup();
        return Err(AdapterError::UnknownLayer { name: name.clone(), known });
    }
    let is_wanted = |m: &str| is_all || config.layers.iter().any(|name| is_named(m, name));
    let mut found = Vec::new();
    for (index, parameter) in table.iter().enumerate() {
        found.extend(target(index, parameter, &is_wanted)?);
    }
    if let Some(narrow) = found.iter().find(|target| target.inputs < config.rank) {
        let (rank, layer, width) = (config.rank, narrow.modules[0].0.clone(), narrow.inputs);
        return Err(AdapterError::RankTooLarge { rank, layer, width });
    }
    Ok(found)
}

fn target(
    index: usize,
    parameter: &Parameter,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<Option<Target>, AdapterError> {
    let (experts, inputs) = match parameter.shape[..] {
        [_, inputs] => (None, inputs),
        [experts, _, inputs] => (Some(experts), inputs),
        _ => return Ok(None),
    };
    let each = parameter.sources.len() / experts.unwrap_or(1).max(1) as usize;
    let mut parts: Option<Vec<Part>> = None;
    let mut modules = Vec::new();
    for expert in parameter.sources.chunks(each.max(1)) {
        let (mut first_row, mut own) = (0, Vec::new());
        for source in expert {
            let rows = source.shape[0];
            if let Some(module) = module(source).filter(|module| is_wanted(module)) {
                own.push(Part { first_row, rows });
                modules.push((module.to_owned(), rows));
            }
            first_row += rows;
        }
        if parts.as_ref().is_some_and(|parts| *parts != own) {
            return Err(AdapterError::SomeExperts { name: parameter.name.clone() });
        }
        parts = Some(own);
    }
    let parts = parts.unwrap_or_default();
    let name = parameter.name.clone();
    let target = Target { index, name, modules, parts, experts, inputs };
    Ok((!target.parts.is_empty()).then_some(target))
}

/// A model ready to be trained: with the adapter that is asked for, fresh or going on from a folder's;
/// or whole, with a folder's adapter in its weights.
pub fn start(
    base: Model,
    folder: Option<&Path>,
    asked: Option<AdapterConfig>,
    seed: u64,
) -> Result<Model, LoadError> {
    let kind = base.network.head().kind();
    UnloadedModel::from(base).adapted(folder, asked, seed)?.load(kind)
}

/// The adapter of [`start`], whatever becomes of it.
pub(crate) fn choose(
    (model, device): (&ModelConfig, Device),
    folder: Option<&Path>,
    asked: Option<AdapterConfig>,
    seed: u64,
) -> Result<Option<Adapter>, LoadError> {
    let found = folder.map(|folder| Adapter::read(folder, model, device)).transpose()?;
    match (asked, found) {
        (None, found) => Ok(found),
        (Some(asked), None) => Ok(Some(Adapter::fresh(asked, model, seed, device)?)),
        (Some(asked), Some(found)) => {
            let (ours, _, layout) = Adapter::layout_of(asked, model)?;
            let scales = (ours.scale(), found.config.scale());
            if layout != found.layout || (scales.0 - scales.1).abs() > 1e-9 * scales.1 {
                let said = |c: &AdapterConfig| {
                    format!("rank {}, alpha {}, layers {:?}", c.rank, c.alpha, c.layers)
                };
                let (asked, found) = (said(&ours), said(&found.config));
                return Err(AdapterError::OtherSettings { asked, found }.into());
            }
            Ok(Some(found))
        }
    }
}

impl Model {
    /// The tensors that training changes: the adapter's where there is one, all others.
    pub fn trained(&self) -> &[Tensor] {
        self.adapter.as_ref().map_or(&self.parameters, |adapter| &adapter.parameters)
    }

    /// What [`Model::trained`] holds.
    pub fn trained_layout(&self) -> &[Parameter] {
        self.adapter.as_ref().map_or(&self.layout, |adapter| &adapter.layout)
    }

    /// The model over other numbers in the place of those that are trained.
    pub fn with_trained(&self, trained: Vec<Tensor>) -> Result<Self, TchError> {
        let folder = self.folder.clone();
        match &self.adapter {
            None => Self::over(self.config.clone(), trained, folder),
            Some(adapter) => self.base()?.adapted(adapter.over(trained)),
        }
    }

    /// The model with its adapter switched off; shares all memory.
    pub fn base(&self) -> Result<Self, TchError> {
        let parameters = self.parameters.iter().map(Tensor::f_detach).collect::<Result<_, _>>()?;
        Self::over(self.config.clone(), parameters, self.folder.clone())
    }

    /// The model with an adapter, in place of the one it may have.
    pub fn adapted(mut self, adapter: Adapter) -> Result<Self, TchError> {
        self.network = crate::network::Network::new(
            &self.config,
            (&self.layout, &self.parameters),
            Some(&adapter),
        )?;
        self.adapter = Some(adapter);
        Ok(self)
    }

    /// Every weight with the adapter in it; without one, the model's own.
    pub fn merged_parameters(&self) -> Result<Vec<Tensor>, TchError> {
        self.merged_in(0..self.parameters.len())
    }

    /// The same of a part of the layout.
    pub(crate) fn merged_in(&self, range: Range<usize>) -> Result<Vec<Tensor>, TchError> {
        let merged = |index: usize| match &self.adapter {
            None => Ok(self.parameters[index].shallow_clone()),
            Some(adapter) => adapter.merged_one(index, &self.parameters[index]),
        };
        range.map(merged).collect()
    }

    /// A model without an adapter that computes the same, to rounding.
    pub fn merged(self) -> Result<Self, TchError> {
        if self.adapter.is_none() {
            return Ok(self);
        }
        Self::over(self.config.clone(), self.merged_parameters()?, self.folder.clone())
    }
}
