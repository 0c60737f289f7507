//! `scalerl train`: from a recipe to a run folder.
//!
//! Resolve the recipe, see that the folder can be used (`place.rs`), read the problems
//! (`material.rs`), prepare the policy (`policy.rs`), render prompts (`rendering.rs`), then hand
//! generator (`servers.rs` where vLLM writes), trainer, prompts and judge to the engine (`conduct.rs`)
//! and show what happens (`live.rs`). In this order, so that whatever can be refused is refused before
//! a warm-up is paid for. `--dry-run` says what would happen (`plan.rs`). With several processes this
//! one may be another part of the run (`cluster.rs`).

pub(crate) mod cluster;
mod conduct;
pub(crate) mod environment;
mod live;
mod material;
mod place;
mod plan;
pub(crate) mod policy;
pub(crate) mod rendering;
mod servers;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use scalerl_engine::RunEnd;
use scalerl_journal::{RunFolder, StopReason};
use scalerl_model::tch::Device;
use scalerl_model::{device, shim};
use scalerl_recipe::{Recipe, Resolved};

use crate::failure::BadInput;
use crate::generator::Role;
use crate::recipe::{resolve, say_advice};
use cluster::{Part, own_device};
use conduct::{Parts, conduct};
use environment::environment;
use place::{Place, resumed_recipe};
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
    /// Say what would happen: verifier, memory, time, cost; train nothing.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: what an hour of one device costs, in any currency.
    #[arg(long, value_name = "PRICE", requires = "dry_run", value_parser = crate::status::price)]
    price_per_hour: Option<f64>,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: String,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    cluster::processes::end_with_owner()?;
    let device = device::parse(&args.device).map_err(BadInput::new)?;
    let recipe = match &args.resume {
        Some(folder) => resumed_recipe(folder, &args.recipes, &args.set)?,
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
            return Role { url, name, own_name, device, patience: PATIENCE }.play();
        }
    };
    check_end(&recipe)?;
    if lead.generators > 0 {
        // Known before anything is spent.
        cluster::redis(&recipe)?;
    }
    let place = match &args.resume {
        Some(folder) => Place::resumed(folder)?,
        None => Place::new(args.run.as_deref(), &recipe, &args.recipes)?,
    };
    let record = place.path().join("held_out.json");
    let problems = material::read(&recipe, &record)?;
    let policy = match Policy::recorded(place.path()) {
        Some(policy) => Some(policy),
        None => Policy::prepare(&recipe, device)?,
    };
    let Some(policy) = policy else {
        let line = "stopped in the warm-up, which is saved; the same command goes on with it";
        return Ok(writeln!(out, "{line}")?);
    };
    let renderer = Renderer::load(&recipe, &policy.folder)?;
    let split = problems.split.clone();
    let material = material::render(problems, &renderer, &recipe)?;
    let folder = place.enter(&recipe, &environment(device))?;
    material::record(split, &record)?;
    policy.record(folder.path())?;
    say_advice(&recipe, &mut std::io::stderr())?;
    writeln!(std::io::stderr(), "run folder: {}", folder.path().display())?;
    // Ranks have a GPU each; one more is nobody's to take.
    let generator_device = match &lead.ranks {
        Some(_) => device,
        None => generator_device(&args.device, device),
    };
    let parts = Parts {
        folder,
        recipe: &recipe,
        policy: &policy,
        renderer,
        material,
        device,
        device_name: &args.device,
        generator_device,
        lead,
    };
    let end = conduct(parts)?;
    if let Device::Cuda(_) = device {
        let (used, taken) = shim::peak_memory(device)?;
        let (used, taken) = (used as f64 / GIB, taken as f64 / GIB);
        writeln!(out, "device memory at its peak: {used:.1} GiB in tensors, {taken:.1} GiB taken")?;
    }
    finish(&end, out)
}

/// Says what a run would be; refuses what `run` would refuse.
fn dry_run(args: &Args, recipe: &Resolved, device: Device, out: &mut dyn Write) -> Result<()> {
    check_end(recipe)?;
    if recipe.cluster.generators > 0 {
        cluster::redis(recipe)?;
    }
    if args.resume.is_none() {
        Place::new(args.run.as_deref(), recipe, &args.recipes)?;
    }
    say_advice(recipe, out)?;
    let is_shared = generator_device(&args.device, device) == device;
    let own_devices = if is_shared { 1.0 } else { 2.0 };
    let machine = plan::Machine { device, own_devices, price_per_hour: args.price_per_hour };
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

const GIB: f64 = (1_u64 << 30) as f64;

/// The generator's own GPU where the machine has two or more and none was named; else the trainer's.
fn generator_device(named: &str, trainer: Device) -> Device {
    let is_free = matches!(named, "auto" | "cuda") && device::open().cuda_devices >= 2;
    if is_free && trainer == Device::Cuda(0) { Device::Cuda(1) } else { trainer }
}

fn finish(end: &RunEnd, out: &mut dyn Write) -> Result<()> {
    let folder = end.folder.display();
    let (reason, spent) = (live::reason(end.reason), live::held(end.ledger.device_hours()));
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
