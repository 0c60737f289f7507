//! The accounting against what a run on the CPU really allocates, and against its own rules.

use proptest::prelude::*;
use scalerl_model::bench::Shape;
use scalerl_recipe::{Adapter, Gradients, Moments, Recipe, WeightSets};

use super::*;

const H200: u64 = 141_000_000_000;

fn setting<'a>(recipe: &'a Recipe, config: &'a ModelConfig) -> Setting<'a> {
    Setting::of(recipe, config, Device::Cuda(0), Some(H200))
}

fn total(recipe: &Recipe, config: &ModelConfig) -> u64 {
    of(&setting(recipe, config), 0).unwrap().total()
}

#[test]
fn what_is_kept_for_each_parameter_is_what_the_trainer_keeps() {
    let config = table::eight_billion().unwrap();
    let count = config.parameter_count() as u64;
    let mut recipe = Recipe::default();
    let by = |recipe: &Recipe, holder| of(&setting(recipe, &config), 0).unwrap().of(holder);
    assert_eq!(by(&recipe, Holder::Weights), 2 * count);
    assert_eq!(by(&recipe, Holder::Masters), 4 * count);
    assert_eq!(by(&recipe, Holder::Moments), 8 * count);
    assert_eq!(by(&recipe, Holder::Published), 4 * count);
    assert!(by(&recipe, Holder::Gradients) >= 4 * count);
    recipe.optimizer.moments = Moments::Bf16;
    recipe.optimizer.gradients = Gradients::Bf16;
    recipe.pipeline.weights = WeightSets::Shared;
    assert_eq!(by(&recipe, Holder::Moments), 4 * count);
    assert_eq!(by(&recipe, Holder::Published), 0);
    assert_eq!(by(&recipe, Holder::Gradients), 2 * count + 2 * 128_256 * 4096);
    recipe.adapter = Adapter::Lora { rank: 32, alpha: 32.0, layers: Vec::new() };
    assert!(by(&recipe, Holder::Masters) < count / 10);
    assert_eq!(by(&recipe, Holder::Weights), 2 * count, "the base once, for all");
}

#[test]
fn eight_billion_does_not_fit_one_gpu_as_it_is_and_does_with_what_is_said() {
    let config = table::eight_billion().unwrap();
    let mut recipe = Recipe::default();
    recipe.sampling.max_thinking_tokens = 1024;
    recipe.sampling.max_answer_tokens = 1024;
    let fit = fit(&setting(&recipe, &config), H200).unwrap();
    assert!(!fit.fits() && fit.can_fit(), "{fit:?}");
    let sets: Vec<&str> = fit.changes.iter().map(|change| change.set.as_str()).collect();
    assert_eq!(sets[0], "pipeline.weights=shared");
    assert!(sets.contains(&"optimizer.moments=bf16"), "{sets:?}");
    assert!(!sets.iter().any(|set| set.starts_with("adapter")), "{sets:?}");
    assert!(fit.changes.windows(2).all(|pair| pair[1].total < pair[0].total));
}

#[test]
fn a_model_that_nothing_helps_is_said_not_to_fit() {
    let config = table::scout().unwrap();
    let recipe = Recipe::default();
    let fit = fit(&setting(&recipe, &config), 80_000_000_000).unwrap();
    assert!(!fit.can_fit());
    assert_eq!(fit.largest_micro_batch, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// More ranks, fewer numbers: never more memory. And the largest micro-batch is the largest.
    #[test]
    fn memory_grows_with_what_it_holds(
        layers in 2_i64..6, heads in 1_i64..8, vocabulary in 32_i64..4096, micro in 20_000_u32..60_000,
        gigabytes in 4_u64..200,
    ) {
        let shape = Shape {
            layers, width: 64 * heads, heads, kv_heads: 1, feed_forward: 192 * heads, vocabulary,
        };
        let config = shape.config().unwrap();
        let mut recipe = Recipe::default();
        recipe.pipeline.micro_batch_tokens = micro;
        let all = total(&recipe, &config);
        for change in [
            |recipe: &mut Recipe| recipe.model.activation_checkpointing = true,
            |recipe: &mut Recipe| recipe.optimizer.moments = Moments::Bf16,
            |recipe: &mut Recipe| recipe.pipeline.weights = WeightSets::Shared,
        ] {
            let mut less = recipe.clone();
            change(&mut less);
            prop_assert!(total(&less, &config) <= all);
        }
        for scheme in [Scheme::Optimizer, Scheme::Everything] {
            let of_ranks = |ranks| {
                let setting = Setting { ranks, scheme, generator: GeneratorPlace::Elsewhere, ..setting(&recipe, &config) };
                of(&setting, 1).unwrap().total()
            };
            prop_assert!(of_ranks(64) <= of_ranks(8) && of_ranks(8) <= of_ranks(2));
        }
        let bytes = gigabytes * 1_000_000_000;
        let found = fit(&setting(&recipe, &config), bytes).unwrap();
        if let Some(tokens) = found.largest_micro_batch {
            recipe.pipeline.micro_batch_tokens = tokens as u32;
            prop_assert!(fit(&setting(&recipe, &config), bytes).unwrap().fits());
            recipe.pipeline.micro_batch_tokens = (tokens + tokens / 32) as u32;
            prop_assert!(tokens > 1 << 19 || !fit(&setting(&recipe, &config), bytes).unwrap().fits());
        }
    }
}
