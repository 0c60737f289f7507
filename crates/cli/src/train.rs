//! `scalerl train`: from a recipe to a run folder.
//!
//! Resolve the recipe, prepare the policy (`policy.rs`), read the problems, render prompts
//! (`rendering.rs`), then hand generator, trainer, prompts and judge to the engine and show what
//! happens (`live.rs`). `--dry-run` says what would happen (`plan.rs`).

mod environment;
mod live;
mod plan;
mod policy;
mod rendering;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use scalerl_engine::task::{Problems, TaskGrader, TaskPrompts};
use scalerl_engine::{
    Deadlines, Devices, EngineError, EvaluationSet, OwnThread, Run, RunEnd, Settings, on_signals,
};
use scalerl_journal::{JournalError, RunFolder, StopReason};
use scalerl_model::device;
use scalerl_model::tch::{Device, Kind};
use scalerl_model::train::ComputeKind;
use scalerl_recipe::{OffPolicy, Recipe, Resolved, diff};
use scalerl_rollout::Prompt;
use scalerl_task::data::Pool;
use scalerl_worker::flops::{SequenceSize, forward_flops};
use scalerl_worker::options::{cache_after_exchange, generator_options, learner_options};
use scalerl_worker::{LocalGenerator, LocalGeneratorSetup, LocalTrainer, Shelf};

use crate::failure::BadInput;
use crate::recipe::resolve;
use environment::{environment, now, threads};
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

/// Keys that a resumed run may have otherwise than before.
const MAY_CHANGE: [&str; 3] = ["budget.", "stopping.", "output."];

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let device = device::parse(&args.device).map_err(BadInput::new)?;
    let recipe = match &args.resume {
        Some(folder) => resumed_recipe(folder, args)?,
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
    let policy = Policy::prepare(&recipe, device)?;
    let folder = match &args.resume {
        Some(folder) => claim(folder, &recipe)?,
        None => {
            let folder = args.run.clone().unwrap_or_else(|| new_folder(&recipe, &args.recipes));
            let made = RunFolder::create(&folder, &recipe.to_toml(), &environment(device));
            made.map_err(|error| journal(&error))?
        }
    };
    let path = folder.path().to_owned();
    writeln!(std::io::stderr(), "run folder: {}", path.display())?;
    let end = conduct(folder, &recipe, &policy, device)?;
    finish(&end, out)
}

/// The recipe of a run that goes on, with the changes that are allowed.
fn resumed_recipe(folder: &Path, args: &Args) -> Result<Resolved> {
    let kept = RunFolder::open(folder).map_err(|error| journal(&error))?.recipe();
    let kept = kept.to_string_lossy().into_owned();
    let before = resolve(std::slice::from_ref(&kept), &[])?;
    let after = if args.recipes.is_empty() {
        resolve(&[kept], &args.set)?
    } else {
        resolve(&args.recipes, &args.set)?
    };
    let is_allowed = |key: &str| MAY_CHANGE.iter().any(|section| key.starts_with(section));
    let changed = diff(&before, &after);
    if let Some(refused) = changed.iter().find(|difference| !is_allowed(&difference.key)) {
        let message = format!(
            "{} was started with {} = {}, not {}",
            folder.display(),
            refused.key,
            refused.left,
            refused.right
        );
        let hint = "a resumed run may change [budget], [stopping] and [output] only; start a new \
                    run for anything else";
        return Err(BadInput::new(message).hint(hint).into());
    }
    Ok(after)
}

fn claim(folder: &Path, recipe: &Resolved) -> Result<RunFolder> {
    let folder = RunFolder::claim(folder).map_err(|error| journal(&error))?;
    folder.amend_recipe(&recipe.to_toml()).map_err(|error| journal(&error))?;
    Ok(folder)
}

