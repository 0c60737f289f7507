//! A study's folder: where things are, what is left to do, and the files that say what came out.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use scalerl_board::{Size, save};
use scalerl_study::analysis::Analysis;
use scalerl_study::race::{Decision, RaceLog, RaceReport};
use scalerl_study::record::{RunRecord, is_run};
use scalerl_study::state::{Glance, glance};
use scalerl_study::tuning::Sweep;
use scalerl_study::{Job, Plan, Purpose, StudyError, Variant, export, is_of_sweep, summary};
use serde::Serialize;

use crate::forecast::output;
use scalerl_report::study::{pages, race, tables};
use scalerl_report::table;

/// A planned study and its folder.
#[derive(Debug, Clone)]
pub(crate) struct Study {
    pub(crate) plan: Plan,
    pub(crate) folder: PathBuf,
}

/// `study.json`: where everything stands, made from the run folders.
#[derive(Debug, Serialize)]
struct Standing<'a> {
    study: &'a str,
    description: &'a str,
    budget: scalerl_study::Budget,
    base: &'a str,
    sweeps: Vec<(&'a str, &'a Sweep)>,
    runs: Vec<RunStanding>,
}

#[derive(Debug, Serialize)]
struct RunStanding {
    run: String,
    variant: String,
    seed: u64,
    purpose: Purpose,
    #[serde(flatten)]
    glance: Glance,
}

impl Study {
    pub(crate) fn runs(&self) -> PathBuf {
        self.folder.join("runs")
    }

    pub(crate) fn log(&self, run: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{run}.log"))
    }

    pub(crate) fn prepare(&self) -> Result<()> {
        for folder in ["runs", "logs", "recipes"] {
            let path = self.folder.join(folder);
            fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        }
        Ok(())
    }

    pub(crate) fn write_recipe(&self, job: &Job) -> Result<PathBuf> {
        let path = self.folder.join("recipes").join(format!("{}.toml", job.name));
        export::replace(&path, job.recipe.to_toml().as_bytes())?;
        Ok(path)
    }

    /// Every run of a variant, those of its sweep first; tuned as far as the sweep has come.
    pub(crate) fn jobs(&self, variant: &Variant) -> Result<Vec<Job>, StudyError> {
        let variant = &self.with_added_seeds(variant)?;
        let sweep = Sweep::look(variant, &self.runs())?;
        let mut jobs = variant.tuning()?;
        jobs.extend(variant.runs(sweep.chosen())?);
        Ok(jobs)
    }

    /// The decisions of its race; none without one.
    pub(crate) fn decisions(&self) -> Result<Vec<Decision>, StudyError> {
        RaceLog::in_folder(&self.folder).read()
    }

    /// A variant with the seeds that its race has added.
    fn with_added_seeds(&self, variant: &Variant) -> Result<Variant, StudyError> {
        let mut variant = variant.clone();
        let decisions = self.decisions()?;
        let added = decisions.last().map_or(&[][..], |last| &last.added_seeds);
        let own = added.iter().filter(|(name, _)| *name == variant.name).map(|(_, seed)| *seed);
        variant.seeds.extend(own);
        Ok(variant)
    }

    /// Every run of the study.
    pub(crate) fn all_jobs(&self) -> Result<Vec<Job>, StudyError> {
        let jobs: Result<Vec<Vec<Job>>, StudyError> =
            self.plan.variants.iter().map(|variant| self.jobs(variant)).collect();
        Ok(jobs?.into_iter().flatten().collect())
    }

    /// The runs of a variant that have not ended and may be started: those of its sweep until it
    /// has chosen, then the others. A sweep is over once a run has been started with its choice.
    pub(crate) fn open_jobs(&self, variant: &Variant) -> Result<Vec<Job>, StudyError> {
        let runs = self.runs();
        let is_open = |job: &Job| {
            Ok::<_, StudyError>(!glance(&runs.join(&job.name), job.budget)?.is_finished())
        };
        let variant = &self.with_added_seeds(variant)?;
        let sweep = Sweep::look(variant, &runs)?;
        let main = variant.runs(sweep.chosen())?;
        let has_begun = main.iter().any(|job| is_run(&runs.join(&job.name)));
        let mut found = Vec::new();
        if !has_begun {
            for job in variant.tuning()? {
                if is_open(&job)? {
                    found.push(job);
                }
            }
        }
        if matches!(sweep, Sweep::None | Sweep::Chosen { .. }) {
            for job in main {
                if is_open(&job)? {
                    found.push(job);
                }
            }
        }
        Ok(found)
    }

