//! Going back: a run that goes on from an earlier checkpoint than its newest, at a lower rate if asked.
//!
//! For the journal it is as if the run had been killed right after that checkpoint: what came after is
//! undone, its cost is booked as lost, every prompt is handed out again exactly once.

use std::io::Write;
use std::path::Path;
use std::str::FromStr;

use anyhow::Result;
use scalerl_engine::RunEnd;
use scalerl_journal::{
    Checkpoint, History, JournalError, RunFolder, StopReason, What, read_events,
};
use scalerl_recipe::{Recipe, WhenUnstable};
use scalerl_rollout::PolicyVersion;

use super::Args;
use super::destination::bad_folder;
use crate::failure::BadInput;

/// A run goes back by itself this often.
const MOST: usize = 2;
/// Of the learning rate, each time.
const LOWER: f64 = 0.5;

/// Which checkpoint to go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The one with the best primary pass rate.
    Best,
    /// The one of this step.
    Step(u64),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "best" => Ok(Self::Best),
            step => step.parse().map(Self::Step).map_err(|_| "`best`, or a step".to_owned()),
        }
    }
}

/// Makes the target the newest checkpoint of a run, whose newest one is kept under another name.
pub(crate) fn go_back(run: &Path, target: Target) -> Result<()> {
    let folder = RunFolder::open(run).map_err(|error| bad_folder(&error))?;
    let checkpoints = folder.own_checkpoints().map_err(|error| bad_folder(&error))?;
    let found = find(&folder, target).map_err(|error| bad_folder(&error))?;
    let Some(checkpoint) = found else {
        let list = checkpoints.list().map_err(|error| bad_folder(&error))?;
        let steps: Vec<String> = list.iter().map(|one| one.version.0.to_string()).collect();
        let message = format!("{}: no such checkpoint to go back to", run.display());
        let hint = format!("there are those of steps {}", steps.join(", "));
        return Err(BadInput::new(message).hint(hint).into());
    };
    checkpoint.verify().map_err(|error| bad_folder(&error))?;
    let undone = checkpoints.undo_after(&checkpoint).map_err(|error| bad_folder(&error))?;
    let mut screen = std::io::stderr();
    writeln!(screen, "going back to step {}", checkpoint.version.0)?;
    if let Some(undone) = undone {
        writeln!(screen, "the newest checkpoint is kept as {}", undone.display())?;
    }
    Ok(())
}

fn find(folder: &RunFolder, target: Target) -> Result<Option<Checkpoint>, JournalError> {
    let checkpoints = folder.checkpoints();
    match target {
        Target::Best => {
            let history = History::of(read_events(&folder.events())?);
            let points = history.points_by_set(&folder.name()).remove(&None).unwrap_or_default();
            checkpoints.best(&points)
        }
        Target::Step(step) => {
            let list = checkpoints.list()?;
            Ok(list.into_iter().find(|one| one.version == PolicyVersion(step)))
        }
    }
}

/// What goes on after an unstable end, if the recipe says that it should: from the best checkpoint, at
/// a lower rate. A run of several processes is told the command.
pub(super) fn after(
    end: &RunEnd,
    recipe: &Recipe,
    args: &Args,
    is_alone: bool,
    out: &mut dyn Write,
) -> Result<Option<Args>> {
    if end.reason != StopReason::Unstable {
        return Ok(None);
    }
    let rate = recipe.optimizer.lr * LOWER;
    let command = format!(
        "scalerl train --resume {} --from best --set optimizer.lr={rate:e}",
        end.folder.display()
    );
    if recipe.stopping.when_unstable != WhenUnstable::GoBack || !is_alone {
        writeln!(out, "go back with: {command}")?;
        return Ok(None);
    }
    let is_unstable =
        |what: &What| matches!(what, What::Stopped { reason: StopReason::Unstable, .. });
    let events = read_events(&RunFolder::open(&end.folder)?.events())?;
    let times = events.iter().filter(|event| is_unstable(&event.what)).count();
    if times > MOST {
        writeln!(out, "it has gone back {MOST} times and is unstable again; {command}")?;
        return Ok(None);
    }
    Ok(Some(Args {
        recipes: Vec::new(),
        set: vec![format!("optimizer.lr={rate:e}")],
        run: None,
        resume: Some(end.folder.clone()),
        from: Some(Target::Best),
        dry_run: false,
        price_per_hour: None,
        device_memory: None,
        no_history: args.no_history,
        // The page that is open stays open.
        #[cfg(feature = "watch")]
        watch: false,
        device: args.device.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_best_or_a_step() {
        assert_eq!("best".parse(), Ok(Target::Best));
        assert_eq!("40".parse(), Ok(Target::Step(40)));
        assert!("latest".parse::<Target>().is_err());
    }
}
