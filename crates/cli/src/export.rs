//! `scalerl export`: a run to an experiment tracker, later, or the rest of one that it has not got.
//!
//! The same delivery as beside a run that is alive, with the same cursor: nothing is sent twice.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use scalerl_journal::RunFolder;
use scalerl_recipe::{Override, Recipe, TrackerChoice};
use scalerl_track::{Delivery, Outcome, Target, TrackError};

use crate::failure::{BadInput, Failed};
use crate::recipe::resolve_kept;

/// Tries after trouble, and the pause between them.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(2);

/// Options of `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the run, ended or alive.
    run: PathBuf,
    /// tensorboard, wandb, mlflow, trackio or jsonl.
    #[arg(long, value_name = "TRACKER", value_parser = clap::builder::PossibleValuesParser::new(TrackerChoice::NAMES))]
    to: String,
    /// Address of the server (mlflow, trackio). Default: the recipe's, or MLFLOW_TRACKING_URI,
    /// TRACKIO_SERVER_URL.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Project or experiment. Default: the recipe's (track.project).
    #[arg(long, value_name = "NAME")]
    project: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let target = target(args)?;
    let mut delivery = Delivery::new(&args.run, target.clone()).map_err(|error| bad(&error))?;
    let before = delivery.rows();
    send(&mut delivery)?;
    let (name, rows) = (target.name(), delivery.rows());
    let new = rows.saturating_sub(before);
    writeln!(out, "{name} has {rows} rows, {new} of them new")?;
    writeln!(out, "{}", target.advice(&args.run))?;
    Ok(())
}

/// What the recipe says of this tracker, the options over it.
fn target(args: &Args) -> Result<Target> {
    let folder = RunFolder::open(&args.run).map_err(|error| {
        let hint = error.hint();
        BadInput::new(error).hint(hint)
    })?;
    // The recipe of a run that was made by hand, or by a later release, need not be one of ours.
    let kept = resolve_kept(&folder.recipe(), &[]).ok().map(|recipe| recipe.track.clone());
    let kept = kept.unwrap_or_default();
    let mut set = Vec::new();
    if let Some(project) = &args.project {
        set.push(format!("track.project={project}"));
    }
    set.push(match (&args.url, args.to.as_str()) {
        (Some(url), "mlflow" | "trackio") => {
            format!("track.to=[{{ type = {:?}, url = {url:?} }}]", args.to)
        }
        (Some(_), name) => {
            let message = format!("{name} writes files, and takes no --url");
            return Err(BadInput::new(message).hint("leave --url out").into());
        }
        (None, name) => format!("track.to=[{name:?}]"),
    });
    let overrides = set.iter().map(|text| Override::parse(text)).collect::<Result<Vec<_>, _>>();
    let asked = overrides.and_then(|set| Recipe::load(&[], &set)).map_err(BadInput::new)?;
    let asked = &asked.track;
    let own = kept.to.iter().find(|choice| choice.name() == args.to && args.url.is_none());
    let choice = own.unwrap_or(&asked.to[0]);
    let project = if args.project.is_some() { &asked.project } else { &kept.project };
    Ok(Target::new(choice, project).map_err(|error| bad(&error))?)
}

/// Until everything is there; trouble is tried again a few times.
fn send(delivery: &mut Delivery) -> Result<()> {
    let (mut tries, started) = (0, Instant::now());
    loop {
        let done = match delivery.pass() {
            Ok(Outcome::Sent) => continue,
            Ok(Outcome::UpToDate) => delivery.finish(),
            Err(error) => Err(error),
        };
        let Err(error) = done else { return Ok(()) };
        tries += 1;
        if tries >= TRIES {
            let hint = error.hint();
            return Err(Failed::new(error, hint).into());
        }
        let (name, seconds) = (delivery.target().name(), started.elapsed().as_secs());
        writeln!(std::io::stderr(), "{name}: {error}; tried again ({seconds} s)")?;
        std::thread::sleep(PAUSE);
    }
}

fn bad(error: &TrackError) -> BadInput {
    BadInput::new(error).hint(error.hint())
}
