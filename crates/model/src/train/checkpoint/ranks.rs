//! Checkpoints of ranks: each writes what it has, each reads what it needs.
//!
//! ```text
//! save      rank 0: a draft folder -> all: a copy of what they have -> all agree
//!             meanwhile all: own file -> rank 0: hears of all files -> rename
//! restore   rank 0: opens it, says where -> all: sums of some files each -> all agree -> own numbers
//! ```
//! A rank that fails says so, and nothing has changed anywhere: there is no checkpoint, or every learner
//! is what it was. All ranks see the folder under the same path.
//!
//! Not here: how rank 0 hears that files are written (`scalerl_worker::ranks`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tch::{Device, Kind, TchError, Tensor};
use tempfile::TempDir;

use super::rank_part::{RankPart, file_name};
use super::saved::Saved;
use super::{
    About, CheckpointError, FORMATS, SECTIONS, base, check_base, commit, draft, read_manifest,
    read_notes,
};
use crate::error::LoadError;
use crate::layout::Parameter;
use crate::memory;
use crate::tensor_writer::FileSum;
use crate::train::learner::Learner;
use crate::train::ranks::{RankError, Ranks};

/// What a rank says of itself when a checkpoint begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct SaverState {
    /// Whether its file of the checkpoint before is still being written.
    pub is_busy: bool,
    /// Bytes of the host's memory that a copy may take, where they are known.
    pub free: Option<u64>,
}

/// A rank's file of a checkpoint that has begun. Nothing of it needs the learner any more.
pub struct OwnFile {
    /// In the draft.
    path: PathBuf,
    draft: PathBuf,
    state: FileState,
    /// Rank 0's.
    rest: Option<Rest>,
}

enum FileState {
    Copied(RankPart),
    /// There was no room for a copy somewhere.
    Written(FileSum),
}

/// What makes a checkpoint of everybody's files.
struct Rest {
    work: TempDir,
    target: PathBuf,
    step: u64,
    base: Option<String>,
}

/// Begins a checkpoint of the ranks: all of them call it, and each gets a copy of what it has, to be
/// written while steps go on; where one has no room for it, all files are written here. Rank 0 names
/// the folder.
/// What all have agreed has failed is the inner error; rank 0 says why.
pub fn begin_together(
    learner: &Learner,
    ranks: &Ranks,
    folder: Option<&Path>,
    saver: SaverState,
) -> Result<Result<OwnFile, CheckpointError>, RankError> {
    assert_eq!(folder.is_some(), ranks.rank() == 0, "rank 0 names the folder");
    let rest = folder.map(|folder| Rest::of(learner, folder)).transpose();
    let told = match &rest {
        Ok(Some(rest)) => rest.work.path().to_string_lossy().into_owned(),
        _ => String::new(),
    };
    let draft = PathBuf::from(ranks.tell(&told)?);
    let rest = match rest {
        Ok(rest) => rest,
        Err(error) => return Ok(Err(error)),
    };
    if draft.as_os_str().is_empty() {
        return Ok(Err(no_folder()));
    }
    let part = RankPart::of(learner);
    let has_room = match &part {
        Ok(part) => saver.free.is_none_or(|free| memory::has_room(part.bytes(), free)),
        Err(_) => true,
    };
    // One that writes here keeps all waiting: then nobody is quicker for a copy.
    let is_copied = ranks.numbers(&[f64::from(u8::from(has_room))])?.iter().all(|one| one[0] > 0.0);
    let path = draft.join(file_name(ranks.rank(), ranks.size()));
    let part = part.map_err(CheckpointError::from);
    let part = part.and_then(|part| may_take(part, &draft, saver.is_busy));
    let taken = if is_copied {
        part.and_then(|part| Ok(FileState::Copied(part.copied()?)))
    } else {
        let path = path.clone();
        ranks.each_in_its_time(move || {
            part.and_then(|part| Ok(FileState::Written(part.write(&path, &|| ())?)))
        })?
    };
    let said = taken.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let said = ranks.sentences(&said)?;
    let state = match taken {
        Ok(state) => state,
        Err(error) => return Ok(Err(error)),
    };
    if let Some((rank, problem)) = said.into_iter().enumerate().find(|(_, said)| !said.is_empty()) {
        return Ok(Err(CheckpointError::OtherRank { rank, problem }));
    }
    Ok(Ok(OwnFile { path, draft, state, rest }))
}

