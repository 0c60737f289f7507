//! Checkpoints, and the way back from one.
//!
//! The state is taken in one go when the trainer is between two steps; writing it, and the sums of
//! all files, happen while training goes on. A checkpoint waits for an evaluation of an older
//! version, because those weights would be gone after a resume.

use scalerl_journal::{Checkpoint, Draft, EventLog, History, Ledger, RunFolder, What};
use scalerl_rollout::{Generator, PolicyVersion};

use super::{Conductor, Done, Progress, SeatUse, training::in_time};
use crate::{
    Run,
    error::EngineError,
    groups::{Formed, Ready, SavedGroup, Stage, Ticket},
    meter::{Meter, Role},
    pen::Pen,
    sampling::Floor,
    scheme::Scheme,
    seat::Seat,
    slots::Slots,
    source::{Grader, PromptSource},
    state::{self, Files, State, TRAINER, Tally},
    watch::Watch,
};
use std::{collections::BTreeMap, collections::VecDeque, sync::Arc};
use tokio::task::JoinSet;

/// A checkpoint that has the trainer's files and lacks the rest.
#[derive(Debug)]
pub(super) struct Saved {
    draft: Draft,
    files: Files,
}

impl<G: Generator, S: Seat, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Saves if a checkpoint is due and this is the moment for it.
    pub(super) fn start_save(&mut self) -> Result<(), EngineError> {
        let progress = &self.progress;
        let is_measuring_older = progress.is_forecasting
            || progress.evaluating.is_some_and(|version| version != progress.version);
        if progress.is_checkpoint_due && !is_measuring_older {
            self.save()?;
        }
        Ok(())
    }

    pub(super) fn save(&mut self) -> Result<(), EngineError> {
        let version = self.progress.version;
        if self.progress.saved == Some(version) {
            self.progress.is_checkpoint_due = false;
        }
        if self.progress.saving.is_some() || self.progress.saved == Some(version) {
            return Ok(());
        }
        let Some(mut seat) = self.seat.take() else { return Ok(()) };
        self.progress.is_checkpoint_due = false;
        self.progress.saving = Some(version);
        self.progress.seat_use = Some(SeatUse::Save);
        // The events a checkpoint counts must be on the disk before it can appear.
        self.pen.log.sync()?;
        let files = Files::of(&self.state(), &self.saved_groups())?;
        let (checkpoints, settings) = (self.checkpoints.clone(), self.settings.clone());
        let meter = self.meter.clone();
        self.work.spawn(async move {
            let busy = meter.busy(Role::Train);
            let result = async {
                let draft = checkpoints.begin(version)?;
                let save = seat.save(draft.subfolder(TRAINER)?);
                in_time(&settings, "saving the trainer", save).await?;
                Ok(Saved { draft, files })
            };
            let result = result.await;
            drop(busy);
            Done::Saved { seat, result }
        });
        Ok(())
    }

    pub(super) fn on_saved(
        &mut self,
        result: Result<Saved, EngineError>,
    ) -> Result<(), EngineError> {
        let Saved { draft, files } = match result {
            Ok(saved) => saved,
            Err(error) => {
                self.progress.saving = None;
                return Err(error);
            }
        };
        self.work.spawn(async move {
            let written = tokio::task::spawn_blocking(move || {
                files.write(&draft)?;
                draft.commit()?;
                Ok(files.version)
            });
            match written.await {
                Ok(result) => Done::Committed(result),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        });
        Ok(())
    }

    pub(super) fn on_committed(
        &mut self,
        result: Result<PolicyVersion, EngineError>,
    ) -> Result<(), EngineError> {
        self.progress.saving = None;
        let version = result?;
        self.progress.saved = Some(version);
        let folder = format!("checkpoints/step-{:06}", version.0);
        self.pen.write(What::Checkpoint { version, folder })?;
        let output = &self.settings.recipe.output;
        let best = if output.keep_best { self.best_checkpoint()? } else { None };
        Ok(self.checkpoints.prune(output.keep_latest as usize, best)?)
    }

    /// The checkpoint with the best primary pass rate: measured at its own version, or else at the
    /// last evaluation before it.
    fn best_checkpoint(&self) -> Result<Option<PolicyVersion>, EngineError> {
        let rate = |version: PolicyVersion| {
            let before = self.points.iter().rev().find(|point| point.step <= version.0);
            before.map(|point| point.pass_rate)
        };
        let list = self.checkpoints.list()?;
        let rated = list.iter().filter_map(|one| Some((rate(one.version)?, one.version)));
        let best = rated.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
        Ok(best.map(|(_, version)| version))
    }

    fn state(&self) -> State {
        let progress = &self.progress;
        let version = progress.version;
        State {
            version,
            kept: self.pen.log.count(),
            next_group: self.next_group,
            source: self.source.state(),
            ledger: self.meter.ledger(),
            watch: self.watch.clone(),
            is_evaluation_due: progress.evaluation_due == Some(version)
                || progress.evaluating == Some(version),
            evaluated_at_hours: progress.evaluated_at_hours,
            evaluated: progress.evaluated,
            tally: self.tally,
        }
    }

    fn saved_groups(&self) -> Vec<SavedGroup> {
        let queued = self.queue.iter().enumerate().flat_map(|(index, formed)| {
            formed.ready.iter().map(move |ready| ready.saved(Stage::Queued(index)))
        });
        let sampling = self.again.iter().chain(self.in_flight.values()).map(Ticket::saved);
        sampling
            .chain(self.arrived.iter().map(|ready| ready.saved(Stage::Arrived)))
            .chain(self.pool.iter().map(|ready| ready.saved(Stage::Pooled)))
            .chain(queued)
            .collect()
    }

    /// A conductor for a new run, or for one that goes on from its newest sound checkpoint.
    pub(crate) async fn open(folder: RunFolder, run: Run<G, S, P, R>) -> Result<Self, EngineError> {
        let (log, lines) = EventLog::open(&folder.events())?;
        let is_new = lines.is_empty();
        let checkpoints = folder.own_checkpoints()?;
        let (checkpoint, damaged) = checkpoints.newest_sound()?;
        if let (None, Some(first)) = (&checkpoint, damaged.into_iter().next()) {
            return Err(first.error.into());
        }
        let history = History::of(lines);
        let settings = Arc::new(run.settings);
        let scheme = Scheme::of(&settings.recipe);
        let meter = Meter::new(settings.devices, settings.flops, Ledger::default());
        let floor = Floor {
            settings: settings.clone(),
            generator: run.generator,
            grader: run.grader,
            meter: meter.clone(),
        };
        let mut conductor = Self {
            pen: Pen::new(folder, log, settings.now, run.observer),
            scheme,
            meter,
            lost: history.lost,
            checkpoints,
            floor,
            source: run.prompts,
            slots: Slots::new(scheme.slots()),
            seat: Some(run.trainer),
            stop: run.stop,
            is_stop_open: true,
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
            rollouts: JoinSet::new(),
            work: JoinSet::new(),
            settings,
        };
        if is_new {
            conductor.begin()?;
        } else {
            conductor.resume(&history, checkpoint).await?;
        }
        conductor.check_budget();
        Ok(conductor)
    }

    fn begin(&mut self) -> Result<(), EngineError> {
        let run = self.pen.name().to_owned();
        let (seed, devices) = (self.settings.recipe.seed, self.settings.devices.count());
        self.pen.write(What::Started { run, seed, devices })?;
        self.mark_first_evaluation();
        Ok(())
    }

    fn mark_first_evaluation(&mut self) {
        if self.settings.recipe.evaluation.at_start && !self.settings.evaluation_sets.is_empty() {
            self.progress.evaluation_due = Some(self.progress.version);
        }
    }

    async fn resume(
        &mut self,
        history: &History,
        checkpoint: Option<Checkpoint>,
    ) -> Result<(), EngineError> {
        let mut kept = 0;
        let mut spent = Ledger::default();
        let mut groups = Vec::new();
        // Checkpoints after this one belong to what is undone, or are damaged.
        match &checkpoint {
            Some(checkpoint) => {
                self.checkpoints.remove_after(checkpoint.version)?;
                let (state, saved) = state::load(checkpoint)?;
                (kept, spent, groups) = (state.kept, state.ledger, saved);
                self.restore(checkpoint, state).await?;
            }
            // Killed before the first checkpoint: the run starts over.
            None => self.mark_first_evaluation(),
        }
        let version = self.progress.version;
        let lost = history.ledger().since(&spent);
        self.lost += lost;
        let buffered_groups = groups.iter().filter(|group| group.judged.is_some()).count();
        self.pen.write(What::Resumed { version, kept, lost, buffered_groups })?;
        self.take_back(groups)?;
        if let Some(checkpoint) = checkpoint {
            let name = checkpoint.path.file_name().unwrap_or_default().to_string_lossy();
            let folder = format!("checkpoints/{name}");
            self.pen.write(What::Checkpoint { version, folder })?;
        }
        self.rewrite_points()
    }

    async fn restore(&mut self, checkpoint: &Checkpoint, state: State) -> Result<(), EngineError> {
        let version = state.version;
        let seat = self.seat.as_mut().ok_or_else(|| EngineError::BadState {
            version,
            reason: "there is no trainer".into(),
        })?;
        let restore = seat.restore(checkpoint.path.join(TRAINER));
        let restored = in_time(&self.settings, "restoring the trainer", restore).await?;
        if restored != version {
            let reason = format!("the trainer's files are of {restored}");
            return Err(EngineError::BadState { version, reason });
        }
        self.source.restore(state.source)?;
        self.meter = Meter::new(self.settings.devices, self.settings.flops, state.ledger);
        self.floor.meter = self.meter.clone();
        self.next_group = state.next_group;
        self.watch = state.watch;
        self.tally = state.tally;
        self.progress = Progress {
            version,
            evaluation_due: state.is_evaluation_due.then_some(version),
            evaluated: state.evaluated,
            evaluated_at_hours: state.evaluated_at_hours,
            saved: Some(version),
            ..Progress::default()
        };
        Ok(())
    }

    /// Puts every saved group where it was. Half-written ones are sampled again, with the same
    /// number and seed.
    fn take_back(&mut self, groups: Vec<SavedGroup>) -> Result<(), EngineError> {
        let mut queued: BTreeMap<usize, Vec<Ready>> = BTreeMap::new();
        for SavedGroup { id, handout, admitted, stage, judged } in groups {
            let version = self.progress.version;
            let slot = self.slots.take().ok_or_else(|| EngineError::BadState {
                version,
                reason: "it has more groups than the recipe has slots".into(),
            })?;
            let ticket = Ticket { id, handout, admitted, slot };
            match (stage, judged) {
                (Stage::Arrived, Some(judged)) => self.arrived.push(Ready { ticket, judged }),
                (Stage::Pooled, Some(judged)) => self.pool.push(Ready { ticket, judged }),
                (Stage::Queued(index), Some(judged)) => {
                    queued.entry(index).or_default().push(Ready { ticket, judged });
                }
                (_, _) => {
                    let (group, place) = (id, ticket.handout.place);
                    let prompt = ticket.handout.prompt.id.clone();
                    self.pen.write(What::SampledAgain { group, prompt, place })?;
                    self.again.push_back(ticket);
                }
            }
        }
        self.queue =
            queued.into_values().map(|ready| Formed { ready, padding: Vec::new() }).collect();
        Ok(())
    }

    /// The plain files of points, from the events that count.
    fn rewrite_points(&mut self) -> Result<(), EngineError> {
        let lines = scalerl_journal::read_events(&self.pen.folder.events())?;
        let mut points = History::of(lines).points_by_set(self.pen.name());
        points.entry(None).or_default();
        for (set, points) in &points {
            self.pen.folder.rewrite_points(set.as_deref(), points)?;
        }
        self.points = points.remove(&None).unwrap_or_default();
        Ok(())
    }
}
