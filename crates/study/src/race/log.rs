//! What a race has decided: `race.jsonl` in the study's folder, a line a decision.
//!
//! The last line says how far each variant may run; everything else is read off the run folders. So
//! a race goes on after a kill, in a copied folder, and from several machines that share one: who
//! decides holds the lock beside the file, and reads the file again first.

use std::fs::File;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use scalerl_curve::Estimate;
use serde::{Deserialize, Serialize};

use super::{Contestant, Limits, Outlook, RUNGS, Stage, choose, next_to_run};
use crate::{StudyError, export};

const FILE: &str = "race.jsonl";
const LOCK: &str = "race.lock";

/// One decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Unix time.
    pub at: f64,
    /// Expected loss of doing without those that are paused.
    pub loss: f64,
    /// Each variant of the study.
    pub variants: Vec<Judged>,
    /// Nothing is left to decide.
    pub is_over: bool,
    /// Seeds that the compute saved pays for, with their variant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_seeds: Vec<(String, u64)>,
}

/// What was decided of one variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Its name.
    pub variant: String,
    /// Share of its compute that it was judged by; 0 before the first rung.
    pub share: f64,
    /// Its end as forecast from there, 90 %; `None` where it could not be.
    pub forecast: Option<Estimate>,
    /// What it is expected to add to the best of the others that go on.
    pub adds: Option<f64>,
    /// Does it go on?
    pub is_kept: bool,
    /// Share of its compute up to which it may run.
    pub until: f64,
}

/// How many rungs lie behind a share.
fn rungs_behind(share: f64) -> usize {
    RUNGS.iter().filter(|rung| **rung <= share + 1e-9).count()
}

impl Decision {
    /// Everyone to the first rung.
    pub fn first(names: impl Iterator<Item = String>, at: f64) -> Self {
        let variants = names
            .map(|variant| Judged {
                variant,
                share: 0.0,
                forecast: None,
                adds: None,
                is_kept: true,
                until: RUNGS[0],
            })
            .collect();
        Self { at, loss: 0.0, variants, is_over: false, added_seeds: Vec::new() }
    }

    /// What was decided of a variant.
    pub fn of(&self, variant: &str) -> Option<&Judged> {
        self.variants.iter().find(|judged| judged.variant == variant)
    }

    /// The next decision, once every variant that may run has come as far as it may. A variant
    /// without a run is out: all its runs have failed.
    #[must_use]
    pub fn next(&self, contestants: &[Contestant], limits: Limits, at: f64) -> Self {
        let share = |name: &str| self.of(name).map_or(RUNGS[0], |judged| judged.until);
        let was_kept = |name: &str| self.of(name).is_none_or(|judged| judged.is_kept);
        let present: Vec<&Contestant> =
            contestants.iter().filter(|one| !one.runs.is_empty()).collect();
        let outlooks: Vec<Option<Outlook>> =
            present.par_iter().map(|one| one.outlook(share(&one.name))).collect();
        let reached: Vec<usize> =
            present.iter().map(|one| rungs_behind(share(&one.name))).collect();
        // All that went on may have failed since.
        let is_left = present.iter().any(|one| was_kept(&one.name));
        let stage = |(one, reached): (&&Contestant, &usize)| match reached {
            _ if is_left && !was_kept(&one.name) => Stage::Paused,
            reached if *reached == RUNGS.len() => Stage::Ended,
            _ => Stage::Open,
        };
        let stages: Vec<Stage> = present.iter().zip(&reached).map(stage).collect();
        let known: Option<Vec<Outlook>> = outlooks.iter().cloned().collect();
        // Nobody is paused before everyone can be forecast.
        let choice =
            known.filter(|known| !known.is_empty()).map(|known| choose(&known, &stages, limits));
        let open = || stages.iter().map(|stage| *stage != Stage::Paused).collect();
        let kept: Vec<bool> = choice.as_ref().map_or_else(open, |choice| choice.kept.clone());
        let to_run = next_to_run(&kept, &reached, RUNGS.len());
        let judge = |one: &Contestant| {
            let name = &one.name;
            let place = present.iter().position(|other| other.name == *name);
            let runs_on = place.filter(|place| to_run.contains(place));
            Judged {
                variant: name.clone(),
                share: share(name),
                forecast: place.and_then(|place| outlooks[place].as_ref()).map(estimate),
                adds: place.and_then(|place| Some(choice.as_ref()?.adds[place])),
                is_kept: place.is_some_and(|place| kept[place]),
                until: runs_on.map_or(share(name), |place| RUNGS[reached[place]]),
            }
        };
        Self {
            at,
            loss: choice.as_ref().map_or(0.0, |choice| choice.loss),
            variants: contestants.iter().map(judge).collect(),
            is_over: to_run.is_empty(),
            added_seeds: self.added_seeds.clone(),
        }
    }

    /// Gives so many runs to the variants that go on, in turn, with seeds of their own. `seeds` has
    /// those that the study names.
    pub fn add_seeds(&mut self, runs: usize, seeds: &dyn Fn(&str) -> Vec<u64>) {
        let kept: Vec<&str> = self
            .variants
            .iter()
            .filter(|judged| judged.is_kept)
            .map(|judged| judged.variant.as_str())
            .collect();
        let mut added = Vec::new();
        for turn in 0..runs {
            let Some(variant) = kept.get(turn % kept.len().max(1)) else { break };
            let highest = seeds(variant).into_iter().max().unwrap_or(0);
            added.push(((*variant).to_owned(), highest + 1 + (turn / kept.len()) as u64));
        }
        self.added_seeds = added;
    }
}

fn estimate(outlook: &Outlook) -> Estimate {
    Estimate {
        value: outlook.quantile(0.5),
        low: outlook.quantile(0.05),
        high: outlook.quantile(0.95),
    }
}

/// The file of decisions.
#[derive(Debug, Clone)]
pub struct RaceLog {
    path: PathBuf,
}

impl RaceLog {
    /// In a study's folder.
    pub fn in_folder(study: &Path) -> Self {
        Self { path: study.join(FILE) }
    }

    /// Every decision so far; none where there is no race.
    pub fn read(&self) -> Result<Vec<Decision>, StudyError> {
        let text = match scalerl_files::read_to_string(&self.path, scalerl_files::TABLE) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StudyError::io("read", &self.path)(error)),
        };
        let line = |(index, line): (usize, &str)| {
            serde_json::from_str(line).map_err(|error| StudyError::BadFile {
                path: self.path.clone(),
                problem: format!("line {}: {error}", index + 1),
            })
        };
        text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()).map(line).collect()
    }

    /// Asks for a decision after the last one, and keeps it. Nobody else decides meanwhile.
    pub fn decide(
        &self,
        next: impl FnOnce(Option<&Decision>) -> Result<Option<Decision>, StudyError>,
    ) -> Result<Option<Decision>, StudyError> {
        let path = self.path.with_file_name(LOCK);
        // The operating system frees the lock with the process, however that ends.
        let lock = File::create(&path).map_err(StudyError::io("create", &path))?;
        lock.lock().map_err(StudyError::io("lock", &path))?;
        let mut decisions = self.read()?;
        let Some(decision) = next(decisions.last())? else { return Ok(None) };
        decisions.push(decision.clone());
        let mut lines = Vec::new();
        for decision in &decisions {
            serde_json::to_writer(&mut lines, decision).map_err(|error| StudyError::BadFile {
                path: self.path.clone(),
                problem: error.to_string(),
            })?;
            lines.push(b'\n');
        }
        export::replace(&self.path, &lines)?;
        Ok(Some(decision))
    }
}
