//! What a run writes down, and reading it back at any moment.
//!
//! ```text
//! RUN/
//!   recipe.toml        the resolved recipe             written once, whole
//!   environment.json   program, commit, devices        written once, whole
//!   history.jsonl      finished runs that its forecasts learn from   written once, whole
//!   events.jsonl       everything that happened        appended, one line per event
//!   points.jsonl       evaluations, as `scalerl fit` reads them   derived from the events
//!   points.SET.jsonl   the same for every other evaluation set
//!   samples/           completions to read: of each evaluation, and of the step before it
//!   checkpoints/       step-000042/ …                  appear whole or not at all
//!   set-aside/         groups that no step could use   one file each, whole
//!   fleet.json         processes of a cluster, now     written anew every few seconds
//!   run.lock           held by the process that writes; says its id
//! ```
//!
//! **What survives what.** An event reaches the kernel before the engine goes on, so a killed
//! process loses none. It reaches the disk (fsync) with evaluations, checkpoints and the end of a
//! run, so a power cut loses at most what came after the last of those, and a resume starts from a
//! checkpoint anyway. A torn last line is left out on reading and cut off before writing goes on.
//!
//! **Undoing.** A resumed run goes on from its checkpoint; what came after that checkpoint did
//! not happen as far as the policy is concerned. The lines stay where they are and the `resumed`
//! event says how many count; [`History`] does the arithmetic.
//!
//! Not here: what is worth recording when (`engine`), drawing it (`board`).

mod checkpoint;
mod durable;
mod error;
mod event;
mod failures;
mod fleet;
mod folder;
mod history;
mod ledger;
mod library;
mod log;
mod points;
mod reading;
mod samples;
mod sign;
mod tail;

pub use checkpoint::{Checkpoint, Checkpoints, Damaged, Draft};
pub use error::JournalError;
pub use event::{
    BatchReport, Event, Fate, ForecastReport, GroupReport, HistoryUse, PassAt, SetReport,
    StopReason, What,
};
pub use failures::{FailureKind, FailureKinds};
pub use fleet::{FleetChange, FleetMember, FleetState, FleetTable};
pub use folder::{AdapterSize, Environment, RunFolder};
pub use history::History;
pub use ledger::{Ledger, RoleSeconds};
pub use library::{Added, Library, is_library};
pub use log::{EventLog, read_events};
pub use points::EvaluationPoint;
pub use reading::{Reading, Status, Summary};
pub use samples::{Sample, SamplePart, SampleToken, read_samples};
pub use sign::BadSign;
pub use tail::{Reached, Resumes, Tail, Verdict, kind_of};
