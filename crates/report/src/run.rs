//! A run folder as a page, whether the run has ended, goes on or was killed; and the dozen numbers that
//! the terminal shows when a run is over.
//!
//! ```text
//! RUN --journal--> story --curve--> findings --board--> a page
//!                                      '--> summary (terminal) | JSON
//! ```
//!
//! Each section of the page is a module of its own. What a run has not got yet (evaluations, enough
//! points for a fit, samples) gets a sentence in its place. Reads files only, so it builds without
//! libtorch.

pub mod compute;
mod curve;
pub mod forecasts;
mod halftime;
mod headline;
mod recipe;
mod samples;
mod sets;
mod steps;
mod story;
mod trace;
mod trouble;

use std::path::Path;

use scalerl_board::{Block, Page, Section};
use scalerl_curve::Fit;
use scalerl_journal::{JournalError, Status};
use scalerl_recipe::Axis;

use forecasts::Checked;
use halftime::HalfTime;
pub use headline::Headline;
pub use samples::shortened;
use story::Story;

/// A run, read and judged.
pub struct RunReport {
    story: Story,
    findings: Findings,
}

impl RunReport {
    /// Reads a run folder; `axis` in place of the recipe's.
    pub fn load(path: &Path, axis: Option<Axis>) -> Result<Self, JournalError> {
        let story = Story::load(path, axis)?;
        let findings = Findings::of(&story);
        Ok(Self { story, findings })
    }

    /// The run in a dozen numbers.
    pub fn headline(&self) -> Headline<'_> {
        Headline::new(&self.story, &self.findings)
    }

    /// All about it; `path` is the run's, for the command that goes on.
    pub fn page(&self, path: &Path) -> Page {
        page(&self.story, &self.findings, path)
    }
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
        Self {
            fit: fits.0,
            half_time: fits.1,
            forecasts: forecasts::check(&story.forecasts, &story.points),
        }
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
        ("trained", environment.adapter.map(|size| size.to_string()).unwrap_or_default()),
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
    let is_over = match &story.status {
        Status::Open => story.is_held,
        Status::Failed { .. } => false,
        Status::Stopped { reason } => matches!(
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
