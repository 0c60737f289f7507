//! A recipe's choices in the learner's words.

use scalerl_model::head::{HeadMode, HeadOptions};
use scalerl_model::network::Activations;
use scalerl_model::train::{AdamWConfig, ComputeKind, LearnerOptions};
use scalerl_recipe::{Compute, HeadPrecision, Optimizer, Recipe};
use tch::Device;

/// How the recipe's model is trained on a device.
pub fn learner_options(recipe: &Recipe, device: Device) -> LearnerOptions {
    let usual = LearnerOptions::of(device);
    LearnerOptions {
        compute: match recipe.model.compute {
            Compute::Auto => usual.compute,
            Compute::Bf16 => ComputeKind::BFloat16,
            Compute::F32 => ComputeKind::Float32,
        },
        activations: if recipe.model.activation_checkpointing {
            Activations::Recompute
        } else {
            Activations::Keep
        },
        head: head_options(recipe, device),
        optimizer: optimizer(&recipe.optimizer),
    }
}

/// How log-probs are computed: the same for trainer and generator, or their ratio means nothing.
pub fn head_options(recipe: &Recipe, device: Device) -> HeadOptions {
    let usual = HeadOptions::of(device);
    let mode = match recipe.objective.head_precision {
        HeadPrecision::Fp32 => usual.mode,
        HeadPrecision::Exact => HeadMode::Exact,
        HeadPrecision::Split => HeadMode::Split,
        HeadPrecision::Bf16 => HeadMode::Bf16,
    };
    // Carriers hold the temperature as f32; both sides divide by that very number.
    let temperature = f64::from(recipe.sampling.temperature as f32);
    HeadOptions { mode, temperature, ..usual }
}

fn optimizer(optimizer: &Optimizer) -> AdamWConfig {
    AdamWConfig {
        lr: optimizer.lr,
        warmup_steps: u64::from(optimizer.warmup_steps),
        decay_steps: 0,
        beta1: optimizer.beta1,
        beta2: optimizer.beta2,
        epsilon: optimizer.epsilon,
        weight_decay: optimizer.weight_decay,
        max_gradient_norm: optimizer.max_gradient_norm.unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_recipe_is_the_learners_default() {
        let options = learner_options(&Recipe::default(), Device::Cpu);
        assert_eq!(options.optimizer, AdamWConfig::default());
        assert_eq!(options.head, HeadOptions::of(Device::Cpu));
        assert_eq!(options.compute, ComputeKind::Float32);
    }

    #[test]
    fn no_limit_on_the_gradient_is_the_learners_zero() {
        let mut recipe = Recipe::default();
        recipe.optimizer.max_gradient_norm = None;
        recipe.objective.head_precision = HeadPrecision::Bf16;
        let options = learner_options(&recipe, Device::Cpu);
        assert!(options.optimizer.max_gradient_norm.abs() < f64::EPSILON);
        assert_eq!(options.head.mode, HeadMode::Bf16);
    }
}
