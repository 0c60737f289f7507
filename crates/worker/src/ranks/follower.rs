//! Ranks other than 0: they do what rank 0 says until it says that the run is over.

use scalerl_model::train::checkpoint::restore_together;
use scalerl_model::train::{RankError, StartError};
use scalerl_model::unloaded::UnloadedModel;
use scalerl_recipe::Recipe;
use scalerl_rollout::{PolicyVersion, TrainerError};
use thiserror::Error;

use super::command::{Command, CommandError, take};
use super::saving::Writer;
use super::start::learner;
use super::step::step_together;
use super::team::Team;
use crate::memory::Holders;
use crate::policy::Policy;

/// Why a rank stopped before rank 0 said so.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FollowError {
    /// Rank 0 is gone, frozen, or speaks another version.
    #[error("no command from rank 0: {0}")]
    Command(#[from] CommandError),
    #[error("the learner cannot be made: {0}")]
    Start(#[from] StartError),
    #[error(transparent)]
    Ranks(#[from] RankError),
    #[error(transparent)]
    Step(#[from] TrainerError),
}

impl FollowError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Command(CommandError::Ranks(RankError::Collective(error)))
            | Self::Ranks(RankError::Collective(error)) => error.hint(),
            Self::Command(_) => "start every rank from the same build",
            _ => "look at the output of rank 0, then resume the run",
        }
    }
}

/// Serves as one of the trainer's ranks until rank 0 ends the run. Takes the run's starting model, on
/// the device to train on; returns the version that was reached.
pub fn follow(
    recipe: &Recipe,
    model: impl Into<UnloadedModel>,
    mut team: Team,
) -> Result<PolicyVersion, FollowError> {
    assert!(team.rank() > 0, "rank 0 leads");
    let model = model.into();
    let place = (team.rank(), team.size());
    let holders = Holders::on(model.device, recipe, &model.config, place);
    let learner = learner(recipe, model, team.take_data())?;
    let mut policy = Policy::try_new(recipe, learner, holders).map_err(RankError::from)?;
    let mut writer = Writer::of(&team);
    loop {
        team.ranks.control.set_timeout(team.deadlines.silence);
        let command = take(&team.ranks)?;
        team.ranks.control.set_timeout(team.deadlines.operation);
        let ranks = &team.ranks;
        match command {
            Command::Wait => {}
            Command::Step { version, share } => {
                match step_together(&mut policy, ranks, version, &share) {
                    // Numbers that are not finite are rank 0's to judge; everybody has seen them.
                    Ok(_) | Err(TrainerError::NotFinite { .. }) => {}
                    Err(error) => {
                        // What was copied before it is whole.
                        writer.end(team.deadlines.operation);
                        return Err(error.into());
                    }
                }
            }
            // What all have agreed has failed is rank 0's to tell.
            Command::Save => writer.begin(&policy.learner, &team)?,
            Command::Restore => drop(restore_together(&mut policy.learner, ranks, None)?),
            Command::ShowWeights => policy.learner.each_unit(|_, _| Ok::<(), RankError>(()))?,
            Command::End => {
                writer.end(team.deadlines.operation);
                return Ok(policy.version());
            }
        }
    }
}
