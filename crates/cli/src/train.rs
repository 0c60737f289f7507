//! `scalerl train`: from a recipe to a run folder.
//!
//! Resolve the recipe, see that the folder can be used (`destination.rs`), read the problems
//! (`material.rs`), prepare the policy (`policy.rs`), render prompts (`rendering.rs`), then hand
//! generator (`servers.rs` where vLLM writes), trainer, prompts and judge to the engine (`conduct.rs`)
//! and show what happens (`live.rs`). In this order, so that whatever can be refused is refused before
//! a warm-up is paid for. `--dry-run` says what would happen (`plan.rs`). With several processes this
//! one may be another part of the run (`cluster.rs`).

mod back;
pub(crate) mod cluster;
mod conduct;
mod destination;
pub(crate) mod environment;
mod history;
pub(crate) mod live;
mod material;
mod memory;
mod owners;
mod plan;
pub(crate) mod policy;
mod provenance;
pub(crate) mod rendering;
mod servers;
mod trackers;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use scalerl_engine::RunEnd;
use scalerl_journal::{RunFolder, StopReason};
use scalerl_recipe::{GeneratorChoice, Recipe, Resolved};
use scalerl_torch::tch::{Device, Kind};
use scalerl_torch::{device, shim};
use scalerl_worker::options::compute_kind;

use crate::failure::BadInput;
use crate::generator::Role;
use crate::recipe::{resolve, say_advice};
use cluster::token::TokenSource;
use cluster::{Part, own_device};
use conduct::{Parts, conduct};
use destination::{Destination, resumed_recipe};
use environment::environment;
use memory::Places;
use policy::Policy;
use rendering::Renderer;

/// For a trainer that warms its model up first.
const PATIENCE: Duration = Duration::from_hours(24);

/// Options of `train`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shipped names or files, each laid over those before it.
    #[arg(value_name = "RECIPE", required_unless_present = "resume")]
    recipes: Vec<String>,
    /// Set one key, after all files: section.key=value.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder of the new run; without it one is named after the recipe, under output.folder.
    #[arg(long, value_name = "FOLDER", conflicts_with = "resume")]
    run: Option<PathBuf>,
    /// Go on with the run in this folder. Budgets and stopping may be changed with --set.
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// With --resume: go on from an earlier checkpoint, `best` or a step, and undo what came after;
    /// optimizer.lr may then be changed with --set.
    #[arg(long, value_name = "STEP", requires = "resume")]
    from: Option<back::Target>,
    /// Say what would happen: verifier, memory, time, cost; train nothing.
    #[arg(long)]
    dry_run: bool,
    /// Forecast from this run's own points alone: finished runs of the same weights and evaluation,
    /// beside it and in the library of `scalerl history`, are not learned from.
    #[arg(long, conflicts_with = "resume")]
    no_history: bool,
    /// With --dry-run: what an hour of one device costs, in any currency.
    #[arg(long, value_name = "PRICE", requires = "dry_run", value_parser = crate::status::price)]
    price_per_hour: Option<f64>,
    /// With --dry-run: ask about a GPU of this memory, as 80GB or 141GB, instead of the one at hand.
    #[arg(long, value_name = "SIZE", requires = "dry_run", value_parser = memory::size)]
    device_memory: Option<u64>,
    /// Open a live page of the run, on this machine alone (see `scalerl watch`).
    #[cfg(feature = "watch")]
    #[arg(long)]
    watch: bool,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: String,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    cluster::processes::end_with_owner()?;
    let device = device::parse(&args.device).map_err(BadInput::new)?;
    let recipe = match &args.resume {
        Some(folder) => resumed_recipe(folder, &args.recipes, &args.set, args.from.is_some())?,
        None => resolve(&args.recipes, &args.set)?,
    };
    if args.dry_run {
        return dry_run(args, &recipe, device, out);
    }
    let lead = match Part::of(&recipe)? {
        Part::Lead(lead) => lead,
        Part::Follow(launch) => {
            let device = own_device(&args.device, device, launch.local_rank);
            return cluster::follow::run(&recipe, &launch, device, args.resume.as_deref());
        }
        Part::Generate { name, own_name, local_rank } => {
            let device = own_device(&args.device, device, local_rank);
            let url = cluster::redis(&recipe)?;
            let run = args.run.as_deref().or(args.resume.as_deref());
            let token = TokenSource::find(None, run)?;
            return Role { url, name, token, own_name, device, patience: PATIENCE }.play();
        }
    };
    check_end(&recipe)?;
    check_shared_weights(&recipe, device)?;
    if lead.generators > 0 {
        // Known before anything is spent.
        cluster::redis(&recipe)?;
    }
    let destination = match &args.resume {
        Some(folder) => Destination::resumed(folder)?,
        None => Destination::new(args.run.as_deref(), &recipe, &args.recipes)?,
    };
    let _undo = matches!(destination, Destination::New(_))
        .then(|| UndoStart(destination.path().to_owned()));
    let record = destination.path().join("held_out.json");
    let problems = material::read(&recipe, &record)?;
    let ranks = lead.ranks.as_ref().map_or(1, |launch| launch.world as u64);
    let places = Places::first(&args.device, device, &recipe, ranks);
    let policy = match Policy::recorded(destination.path()) {
        Some(policy) => Some(policy.fitting(&recipe, places)?),
        None => Policy::prepare(&recipe, places)?,
    };
    let Some(policy) = policy else {
        let line = "stopped in the warm-up, which is saved; the same command goes on with it";
        return Ok(writeln!(out, "{line}")?);
    };
    let renderer = Renderer::load(&recipe, &policy.folder)?;
    let kept = problems.record.clone();
    let material = material::render(problems, &renderer, &recipe)?;
    let provenance = provenance::of(&policy, &recipe, &material.evaluation_sets)?;
    let history = match (&args.resume, args.no_history) {
        (None, false) => history::gather(destination.path(), &provenance)?,
        _ => Vec::new(),
    };
    if let Some(target) = args.from {
        back::go_back(destination.path(), target)?;
    }
    let folder = destination
        .enter(&recipe, &environment(device, provenance, policy.adapter_size(&recipe)?))?;
    material::record(&kept, &record)?;
    policy.record(folder.path())?;
    if args.resume.is_none() {
        folder.write_history(&history)?;
    }
    let history = folder.history()?;
    say_advice(&recipe, &mut std::io::stderr())?;
    writeln!(std::io::stderr(), "run folder: {}", folder.path().display())?;
    if !history.is_empty() {
        writeln!(std::io::stderr(), "{}", history::sentence(&history))?;
    }
    // Until the run has ended and its report is written.
    #[cfg(feature = "watch")]
    let _page = args.watch.then(|| crate::watch::beside(folder.path())).flatten();
    let is_alone = lead.ranks.is_none()
        && lead.generators == 0
        && recipe.pipeline.generator == GeneratorChoice::Local;
    let parts = Parts {
        folder,
        recipe: &recipe,
        policy: &policy,
        renderer,
        material,
        places,
        device_name: &args.device,
        lead,
        history,
    };
    let end = conduct(parts)?;
    if let Device::Cuda(_) = device {
        let (used, taken) = shim::peak_memory(device)?;
        let (used, taken) = (used as f64 / GIB, taken as f64 / GIB);
        writeln!(out, "device memory at its peak: {used:.1} GiB in tensors, {taken:.1} GiB taken")?;
    }
    finish(&end, out)?;
    match back::after(&end, &recipe, args, is_alone, out)? {
        Some(again) => run(&again, out),
        None => Ok(()),
    }
}

