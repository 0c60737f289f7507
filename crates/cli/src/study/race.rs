//! A race as the supervisor sees it: how far each run may go, when to decide, what to say.
//!
//! All that is remembered is `race.jsonl` in the study's folder (`scalerl_study::race`); it is read
//! again before every decision, so several of these may look after one study.
//!
//! Not here: the rule (`scalerl_study::race`), starting and stopping (`supervise.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use scalerl_journal::Reading;
use scalerl_study::race::{Contestant, Decision, Judged, Limits, RaceLog, RacingRun};
use scalerl_study::state::glance;
use scalerl_study::tuning::Sweep;
use scalerl_study::{Job, Plan, Purpose, StudyError, Variant, history};

use super::outcome::Study;
use crate::forecast::output::say;
use scalerl_report::words;

/// What was asked of a race.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) limits: Limits,
    /// Does the compute that is saved go to more seeds?
    pub(crate) adds_seeds: bool,
    /// The user's library of finished runs, where there is one.
    pub(crate) library: Option<PathBuf>,
}

pub(crate) struct Race<'a> {
    study: &'a Study,
    plan: &'a Plan,
    wanted: Wanted,
    log: RaceLog,
    last: Decision,
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl<'a> Race<'a> {
    /// Begins a race, or goes on with the one in the study's folder.
    pub(crate) fn open(
        study: &'a Study,
        plan: &'a Plan,
        wanted: Wanted,
    ) -> Result<Self, StudyError> {
        let log = RaceLog::in_folder(&study.folder);
        let names = plan.variants.iter().map(|variant| variant.name.clone());
        let begun = log.decide(|last| Ok(last.is_none().then(|| Decision::first(names, now()))))?;
        let last = match begun {
            Some(first) => Some(first),
            None => log.read()?.pop(),
        };
        let last = last.unwrap_or_else(|| Decision::first(std::iter::empty(), now()));
        Ok(Self { study, plan, wanted, log, last })
    }

    /// How far a run may go, as a share of its compute.
    pub(crate) fn until(&self, job: &Job) -> f64 {
        let is_added =
            |(variant, seed): &(String, u64)| *variant == job.variant && *seed == job.seed;
        if job.purpose != Purpose::Run || self.last.added_seeds.iter().any(is_added) {
            return 1.0;
        }
        let judged = self.last.of(&job.variant);
        judged.map_or(scalerl_study::race::RUNGS[0], |judged| judged.until)
    }

    /// Has a run come as far as it may?
    pub(crate) fn is_there(&self, job: &Job) -> Result<bool, StudyError> {
        let seen = glance(&self.study.runs().join(&job.name), job.budget)?;
        Ok(seen.measured_share >= self.until(job))
    }

    /// May a run be started now? One that has come as far as it may waits.
    pub(crate) fn may_run(&self, job: &Job) -> Result<bool, StudyError> {
        Ok(!self.is_there(job)?)
    }

    /// Should a running one stop? Only where it has come as far as it may: at once if its variant
    /// is paused; else when another run waits for its place, because starting anew costs time.
    pub(crate) fn is_to_pause(&self, job: &Job, others_wait: bool) -> Result<bool, StudyError> {
        let is_paused = self.last.of(&job.variant).is_some_and(|judged| !judged.is_kept);
        Ok((is_paused || others_wait) && job.purpose == Purpose::Run && self.is_there(job)?)
    }

    /// Decides, as often as everyone has come as far as he may. `failed` runs are out.
    pub(crate) fn look(&mut self, failed: &BTreeMap<String, String>) -> Result<(), StudyError> {
        loop {
            let (study, plan, wanted) = (self.study, self.plan, &self.wanted);
            let mut last = None;
            let decided = self.log.decide(|known| {
                last = known.cloned();
                let Some(known) = known.filter(|known| !known.is_over) else { return Ok(None) };
                let Some(field) = field(study, plan, wanted, known, failed)? else {
                    return Ok(None);
                };
                let mut next = known.next(&field, wanted.limits, now());
                if next.is_over && wanted.adds_seeds {
                    add_seeds(&mut next, study, plan, failed)?;
                }
                Ok(Some(next))
            })?;
            let Some(decided) = decided else {
                self.last = last.unwrap_or_else(|| self.last.clone());
                return Ok(());
            };
            tell(last.as_ref(), &decided);
            self.last = decided;
        }
    }
}

