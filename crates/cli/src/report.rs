//! `scalerl report`: one HTML page about a run folder, whether the run has ended, goes on or was
//! killed; and the summary that the terminal shows when a run is over.
//!
//! ```text
//! RUN --journal--> story --curve--> findings --board--> RUN/report.html
//!                                      '--> summary (terminal) | --json
//! ```
//!
//! Each section of the page is a module of its own. What a run has not got yet (evaluations, enough
//! points for a fit, samples) gets a sentence in its place. Reads files only, so it builds without
//! libtorch.

mod axes;
mod compute;
mod curve;
mod forecasts;
mod halftime;
mod headline;
mod recipe;
mod samples;
mod sets;
mod steps;
mod story;
mod trace;
mod trouble;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use scalerl_board::{Block, Page, Section};
use scalerl_curve::Fit;

use forecasts::Checked;
use halftime::HalfTime;
use headline::Headline;
use story::{State, Story};

use crate::failure::BadInput;
use crate::forecast::output;

/// Options of `scalerl report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the run.
    run: PathBuf,
    /// Where the page goes. Default: report.html in the run's folder.
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Compute axis. Default: the recipe's (budget.axis).
    #[arg(long, value_name = "AXIS")]
    x: Option<axes::Chosen>,
    /// The numbers as JSON, and no page unless --out asks for one.
    #[arg(long)]
    json: bool,
}

/// What the points say.
struct Findings {
    fit: Result<Fit, String>,
    half_time: Result<HalfTime, String>,
    forecasts: Vec<Checked>,
}

impl Findings {
    fn of(story: &Story) -> Self {
        let fits = rayon::join(|| curve::fit(story), || halftime::test(story));
        Self { fit: fits.0, half_time: fits.1, forecasts: forecasts::check(story) }
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    check_out(args)?;
    let story = Story::load(&args.run, args.x.map(axes::Chosen::axis))?;
    let findings = Findings::of(&story);
    let headline = Headline::new(&story, &findings);
    if args.json {
        output::json(out, &headline)?;
    } else {
        headline.write(out)?;
    }
    let default = (!args.json).then(|| args.run.join("report.html"));
    if let Some(path) = args.out.clone().or(default) {
        output::page(&path, page(&story, &findings, &args.run))?;
    }
    Ok(())
}

/// The end of `scalerl train`: summary and page.
#[cfg(feature = "train")]
pub(crate) fn close(run: &Path, out: &mut dyn Write) -> Result<()> {
    let story = Story::load(run, None)?;
    let findings = Findings::of(&story);
    Headline::new(&story, &findings).write(out)?;
    output::page(&run.join("report.html"), page(&story, &findings, run))
}

/// Refuses a place that cannot be written, or that would overwrite the run itself.
fn check_out(args: &Args) -> Result<(), BadInput> {
    let Some(path) = &args.out else { return Ok(()) };
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    if !matches!(ending.as_deref(), Some("html" | "htm")) {
        let message = format!("--out {}: a report is an HTML page", path.display());
        return Err(BadInput::new(message).hint("end the name in .html"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            let message = format!("{}: no such folder", folder.display());
            Err(BadInput::new(message).hint("make it first, or choose another place"))
        }
        None => Ok(()),
    }
}

fn page(story: &Story, findings: &Findings, path: &Path) -> Page {
    Page {
        title: format!("Run {}", story.name),
        subtitle: recipe::subtitle(story),
        sections: vec![
            opening(story, findings, path),
            curve::section(story, &findings.fit),
            curve::half_time_section(story, &findings.half_time),
            forecasts::section(story, &findings.forecasts),
            sets::section(story),
            compute::section(story),
            steps::section(story),
            trouble::section(story),
            samples::section(story),
            recipe::section(story),
        ],
    }
}

fn opening(story: &Story, findings: &Findings, path: &Path) -> Section {
    let headline = Headline::new(story, findings);
    let mut pairs = about(story);
    pairs.extend(headline.rows());
    let mut blocks = vec![Block::Headlines(vec![headline.opening()]), Block::KeyValues(pairs)];
    if let Some(command) = resume_command(story, path) {
        blocks.push(Block::Prose(match story.checkpoints.last() {
            Some(last) => format!("To go on from the checkpoint of step {}:", last.version.0),
            None => "There is no checkpoint; to go on from the start:".to_owned(),
        }));
        blocks.push(Block::Code(command));
    }
    Section { heading: String::new(), blocks }
}

/// What ran, and on what.
fn about(story: &Story) -> Vec<(String, String)> {
    let environment = &story.environment;
    let model = match &story.recipe {
        Ok(recipe) => recipe.model.path.clone().unwrap_or_else(|| "not named".to_owned()),
        Err(_) => "unknown: this release cannot read the recipe".to_owned(),
    };
    let commit = environment.commit.as_deref().unwrap_or("not recorded");
    let mut pairs = vec![
        ("model", model),
        ("program", format!("scalerl {}, commit {commit}", environment.scalerl)),
        ("devices", environment.devices.join(", ")),
        ("machine", environment.machine.clone()),
        ("command", environment.command.join(" ")),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// How to go on, for a run that has not come to its end.
fn resume_command(story: &Story, path: &Path) -> Option<String> {
    use scalerl_journal::StopReason::{
        DeviceHours, ForecastGain, NoPrompts, NothingToLearn, Steps, Target, Tokens, WallHours,
    };
    let is_over = match &story.state {
        State::Running => true,
        State::Killed | State::Failed { .. } => false,
        State::Ended { reason } => matches!(
            reason,
            Steps
                | DeviceHours
                | WallHours
                | Tokens
                | Target
                | ForecastGain
                | NoPrompts
                | NothingToLearn
        ),
    };
    let recipe = path.join("recipe.toml");
    (!is_over).then(|| format!("scalerl train {} --resume {}", recipe.display(), path.display()))
}
