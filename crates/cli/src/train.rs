//! `scalerl train`: from a recipe to a run folder.
//!
//! Resolve the recipe, see that the folder can be used (`place.rs`), read the problems
//! (`material.rs`), prepare the policy (`policy.rs`), render prompts (`rendering.rs`), connect to vLLM
//! servers where they write (`servers.rs`), then hand
//! generator, trainer, prompts and judge to the engine and show what happens (`live.rs`). In this
//! order, so that whatever can be refused is refused before a warm-up is paid for. `--dry-run` says
//! what would happen (`plan.rs`).

mod environment;
mod live;
mod material;
mod place;
mod plan;
mod policy;
mod rendering;
mod servers;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use scalerl_engine::task::TaskPrompts;
use scalerl_engine::{
    Deadlines, Devices, EngineError, OwnThread, Run, RunEnd, Settings, on_signals,
};
use scalerl_journal::{RunFolder, StopReason};
use scalerl_model::config::ModelConfig;
use scalerl_model::tch::{Device, Kind};
use scalerl_model::train::ComputeKind;
use scalerl_model::{device, shim};
use scalerl_recipe::{GeneratorChoice, OffPolicy, Recipe, Resolved};
use scalerl_rollout::{Generator, Trainer};
use scalerl_worker::flops::{SequenceSize, forward_flops};
use scalerl_worker::options::{cache_after_exchange, generator_options, learner_options};
use scalerl_worker::vllm::Notice;
use scalerl_worker::{LocalGenerator, LocalGeneratorSetup, LocalTrainer, Shelf};
use tokio::sync::mpsc::{self, Receiver};

use crate::failure::{BadInput, Failed};
use crate::recipe::resolve;
use environment::{environment, now, threads};
use material::Material;
use place::{Place, resumed_recipe};
use policy::Policy;
use rendering::Renderer;

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
    /// Say what would happen: model, memory, tokens per step, time; train nothing.
    #[arg(long)]
    dry_run: bool,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: String,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let device = device::parse(&args.device).map_err(BadInput::new)?;
    let recipe = match &args.resume {
        Some(folder) => resumed_recipe(folder, &args.recipes, &args.set)?,
        None => resolve(&args.recipes, &args.set)?,
    };
    if args.dry_run {
        return plan::print(&recipe, device, out);
    }
    let has_end = recipe.budget.has_limit() || recipe.stopping.target.is_some();
    if !has_end && recipe.stopping.forecast_gain.is_none() {
        return Err(BadInput::new("the recipe has no end: [budget] and [stopping] are unset")
            .hint("--set budget.steps=100, budget.device_hours=…, or stopping.forecast_gain=0.005")
            .into());
    }
    let place = match &args.resume {
        Some(folder) => Place::resumed(folder)?,
        None => Place::new(args.run.as_deref(), &recipe, &args.recipes)?,
    };
    let record = place.path().join("held_out.json");
    let problems = material::read(&recipe, &record)?;
    let policy = match Policy::recorded(place.path()) {
        Some(policy) => policy,
        None => Policy::prepare(&recipe, device)?,
    };
    let renderer = Renderer::load(&recipe, &policy.folder)?;
    let material = Material::render(&problems, &renderer, &recipe)?;
    let folder = place.enter(&recipe, &environment(device))?;
    material::record(&problems, &record)?;
    policy.record(folder.path())?;
    writeln!(std::io::stderr(), "run folder: {}", folder.path().display())?;
    let generator_device = generator_device(&args.device, device);
    let parts = Parts {
        folder,
        recipe: &recipe,
        policy: &policy,
        renderer,
        material,
        device,
        generator_device,
    };
    let end = conduct(parts)?;
    if let Device::Cuda(_) = device {
        let (used, taken) = shim::peak_memory(device)?;
        let (used, taken) = (used as f64 / GIB, taken as f64 / GIB);
        writeln!(out, "device memory at its peak: {used:.1} GiB in tensors, {taken:.1} GiB taken")?;
    }
    finish(&end, out)
}

const GIB: f64 = (1_u64 << 30) as f64;

/// The generator's own GPU where the machine has two or more and none was named; else the trainer's.
fn generator_device(named: &str, trainer: Device) -> Device {
    let is_free = matches!(named, "auto" | "cuda") && device::open().cuda_devices >= 2;
    if is_free && trainer == Device::Cuda(0) { Device::Cuda(1) } else { trainer }
}

/// CPU threads of generator and trainer: all for both where they take turns.
fn share_of_threads(recipe: &Recipe, device: Device) -> (Option<usize>, Option<usize>) {
    let takes_turns = match recipe.objective.off_policy {
        OffPolicy::Pipeline { steps_behind } => steps_behind == 0,
        OffPolicy::PpoOffPolicy { .. } => true,
    };
    let all = threads();
    if device != Device::Cpu || takes_turns || all == 1 {
        return (None, None);
    }
    (Some(all / 2), Some(all - all / 2))
}

