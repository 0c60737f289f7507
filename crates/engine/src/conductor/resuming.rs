//! How a run begins, or goes on from its newest sound checkpoint.
//!
//! Everything is put back where it was; half-written groups are sampled again, with the number and
//! seed they had. What came after the checkpoint is undone by the `resumed` event, and its cost is
//! booked as lost. What in the folder is damaged is said, and kept under another name.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use scalerl_journal::{
    Checkpoint, Checkpoints, Damaged, Event, EventLog, History, Ledger, RunFolder, StopReason, What,
};
use scalerl_rollout::{Generator, Grader, PromptSource, Rollout};
use tokio::{sync::Semaphore, task::JoinSet};

use super::{Conductor, Due, Progress, training::in_time};
use crate::{
    RunParts,
    error::EngineError,
    groups::{Formed, Ready, SavedGroup, Stage, Ticket},
    journal_writer::JournalWriter,
    meter::Meter,
    sampling::{Floor, Judged},
    scheme::Scheme,
    slots::Slots,
    stability::Watch,
    state::{self, State, TRAINER, Tally},
    trainer_handle::TrainerHandle,
};

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// A conductor for a new run, or for one that goes on from its newest sound checkpoint.
    pub(crate) async fn open(
        folder: RunFolder,
        run: RunParts<G, S, P, R>,
    ) -> Result<Self, EngineError> {
        let start = Start::find(&folder.checkpoints())?;
        let (log, lines) = EventLog::open(&folder.events())?;
        let is_new = lines.is_empty();
        let checkpoints = folder.own_checkpoints()?;
        let history = History::of(lines);
        let settings = Arc::new(run.settings);
        let scheme = Scheme::of(&settings.recipe);
        let meter =
            Meter::new(settings.devices, settings.generator_flops_per_token, Ledger::default());
        let floor = Floor {
            settings: settings.clone(),
            generator: run.generator,
            grader: run.grader,
            meter: meter.clone(),
            verdict_room: Arc::new(Semaphore::new(settings.verdicts_at_once.max(1))),
            environment: run.environment,
            episode_room: Arc::new(Semaphore::new(settings.recipe.episode.at_once as usize)),
        };
        let mut conductor = Self {
            journal: JournalWriter::new(folder, log, settings.now, run.observer),
            scheme,
            meter,
            lost: history.lost,
            checkpoints,
            floor,
            source: run.prompts,
            slots: Slots::new(scheme.slots()),
            trainer: Some(run.trainer),
            stop: run.stop,
            is_stop_open: true,
            fleet: run.fleet,
            next_group: 0,
            again: VecDeque::new(),
            in_flight: BTreeMap::new(),
            arrived: Vec::new(),
            pool: Vec::new(),
            queue: VecDeque::new(),
            unadopted: Vec::new(),
            tally: Tally::default(),
            watch: Watch::default(),
            progress: Progress::default(),
            points: Vec::new(),
            ending: None,
            is_folder_lost: false,
            rollouts: JoinSet::new(),
            work: JoinSet::new(),
            settings,
        };
        if is_new {
            conductor.begin()?;
        } else {
            conductor.resume(&history, start.checkpoint).await?;
            conductor.tell_damage(start.damaged)?;
        }
        conductor.check_budget();
        Ok(conductor)
    }

    fn begin(&mut self) -> Result<(), EngineError> {
        let run = self.journal.name().to_owned();
        let (seed, devices) = (self.settings.recipe.seed, self.settings.devices.count());
        self.journal.write(What::Started { run, seed, devices })?;
        self.mark_first_evaluation();
        Ok(())
    }

    fn mark_first_evaluation(&mut self) {
        if self.settings.recipe.evaluation.at_start && !self.settings.evaluation_sets.is_empty() {
            self.progress.mark_evaluation(Ledger::default());
        }
    }

    async fn resume(
        &mut self,
        history: &History,
        checkpoint: Option<Checkpoint>,
    ) -> Result<(), EngineError> {
        let (mut kept, mut saved_at) = (0, 0.0);
        let mut spent = Ledger::default();
        let mut groups = Vec::new();
        match &checkpoint {
            Some(checkpoint) => {
                let (state, saved) = state::load(checkpoint)?;
                check_lines(&state, self.journal.log.count())?;
                (kept, saved_at, spent, groups) = (state.kept, state.at, state.ledger, saved);
                self.restore(checkpoint, state).await?;
            }
            // Killed before the first checkpoint: the run starts over.
            None => self.mark_first_evaluation(),
        }
        let version = self.progress.version;
        let unstable = |event: &Event| {
            matches!(event.what, What::Stopped { reason: StopReason::Unstable, .. })
        };
        if history.events.last().is_some_and(unstable) {
            self.watch.forget_signs();
        }
        let lost = lost_since(history, saved_at, &spent, self.settings.devices.count());
        self.lost += lost;
        let buffered_groups = groups.iter().filter(|group| group.judged.is_some()).count();
        self.journal.write(What::Resumed { version, kept, lost, buffered_groups })?;
        self.take_back(groups)?;
        if let Some(checkpoint) = checkpoint {
            let folder = inside(&checkpoint.name());
            self.journal.write(What::Checkpoint { version, folder })?;
        }
        self.rewrite_points()
    }

    async fn restore(&mut self, checkpoint: &Checkpoint, state: State) -> Result<(), EngineError> {
        let version = state.version;
        let trainer = self.trainer.as_mut().ok_or_else(|| EngineError::BadState {
            version,
            reason: "there is no trainer".into(),
        })?;
        let restore = trainer.restore(checkpoint.path.join(TRAINER));
        let restored = in_time(&self.settings, "restoring the trainer", restore).await?;
        if restored != version {
            let reason = format!("the trainer's files are of {restored}");
            return Err(EngineError::BadState { version, reason });
        }
        self.source.restore(state.source)?;
        self.meter = Meter::new(
            self.settings.devices,
            self.settings.generator_flops_per_token,
            state.ledger,
        );
        self.floor.meter = self.meter.clone();
        self.next_group = state.next_group;
        self.watch = state.watch;
        self.tally = state.tally;
        self.progress = Progress {
            version,
            evaluations_due: state
                .evaluation_due
                .map(|spent| Due { version, spent })
                .into_iter()
                .collect(),
            evaluated: state.evaluated,
            evaluated_at_hours: state.evaluated_at_hours,
            saved: Some(version),
            ..Progress::default()
        };
        Ok(())
    }

    /// Says what in the folder was not as it had been written, and keeps it out of the way.
    fn tell_damage(&mut self, damaged: Vec<Damaged>) -> Result<(), EngineError> {
        if let Some((reason, kept)) = self.journal.log.damaged() {
            let kept_as = kept.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (found, reason) = ("events.jsonl".to_owned(), reason.to_owned());
            self.journal.write(What::Damaged { found, reason, kept_as })?;
        }
        for one in damaged {
            let (reason, checkpoint) = (one.problem(), one.checkpoint);
            let name = self.checkpoints.name_for_damaged(&checkpoint);
            let (found, kept_as) = (inside(&checkpoint.name()), inside(&name));
            // Said first: a kill in between leaves it to be found again.
            self.journal.write(What::Damaged { found, reason, kept_as })?;
            self.checkpoints.keep_damaged(&checkpoint, &name)?;
        }
        Ok(())
    }

    /// Puts every saved group where it was. Half-written ones are sampled again, with the same
    /// number and seed.
    fn take_back(&mut self, groups: Vec<SavedGroup>) -> Result<(), EngineError> {
        let mut queued: BTreeMap<usize, Vec<Ready>> = BTreeMap::new();
        for SavedGroup { id, drawn, admitted, stage, judged } in groups {
            let version = self.progress.version;
            let slot = self.slots.take().ok_or_else(|| EngineError::BadState {
                version,
                reason: "it has more groups than the recipe has slots".into(),
            })?;
            let broken = judged.as_ref().and_then(|judged| self.broken(judged));
            if let (Some(reason), Stage::Pooled | Stage::Queued(_)) = (&broken, stage) {
                // It is on record as judged, so it is not sampled again.
                let group = SavedGroup { id, drawn, admitted, stage, judged };
                self.journal.set_aside(version, &group, reason)?;
                continue;
            }
            let ticket = Ticket { id, drawn, admitted, slot };
            match (stage, judged.filter(|_| broken.is_none())) {
                (Stage::Arrived, Some(judged)) => self.arrived.push(Ready { ticket, judged }),
                (Stage::Pooled, Some(judged)) => self.pool.push(Ready { ticket, judged }),
                (Stage::Queued(index), Some(judged)) => {
                    queued.entry(index).or_default().push(Ready { ticket, judged });
                }
                (_, _) => {
                    let (group, draw) = (id, ticket.drawn.draw);
                    let prompt = ticket.drawn.prompt.id.clone();
                    self.journal.write(What::SampledAgain { group, prompt, draw })?;
                    self.again.push_back(ticket);
                }
            }
        }
        self.queue =
            queued.into_values().map(|ready| Formed { ready, padding: Vec::new() }).collect();
        Ok(())
    }

    /// What is wrong with a group that was saved: an earlier release may have let it in.
    fn broken(&self, judged: &Judged) -> Option<String> {
        let completions = judged.rollouts.iter().flat_map(Rollout::completions).enumerate();
        let check = |(index, completion)| {
            let error = self.settings.intake.check_one(completion).err()?;
            Some(format!("completion {index}: {error}"))
        };
        { completions }.find_map(check)
    }

    /// The plain files of points, from the events that count.
    fn rewrite_points(&mut self) -> Result<(), EngineError> {
        let lines = scalerl_journal::read_events(&self.journal.folder.events())?;
        let mut points = History::of(lines).points_by_set(self.journal.name());
        points.entry(None).or_default();
        for (set, points) in &points {
            self.journal.folder.rewrite_points(set.as_deref(), points)?;
        }
        self.points = points.remove(&None).unwrap_or_default();
        Ok(())
    }
}