/// A run that never began leaves no folder, so that the same command can be given again. One that has
/// begun is left as it is.
struct UndoStart(PathBuf);

impl Drop for UndoStart {
    fn drop(&mut self) {
        if let Err(error) = RunFolder::undo_start(&self.0) {
            // What ended the start is told; this comes on top.
            let _ = writeln!(std::io::stderr(), "{error}");
        }
    }
}

/// Says what a run would be; refuses what `run` would refuse.
fn dry_run(args: &Args, recipe: &Resolved, device: Device, out: &mut dyn Write) -> Result<()> {
    check_end(recipe)?;
    // A size that is named is of GPUs that are asked about.
    let asked_about = if args.device_memory.is_some() { Device::Cuda(0) } else { device };
    check_shared_weights(recipe, asked_about)?;
    if recipe.cluster.generators > 0 {
        cluster::redis(recipe)?;
    }
    if args.resume.is_none() {
        Destination::new(args.run.as_deref(), recipe, &args.recipes)?;
    }
    say_advice(recipe, out)?;
    let machine = plan::Machine {
        places: Places::first(&args.device, device, recipe, recipe.cluster.trainers.into()),
        device_memory: args.device_memory,
        price_per_hour: args.price_per_hour,
    };
    plan::print(recipe, &machine, out)
}

/// Refuses a run that would never end.
fn check_end(recipe: &Recipe) -> Result<()> {
    let has_end = recipe.budget.has_limit() || recipe.stopping.target.is_some();
    if !has_end && recipe.stopping.forecast_gain.is_none() {
        return Err(BadInput::new("the recipe has no end: [budget] and [stopping] are unset")
            .hint("--set budget.steps=100, budget.device_hours=…, or stopping.forecast_gain=0.005")
            .into());
    }
    Ok(())
}

/// Refuses one set of float32 weights: the optimizer would change them while they are computed with.
fn check_shared_weights(recipe: &Recipe, device: Device) -> Result<()> {
    if !recipe.shares_weights() || compute_kind(recipe, device) == Kind::BFloat16 {
        return Ok(());
    }
    let message =
        "pipeline.weights = \"shared\" needs layers in bf16, and on this device they are float32";
    Err(BadInput::new(message)
        .hint("--set model.compute=bf16, or --set pipeline.weights=copied")
        .into())
}

const GIB: f64 = (1_u64 << 30) as f64;

fn finish(end: &RunEnd, out: &mut dyn Write) -> Result<()> {
    let folder = end.folder.display();
    let (reason, spent) = (end.reason.description(), live::held(end.ledger.device_hours()));
    writeln!(out, "ended after step {}: {reason} ({spent})\n", end.version.0)?;
    if let Err(error) = crate::report::close(&end.folder, out) {
        // The run has ended as it should; a page that cannot be written does not change that.
        writeln!(std::io::stderr(), "no report: {error:#}")?;
    }
    let saved = RunFolder::open(&end.folder)?.checkpoints().list()?;
    if let Some(newest) = saved.last() {
        writeln!(out, "model       {}", newest.path.join("trainer").join("model").display())?;
    }
    if end.reason == StopReason::Asked {
        writeln!(out, "go on with: scalerl train --resume {folder}")?;
    }
    Ok(())
}
