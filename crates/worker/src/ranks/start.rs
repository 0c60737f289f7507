//! The learner of a rank, in the scheme that the recipe names.

use scalerl_model::train::{Learner, StartError};
use scalerl_model::unloaded::UnloadedModel;
use scalerl_recipe::{Recipe, Sharding};
use scalerl_torch::collective::ProcessGroup;

use crate::options::learner_options;

/// Makes the learner of one rank; all ranks make theirs together.
pub(super) fn learner(
    recipe: &Recipe,
    model: UnloadedModel,
    data: ProcessGroup,
) -> Result<Learner, StartError> {
    let options = learner_options(recipe, model.device);
    match recipe.cluster.sharding {
        Sharding::Full => Learner::fully_sharded(model, options, data),
        Sharding::Optimizer => Learner::sharded(model, options, data),
    }
}