impl Rest {
    fn of(learner: &Learner, folder: &Path) -> Result<Self, CheckpointError> {
        let base = base(learner)?;
        // Ranks have other working folders.
        std::fs::create_dir_all(folder).map_err(LoadError::io(folder))?;
        let target = folder.canonicalize().map_err(LoadError::io(folder))?;
        Ok(Self { work: draft(&target)?, target, step: learner.steps_taken, base })
    }
}

fn no_folder() -> CheckpointError {
    let problem = "it could not make the checkpoint's folder".to_owned();
    CheckpointError::OtherRank { rank: 0, problem }
}

fn may_take(part: RankPart, draft: &Path, is_busy: bool) -> Result<RankPart, CheckpointError> {
    if is_busy {
        return Err(CheckpointError::StillWriting);
    }
    if !draft.is_dir() {
        return Err(CheckpointError::NotShared { path: draft.to_path_buf() });
    }
    Ok(part)
}

impl OwnFile {
    /// Writes the file and says what rank 0 needs to hear. `watch` is called before each tensor.
    pub fn write(&self, watch: &dyn Fn()) -> String {
        let written = match &self.state {
            FileState::Copied(part) => part.write(&self.path, watch),
            FileState::Written(sum) => Ok(sum.clone()),
        };
        match written {
            Ok(sum) => format!("{} {}", sum.bytes, sum.sha256),
            Err(error) => format!("!{error}"),
        }
    }

