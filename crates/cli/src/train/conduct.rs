//! From everything that was read to a run that goes on: generator and trainer, here or in other
//! processes, handed to the engine.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use scalerl_curve::HistoryEntry;
use scalerl_engine::{
    Deadlines, Devices, EngineError, OwnThread, RunEnd, RunParts, Settings, on_signals,
};
use scalerl_environment::{Chat, Environments, Surroundings};
use scalerl_journal::{FleetChange, RunFolder};
use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_recipe::{GeneratorChoice, OffPolicy, Recipe, Resolved, Sharding};
use scalerl_rollout::{Environment, Generator, Trainer};
use scalerl_task::{Rendered, TaskGrader};
use scalerl_torch::shim;
use scalerl_torch::tch::{Device, Kind, Tensor};
use scalerl_worker::flops::{SequenceSize, forward_flops};
use scalerl_worker::memory::{self, Holders};
use scalerl_worker::options::{cache_after_exchange, compute_kind, generator_options_beside};
use scalerl_worker::ranks::{RankedTrainer, Team};
use scalerl_worker::remote::RedisGenerator;
use scalerl_worker::{
    HoldsModel as _, LocalGenerator, LocalGeneratorSetup, LocalTrainer, WeightStore, intake,
};
use tokio::sync::mpsc::{self, Receiver};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::cluster::processes::{Processes, threads_each};
use super::cluster::roles::AnyTrainer;
use super::cluster::token::OwnToken;
use super::cluster::watch::servers::ServerWatch;
use super::cluster::watch::{Others, Watch};
use super::cluster::{Lead, rank_deadlines, remote, session_name};
use super::environment::{now, threads};
use super::live;
use super::memory::Places;
use super::policy::{Policy, bad_model};
use super::rendering::Renderer;
use super::servers::Servers;
use super::trackers::Trackers;
use crate::failure::{BadInput, Failed};

/// What a run is made of, once everything is read.
pub(super) struct Parts<'a> {
    pub(super) folder: RunFolder,
    pub(super) recipe: &'a Resolved,
    pub(super) policy: &'a Policy,
    pub(super) renderer: Renderer,
    pub(super) material: Rendered,
    /// Where it trains and generates.
    pub(super) places: Places,
    /// As the user named it, for processes that are started.
    pub(super) device_name: &'a str,
    pub(super) lead: Lead,
    /// Finished runs that forecasts learn from.
    pub(super) history: Vec<HistoryEntry>,
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