/// What a run is made of, once everything is read.
struct Parts<'a> {
    folder: RunFolder,
    recipe: &'a Resolved,
    policy: &'a Policy,
    renderer: Renderer,
    material: Material,
    /// The trainer's.
    device: Device,
    generator_device: Device,
}

fn conduct(parts: Parts) -> Result<RunEnd> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let Parts { recipe, policy, device, generator_device, .. } = parts;
    let shelf = Shelf::new();
    let is_local = recipe.pipeline.generator == GeneratorChoice::Local;
    let (generator_threads, trainer_threads) =
        if is_local { share_of_threads(recipe, device) } else { (None, None) };
    let trainer = LocalTrainer::try_new(recipe, policy.load(Kind::Float, device)?, shelf.clone())?
        .with_threads(trainer_threads);
    let kind = match learner_options(recipe, device).compute {
        ComputeKind::BFloat16 => Kind::BFloat16,
        ComputeKind::Float32 => Kind::Float,
    };
    let model = policy.load(kind, generator_device)?;
    let config = model.config.clone();
    let (tell, notices) = mpsc::unbounded_channel();
    let renderer = &parts.renderer;
    if is_local {
        let generator = LocalGenerator::start(LocalGeneratorSetup {
            options: generator_options(recipe, &config, generator_device),
            model,
            tokenizer: renderer.tokenizer.clone(),
            stop_tokens: renderer.tokenizer.ends().iter().map(|id| *id as u32).collect(),
            cache_after_exchange: cache_after_exchange(recipe),
            shelf,
            threads: generator_threads,
        })?;
        let devices = if generator_device == device {
            Devices::Shared { count: 1.0 }
        } else {
            Devices::Apart { generator: 1.0, trainer: 1.0 }
        };
        return runtime.block_on(engage(parts, generator, trainer, devices, &config, notices));
    }
    let sets = &parts.material.evaluation_sets;
    let servers = servers::Servers {
        recipe,
        renderer,
        run: parts.folder.path(),
        prompts: sets.first().map_or(&[][..], |set| &set.prompts),
    };
    let (generator, trainer) = runtime.block_on(servers.connect(model, trainer, tell))?;
    let devices = Devices::Apart { generator: generator.devices() as f64, trainer: 1.0 };
    runtime.block_on(engage(parts, generator, trainer, devices, &config, notices))
}

/// Hands everything to the engine and shows what happens.
async fn engage<G: Generator, T: Trainer>(
    parts: Parts<'_>,
    generator: G,
    trainer: T,
    devices: Devices,
    config: &ModelConfig,
    mut notices: mpsc::UnboundedReceiver<Notice>,
) -> Result<RunEnd> {
    let Parts { folder, recipe, renderer, material, .. } = parts;
    let (grader, pool, evaluation_sets) = material.into_grader(recipe);
    let settings = Settings {
        recipe: (**recipe).clone(),
        phrases: renderer.phrases(recipe)?,
        evaluation_sets,
        devices,
        generator_flops_per_token: forward_flops(config, SequenceSize { tokens: 1, scored: 1 }),
        verdicts_at_once: material::judges(),
        deadlines: Deadlines::default(),
        now: now(),
    };
    let render = move |row: &_| {
        renderer.render(row).expect("every prompt was rendered once, when the data was read")
    };
    let prompts =
        TaskPrompts::new(pool, recipe.seed, &recipe.objective.curriculum, Box::new(render));
    let (tell, mut events) = mpsc::unbounded_channel();
    let mut live = live::Live::new(&recipe.budget);
    let (stop, mut asked) = stopping(on_signals()?);
    let shown = tokio::spawn(async move {
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => live.show(&event),
                    None => break,
                },
                Some(()) = asked.recv() => live.say_stopping(),
                Some(notice) = notices.recv() => live.say(&notice.to_string()),
            }
        }
    });
    let ended = scalerl_engine::run(
        folder,
        Run {
            settings,
            generator: Arc::new(generator),
            trainer: OwnThread::start(trainer)?,
            prompts,
            grader: Arc::new(grader),
            stop,
            observer: Some(tell),
        },
    )
    .await;
    // The engine has dropped the other end, so this ends too.
    shown.await.ok();
    ended.map_err(failed)
}

/// Requests to stop, for the engine and, a second time, for the screen.
fn stopping(mut signals: Receiver<()>) -> (Receiver<()>, Receiver<()>) {
    let ((ask, asked), (tell, told)) = (mpsc::channel(1), mpsc::channel(1));
    // Ends with the runtime.
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            // Whoever is gone needs no telling.
            tell.send(()).await.ok();
            ask.send(()).await.ok();
        }
    });
    (asked, told)
}

/// An error of a run, with what to do next.
fn failed(error: EngineError) -> anyhow::Error {
    let hint = error.hint();
    Failed::new(error, hint).into()
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