/// Where a run goes on.
struct Start {
    /// `None` where it has none yet: it starts over.
    checkpoint: Option<Checkpoint>,
    /// Newer ones that cannot be used.
    damaged: Vec<Damaged>,
}

impl Start {
    /// Refuses a run none of whose checkpoints is whole, or too many of them damaged. Changes nothing.
    fn find(checkpoints: &Checkpoints) -> Result<Self, EngineError> {
        let (checkpoint, mut damaged) = checkpoints.newest_sound(&state::PARTS)?;
        if checkpoint.is_none() && !damaged.is_empty() {
            let (checkpoints, newest) = (damaged.len(), damaged.swap_remove(0));
            return Err(EngineError::NoSoundCheckpoint { checkpoints, source: newest.error });
        }
        checkpoints.may_keep_damaged(damaged.len())?;
        Ok(Self { checkpoint, damaged })
    }
}

/// A checkpoint's place in the run folder.
fn inside(name: &str) -> String {
    format!("checkpoints/{name}")
}

/// The events a checkpoint counts were synced before it appeared; if they are gone, somebody has
/// cut the file.
fn check_lines(state: &State, lines: usize) -> Result<(), EngineError> {
    if state.kept <= lines {
        return Ok(());
    }
    let reason =
        format!("it counts {} events, and events.jsonl has {lines} whole ones", state.kept);
    Err(EngineError::BadState { version: state.version, reason })
}

/// What the last process spent after the checkpoint that is gone back to: what its ledger says, and
/// as idle what its clock says beyond that.
fn lost_since(history: &History, saved_at: f64, spent: &Ledger, devices: f64) -> Ledger {
    let mut lost = history.ledger().since(spent);
    let is_start =
        |event: &&Event| matches!(event.what, What::Started { .. } | What::Resumed { .. });
    let begun = history.events.iter().rev().find(is_start).map_or(saved_at, |event| event.at);
    let ended = history.events.last().map_or(begun, |event| event.at);
    let unbooked = (ended - begun.max(saved_at) - lost.wall_s).max(0.0);
    lost.wall_s += unbooked;
    lost.device_seconds.idle += unbooked * devices;
    lost
}
