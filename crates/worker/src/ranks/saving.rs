//! Checkpoints of ranks, written while steps go on.
//!
//! ```text
//! all      step | copy of what they have | step | step | step …
//! all              own thread: own file -> its sum into the store
//! rank 0           engine's thread: own file -> everybody's sums -> manifest, rename -> the model's folder
//! ```
//! Ranks do something together only to begin. How a file went is a note in the store, so neither steps
//! wait for a disk nor the disk for a step. The model's folder is made of the files: no rank gathers
//! weights for it.
//!
//! Where a rank is lost nothing is missed: the draft is removed, and the checkpoint before is there.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use scalerl_model::config::ModelConfig;
use scalerl_model::layout::Parameter;
use scalerl_model::memory;
use scalerl_model::save::{FolderToSave, SaveKind, save_model_of};
use scalerl_model::train::checkpoint::{
    CheckpointError, OwnFile, SaverState, begin_together, each_master,
};
use scalerl_model::train::{Learner, RankError};
use scalerl_rollout::{TrainerError, Writing};
use scalerl_torch::collective::Store;
use serde_json::json;
use tch::Kind;

use super::roll::Roll;
use super::step::rank_error;
use super::team::{Team, WriteWatch};
use crate::trainer::{checkpoint_error, storage};

/// For the slowest rank's file.
const LONGEST: Duration = Duration::from_hours(1);
/// How often rank 0 looks for notes that have not come.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes that a copy may take on this rank: what is free, shared with the other ranks of the host.
fn free(roll: &Roll, rank: usize) -> Option<u64> {
    let host = &roll.processes.get(rank)?.host;
    let neighbours = roll.processes.iter().filter(|process| process.host == *host).count();
    Some(memory::free()? / neighbours.max(1) as u64)
}

/// Where a rank leaves what became of its file.
fn note(team: &Team, own: &OwnFile) -> String {
    team.key(&format!("saved/{}", own.name()))
}

/// A rank's part in it, other than rank 0's.
pub(super) struct Writer {
    watch: WriteWatch,
    /// Dropped by the thread that writes, before rank 0 hears of the file: it may order the next then.
    under_way: Weak<()>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn of(team: &Team) -> Self {
        Self { watch: team.write_watch.clone(), under_way: Weak::new(), thread: None }
    }

    fn is_busy(&self) -> bool {
        self.under_way.strong_count() > 0
    }

    /// Takes a copy and has it written. What all have agreed has failed is rank 0's to tell.
    pub(super) fn begin(&mut self, learner: &Learner, team: &Team) -> Result<(), RankError> {
        let saver = SaverState { is_busy: self.is_busy(), free: free(&team.roll, team.rank()) };
        let Ok(own) = begin_together(learner, &team.ranks, None, saver)? else { return Ok(()) };
        let (store, watch) = (team.store().another()?, self.watch.clone());
        let key = format!("{}/{}", note(team, &own), team.rank());
        let under_way = Arc::new(());
        self.under_way = Arc::downgrade(&under_way);
        // Ends with its file. Rank 0, which waits for the note, has a deadline.
        self.thread = Some(std::thread::spawn(move || {
            let said = own.write(&*watch);
            // The copy is gone, and there is room for the next.
            drop(own);
            drop(under_way);
            // A store that is gone has taken rank 0 with it.
            let _ = store.set(&key, said.as_bytes());
        }));
        Ok(())
    }

    /// Waits a while for a file under way: the process ends with its threads.
    pub(super) fn end(self, patience: Duration) {
        let begun = Instant::now();
        while self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
            && begun.elapsed() < patience
        {
            std::thread::sleep(LOOK);
        }
    }
}

/// Rank 0's part in it.
pub(super) struct Saver {
    watch: WriteWatch,
    /// Alive while a checkpoint is being written.
    under_way: Weak<()>,
}

/// A checkpoint that all ranks have begun.
pub(super) struct Begun {
    own: OwnFile,
    store: Store,
    note: String,
    size: usize,
    roll: Arc<Roll>,
    /// With files of ranks that have agreed to stop.
    patience: Duration,
    watch: WriteWatch,
    under_way: Arc<()>,
}

impl Saver {
    pub(super) fn of(team: &Team) -> Self {
        Self { watch: team.write_watch.clone(), under_way: Weak::new() }
    }

