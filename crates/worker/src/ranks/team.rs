//! The trainer ranks of a run, met and connected.

use std::sync::Arc;
use std::time::Duration;

use scalerl_model::train::{RankError, Ranks};
use scalerl_torch::collective::{CollectiveError, ProcessGroup, Store, Transport};
use tch::Device;

use super::launch::{Launch, StoreHost};
use super::roll::Roll;

/// How long ranks wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// For all to come, at the start.
    pub meeting: Duration,
    /// For the slowest in one operation of a step or a checkpoint.
    pub operation: Duration,
    /// For rank 0 to say anything at all; it says something every [`Deadlines::pulse`].
    pub silence: Duration,
    /// How often rank 0 makes sure, between steps, that everybody is there.
    pub pulse: Duration,
}

impl Default for Deadlines {
    /// A rank that loads a large model from a slow disk comes minutes late; ranks of a step are
    /// apart by the difference of their shares.
    fn default() -> Self {
        Self {
            meeting: Duration::from_mins(10),
            operation: Duration::from_mins(5),
            silence: Duration::from_mins(15),
            pulse: Duration::from_secs(5),
        }
    }
}

/// One rank's connections to the others.
pub struct Team {
    pub(super) ranks: Ranks,
    /// What weights and gradients travel in; the learner takes it.
    data: Option<ProcessGroup>,
    pub(super) deadlines: Deadlines,
    pub(super) roll: Arc<Roll>,
    /// Rank 0 serves it; NCCL looks into it whenever it opens a connection.
    store: Store,
    /// What is only this start's.
    prefix: String,
    /// Called before each tensor that is written into a checkpoint.
    pub(super) write_watch: WriteWatch,
}

/// Looks on while a checkpoint's file is written, on the thread that writes.
pub type WriteWatch = Arc<dyn Fn() + Send + Sync>;

impl Team {
    /// Meets the other ranks; gradients will be on `device`.
    pub fn join(
        launch: &Launch,
        device: Device,
        deadlines: Deadlines,
    ) -> Result<Self, CollectiveError> {
        let (address, port) = (&launch.address, launch.port);
        // torchrun's agent knows nothing of doors.
        let token = launch.token.as_ref().filter(|_| launch.host == StoreHost::RankZero);
        let store = if launch.rank == 0 && launch.host == StoreHost::RankZero {
            Store::listen(address, port, token, deadlines.meeting)?
        } else {
            Store::connect(address, port, token, deadlines.meeting)?
        };
        let place = (launch.rank, launch.world);
        let prefix = format!("scalerl/trainer/{}", launch.attempt);
        let name = |what: &str| format!("{prefix}/{what}");
        let form = |what: &str, transport| {
            ProcessGroup::form(&store, &name(what), place, transport, deadlines.meeting)
        };
        let mut control = form("control", Transport::Gloo)?;
        let mut data = form("data", Transport::of(device))?;
        // Loading models takes its time: everybody is here from now on.
        control.barrier()?;
        control.set_timeout(deadlines.operation);
        data.set_timeout(deadlines.operation);
        let ranks = Ranks { control };
        let said = ranks.sentences(&Roll::own());
        let roll = Arc::new(Roll::of(&said.map_err(|error| match error {
            RankError::Collective(error) => error,
            error => CollectiveError::Failed {
                act: "hearing who the ranks are".to_owned(),
                reason: error.to_string(),
            },
        })?));
        let write_watch: WriteWatch = Arc::new(|| ());
        Ok(Self { ranks, data: Some(data), deadlines, roll, store, prefix, write_watch })
    }

    /// Has `watch` called before each tensor that this rank writes into a checkpoint: for tests that need a
    /// slow disk.
    #[must_use]
    pub fn with_write_watch(mut self, watch: WriteWatch) -> Self {
        self.write_watch = watch;
        self
    }

    /// A name in the store that only this start of the job has.
    pub(super) fn key(&self, what: &str) -> String {
        format!("{}/{what}", self.prefix)
    }

    /// The group of the learner's own tensors: for one learner.
    pub(super) fn take_data(&mut self) -> ProcessGroup {
        self.data.take().expect("a team has one learner")
    }

    pub fn rank(&self) -> usize {
        self.ranks.rank()
    }

    pub fn size(&self) -> usize {
        self.ranks.size()
    }

    /// Where all ranks can leave notes for each other.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
