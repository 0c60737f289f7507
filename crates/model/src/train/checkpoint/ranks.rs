//! Checkpoints of ranks: each writes what it has, each reads what it needs.
//!
//! ```text
//! save      rank 0: a draft folder -> all: snapshot, own file -> all agree -> rank 0: rename
//! restore   rank 0: opens it, says where -> all: sums of some files each -> all agree -> own numbers
//! ```
//! A rank that fails says so, and nothing has changed anywhere: there is no checkpoint, or every learner
//! is what it was. All ranks see the folder under the same path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tch::{Device, Kind, Tensor};

use super::rank_part::{RankPart, file_name};
use super::saved::Saved;
use super::{
    About, CheckpointError, FORMATS, SECTIONS, base, check_base, commit, draft, read_manifest,
    read_notes,
};
use crate::error::LoadError;
use crate::tensor_writer::FileSum;
use crate::train::learner::Learner;
use crate::train::ranks::{RankError, Ranks};

/// Numbers of a part that travel at once: 16 MiB a rank.
const STRETCH: i64 = 1 << 22;

/// Saves a checkpoint of the ranks. Rank 0 names the folder and the notes and gets the path. What all
/// have agreed has failed is the inner error; rank 0 says why.
pub fn save_together(
    learner: &Learner,
    ranks: &Ranks,
    target: Option<(&Value, &Path)>,
) -> Result<Result<Option<PathBuf>, CheckpointError>, RankError> {
    assert_eq!(target.is_some(), ranks.rank() == 0, "rank 0 names the folder");
    let work = target.map(|(_, folder)| draft(folder)).transpose();
    let told = match &work {
        Ok(Some(work)) => work.path().to_string_lossy().into_owned(),
        _ => String::new(),
    };
    let told = ranks.tell(&told)?;
    let work = match work {
        Ok(work) => work,
        Err(error) => return Ok(Err(error.into())),
    };
    if told.is_empty() {
        return Ok(Err(no_folder()));
    }
    let own = write_own(learner, ranks, Path::new(&told));
    let said = match &own {
        Ok(sum) => format!("{} {}", sum.bytes, sum.sha256),
        Err(error) => format!("!{error}"),
    };
    let said = ranks.sentences(&said)?;
    let files = match (own, files(&said)) {
        (Err(error), _) | (Ok(_), Err(error)) => return Ok(Err(error)),
        (Ok(_), Ok(files)) => files,
    };
    let (Some((notes, folder)), Some(work)) = (target, work) else { return Ok(Ok(None)) };
    let (step, format) = (learner.steps_taken, FORMATS[1]);
    let about = base(learner).map(|base| About { step, format, base, notes });
    let about = about.map_err(CheckpointError::from);
    Ok(about.and_then(|about| commit(work, &about, files, folder)).map(Some))
}

fn no_folder() -> CheckpointError {
    let problem = "it could not make the checkpoint's folder".to_owned();
    CheckpointError::OtherRank { rank: 0, problem }
}

fn write_own(learner: &Learner, ranks: &Ranks, work: &Path) -> Result<FileSum, CheckpointError> {
    if !work.is_dir() {
        return Err(CheckpointError::NotShared { path: work.to_path_buf() });
    }
    let path = work.join(file_name(ranks.rank(), ranks.size()));
    Ok(RankPart::of(learner)?.write(&path)?)
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
    let checked = opened.and_then(|saved| {
        let mut files = (0..saved.manifest.files.len()).skip(ranks.rank()).step_by(ranks.size());
        files.try_for_each(|file| saved.check_sum(file)).map(|()| saved)
    });
    let said = checked.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let said = ranks.sentences(&said)?;
    let saved = match checked {
        Ok(saved) => saved,
        Err(error) => return Ok(Err(error)),
    };
    if let Some((rank, problem)) = said.into_iter().enumerate().find(|(_, said)| !said.is_empty()) {
        return Ok(Err(CheckpointError::OtherRank { rank, problem }));
    }
    let read = read_own(learner, &saved);
    // From here on ranks that differ are of no use to each other.
    let said = read.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let said = ranks.sentences(&said)?;
    if let Some((rank, problem)) = said.into_iter().enumerate().find(|(_, said)| !said.is_empty()) {
        let act = format!("restoring on trainer rank {rank}");
        return Err(RankError::Torch(tch::TchError::Torch(format!("{act}: {problem}"))));
    }
    learner.steps_taken = saved.manifest.step;
    learner.renew_weights()?;
    learner.discard_gradients()?;
    Ok(Ok(learner.steps_taken))
}

fn read_own(learner: &Learner, saved: &Saved) -> Result<(), CheckpointError> {
    let shard = learner.shard.as_ref().expect("a learner of ranks");
    let layout = learner.model.trained_layout();
    for (section, list) in SECTIONS.into_iter().zip(learner.sections()) {
        for (row, part) in shard.rows.iter().zip(list) {
            for stretch in row.stretches(&shard.own_part(row)) {
                let target = part.f_narrow(0, stretch.at, stretch.length)?;
                let name = &layout[stretch.parameter].name;
                saved.read((section, name), stretch.from, &target)?;
            }
        }
    }
    for steps in &learner.optimizer.steps {
        let _ = steps.shallow_clone().f_fill_(f64::from(saved.counted))?;
    }
    Ok(())
}

impl Learner {
    /// The float32 weights of all ranks at rank 0, on the CPU, in the order of the model's layout;
    /// the others get nothing. Every rank calls it.
    pub fn gather_masters(&self, ranks: &Ranks) -> Result<Vec<Tensor>, RankError> {
        let shard = self.shard.as_ref().expect("a learner of ranks");
        let cpu = (Kind::Float, Device::Cpu);
        let mut masters = Vec::new();
        for (row, part) in shard.rows.iter().zip(&self.masters) {
            let room = if ranks.rank() == 0 { row.whole() } else { 0 };
            let whole = Tensor::f_zeros([room], cpu)?;
            for start in (0..row.part).step_by(STRETCH as usize) {
                let length = STRETCH.min(row.part - start);
                let own = part.f_narrow(0, start, length)?.f_to_device(Device::Cpu)?;
                let everybody = if ranks.rank() == 0 { 0..ranks.size() } else { 0..0 };
                let places = everybody
                    .map(|rank| whole.f_narrow(0, row.part_of(rank).start + start, length));
                let places = places.collect::<Result<Vec<_>, _>>()?;
                ranks.control.gather(&places, &own.f_contiguous()?)?;
            }
            if ranks.rank() == 0 {
                masters.extend(row.views(&whole)?);
            }
        }
        Ok(masters)
    }
}
