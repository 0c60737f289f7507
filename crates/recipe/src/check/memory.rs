//! What saves memory and does not go with several processes.

use super::{Refusal, Verdict, refuse};
use crate::{Adapter, Compute, GeneratorChoice, Gradients, Recipe, WeightSets};

impl Recipe {
    /// Whether trainer and generator compute with one set of weights. An adapter's own are few, and its
    /// base is held once anyway.
    pub fn shares_weights(&self) -> bool {
        self.pipeline.weights == WeightSets::Shared && self.adapter == Adapter::None
    }

    /// Why it does not go with so many trainers, and what to do: a launcher may start more than the recipe
    /// says.
    pub fn goes_with_trainers(&self, trainers: u32) -> Result<(), (String, &'static str)> {
        let mut recipe = self.clone();
        recipe.cluster.trainers = trainers;
        for check in [one_set_of_weights_has_one_place, summed_gradients_are_in_one_place] {
            check(&recipe).map_err(|Refusal { key, reason, remedy, .. }| {
                (format!("{key} does not go with {trainers} trainers: {reason}"), remedy)
            })?;
        }
        Ok(())
    }
}

pub(super) fn one_set_of_weights_has_one_place(recipe: &Recipe) -> Verdict {
    if recipe.pipeline.weights != WeightSets::Shared {
        return Ok(());
    }
    let (key, remedy) = ("pipeline.weights", "set pipeline.weights = \"copied\"");
    if recipe.pipeline.generator != GeneratorChoice::Local {
        let reason = "vLLM servers have memory of their own, where weights are copied to";
        return refuse(key, "pipeline.generator", reason, remedy);
    }
    if recipe.cluster.generators > 0 {
        let reason = "generators in processes of their own have weights of their own";
        return refuse(key, "cluster.generators", reason, remedy);
    }
    if recipe.cluster.trainers > 1 {
        let reason = "the weights of several trainers are gathered into memory of their own";
        return refuse(key, "cluster.trainers", reason, remedy);
    }
    if recipe.model.compute == Compute::F32 && recipe.adapter == Adapter::None {
        let reason = "the optimizer would change float32 weights while completions are written with \
                      them; bf16 ones are rounded from them in between";
        return refuse(key, "model.compute", reason, remedy);
    }
    Ok(())
}

pub(super) fn summed_gradients_are_in_one_place(recipe: &Recipe) -> Verdict {
    if recipe.optimizer.gradients == Gradients::Bf16 && recipe.cluster.trainers > 1 {
        return refuse(
            "optimizer.gradients",
            "cluster.trainers",
            "gradients of several trainers are added up in float32",
            "set optimizer.gradients = \"float32\"",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_one_place_does_not_go_with_trainers_that_a_launcher_started() {
        let mut recipe = Recipe::default();
        assert!(recipe.goes_with_trainers(8).is_ok());
        recipe.pipeline.weights = WeightSets::Shared;
        assert!(recipe.goes_with_trainers(1).is_ok());
        let (message, remedy) = recipe.goes_with_trainers(2).unwrap_err();
        assert!(message.starts_with("pipeline.weights does not go with 2 trainers"), "{message}");
        assert!(remedy.contains("copied"), "{remedy}");
        recipe.pipeline.weights = WeightSets::Copied;
        recipe.optimizer.gradients = Gradients::Bf16;
        assert!(recipe.goes_with_trainers(2).unwrap_err().0.starts_with("optimizer.gradients"));
    }
}
