//! The one task that decides; everything else is done by tasks that it starts and waits for.
//!
//! All state of a run is in here and nobody else's, so there are no locks, a checkpoint is one
//! moment, and the order of decisions is the order of what came in. Each turn starts whatever can
//! be started, then waits for the next thing to end.
//!
//! One file each: prompts to batches (`conductor/forming.rs`), a batch to its step
//! (`conductor/stepping.rs`), steps and hand-over (`conductor/training.rs`), evaluation, forecast and reasons to stop (`conductor/measuring.rs`),
//! checkpoints (`conductor/saving.rs`), beginning and resuming (`conductor/resuming.rs`), ending
//! (`conductor/ending.rs`).

mod ending;
mod forming;
mod measuring;
mod recording;
mod resuming;
mod saving;
mod stepping;
mod training;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use scalerl_journal::{
    Checkpoints, EvaluationPoint, FleetChange, ForecastReport, Ledger, StopReason, What,
};
use scalerl_rollout::{Generator, Grader, GroupId, PolicyVersion, PromptSource, WeightHandle};
use tokio::{
    select,
    sync::mpsc,
    task::{AbortHandle, JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    RunEnd,
    error::EngineError,
    evaluate::Evaluated,
    groups::{Formed, Ready, Ticket},
    journal_writer::JournalWriter,
    meter::Meter,
    sampling::{Floor, Sampled},
    scheme::Scheme,
    settings::Settings,
    slots::{Slot, Slots},
    stability::Watch,
    state::Tally,
    trainer_handle::TrainerHandle,
};
use saving::Saved;
use stepping::Attempt;

/// What a task other than sampling has brought. Those that used the trainer's handle give it back.
enum Done<S> {
    Stepped { trainer: S, attempt: Attempt },
    Published { trainer: S, result: Result<WeightHandle, EngineError> },
    Saved { trainer: S, result: Result<Saved, EngineError> },
    Committed(Result<PolicyVersion, EngineError>),
    Adopted { version: PolicyVersion, result: Result<(), EngineError> },
    Evaluated(Result<Evaluated, EngineError>),
    Forecast(Option<ForecastReport>),
}

/// What a task has the trainer's handle for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrainerUse {
    Step,
    Publish,
    Save,
}

/// A version to be measured.
#[derive(Debug, Clone, Copy)]
struct Due {
    version: PolicyVersion,
    /// What had been spent when it was made; a pipeline spends more while it is measured.
    spent: Ledger,
}

/// How far hand-over and measuring have come.
#[derive(Debug, Default)]
struct Progress {
    /// The trainer's version.
    version: PolicyVersion,
    /// What the trainer's handle was taken for; `None` when it is free, or gone for good.
    trainer_use: Option<TrainerUse>,
    /// The last version that was published; `None` before the first.
    published: Option<PolicyVersion>,
    /// Published and not yet given to the generator. While there is one, nothing is published:
    /// a trainer may have room for two sets of weights only.
    handle: Option<WeightHandle>,
    adopting: bool,
    /// The generator's version; `None` until it has taken the first weights.
    adopted: Option<PolicyVersion>,
    /// To be evaluated as soon as the generator has them, oldest first. Each is published before
    /// the trainer moves on, so there are never more than two.
    evaluations_due: VecDeque<Due>,
    evaluating: Option<Due>,
    evaluation: Option<AbortHandle>,
    is_forecasting: bool,
    evaluated: Option<PolicyVersion>,
    evaluated_at_hours: f64,
    is_checkpoint_due: bool,
    saving: Option<PolicyVersion>,
    /// The last checkpoint of this run.
    saved: Option<PolicyVersion>,
}

impl Progress {
    fn is_stepping(&self) -> bool {
        self.trainer_use == Some(TrainerUse::Step)
    }

    fn is_measuring(&self) -> bool {
        !self.evaluations_due.is_empty() || self.evaluating.is_some() || self.is_forecasting
    }

    /// Whether an older version than the trainer's is still to be measured: its weights would be
    /// gone after a resume.
    fn is_measuring_older(&self) -> bool {
        let waits = self.evaluations_due.iter().chain(&self.evaluating);
        self.is_forecasting || waits.into_iter().any(|due| due.version != self.version)
    }

    /// The trainer's version, if it is to be measured and was not yet.
    fn due_now(&self) -> Option<Due> {
        let waits = self.evaluations_due.iter().chain(&self.evaluating);
        waits.into_iter().find(|due| due.version == self.version).copied()
    }

    fn mark_evaluation(&mut self, spent: Ledger) {
        if self.due_now().is_none() {
            self.evaluations_due.push_back(Due { version: self.version, spent });
        }
    }
}

/// Why no new work is started.
#[derive(Debug)]
enum Ending {
    Stop(StopReason),
    Fail(EngineError),
}

pub(crate) struct Conductor<G, S, P, R> {
    settings: Arc<Settings>,
    scheme: Scheme,
    journal: JournalWriter,
    meter: Meter,
    /// Spent on work that kills have undone.
    lost: Ledger,
    checkpoints: Checkpoints,
    floor: Floor<G, R>,
    source: P,
    slots: Slots,
    /// The trainer, while no task has it.
    trainer: Option<S>,
    /// Asks for an end; closed when nobody can ask any more.
    stop: mpsc::Receiver<()>,
    is_stop_open: bool,
    /// What becomes of other processes; `None` when nobody can tell any more.
    fleet: Option<mpsc::UnboundedReceiver<FleetChange>>,

