//! `scalerl study`: a base recipe and its variants, run, forecast and compared.
//!
//! ```text
//! STUDY.toml -> plan (all recipes checked) -> supervise: one `scalerl train` process a run
//!                                                  └─ run folders -> outcome: table, plots, page
//! OUT/
//!   runs/NAME/            ordinary run folders          recipes/NAME.toml   what each was given
//!   logs/NAME.log         what its process said         study.json          where everything stands
//!   table.md  study.csv  curves.png  slopes.png  report.html                what came out
//!   points.csv  runs.jsonl  race.jsonl                  the small files worth committing
//! ```
//!
//! Everything in OUT but `runs/`, `logs/` and `race.jsonl` (what a race has decided) is made from the
//! run folders and can be made again.

mod gpus;
mod outcome;
mod race;
mod show;
mod supervise;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use scalerl_report::study::tables;
use scalerl_study::race::{Limits, USUAL_LIMITS};
use scalerl_study::record::{self, RunRecord};
use scalerl_study::{Plan, StudyError, StudyFile, state};

use crate::failure::BadInput;
use crate::forecast::output::say;
use outcome::Study;
use race::Race;
use supervise::{Ended, Supervisor};

/// Options of `scalerl study`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Args {
    /// A shipped study (leave-one-out, recipes, smoke, …) or a file.
    study: String,
    /// Go on with a study that was stopped or killed.
    #[arg(long)]
    resume: bool,
    /// Only this variant or run; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Runs at the same time. More than one on a device makes its times incomparable.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: u32,
    /// Pause variants at rungs of compute while little is expected to be lost without them.
    #[arg(long, conflicts_with = "only")]
    race: bool,
    /// The expected loss, in pass rate, up to which variants are paused.
    #[arg(long, value_name = "LOSS", requires = "race", default_value_t = USUAL_LIMITS.pause, value_parser = loss)]
    race_loss: f64,
    /// Spend what the race saves on more seeds of the variants that went on.
    #[arg(long, requires = "race")]
    add_seeds: bool,
    /// Folder of the study. Default: runs/STUDY.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the runs that would be made, and stop.
    #[arg(long)]
    dry_run: bool,
    /// Make tables, figures and page anew from the points.csv and runs.jsonl in --out; run nothing.
    #[arg(long, requires = "out", conflicts_with_all = ["resume", "only", "dry_run"])]
    redraw: bool,
    /// Program that is run as `PROGRAM train …` instead of this one.
    #[arg(long, hide = true)]
    program: Option<PathBuf>,
}

/// Between nothing and all there is.
fn loss(text: &str) -> Result<f64, String> {
    let loss: f64 = text.parse().map_err(|_| "is not a number".to_owned())?;
    let is_usable = (0.0..=0.2).contains(&loss);
    is_usable.then_some(loss).ok_or_else(|| "a pass rate between 0 and 0.2".into())
}

pub(crate) fn bad_input(error: &StudyError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}

/// Every run that some paths stand for.
pub(crate) fn records(paths: &[PathBuf]) -> Result<Vec<RunRecord>, BadInput> {
    let found: Result<Vec<_>, _> = paths.iter().map(|path| record::find(path)).collect();
    Ok(found.map_err(|error| bad_input(&error))?.concat())
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let file = StudyFile::load(&args.study).map_err(|error| bad_input(&error))?;
    let plan = Plan::of(&file).map_err(|error| bad_input(&error))?;
    let chosen = plan.clone().only(&args.only).map_err(|error| bad_input(&error))?;
    if args.dry_run {
        return dry_run(&chosen, out);
    }
    if let Some(folder) = args.out.clone().filter(|_| args.redraw) {
        let study = Study { plan, folder };
        let analysis = study.redraw().map_err(kept)?;
        return study.print(&analysis, out);
    }
    plan.check_runnable(&file).map_err(|error| bad_input(&error))?;
    let folder = args.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(&plan.name));
    let study = Study { plan, folder };
    check_folder(args, &study)?;
    let program = program(args)?;
    if args.jobs > 1 && study.plan.budget.axis == scalerl_recipe::Axis::DeviceHours {
        say("note: the budget is device-time, and runs that share a device slow each other down");
    }
    study.prepare()?;
    let race = race(args, &study)?;
    let ended = Supervisor::new(&study, &chosen, program, args.jobs as usize, race)?.run()?;
    let analysis = study.refresh()?;
    study.print(&analysis, out)?;
    finish(&study, args, &ended)
}

