//! A trainer rank other than 0: the same model, then what rank 0 says.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use scalerl_recipe::Recipe;
use scalerl_torch::tch::Device;
use scalerl_worker::ranks::{Launch, Team, follow};

use super::rank_deadlines;
use crate::failure::Failed;
use crate::train::memory::Places;
use crate::train::policy::Policy;

/// Serves until rank 0 ends the run. `run` is the folder of a run that has begun, where that is known.
pub(crate) fn run(
    recipe: &Recipe,
    launch: &Launch,
    device: Device,
    run: Option<&Path>,
) -> Result<()> {
    let places = Places::other(device, launch);
    let policy = match run.and_then(Policy::recorded) {
        Some(policy) => policy.fitting(recipe, places)?,
        // Rank 0 makes the same: one of them does, the others wait for it.
        None => match Policy::prepare(recipe, places)? {
            Some(policy) => policy,
            // Asked to stop, as rank 0 was, which says so.
            None => return Ok(()),
        },
    };
    let model = policy.load_for_rank(recipe, device)?;
    let team = Team::join(launch, device, rank_deadlines(recipe));
    let team = team.map_err(|error| {
        let hint = error.hint();
        Failed::new(error, hint)
    })?;
    let reached = follow(recipe, model, team).map_err(|error| {
        let hint = error.hint();
        Failed::new(error, hint)
    })?;
    writeln!(std::io::stderr(), "trainer rank {}: done after step {}", launch.rank, reached.0)?;
    Ok(())
}