/// The contestants, once every run has come as far as it may; `None` before that.
fn field(
    study: &Study,
    plan: &Plan,
    wanted: &Wanted,
    known: &Decision,
    failed: &BTreeMap<String, String>,
) -> Result<Option<Vec<Contestant>>, StudyError> {
    let mut jobs = Vec::new();
    for variant in &plan.variants {
        let sound = sound_jobs(study, variant, failed)?;
        let until = known.of(&variant.name).map_or(scalerl_study::race::RUNGS[0], |j| j.until);
        for job in &sound {
            if glance(&study.runs().join(&job.name), job.budget)?.measured_share < until {
                return Ok(None);
            }
        }
        jobs.push((variant.name.clone(), sound));
    }
    let contestant = |(name, jobs): (String, Vec<Job>)| {
        let mut runs = Vec::new();
        for job in &jobs {
            let folder = study.runs().join(&job.name);
            let own = Reading::environment_of(&folder).map(|one| one.provenance);
            let history = history::gather(
                &study.runs(),
                wanted.library.as_deref(),
                &own.unwrap_or_default(),
            )?;
            runs.extend(RacingRun::load(&folder, job.budget, history)?);
        }
        Ok::<_, StudyError>(Contestant { name, runs })
    };
    jobs.into_iter().map(contestant).collect::<Result<Vec<_>, _>>().map(Some)
}

/// The runs of a variant that the race is about: none where its sweep came to nothing.
fn sound_jobs(
    study: &Study,
    variant: &Variant,
    failed: &BTreeMap<String, String>,
) -> Result<Vec<Job>, StudyError> {
    let sweep = Sweep::look(variant, &study.runs())?;
    if sweep == Sweep::Failed {
        return Ok(Vec::new());
    }
    let mut jobs = variant.runs(sweep.chosen())?;
    jobs.retain(|job| !failed.contains_key(&job.name));
    Ok(jobs)
}

/// As many whole runs as were saved, to those that went on.
fn add_seeds(
    decision: &mut Decision,
    study: &Study,
    plan: &Plan,
    failed: &BTreeMap<String, String>,
) -> Result<(), StudyError> {
    let mut saved = 0.0;
    for variant in &plan.variants {
        for job in sound_jobs(study, variant, failed)? {
            saved += 1.0 - glance(&study.runs().join(&job.name), job.budget)?.share;
        }
    }
    let seeds = |name: &str| {
        let variant = plan.variants.iter().find(|variant| variant.name == name);
        variant.map(|variant| variant.seeds.clone()).unwrap_or_default()
    };
    decision.add_seeds(saved.floor() as usize, &seeds);
    Ok(())
}

/// A line for everyone who is paused or comes back, and for seeds that are added.
fn tell(before: Option<&Decision>, now: &Decision) {
    for judged in &now.variants {
        let was_kept = before.and_then(|one| one.of(&judged.variant)).is_none_or(|one| one.is_kept);
        if was_kept != judged.is_kept {
            say(&format!("race: {}", change(judged)));
        }
    }
    let seeds: BTreeSet<&str> = now.added_seeds.iter().map(|(name, _)| name.as_str()).collect();
    if !seeds.is_empty() {
        let names: Vec<&str> = seeds.into_iter().collect();
        let count = now.added_seeds.len();
        say(&format!("race: what was saved pays for {count} more runs of {}", names.join(", ")));
    }
}

fn change(judged: &Judged) -> String {
    let Judged { variant, share, forecast, adds, is_kept, .. } = judged;
    let Some((forecast, adds)) = forecast.zip(*adds) else {
        return format!("{variant} is out: it cannot be forecast");
    };
    let end = words::interval(forecast.value, forecast.low, forecast.high);
    let word = if *is_kept { "comes back" } else { "is paused" };
    format!(
        "{variant} {word} at {:.1} % of its compute: its end is forecast as {end}, which adds \
         {adds:.4} to the best of those that go on",
        100.0 * share
    )
}