impl Parts<'_> {
    /// Trains here, or leads the ranks, which are started where nobody else does.
    fn trainer(
        &self,
        weight_store: &Arc<WeightStore>,
        processes: &mut Processes,
    ) -> Result<AnyTrainer> {
        let (recipe, lead) = (self.recipe, &self.lead);
        let Some(launch) = &lead.ranks else {
            let model = self.policy.load(recipe, Kind::Float, self.places.trainer)?;
            let holders = self.holders(&model.config);
            let mut trainer = LocalTrainer::try_new(recipe, model, weight_store.clone())?;
            if let Some(holders) = holders {
                trainer = trainer.with_holders(holders);
            }
            if recipe.shares_weights() {
                trainer = trainer.with_shared_weights();
            }
            let threads = match (lead.generators, self.places.trainer) {
                (0, device) => share_of_threads(recipe, device).1,
                (count, Device::Cpu) if lead.is_starting => Some(threads_each(1 + count as usize)),
                _ => None,
            };
            return Ok(AnyTrainer::Local(Box::new(trainer.with_threads(threads))));
        };
        let model = self.policy.load_for_rank(recipe, self.places.trainer)?;
        if lead.is_starting {
            let threads = threads_each(launch.world + lead.generators as usize);
            processes.start_ranks(launch, self.folder.path(), self.device_name, threads)?;
        }
        let team = Team::join(launch, self.places.trainer, rank_deadlines(recipe));
        let team = team.map_err(|error| {
            let hint = error.hint();
            Failed::new(error, hint)
        })?;
        let trainer = RankedTrainer::lead(recipe, model, team, weight_store.clone())?;
        Ok(AnyTrainer::Ranked(Box::new(trainer)))
    }

    /// What an error of the trainer's device says of memory where the generator is on another one.
    fn holders(&self, config: &ModelConfig) -> Option<Holders> {
        if self.places.generator == self.places.trainer {
            return None;
        }
        let bytes = shim::device_memory(self.places.trainer).ok().map(|(_, all)| all);
        Some(Holders::of(&self.places.setting(self.recipe, config, bytes), 0))
    }

    /// The policy as a generator computes with it.
    fn generator_model(&self, device: Device) -> Result<Model> {
        self.policy.load(self.recipe, compute_kind(self.recipe, device), device)
    }

    /// The policy that servers are held against. Beside weights in parts no device has room for all of it.
    fn model_beside_servers(&self) -> Result<Model> {
        let kind = compute_kind(self.recipe, self.places.generator);
        let device = if self.is_in_parts() { Device::Cpu } else { self.places.generator };
        self.policy.load(self.recipe, kind, device)
    }

    /// Whether weights are shared out over ranks.
    fn is_in_parts(&self) -> bool {
        self.lead.ranks.is_some() && self.recipe.cluster.sharding == Sharding::Full
    }

    /// The policy for a generator of this process: on the trainer's device a frozen base is held once, and
    /// the generator has an adapter of its own; where the recipe says so, all weights are.
    fn own_generator_model(&self, trainer: &Model, device: Device) -> Result<Model> {
        if self.recipe.shares_weights() {
            let same = trainer.trained().iter().map(Tensor::f_detach);
            return Ok(trainer.with_trained(same.collect::<Result<_, _>>()?)?);
        }
        // A base in parts is nobody's to share.
        if trainer.adapter.is_none() || trainer.device() != device || self.is_in_parts() {
            return self.generator_model(device);
        }
        let copies = trainer.trained().iter().map(Tensor::f_detach_copy);
        Ok(trainer.with_trained(copies.collect::<Result<_, _>>()?)?)
    }

    /// Generates in this process.
    fn local_generator(
        &self,
        trainer: &Model,
        weight_store: Arc<WeightStore>,
    ) -> Result<LocalGenerator> {
        let (recipe, device) = (self.recipe, self.places.generator);
        let model = self.own_generator_model(trainer, device)?;
        // Beside a trainer the cache leaves room for what that will take in its first step.
        let later = if trainer.device() == device {
            let bytes = shim::device_memory(device).ok().map(|(_, all)| all);
            let setting = self.places.setting(recipe, &model.config, bytes);
            memory::later(&setting).map_err(|error| bad_model(&error))?
        } else {
            0
        };
        let tokenizer = self.renderer.tokenizer();
        Ok(LocalGenerator::start(LocalGeneratorSetup {
            options: generator_options_beside(recipe, &model.config, device, later),
            model,
            stop_tokens: self.renderer.ends(),
            tokenizer,
            cache_after_exchange: cache_after_exchange(recipe),
            weight_store,
            threads: share_of_threads(recipe, device).0,
            is_warmed_up: false,
        })?)
    }

    /// Devices that train.
    fn trainers(&self) -> f64 {
        self.lead.ranks.as_ref().map_or(1.0, |launch| launch.world as f64)
    }

    /// What is held where this process generates.
    fn devices(&self) -> Devices {
        let trainer = self.trainers();
        if self.places.generator == self.places.trainer {
            Devices::Shared { count: trainer }
        } else {
            Devices::Apart { generator: 1.0, trainer }
        }
    }

    /// Generates in other processes.
    async fn remote_generator(
        &self,
        weight_store: Arc<WeightStore>,
        processes: &mut Processes,
        own: &OwnToken,
    ) -> Result<Arc<RedisGenerator>> {
        let (recipe, lead) = (self.recipe, &self.lead);
        let name = session_name(recipe, lead, self.folder.path());
        let session = (name.as_str(), &own.token);
        let generator =
            remote::open(recipe, self.policy, lead, session, self.places.trainer, weight_store)
                .await?;
        if lead.is_starting {
            remote::start_generators(processes, recipe, lead, session, self.device_name)?;
        }
        writeln!(std::io::stderr(), "{}", own.way_in(&name))?;
        Ok(Arc::new(generator))
    }
}

