//! The asynchronous loop between generator and trainer. It never sees a tensor.
//!
//! ```text
//!           DrawnPrompt            Sampled                     Formed
//! prompts ----------> sampling tasks -------> conductor --------------> trainer's handle
//!   (slots)            | generate              | examine, pool, cut        | plan, step, publish
//!                      | intake, verdicts      |    set aside <--refused---|
//!                      '--- generator <--adopt-+<------- WeightHandle -----'
//!                               ^              |
//!                               '--evaluation--+--> forecast, journal, checkpoints
//! ```
//!
//! | loop or task | waits for | what ends the wait |
//! |---|---|---|
//! | conductor (`conductor.rs`) | the next task to end, a request to stop, the budget's end | any of them; it owns all tasks, and dropping it drops them |
//! | sampling, one per slot (`sampling.rs`) | the generator, the intake's look at its answer, then all verdicts | an answer, an error, a deadline |
//! | episode, one per rollout of an environment's prompt (`episode.rs`) | the environment, which waits for the generator by turns | an outcome, an error, `episode.timeout_s` of its own time |
//! | verdict, one per completion (`sampling.rs`) | the grader | a verdict, an error, [`Grader::deadline`] |
//! | step, publish, save (`conductor/training.rs`, `saving.rs`) | the trainer's thread (`trainer_handle.rs`) | an answer, the thread's end, a deadline |
//! | trainer's thread (`trainer_handle.rs`) | its next command | a command, or the trainer being dropped |
//! | adopt (`conductor/training.rs`) | the generator to take weights between two decode steps | an answer, an error, a deadline |
//! | evaluation (`evaluate.rs`) | generator and graders, like sampling | the same |
//! | forecast, sums of a checkpoint | a blocking thread | its end |
//!
//! Admission (`slots.rs`) and the choice of batches (`window.rs`) together keep every rollout
//! within the recipe's lag; docs/design/staleness.md has the proof. A broken answer is asked for again
//! and a group that no step can use is set aside (`conductor/stepping.rs`); any other error of a task
//! ends the run with that error, after a checkpoint where the trainer still answers. What a run leaves
//! behind is docs/runs.md.
//!
//! Not here: generators and trainers that exist (`worker`); prompts and verifiers (`scalerl-task`), which
//! are known through [`PromptSource`] and [`Grader`].

mod conductor;
mod episode;
mod error;
mod evaluate;
pub mod fake;
pub mod fleet;
mod forecast;
mod groups;
mod journal_writer;
mod meter;
mod sampling;
mod scheme;
mod settings;
mod signals;
mod slots;
pub mod stability;
mod state;
mod token_list;
mod trainer_handle;
mod window;

use std::{path::PathBuf, sync::Arc};

use scalerl_journal::{Event, FleetChange, Ledger, RunFolder, StopReason};
use scalerl_rollout::{Environment, Generator, Grader, PolicyVersion, PromptSource};
use tokio::sync::mpsc;

pub use error::EngineError;
pub use settings::{Deadlines, Devices, Phrases, Settings};
pub use signals::{never, on_signals};
pub use slots::{Slot, Slots};
pub use trainer_handle::{OwnThread, Simulated, TrainerHandle};

use conductor::Conductor;

/// The parts of a run.
pub struct RunParts<G, S, P, R> {
    /// What is fixed.
    pub settings: Settings,
    /// Samples; shared by all sampling tasks.
    pub generator: Arc<G>,
    /// Trains.
    pub trainer: S,
    /// Hands out prompts.
    pub prompts: P,
    /// Judges; shared by all verdicts.
    pub grader: Arc<R>,
    /// Where episodes take place; `None` where every prompt is a single completion.
    pub environment: Option<Arc<dyn Environment>>,
    /// A message asks the run to finish its step, save and end. Closing it asks for nothing.
    pub stop: mpsc::Receiver<()>,
    /// What becomes of the run's other processes, for the journal; `None` where there are none.
    pub fleet: Option<mpsc::UnboundedReceiver<FleetChange>>,
    /// Gets every event as it is written, for a terminal.
    pub observer: Option<mpsc::UnboundedSender<Event>>,
}

/// How a run ended in order.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// Why.
    pub reason: StopReason,
    /// Steps taken.
    pub version: PolicyVersion,
    /// What was spent on them.
    pub ledger: Ledger,
    /// Where everything is.
    pub folder: PathBuf,
}

/// Runs to the end: a new run if the folder has no events yet, else from its newest checkpoint.
///
/// Dropping the future is as safe as killing the process: the folder can be resumed.
pub async fn run<G, S, P, R>(
    folder: RunFolder,
    run: RunParts<G, S, P, R>,
) -> Result<RunEnd, EngineError>
where
    G: Generator,
    S: TrainerHandle,
    P: PromptSource,
    R: Grader,
{
    Conductor::open(folder, run).await?.conduct().await
}