    /// A name that no other checkpoint of these ranks has.
    pub fn name(&self) -> String {
        self.draft.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// At rank 0: makes a checkpoint of all files, given what everybody has said of its own, and returns
    /// its path.
    pub fn finish(self, said: &[String], notes: &Value) -> Result<PathBuf, CheckpointError> {
        let Rest { work, target, step, base } = self.rest.expect("rank 0 has made the folder");
        let files = files(said)?;
        let about = About { step, format: FORMATS[1], base, notes };
        commit(work, &about, files, &target)
    }
}

/// Shows the masters of a checkpoint one by one, in the order of the layout.
pub fn each_master(
    path: &Path,
    layout: &[Parameter],
    mut show: impl FnMut(&Tensor) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let _guard = tch::no_grad_guard();
    let saved = Saved::open(path, layout)?;
    layout.iter().try_for_each(|known| {
        let master = Tensor::f_empty(&known.shape[..], (Kind::Float, Device::Cpu))?;
        saved.read((SECTIONS[0], &known.name), 0, &master.f_view(-1)?)?;
        show(&master)
    })
}

/// Every rank's file, or what the first that failed has said.
fn files(everybody: &[String]) -> Result<BTreeMap<String, FileSum>, CheckpointError> {
    let one = |(rank, said): (usize, &String)| {
        let sum = said.split_once(' ').and_then(|(bytes, sha256)| {
            let (bytes, sha256) = (bytes.parse().ok()?, sha256.to_owned());
            Some(FileSum { bytes, sha256 })
        });
        let problem = || said.strip_prefix('!').unwrap_or(said).to_owned();
        let sum = sum.ok_or_else(|| CheckpointError::OtherRank { rank, problem: problem() })?;
        Ok((file_name(rank, everybody.len()), sum))
    };
    everybody.iter().enumerate().map(one).collect()
}

/// A checkpoint that rank 0 has opened and found to fit: nothing has changed so far.
#[derive(Debug)]
pub struct RestorePlan {
    saved: Saved,
    path: PathBuf,
    /// Optimizer steps that were taken.
    pub step: u64,
    /// The caller's notes.
    pub notes: Value,
}

impl RestorePlan {
    /// Opens a checkpoint for ranks with this learner's model.
    pub fn open(learner: &Learner, path: &Path) -> Result<Self, CheckpointError> {
        // Ranks have other working folders.
        let path = path.canonicalize().map_err(LoadError::io(path))?;
        check_base(learner, &read_manifest(&path)?, &path)?;
        let saved = Saved::open(&path, learner.model.trained_layout())?;
        let notes = read_notes(&path)?;
        Ok(Self { step: saved.manifest.step, saved, path, notes })
    }
}

/// Puts the ranks into the state of a checkpoint. Rank 0 hands in the plan; all get the step. What all
/// have agreed not to do is the inner error.
pub fn restore_together(
    learner: &mut Learner,
    ranks: &Ranks,
    plan: Option<RestorePlan>,
) -> Result<Result<u64, CheckpointError>, RankError> {
    assert_eq!(plan.is_some(), ranks.rank() == 0, "rank 0 has opened it");
    let _guard = tch::no_grad_guard();
    let told = plan.as_ref().map(|plan| plan.path.to_string_lossy().into_owned());
    let told = PathBuf::from(ranks.tell(&told.unwrap_or_default())?);
    let opened = match plan {
        Some(plan) => Ok(plan.saved),
        None if told.is_dir() => Saved::open(&told, learner.model.trained_layout()),
        None => Err(CheckpointError::NotShared { path: told }),
    };
    // Reading everything for its sum is most of the work: each file by one rank.
    let (rank, size) = (ranks.rank(), ranks.size());
    let checked = ranks.each_in_its_time(move || {
        opened.and_then(|saved| {
            let mut files = (0..saved.manifest.files.len()).skip(rank).step_by(size);
            files.try_for_each(|file| saved.check_sum(file)).map(|()| saved)
        })
    })?;
    let said = checked.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let said = ranks.sentences(&said)?;
    let saved = match checked {
        Ok(saved) => saved,
        Err(error) => return Ok(Err(error)),
    };
    if let Some((rank, problem)) = said.into_iter().enumerate().find(|(_, said)| !said.is_empty()) {
        return Ok(Err(CheckpointError::OtherRank { rank, problem }));
    }
    let step = saved.manifest.step;
    let wanted = own_numbers(learner).map_err(CheckpointError::from);
    let read = ranks.each_in_its_time(move || wanted.and_then(|wanted| wanted.read(&saved)))?;
    // From here on ranks that differ are of no use to each other.
    let said = read.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let said = ranks.sentences(&said)?;
    if let Some((rank, problem)) = said.into_iter().enumerate().find(|(_, said)| !said.is_empty()) {
        let act = format!("restoring on trainer rank {rank}");
        return Err(RankError::Torch(tch::TchError::Torch(format!("{act}: {problem}"))));
    }
    learner.steps_taken = step;
    learner.renew_weights()?;
    learner.discard_gradients()?;
    Ok(Ok(learner.steps_taken))
}

/// Where a rank's own numbers go.
struct OwnNumbers {
    /// Section, parameter, the first of its numbers, and their place.
    places: Vec<(&'static str, String, i64, Tensor)>,
    steps: Vec<Tensor>,
}

fn own_numbers(learner: &Learner) -> Result<OwnNumbers, TchError> {
    let shard = learner.shard.as_ref().expect("a learner of ranks");
    let layout = learner.model.trained_layout();
    let mut places = Vec::new();
    for (section, list) in SECTIONS.into_iter().zip(learner.sections()) {
        for (row, part) in shard.rows.iter().zip(list) {
            for stretch in row.stretches(&shard.own_part(row)) {
                let target = part.f_detach()?.f_narrow(0, stretch.at, stretch.length)?;
                let name = layout[stretch.parameter].name.clone();
                places.push((section, name, stretch.from, target));
            }
        }
    }
    let steps = learner.optimizer.steps.iter().map(Tensor::f_detach);
    Ok(OwnNumbers { places, steps: steps.collect::<Result<_, _>>()? })
}

impl OwnNumbers {
    fn read(self, saved: &Saved) -> Result<(), CheckpointError> {
        let _guard = tch::no_grad_guard();
        for (section, name, from, target) in &self.places {
            saved.read((section, name), *from, target)?;
        }
        for mut steps in self.steps {
            let _ = steps.f_fill_(f64::from(saved.counted))?;
        }
        Ok(())
    }
}