/// The race that was asked for. One that was begun, and is not asked for now, is run to its end.
fn race<'a>(args: &Args, study: &'a Study) -> Result<Option<Race<'a>>> {
    if !args.race {
        let decisions = study.decisions().map_err(|error| bad_input(&error))?;
        if decisions.last().is_some_and(|last| last.variants.iter().any(|one| !one.is_kept)) {
            say("note: this study was raced; without --race its paused runs go on to their end");
        }
        return Ok(None);
    }
    // Coming back takes as much more than pausing as in the limits that were chosen.
    let back = args.race_loss * USUAL_LIMITS.back / USUAL_LIMITS.pause;
    let wanted = race::Wanted {
        limits: Limits { pause: args.race_loss, back },
        adds_seeds: args.add_seeds,
        library: crate::history::usual_file().ok(),
    };
    Ok(Some(Race::open(study, &study.plan, wanted).map_err(|error| bad_input(&error))?))
}

/// What is wrong with points that were kept is wrong with the input.
fn kept(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<StudyError>() {
        Ok(error) => bad_input(&error).into(),
        Err(error) => error,
    }
}

/// What the last line says, and whether the command has failed.
fn finish(study: &Study, args: &Args, ended: &Ended) -> Result<()> {
    say(&format!("wrote {}", study.folder.join("report.html").display()));
    if ended.was_stopped {
        let folder = study.folder.display();
        let race = if args.race { " --race" } else { "" };
        let study = &args.study;
        say(&format!("stopped; go on with: scalerl study {study} --resume{race} --out {folder}"));
    }
    if ended.failures.is_empty() {
        return Ok(());
    }
    let count = ended.failures.len();
    let lines: Vec<String> =
        ended.failures.iter().map(|(run, reason)| format!("  {run}: {reason}")).collect();
    anyhow::bail!(
        "{count} {} failed; --resume tries again\n{}",
        if count == 1 { "run" } else { "runs" },
        lines.join("\n")
    )
}

/// A folder that holds runs is only gone on with on purpose, and only with the same recipes.
fn check_folder(args: &Args, study: &Study) -> Result<(), BadInput> {
    let runs = study.runs();
    let holds_runs = std::fs::read_dir(&runs).is_ok_and(|mut entries| entries.next().is_some());
    if holds_runs && !args.resume {
        let message = format!("{} holds runs already", study.folder.display());
        return Err(BadInput::new(message)
            .hint("go on with them with --resume, or choose another folder with --out"));
    }
    // A study that was stopped in its first warm-up is begun, and holds no run yet.
    let is_begun = study.folder.join("recipes").is_dir();
    if !holds_runs && !is_begun && args.resume {
        let message = format!("{} holds no runs to go on with", study.folder.display());
        return Err(BadInput::new(message).hint("leave out --resume, or check --out"));
    }
    let jobs = study.all_jobs().map_err(|error| bad_input(&error))?;
    for job in &jobs {
        let folder = runs.join(&job.name);
        state::check_recipe(&folder, job).map_err(|error| bad_input(&error))?;
    }
    Ok(())
}

fn program(args: &Args) -> Result<PathBuf> {
    if let Some(program) = &args.program {
        return Ok(program.clone());
    }
    if !cfg!(feature = "train") {
        let message = "this build of scalerl cannot train, so it cannot run a study";
        return Err(BadInput::new(message).hint("install it with its default features").into());
    }
    Ok(crate::launcher::program()?)
}

fn dry_run(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}: {}\n", plan.name, plan.description)?;
    scalerl_report::table::write(out, &tables::planned(plan)?)?;
    Ok(())
}
