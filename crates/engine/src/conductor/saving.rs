//! Checkpoints.
//!
//! ```text
//! trainer   step | snapshot | step | step | step …
//! disk                      | trainer's files, the run's, sums | rename
//! ```
//! The state is taken in one go when the trainer is between two steps; writing it, and the sums of
//! all files, happen while training goes on, one checkpoint at a time. Until the rename the last whole
//! one is what a resume finds. A checkpoint waits for an evaluation of an older version, because those
//! weights would be gone after a resume.
//!
//! Not here: the way back (`resuming.rs`).

use scalerl_journal::{Draft, What};
use scalerl_rollout::{Generator, Grader, PolicyVersion, PromptSource, Writing};
use tokio::time::timeout;

use super::{Conductor, Done, TrainerUse, training::in_time};
use crate::{
    error::EngineError,
    groups::{SavedGroup, Stage, Ticket},
    meter::Role,
    state::{Files, State, TRAINER},
    trainer_handle::TrainerHandle,
};

/// A checkpoint that is to be written.
#[derive(Debug)]
pub(super) struct Saved {
    draft: Draft,
    /// The trainer's files.
    trainer: Writing,
    files: Files,
}

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Saves if a checkpoint is due and this is the moment for it.
    pub(super) fn start_save(&mut self) -> Result<(), EngineError> {
        if self.progress.is_checkpoint_due && !self.progress.is_measuring_older() {
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
        if self.trainer.is_none() {
            return Ok(());
        }
        self.progress.is_checkpoint_due = false;
        // The events a checkpoint counts must be on the disk before it can appear.
        self.journal.log.sync()?;
        let files = Files::of(&self.state()?, &self.saved_groups())?;
        let Some(mut trainer) = self.trainer.take() else { return Ok(()) };
        self.progress.saving = Some(version);
        self.progress.trainer_use = Some(TrainerUse::Save);
        let (checkpoints, settings) = (self.checkpoints.clone(), self.settings.clone());
        let meter = self.meter.clone();
        self.work.spawn(async move {
            let busy = meter.busy(Role::Train);
            let result = async {
                let draft = checkpoints.begin(version)?;
                let save = trainer.save(draft.subfolder(TRAINER)?);
                match in_time(&settings, "saving the trainer", save).await {
                    Ok(trainer) => Ok(Saved { draft, trainer, files }),
                    Err(error) => {
                        // On a full disk its room is needed for what is still to be written.
                        draft.discard();
                        Err(error)
                    }
                }
            };
            let result = result.await;
            drop(busy);
            Done::Saved { trainer, result }
        });
        Ok(())
    }

    pub(super) fn on_saved(
        &mut self,
        result: Result<Saved, EngineError>,
    ) -> Result<(), EngineError> {
        let Saved { draft, trainer, files } = match result {
            Ok(saved) => saved,
            Err(error) => {
                self.progress.saving = None;
                return Err(error);
            }
        };
        let limit = self.settings.deadlines.trainer;
        self.work.spawn(async move {
            let written = tokio::task::spawn_blocking(move || {
                let all = trainer.finish().map_err(EngineError::from);
                if let Err(error) = all.and_then(|()| files.write(&draft)) {
                    // On a full disk its room is needed for what is still to be written.
                    draft.discard();
                    return Err(error);
                }
                draft.commit()?;
                Ok(files.version)
            });
            match timeout(limit, written).await {
                Ok(Ok(result)) => Done::Committed(result),
                Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {
                    Done::Committed(Err(EngineError::Late { what: "writing a checkpoint", limit }))
                }
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
        self.journal.write(What::Checkpoint { version, folder })?;
        let output = &self.settings.recipe.output;
        let best = if output.keep_best {
            self.checkpoints.best(&self.points)?.map(|best| best.version)
        } else {
            None
        };
        Ok(self.checkpoints.prune(output.keep_latest as usize, best)?)
    }

    fn state(&self) -> Result<State, EngineError> {
        let progress = &self.progress;
        let version = progress.version;
        Ok(State {
            version,
            at: self.journal.now(),
            kept: self.journal.log.count(),
            next_group: self.next_group,
            source: self.source.state()?,
            ledger: self.meter.ledger(),
            watch: self.watch.clone(),
            evaluation_due: progress.due_now().map(|due| due.spent),
            evaluated_at_hours: progress.evaluated_at_hours,
            evaluated: progress.evaluated,
            tally: self.tally,
        })
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
}
