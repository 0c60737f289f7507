//! The learner of a rank, in the scheme that the recipe names.

use scalerl_model::train::{Learner, StartError};
use scalerl_model::unloaded::UnloadedModel;
use scalerl_recipe::{Recipe, Sharding};
use scalerl_torch::collective::ProcessGroup;
use tch::Kind;

use crate::options::{compute_kind, learner_options};

/// Makes the learner of one rank; all ranks make theirs together.
pub(super) fn learner(
    recipe: &Recipe,
    model: UnloadedModel,
    data: ProcessGroup,
) -> Result<Learner, StartError> {
    let options = learner_options(recipe, model.device);
    match recipe.cluster.sharding {
        Sharding::Full => Learner::fully_sharded(model, options, data),
        Sharding::Optimizer => {
            let kind = starting_kind(recipe, &model);
            let model = model.load(kind)?;
            Ok(Learner::sharded(model, options, data)?)
        }
    }
}

/// The kind in which a whole model is read: masters as they are saved, a frozen base as it computes.
fn starting_kind(recipe: &Recipe, model: &UnloadedModel) -> Kind {
    if model.has_adapter() { compute_kind(recipe, model.device) } else { Kind::Float }
}