    /// The runs so far, without those of sweeps; and those of sweeps.
    fn records(&self) -> Result<(Vec<RunRecord>, Vec<RunRecord>)> {
        let (mut records, mut sweeps) = (Vec::new(), Vec::new());
        let decisions = self.decisions()?;
        let is_paused = |name: &str| {
            decisions.last().and_then(|last| last.of(name)).is_some_and(|one| !one.is_kept)
        };
        for variant in &self.plan.variants {
            let sweep = Sweep::look(variant, &self.runs())?;
            let tuned = variant.tune.as_ref().zip(sweep.chosen());
            let tuned = tuned.map(|(tune, value)| format!("{} = {value}", tune.key));
            for job in self.jobs(variant)? {
                let folder = self.runs().join(&job.name);
                if !is_run(&folder) {
                    continue;
                }
                let mut record = RunRecord::load(&folder)?;
                record.meta.study.clone_from(&self.plan.name);
                record.meta.variant.clone_from(&job.variant);
                match job.purpose {
                    Purpose::Run => {
                        record.meta.tuned.clone_from(&tuned);
                        if is_paused(&variant.name) && record.meta.status == "interrupted" {
                            record.pause();
                        }
                        records.push(record);
                    }
                    Purpose::Tune(_) => sweeps.push(record),
                }
            }
        }
        Ok((records, sweeps))
    }

    /// Makes every file anew from the run folders.
    pub(crate) fn refresh(&self) -> Result<Analysis> {
        let (records, sweeps) = self.records()?;
        let all: Vec<RunRecord> = records.iter().chain(&sweeps).cloned().collect();
        export::write(&self.folder, &all)?;
        let found = self.sweeps()?;
        self.write_standing(&found)?;
        self.write_pages(&records, &found)
    }

    /// Makes tables, figures and page anew from the points that were kept, without run folders.
    pub(crate) fn redraw(&self) -> Result<Analysis> {
        let all = export::read(&self.folder)?;
        let (sweeps, records): (Vec<RunRecord>, Vec<RunRecord>) =
            all.into_iter().partition(|record| is_of_sweep(&record.meta.run));
        let look = |one: &Variant| {
            Ok::<_, StudyError>((one.name.clone(), Sweep::of_records(one, &sweeps)?))
        };
        let found: Result<Vec<_>, StudyError> = self.plan.variants.iter().map(look).collect();
        self.write_pages(&records, &found?)
    }

    fn write_pages(&self, records: &[RunRecord], sweeps: &[(String, Sweep)]) -> Result<Analysis> {
        let names: Vec<String> = self.plan.variants.iter().map(|one| one.name.clone()).collect();
        let analysis = Analysis::of(records, &names, self.plan.budget);
        summary::write(&self.folder.join("study.csv"), &analysis)?;
        let race = self.race(&analysis)?;
        let text = tables::markdown(&self.plan, &analysis, sweeps, race.as_ref());
        export::replace(&self.folder.join("table.md"), text.as_bytes())?;
        if let Some(figure) = pages::curves(&self.plan, &analysis) {
            save(&figure, Size::WIDE, &self.folder.join("curves.png"))?;
        }
        if let Some(figure) = pages::slopes(&self.plan, &analysis) {
            save(&figure, Size::WIDE, &self.folder.join("slopes.png"))?;
        }
        let html = pages::page(&self.plan, &analysis, sweeps, race.as_ref()).html();
        export::replace(&self.folder.join("report.html"), html.as_bytes())?;
        Ok(analysis)
    }

    fn race(&self, analysis: &Analysis) -> Result<Option<RaceReport>> {
        Ok(RaceReport::of(&self.decisions()?, analysis, self.plan.budget))
    }

    fn sweeps(&self) -> Result<Vec<(String, Sweep)>> {
        let look =
            |variant: &Variant| Ok((variant.name.clone(), Sweep::look(variant, &self.runs())?));
        self.plan.variants.iter().map(look).collect()
    }

    fn write_standing(&self, sweeps: &[(String, Sweep)]) -> Result<()> {
        let mut runs = Vec::new();
        for job in self.all_jobs()? {
            let glance = glance(&self.runs().join(&job.name), job.budget)?;
            let Job { name: run, variant, seed, purpose, .. } = job;
            runs.push(RunStanding { run, variant, seed, purpose, glance });
        }
        let standing = Standing {
            study: &self.plan.name,
            description: &self.plan.description,
            budget: self.plan.budget,
            base: &self.plan.base().name,
            sweeps: sweeps
                .iter()
                .filter(|(_, sweep)| *sweep != Sweep::None)
                .map(|(name, sweep)| (name.as_str(), sweep))
                .collect(),
            runs,
        };
        let text = serde_json::to_vec_pretty(&standing)?;
        Ok(export::replace(&self.folder.join("study.json"), &text)?)
    }

    /// The tables and the chart, for the terminal.
    pub(crate) fn print(&self, analysis: &Analysis, out: &mut dyn Write) -> Result<()> {
        table::write(out, &tables::variants(analysis))?;
        writeln!(out)?;
        for line in tables::sentences(analysis) {
            writeln!(out, "  {line}")?;
        }
        if let Some(race) = self.race(analysis)? {
            writeln!(out, "\n  the race")?;
            table::write(out, &race::rows(&race))?;
            for line in race::sentences(&race) {
                writeln!(out, "  {line}")?;
            }
        }
        writeln!(out, "\n  forecast from the first half of each run, and what came")?;
        table::write(out, &tables::forecasts(analysis))?;
        if let Some(figure) = pages::curves(&self.plan, analysis) {
            output::chart(out, &figure)?;
        }
        Ok(())
    }
}