fn journal(error: &JournalError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

/// The first free `OUTPUT/NAME-N`.
fn new_folder(recipe: &Recipe, names: &[String]) -> PathBuf {
    let name = names.last().map_or("run", String::as_str);
    let stem = Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let parent = Path::new(&recipe.output.folder);
    let free = (1..).map(|number| parent.join(format!("{stem}-{number}")));
    let mut free = free.filter(|path| !path.exists());
    free.next().unwrap_or_else(|| parent.join(stem))
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

fn conduct(
    folder: RunFolder,
    recipe: &Resolved,
    policy: &Policy,
    device: Device,
) -> Result<RunEnd> {
    let renderer = Renderer::load(recipe, &policy.folder)?;
    let workers = threads().clamp(1, 16);
    let record = folder.path().join("held_out.json");
    let problems = Problems::load(recipe, &record, workers)
        .map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    if problems.duplicates > 0 {
        let count = problems.duplicates;
        writeln!(std::io::stderr(), "{count} training prompts left out: they are measured on")?;
    }
    let questions = problems.questions();
    let pool = fitting(&renderer, problems.pool, recipe)?;
    let evaluation_sets = rendered(&renderer, &problems.evaluation)?;

    let shelf = Shelf::new();
    let (generator_threads, trainer_threads) = share_of_threads(recipe, device);
    let trainer = LocalTrainer::try_new(recipe, policy.load(Kind::Float, device)?, shelf.clone())?
        .with_threads(trainer_threads);
    let kind = match learner_options(recipe, device).compute {
        ComputeKind::BFloat16 => Kind::BFloat16,
        ComputeKind::Float32 => Kind::Float,
    };
    let model = policy.load(kind, device)?;
    let config = model.config.clone();
    let generator = LocalGenerator::start(LocalGeneratorSetup {
        options: generator_options(recipe, &config, device),
        model,
        tokenizer: renderer.tokenizer.clone(),
        stop_tokens: renderer.tokenizer.ends().iter().map(|id| *id as u32).collect(),
        cache_after_exchange: cache_after_exchange(recipe),
        shelf,
        threads: generator_threads,
    })?;
    let settings = Settings {
        recipe: (**recipe).clone(),
        phrases: renderer.phrases(recipe)?,
        evaluation_sets,
        devices: Devices::Shared { count: 1.0 },
        generator_flops_per_token: forward_flops(&config, SequenceSize { tokens: 1, scored: 1 }),
        verdicts_at_once: workers,
        deadlines: Deadlines::default(),
        now: now(),
    };
    let grader = TaskGrader {
        correct_reward: recipe.task.correct_reward,
        wrong_reward: recipe.task.wrong_reward,
        verifiers: problems.verifiers,
        questions,
    };
    let render = move |row: &_| {
        renderer.render(row).expect("every prompt was rendered once, when the data was read")
    };
    let prompts =
        TaskPrompts::new(pool, recipe.seed, &recipe.objective.curriculum, Box::new(render));

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(async {
        let (tell, mut events) = tokio::sync::mpsc::unbounded_channel();
        let mut live = live::Live::new(&recipe.budget);
        let shown = tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                live.show(&event);
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
                stop: on_signals()?,
                observer: Some(tell),
            },
        )
        .await;
        // The engine has dropped the other end, so this ends too.
        shown.await.ok();
        ended.map_err(failed)
    })
}

/// An error of a run, with what to do next where it is known.
fn failed(error: EngineError) -> anyhow::Error {
    let hint = error.hint();
    let error = anyhow::Error::from(error);
    if hint.is_empty() { error } else { error.context(format!("the run has ended; {hint}")) }
}

/// The training prompts that fit the recipe's budget.
fn fitting(renderer: &Renderer, pool: Pool, recipe: &Recipe) -> Result<Pool> {
    let limit = recipe.sampling.max_prompt_tokens as usize;
    let too_long = renderer.too_long(pool.prompts(), limit)?;
    if too_long.is_empty() {
        return Ok(pool);
    }
    let count = too_long.len();
    writeln!(std::io::stderr(), "{count} prompts left out: longer than {limit} tokens")?;
    let kept = pool.without(|prompt| too_long.contains(&prompt.id));
    Ok(kept.map_err(|error| {
        BadInput::new(format!("every prompt is longer than {limit} tokens: {error}"))
            .hint("raise sampling.max_prompt_tokens")
    })?)
}

fn rendered(
    renderer: &Renderer,
    sets: &[(String, Vec<scalerl_task::data::Prompt>)],
) -> Result<Vec<EvaluationSet>> {
    let mut rendered = Vec::new();
    for (name, rows) in sets {
        let prompts: Result<Vec<Prompt>, _> = rows.iter().map(|row| renderer.render(row)).collect();
        let prompts = prompts.map_err(|error| {
            BadInput::new(format!("evaluation set {name}: {error}")).hint(error.hint())
        })?;
        rendered.push(EvaluationSet { name: name.clone(), prompts });
    }
    Ok(rendered)
}

fn finish(end: &RunEnd, out: &mut dyn Write) -> Result<()> {
    let folder = end.folder.display();
    writeln!(out, "ended after step {}: {}\n", end.version.0, live::reason(end.reason))?;
    crate::report::close(&end.folder, out)?;
    if end.reason == StopReason::Asked {
        writeln!(out, "go on with: scalerl train --resume {folder}")?;
    }
    Ok(())
}
