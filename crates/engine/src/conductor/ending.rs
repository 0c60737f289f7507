//! How a run ends: no new work, the step finished, the state saved, the last event written.
//!
//! A run that ends by its own rules measures its last version first. One that was asked to end
//! does not: an evaluation of the current version is given up and done again after a resume.

use scalerl_journal::{StopReason, What};
use scalerl_rollout::{Generator, Grader, PromptSource};

use super::{Conductor, Ending};
use crate::{RunEnd, error::EngineError, trainer_handle::TrainerHandle};

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// One more step towards the end; `Some` when it is reached.
    pub(super) fn wind_down(&mut self) -> Result<Option<Result<RunEnd, EngineError>>, EngineError> {
        // Half-written groups stay on record as in flight.
        self.rollouts.abort_all();
        while self.rollouts.try_join_next().is_some() {}
        let is_measured = match self.ending {
            Some(Ending::Stop(StopReason::Asked)) => self.is_rid_of_evaluation(),
            Some(Ending::Stop(_)) => self.is_measured(),
            Some(Ending::Fail(_)) | None => {
                self.abandon_evaluation();
                true
            }
        };
        if !is_measured || self.progress.saving.is_some() {
            return Ok(None);
        }
        if self.trainer.is_some() {
            if self.progress.saved != Some(self.progress.version) && !self.is_folder_lost {
                self.save()?;
                return Ok(None);
            }
        } else if self.progress.trainer_use.is_some() {
            // Some task will give the trainer back.
            return Ok(None);
        }
        self.end().map(Some)
    }

    fn is_rid_of_evaluation(&mut self) -> bool {
        if self.progress.evaluating.is_some_and(|due| due.version == self.progress.version) {
            self.abandon_evaluation();
        }
        if self.progress.is_measuring_older() {
            self.start_evaluation();
            self.start_hand_over();
        }
        !self.progress.is_measuring_older()
    }

    fn abandon_evaluation(&mut self) {
        if let Some(task) = self.progress.evaluation.take() {
            task.abort();
        }
        if let Some(due) = self.progress.evaluating.take()
            && due.version == self.progress.version
        {
            self.progress.mark_evaluation(due.spent);
        }
    }

    /// Sees to it that the last version is measured.
    fn is_measured(&mut self) -> bool {
        let version = self.progress.version;
        let has_sets = !self.settings.evaluation_sets.is_empty();
        if !self.progress.is_stepping()
            && has_sets
            && self.progress.evaluated != Some(version)
            && self.progress.evaluating.is_none()
        {
            self.progress.mark_evaluation(self.meter.ledger());
        }
        self.start_evaluation();
        self.start_hand_over();
        !self.progress.is_stepping() && !self.progress.is_measuring()
    }

    fn end(&mut self) -> Result<Result<RunEnd, EngineError>, EngineError> {
        let (version, ledger) = (self.progress.version, self.meter.ledger());
        match self.ending.take() {
            Some(Ending::Fail(failure)) => {
                let error = failure.to_string();
                let written = self.journal.write(What::Failed { version, error, ledger });
                drop(written); // The failure matters more than a journal that cannot be written.
                Ok(Err(failure))
            }
            Some(Ending::Stop(reason)) => {
                self.journal.write(What::Stopped { version, reason, ledger })?;
                let folder = self.journal.path().to_owned();
                Ok(Ok(RunEnd { reason, version, ledger, folder }))
            }
            None => unreachable!("only an ending run ends"),
        }
    }

    /// The error that ended the run, when saving its state has failed too.
    pub(super) fn give_up(&mut self, _second: EngineError) -> EngineError {
        self.trainer = None;
        match self.end() {
            Ok(Err(first)) | Err(first) => first,
            Ok(Ok(_)) => unreachable!("a failing run does not end in order"),
        }
    }
}