pub(super) fn conduct(parts: Parts) -> Result<RunEnd> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    // Dropped last, however this ends: then all that were started have ended.
    let mut processes = Processes::default();
    let weight_store = WeightStore::new();
    let trainer = parts.trainer(&weight_store, &mut processes)?;
    runtime.block_on(async {
        if parts.lead.generators > 0 {
            return conduct_fleet(parts, trainer, weight_store, processes).await;
        }
        if parts.recipe.pipeline.generator != GeneratorChoice::Local {
            return conduct_servers(parts, trainer, processes).await;
        }
        let others = Others { roll: trainer.roll(), processes, ..Others::default() };
        let is_alone = others.roll.is_none();
        let watching = (!is_alone).then(|| Watching::start(&parts, others));
        let (watching, fleet) = watching.unzip();
        let generator = parts.local_generator(trainer.model(), weight_store)?;
        let devices = parts.devices();
        let ended = engage(parts, Arc::new(generator), trainer, devices, fleet).await;
        if let Some(watching) = watching {
            watching.end().await;
        }
        ended
    })
}

/// With generators in other processes.
async fn conduct_fleet(
    parts: Parts<'_>,
    trainer: AnyTrainer,
    weight_store: Arc<WeightStore>,
    mut processes: Processes,
) -> Result<RunEnd> {
    let own = OwnToken::of(parts.folder.path())?;
    let generator = parts.remote_generator(weight_store, &mut processes, &own).await?;
    let others = Others {
        generator: Some(generator.clone()),
        roll: trainer.roll(),
        processes,
        ..Others::default()
    };
    let (watching, changes) = Watching::start(&parts, others);
    let devices = if let Some(count) = parts.lead.shared_gpus(parts.places.trainer) {
        Devices::Shared { count: f64::from(count) }
    } else {
        let generator = f64::from(parts.lead.generators);
        Devices::Apart { generator, trainer: parts.trainers() }
    };
    let ended = engage(parts, generator.clone(), trainer, devices, Some(changes)).await;
    generator.close().await;
    watching.end().await;
    if ended.is_ok() {
        own.forget();
    }
    ended
}

/// With vLLM servers.
async fn conduct_servers(
    parts: Parts<'_>,
    trainer: AnyTrainer,
    processes: Processes,
) -> Result<RunEnd> {
    let roll = trainer.roll();
    let model = parts.model_beside_servers()?;
    let sets = &parts.material.evaluation_sets;
    let servers = Servers {
        recipe: parts.recipe,
        renderer: &parts.renderer,
        run: parts.folder.path(),
        prompts: sets.first().map_or(&[][..], |set| &set.prompts),
    };
    let (tell, notices) = mpsc::unbounded_channel();
    let (generator, trainer) = servers.connect(model, trainer, tell).await?;
    let (count, generator) = (generator.devices() as f64, Arc::new(generator));
    let devices = Devices::Apart { generator: count, trainer: parts.trainers() };
    let servers = Some(ServerWatch::new(generator.clone(), notices));
    let others = Others { servers, roll, processes, ..Others::default() };
    let (watching, changes) = Watching::start(&parts, others);
    let ended = engage(parts, generator, trainer, devices, Some(changes)).await;
    watching.end().await;
    ended
}

/// The task that watches other processes.
struct Watching {
    /// Dropped to end it.
    stop: oneshot::Sender<()>,
    task: JoinHandle<Processes>,
}

