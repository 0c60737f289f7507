//! The model a run starts from: a folder, a hub name, or one that the recipe makes and warms up.
//!
//! ```text
//! OUTPUT/warm-up/<key>/new/            config and tokenizer of a model that was made
//! OUTPUT/warm-up/<key>/examples.jsonl  what it learns from
//! OUTPUT/warm-up/<key>/sft/model/      the warmed-up model
//! ```
//! The key is a hash of the recipe's `[model]`, `[warm_up]` and whatever else the warm-up depends on
//! (lengths, tokens), so runs that agree on them start from the same weights and pay for them once.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use scalerl_files::DOCUMENT;
use scalerl_journal::AdapterSize;
use scalerl_model::adapter::Place;
use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_model::fresh::{self, Experts, FreshShape, FreshTokens};
use scalerl_model::memory;
use scalerl_model::sft::{self, Progress, SftOptions};
use scalerl_model::train::AdamWConfig;
use scalerl_model::unloaded::UnloadedModel;
use scalerl_model::{error::LoadError, hub};
use scalerl_recipe::{Recipe, Sharding, WarmUpExamples, Weights};
use scalerl_task::random::hash;
use scalerl_task::synthetic::{END, START, Synthetic, THINK_CLOSE, THINK_OPEN};
use scalerl_torch::tch::{Device, Kind};
use scalerl_worker::options::{adapter_config, compute_kind};

use serde::{Deserialize, Serialize};

use crate::failure::BadInput;
use crate::interrupt::Interrupt;
use crate::train::live::WarmUpLine;
use crate::train::memory::Places;

/// In the run's folder.
const RECORD: &str = "policy.json";

/// Where the policy's config, tokenizer and weights are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) folder: PathBuf,
    /// PEFT's folder of the adapter that the run starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    adapter: Option<PathBuf>,
    /// Seed of weights that are drawn and not read.
    random: Option<u64>,
}

impl Policy {
    /// What the run in this folder has started from, if it is still there: found again whatever
    /// folder the program is called from, and whatever a hub name stands for by now.
    pub(crate) fn recorded(run: &Path) -> Option<Self> {
        let text = scalerl_files::read_to_string(&run.join(RECORD), DOCUMENT).ok()?;
        let policy: Self = serde_json::from_str(&text).ok()?;
        policy.folder.join("config.json").is_file().then_some(policy)
    }

