//! Whether the trainers of a run can own its model's experts; refused before anything is spent.

use anyhow::Result;
use scalerl_model::config::ModelConfig;
use scalerl_recipe::{Experts, Recipe};

use crate::failure::BadInput;

/// Refuses experts that cannot be divided among so many trainers.
pub(crate) fn check(recipe: &Recipe, config: &ModelConfig, trainers: u64) -> Result<()> {
    if recipe.cluster.experts != Experts::Owned || config.can_be_owned_by(trainers) {
        return Ok(());
    }
    let Some(count) = config.indivisible_experts(trainers) else {
        let message = "cluster.experts is \"owned\", and the model has no experts";
        return Err(BadInput::new(message).hint("set cluster.experts = \"gathered\"").into());
    };
    let message = format!(
        "cluster.experts is \"owned\", and {trainers} trainers cannot own {count} experts in equal numbers"
    );
    let hint = format!(
        "set cluster.trainers to a number that divides {count}, or cluster.experts = \"gathered\""
    );
    Err(BadInput::new(message).hint(hint).into())
}