impl Watching {
    fn start(parts: &Parts<'_>, others: Others) -> (Self, mpsc::UnboundedReceiver<FleetChange>) {
        let (tell, changes) = mpsc::unbounded_channel();
        let run = parts.folder.path().to_owned();
        let watch = Watch::new(parts.recipe, others, tell, run);
        let (stop, stopped) = oneshot::channel();
        (Self { stop, task: tokio::spawn(watch.run(stopped)) }, changes)
    }

    /// Lets all processes go home, and ends those that do not.
    async fn end(self) {
        drop(self.stop);
        if let Ok(mut processes) = self.task.await {
            processes.leave();
        }
    }
}

/// Hands everything to the engine and shows what happens.
async fn engage<G: Generator, T: Trainer>(
    parts: Parts<'_>,
    generator: Arc<G>,
    trainer: T,
    devices: Devices,
    fleet: Option<mpsc::UnboundedReceiver<FleetChange>>,
) -> Result<RunEnd> {
    let Parts { folder, recipe, policy, renderer, material, history, .. } = parts;
    let Rendered { prompts, evaluation_sets, grader, .. } = material;
    let grader = Arc::new(grader);
    let environment = environments(recipe, &grader, &renderer, folder.path())?;
    let one_token = SequenceSize { tokens: 1, scored: 1 };
    let settings = Settings {
        recipe: (**recipe).clone(),
        phrases: renderer.phrases(recipe)?,
        intake: intake(renderer.tokenizer(), &renderer.ends(), policy.vocabulary()?),
        evaluation_sets,
        devices,
        generator_flops_per_token: forward_flops(&policy.config()?, one_token),
        verdicts_at_once: grader.verdicts_at_once(),
        deadlines: Deadlines::default(),
        now: now(),
        history: history.into(),
    };
    let run = folder.path().to_owned();
    let (trackers, mut said) = Trackers::start(recipe, &run);
    let (tell, mut events) = mpsc::unbounded_channel();
    let mut live = live::Live::new(&recipe.budget);
    let (stop, mut asked) = stopping(on_signals()?);
    let shown = tokio::spawn(async move {
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Some(event) => live.show(&event),
                    None => break said,
                },
                Some(()) = asked.recv() => live.say_stopping(),
                Some(line) = said.recv() => live.say(&line),
            }
        }
    });
    let ended = scalerl_engine::run(
        folder,
        RunParts {
            settings,
            generator,
            trainer: OwnThread::start(trainer)?,
            prompts,
            grader,
            environment,
            stop,
            fleet,
            observer: Some(tell),
        },
    )
    .await;
    // The engine has dropped the other end, so this ends too.
    let said = shown.await.ok();
    trackers.end(said).await;
    ended.map_err(failed)
}

/// Where the episodes of the recipe take place; `None` where it has none.
fn environments(
    recipe: &Recipe,
    grader: &Arc<TaskGrader>,
    renderer: &Renderer,
    folder: &Path,
) -> Result<Option<Arc<dyn Environment>>> {
    let surroundings = Surroundings {
        chat: Chat::new(Arc::new(renderer.clone())),
        turn_timeout: Duration::from_secs_f64(recipe.episode.turn_timeout_s),
        timeout: Duration::from_secs_f64(recipe.episode.timeout_s),
        longest: u32::try_from(recipe.longest_sequence()).unwrap_or(u32::MAX),
        folder: folder.to_owned(),
    };
    let grader = grader.clone();
    let made = Environments::of(recipe, move |id| grader.problem(id), &surroundings);
    let made = made.map_err(|error| BadInput::new(&error).hint(error.hint))?;
    Ok(made.map(|one| Arc::new(one) as Arc<dyn Environment>))
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

/// An error of a run, with what to do next. A folder that cannot be used is bad input.
fn failed(error: EngineError) -> anyhow::Error {
    let hint = error.hint();
    if error.is_of_folder() {
        BadInput::new(&error).hint(hint).into()
    } else {
        Failed::new(error, hint).into()
    }
}