    /// Keeps what the run in this folder starts from.
    pub(crate) fn record(&self, run: &Path) -> Result<()> {
        let (path, draft) = (run.join(RECORD), run.join(format!("{RECORD}.part")));
        let text = serde_json::to_string_pretty(&self.everywhere()?)?;
        fs::write(&draft, text + "\n")
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The same for another process, whatever folder that is started in.
    pub(crate) fn everywhere(&self) -> Result<Self> {
        let adapter = self.adapter.as_ref().map(std::path::absolute).transpose()?;
        Ok(Self { folder: std::path::absolute(&self.folder)?, adapter, random: self.random })
    }

    /// Seed of weights that are drawn and not read.
    pub(crate) fn random(&self) -> Option<u64> {
        self.random
    }

    /// PEFT's folder of the adapter that the run starts from.
    pub(crate) fn adapter(&self) -> Option<&Path> {
        self.adapter.as_deref()
    }

    /// What of the model is trained, for the run's folder; `None` where all of it is.
    pub(crate) fn adapter_size(&self, recipe: &Recipe) -> Result<Option<AdapterSize>> {
        let Some(trained) = self.trained(recipe)? else { return Ok(None) };
        let rank = adapter_config(recipe).map_or(0, |adapter| adapter.rank as u64);
        let parameters = self.config()?.parameter_count() as u64;
        Ok(Some(AdapterSize { rank, trained: trained as u64, parameters }))
    }

    /// Finds the model; makes it and warms it up where the recipe says so. `None` where the warm-up was
    /// asked to stop.
    pub(crate) fn prepare(recipe: &Recipe, places: Places) -> Result<Option<Self>> {
        if recipe.warm_up.examples == WarmUpExamples::None {
            let start = Self::start(recipe, &place(recipe).join("new"))?;
            return start.fitting(recipe, places).map(Some);
        }
        let place = place(recipe);
        if !matches!(recipe.model.weights, Weights::New { .. }) {
            // A model that cannot be found is refused before anything is made.
            let start = Self::start(recipe, &place)?;
            start.without_adapter()?;
        }
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        // Another run may be making the same: wait for it instead of doing it twice.
        let lock = File::create(place.join("lock"))?;
        if lock.try_lock().is_err() {
            let line = format!("waiting for another run's warm-up in {}", place.display());
            writeln!(std::io::stderr(), "{line}")?;
            lock.lock()?;
        }
        let finished = place.join("sft").join("model");
        if !finished.join("config.json").is_file() {
            let start = Self::start(recipe, &place.join("new"))?.fitting(recipe, places)?;
            if warm_up(recipe, &start, &place, places.trainer)?.is_break() {
                return Ok(None);
            }
        }
        Self { folder: finished, adapter: None, random: None }.fitting(recipe, places).map(Some)
    }

    /// The model before any warm-up, for a look at its shape; a new one is made in `aside`.
    pub(crate) fn sketch(recipe: &Recipe, aside: &Path) -> Result<Self> {
        Self::start(recipe, &aside.join("new"))
    }

    /// The model before any warm-up.
    fn start(recipe: &Recipe, new: &Path) -> Result<Self> {
        let model = &recipe.model;
        if let Weights::New { .. } = model.weights {
            if !new.join("config.json").is_file() {
                make(recipe, new)?;
            }
            let random = Some(recipe.warm_up.seed);
            return Ok(Self { folder: new.to_path_buf(), adapter: None, random });
        }
        let Some(name) = &model.path else {
            let hint = "--set model.path=FOLDER, or a hub name such as Qwen/Qwen2.5-0.5B-Instruct";
            return Err(BadInput::new("the recipe names no model: model.path is unset")
                .hint(hint)
                .into());
        };
        let folder = hub::resolve_revision(name, &model.revision).map_err(|e| bad_model(&e))?;
        let place = Place::find(&folder, None).map_err(|error| bad_model(&error))?;
        let random = (model.weights == Weights::Random).then_some(recipe.warm_up.seed);
        if random.is_none() {
            // Files that are missing or cut off are known before anything is spent.
            Model::check(&place).map_err(|error| bad_model(&error))?;
        }
        Ok(Self { folder: place.base, adapter: place.adapter, random })
    }

    /// Refuses a model whose weights alone do not fit, or a run that does not, before a run folder is
    /// made for it.
    pub(crate) fn fitting(self, recipe: &Recipe, places: Places) -> Result<Self> {
        let checked = memory::check(&self.config()?, Kind::BFloat16, places.trainer);
        checked.map_err(|error| bad_model(&error))?;
        self.trained(recipe)?;
        super::owners::check(recipe, &self.config()?, places.ranks)?;
        super::memory::check(recipe, &self.config()?, places)?;
        Ok(self)
    }

    /// A warm-up trains all weights, which an adapter's folder does not hold.
    fn without_adapter(&self) -> Result<()> {
        let Some(folder) = &self.adapter else { return Ok(()) };
        let message =
            format!("{} is an adapter, and a warm-up trains all weights", folder.display());
        let hint = "make a whole model of it first: scalerl merge ADAPTER --out FOLDER";
        Err(BadInput::new(message).hint(hint).into())
    }

    /// Numbers of the adapter that the recipe trains; `None` where it trains all weights. Refuses one
    /// that does not fit the model.
    pub(crate) fn trained(&self, recipe: &Recipe) -> Result<Option<i64>> {
        let Some(adapter) = adapter_config(recipe) else { return Ok(None) };
        let count = adapter.parameter_count(&self.config()?);
        let count = count.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
        Ok(Some(count))
    }

    /// What the model is, without its weights.
    pub(crate) fn config(&self) -> Result<ModelConfig> {
        let path = self.folder.join("config.json");
        Ok(ModelConfig::load(&path).map_err(|error| bad_model(&error))?)
    }

    /// Token ids of the model.
    pub(crate) fn vocabulary(&self) -> Result<u32> {
        let size = self.config()?.vocabulary;
        u32::try_from(size).with_context(|| format!("a vocabulary of {size} tokens"))
    }

    /// The model in the given number format, as the recipe trains it: with an adapter its weights are in
    /// the format that layers compute in.
    pub(crate) fn load(&self, recipe: &Recipe, kind: Kind, device: Device) -> Result<Model> {
        let opened = self.open(recipe, device)?;
        let kind = if opened.has_adapter() { compute_kind(recipe, device) } else { kind };
        Ok(opened.load(kind).map_err(|error| bad_model(&error))?)
    }

    /// The model that trainer ranks start from, read as far as each of them needs it whole.
    pub(crate) fn load_for_rank(&self, recipe: &Recipe, device: Device) -> Result<UnloadedModel> {
        match recipe.cluster.sharding {
            Sharding::Full => self.open(recipe, device),
            // Before ranks meet: what reads for long keeps nobody waiting.
            Sharding::Optimizer => Ok(self.load(recipe, Kind::Float, device)?.into()),
        }
    }

    /// The model as the recipe trains it, its weights not read.
    fn open(&self, recipe: &Recipe, device: Device) -> Result<UnloadedModel> {
        let bad = |error: LoadError| bad_model(&error);
        let mut opened = match self.random {
            None => UnloadedModel::open(&self.folder, device).map_err(bad)?,
            Some(seed) => UnloadedModel::random(self.config()?, seed as i64, device),
        };
        opened.folder = Some(self.folder.clone());
        let adapter = adapter_config(recipe);
        Ok(opened.adapted(self.adapter.as_deref(), adapter, recipe.seed).map_err(bad)?)
    }
}

pub(crate) fn bad_model(error: &LoadError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

/// The shape a recipe asks for; `None` when the model is read.
pub(crate) fn shape(weights: &Weights) -> Option<FreshShape> {
    let Weights::New { layers, width, heads, kv_heads, feed_forward, experts, active_experts } =
        *weights
    else {
        return None;
    };
    let experts = (experts > 0)
        .then(|| Experts { all: i64::from(experts), active: i64::from(active_experts) });
    Some(FreshShape {
        layers: i64::from(layers),
        width: i64::from(width),
        heads: i64::from(heads),
        kv_heads: i64::from(kv_heads),
        feed_forward: i64::from(feed_forward),
        experts,
    })
}

/// The folder of what this recipe makes.
fn place(recipe: &Recipe) -> PathBuf {
    let lengths = (longest_example(recipe), recipe.pipeline.micro_batch_tokens);
    // What is computed again comes out the same.
    let model = scalerl_recipe::Model { activation_checkpointing: false, ..recipe.model.clone() };
    let made_of = serde_json::json!([model, recipe.warm_up, tokens(recipe), lengths]);
    let key = format!("{:016x}", hash(made_of.to_string().as_bytes()));
    let place = Path::new(&recipe.output.folder).join("warm-up").join(key);
    // A warm-up that was killed goes on only under the path it was started with.
    std::path::absolute(&place).unwrap_or(place)
}

/// Examples with more tokens are left out.
fn longest_example(recipe: &Recipe) -> usize {
    let sampling = &recipe.sampling;
    recipe.warm_up.max_tokens.map_or_else(
        || sampling.max_prompt_tokens as usize + sampling.max_completion_tokens() as usize,
        |most| most as usize,
    )
}

/// The tokens of all synthetic tasks of the recipe, each once.
fn tokens(recipe: &Recipe) -> Vec<&'static str> {
    let datasets = recipe.task.datasets.iter().chain(&recipe.evaluation.datasets);
    let tasks = datasets.filter_map(|dataset| Synthetic::of_source(&dataset.source));
    let mut tokens: Vec<&str> = Vec::new();
    for token in
        tasks.chain(Synthetic::of_warm_up(&recipe.warm_up.examples)).flat_map(|task| task.tokens())
    {
        if !tokens.contains(&token) {
            tokens.push(token);
        }
    }
    tokens
}

fn make(recipe: &Recipe, folder: &Path) -> Result<()> {
    let tokens = tokens(recipe);
    if tokens.is_empty() {
        let hint = "add a synthetic [[task.datasets]], or name a model folder in model.path";
        return Err(BadInput::new(
            "a new model needs the tokens of a synthetic task, and none is named",
        )
        .hint(hint)
        .into());
    }
    let tokens = FreshTokens {
        tokens: &tokens,
        start: START,
        end: END,
        visible: &[THINK_OPEN, THINK_CLOSE],
    };
    let shape = shape(&recipe.model.weights).expect("only new models are made");
    Ok(fresh::write(folder, &shape, &tokens).map_err(|error| bad_model(&error))?)
}

/// `Break` where someone has asked to stop; what was learned is saved.
fn warm_up(
    recipe: &Recipe,
    start: &Policy,
    place: &Path,
    device: Device,
) -> Result<ControlFlow<()>> {
    let settings = &recipe.warm_up;
    let train = if let WarmUpExamples::File { path } = &settings.examples {
        PathBuf::from(path)
    } else {
        let path = place.join("examples.jsonl");
        let task = Synthetic::of_warm_up(&settings.examples).expect("neither a file nor none");
        task.validate().map_err(|error| BadInput::new(&error).hint(error.hint()))?;
        let count = u64::from(settings.steps) * u64::from(settings.examples_per_step);
        let written = File::create(&path).and_then(|file| {
            let mut out = BufWriter::new(file);
            task.write_sft(settings.seed, count, &mut out)?;
            out.flush()
        });
        written.with_context(|| format!("cannot write {}", path.display()))?;
        path
    };
    let options = SftOptions {
        model: start.folder.clone(),
        base: None,
        adapter: None,
        is_from_scratch: start.random.is_some(),
        train,
        validation: None,
        steps: u64::from(settings.steps),
        examples_per_step: settings.examples_per_step as usize,
        max_tokens: longest_example(recipe),
        micro_batch_tokens: recipe.pipeline.micro_batch_tokens as usize,
        optimizer: AdamWConfig {
            lr: settings.lr,
            warmup_steps: u64::from(settings.warmup_steps),
            decay_steps: u64::from(settings.steps),
            beta2: 0.98,
            epsilon: 1e-8,
            ..AdamWConfig::default()
        },
        validate_every: 0,
        save_every: u64::from((settings.steps / 4).max(50)),
        keep: 1,
        seed: settings.seed,
        is_recomputing: recipe.model.activation_checkpointing,
    };
    let mut line = WarmUpLine::new(u64::from(settings.steps));
    let interrupt = Interrupt::listen()?;
    let outcome = sft::run(&options, &place.join("sft"), device, true, &mut |progress| {
        match progress {
            Progress::Line(metrics) => line.show(metrics),
            Progress::Started { resumed_at: 0, .. } => {}
            Progress::Started { resumed_at, .. } => line.say_resumed(*resumed_at),
        }
        if interrupt.is_asked() {
            line.say_stopping();
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    let outcome = outcome.map_err(crate::sft::failed)?;
    if outcome.is_none() || interrupt.is_asked() {
        return Ok(ControlFlow::Break(()));
    }
    line.finish();
    Ok(ControlFlow::Continue(()))
}