    next_group: u64,
    /// Half written when an earlier process ended; sampled again before any new prompt.
    again: VecDeque<Ticket>,
    in_flight: BTreeMap<GroupId, Ticket>,
    /// Judged and not examined (phased schemes wait until nothing is in flight).
    arrived: Vec<Ready>,
    /// Examined, in order of arrival.
    pool: Vec<Ready>,
    /// Batches of the phase.
    queue: VecDeque<Formed>,
    /// Slots of steps that the generator has not taken yet.
    unadopted: Vec<(PolicyVersion, Vec<Slot>)>,
    tally: Tally,
    watch: Watch,
    progress: Progress,
    points: Vec<EvaluationPoint>,
    ending: Option<Ending>,
    /// The folder cannot be written: what is in memory may be ahead of the journal, so it is not
    /// saved, and a resume goes on from the last checkpoint.
    is_folder_lost: bool,

    /// Sampling tasks, one per group in flight; dropped with the conductor.
    rollouts: JoinSet<Sampled>,
    /// Everything else; dropped with the conductor.
    work: JoinSet<Done<S>>,
}

impl<G: Generator, S: TrainerHandle, P: PromptSource, R: Grader> Conductor<G, S, P, R> {
    /// Runs to the end. An error ends the run too, after a checkpoint where one is possible.
    pub(crate) async fn conduct(mut self) -> Result<RunEnd, EngineError> {
        loop {
            match self.turn().await {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(error) if matches!(self.ending, Some(Ending::Fail(_))) => {
                    return Err(self.give_up(error));
                }
                Err(error) => {
                    self.is_folder_lost = error.is_of_storage();
                    self.ending = Some(Ending::Fail(error));
                }
            }
        }
    }

    /// Starts what can be started and waits for one thing to end.
    async fn turn(&mut self) -> Result<Option<Result<RunEnd, EngineError>>, EngineError> {
        if self.ending.is_some() {
            if let Some(end) = self.wind_down()? {
                return Ok(Some(end));
            }
        } else {
            self.start_everything()?;
            if self.ending.is_some() {
                return Ok(None);
            }
        }
        assert!(
            !self.work.is_empty() || !self.rollouts.is_empty(),
            "nothing is under way and nothing can be started: {:?}",
            self.progress
        );
        let limit = self.time_limit();
        select! {
            // In this order, so that two things that are ready at once have one outcome.
            biased;
            Some(done) = self.work.join_next() => self.on_done(done)?,
            Some(done) = self.rollouts.join_next() => self.on_sampled(done)?,
            asked = self.stop.recv(), if self.is_stop_open => self.on_asked(asked),
            change = next_change(&mut self.fleet), if self.fleet.is_some() => match change {
                Some(change) => self.journal.write(What::Fleet(change))?,
                None => self.fleet = None,
            },
            () = sleep_until(limit.unwrap_or_else(Instant::now)), if limit.is_some() => {
                self.on_time_limit();
            }
        }
        Ok(None)
    }

    fn start_everything(&mut self) -> Result<(), EngineError> {
        // Before hand-over: the generator may have to keep what it has.
        self.start_evaluation();
        self.start_hand_over();
        self.start_save()?;
        self.form_phase()?;
        self.admit()?;
        // Admission may have found the source dry, or freed nothing: then a short batch can go.
        self.form_phase()?;
        self.start_step()
    }

    fn on_done(&mut self, done: Result<Done<S>, JoinError>) -> Result<(), EngineError> {
        let done = match done {
            Ok(done) => done,
            Err(error) if error.is_cancelled() => return Ok(()),
            Err(error) => {
                let reason = error.to_string();
                return Err(EngineError::Panicked { what: "a task of the engine", reason });
            }
        };
        if matches!(done, Done::Stepped { .. } | Done::Published { .. } | Done::Saved { .. }) {
            self.progress.trainer_use = None;
        }
        match done {
            Done::Stepped { trainer, attempt } => {
                self.trainer = answering(trainer, &attempt.result);
                self.on_stepped(attempt)
            }
            Done::Published { trainer, result } => {
                self.trainer = answering(trainer, &result);
                self.on_published(result)
            }
            Done::Saved { trainer, result } => {
                self.trainer = answering(trainer, &result);
                self.on_saved(result)
            }
            Done::Committed(result) => self.on_committed(result),
            Done::Adopted { version, result } => self.on_adopted(version, result),
            Done::Evaluated(result) => self.on_evaluated(result),
            Done::Forecast(report) => self.on_forecast(report),
        }
    }

    fn on_asked(&mut self, asked: Option<()>) {
        match asked {
            Some(()) if self.ending.is_none() => {
                self.ending = Some(Ending::Stop(StopReason::Asked));
            }
            Some(()) => {}
            None => self.is_stop_open = false,
        }
    }
}

/// The trainer again, unless its trainer has stopped answering: nothing can be saved from it then.
fn answering<S, A>(trainer: S, result: &Result<A, EngineError>) -> Option<S> {
    (!matches!(result, Err(EngineError::Late { .. }))).then_some(trainer)
}

async fn next_change(
    fleet: &mut Option<mpsc::UnboundedReceiver<FleetChange>>,
) -> Option<FleetChange> {
    fleet.as_mut()?.recv().await
}