    /// Has every rank take a copy of what it has.
    pub(super) fn begin(
        &mut self,
        learner: &Learner,
        team: &Team,
        folder: &Path,
    ) -> Result<Begun, TrainerError> {
        let is_busy = self.under_way.strong_count() > 0;
        let saver = SaverState { is_busy, free: free(&team.roll, team.rank()) };
        let begun = begin_together(learner, &team.ranks, Some(folder), saver);
        let begun = begun.map_err(|error| rank_error(&error))?;
        let own = begun.map_err(|error| checkpoint_error(folder, error))?;
        let store = team.store().another().map_err(|error| rank_error(&error.into()))?;
        let under_way = Arc::new(());
        self.under_way = Arc::downgrade(&under_way);
        Ok(Begun {
            note: note(team, &own),
            own,
            store,
            size: team.size(),
            roll: team.roll.clone(),
            patience: team.deadlines.operation,
            watch: self.watch.clone(),
            under_way,
        })
    }
}

/// A model's folder that is made of a checkpoint's masters.
struct ModelToWrite {
    config: ModelConfig,
    layout: Vec<Parameter>,
    kind: SaveKind,
    companions: Option<PathBuf>,
}

impl ModelToWrite {
    /// An adapter's folder has another form.
    fn of(learner: &Learner) -> Option<Self> {
        let model = &learner.model;
        let kind = match model.network.head().kind() {
            Kind::BFloat16 => SaveKind::BFloat16,
            _ => SaveKind::Float32,
        };
        model.adapter.is_none().then(|| Self {
            config: model.config.clone(),
            layout: model.layout.clone(),
            kind,
            companions: model.folder.clone(),
        })
    }

    fn write(&self, checkpoint: &Path, folder: &Path) -> Result<(), CheckpointError> {
        let Self { config, layout, kind, companions } = self;
        let about = FolderToSave { config, kind: *kind, companions: companions.as_deref() };
        save_model_of(&about, folder, |writer| {
            each_master(checkpoint, layout, |master| Ok(writer.write(master)?))
        })
    }
}

impl Begun {
    /// What is left to do, on whatever thread.
    pub(super) fn writing(self, learner: &Learner, folder: &Path) -> Writing {
        let (model, folder) = (ModelToWrite::of(learner), folder.to_path_buf());
        Writing::new(move || self.finish(model.as_ref(), &folder))
    }

    fn finish(self, model: Option<&ModelToWrite>, folder: &Path) -> Result<(), TrainerError> {
        let begun = Instant::now();
        let mut said = vec![self.own.write(&*self.watch)];
        for rank in 1..self.size {
            said.push(self.hear(rank, begun, folder)?);
        }
        let failed = |error| checkpoint_error(folder, error);
        let notes = json!({"trainer": "ranks", "ranks": self.size});
        let path = self.own.finish(&said, &notes).map_err(failed)?;
        if let Some(model) = model {
            model.write(&path, &folder.join("model")).map_err(failed)?;
        }
        drop(self.under_way);
        Ok(())
    }

    /// What became of a rank's file. Ranks that have agreed to stop finish theirs; one of those that
    /// are lost may have written it before.
    fn hear(&self, rank: usize, begun: Instant, folder: &Path) -> Result<String, TrainerError> {
        let key = format!("{}/{rank}", self.note);
        let failed = |error| rank_error(&RankError::Collective(error));
        let mut lost_since = None;
        loop {
            let roll = self.roll.state();
            if self.store.has(&key).map_err(failed)? {
                let said = self.store.get(&key, LONGEST).map_err(failed)?;
                self.store.delete(&key).map_err(failed)?;
                return Ok(String::from_utf8_lossy(&said).into_owned());
            }
            if let Some(reason) = roll.lost {
                let since = lost_since.get_or_insert_with(Instant::now);
                if !roll.has_agreed || since.elapsed() > self.patience {
                    return Err(TrainerError::RankLost { reason });
                }
            }
            if begun.elapsed() > LONGEST {
                let seconds = LONGEST.as_secs();
                let reason = format!("trainer rank {rank} has not written it within {seconds} s");
                return Err(storage(folder, reason));
            }
            std::thread::sleep(LOOK);
        }
    }
}
