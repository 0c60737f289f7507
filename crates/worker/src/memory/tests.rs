//! The accounting against its own rules, and what is said of it. What tensors really take: tests/memory.rs.

use proptest::prelude::*;
use scalerl_model::bench::Shape;
use scalerl_recipe::{Adapter, Experts, Gradients, Moments, Recipe, Sharding, WeightSets};

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
    let fit = fit(&setting(&recipe, &config), 0, H200).unwrap();
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
    let fit = fit(&setting(&recipe, &config), 0, 80_000_000_000).unwrap();
    assert!(!fit.can_fit());
    assert_eq!(fit.largest_micro_batch, None);
}

/// An 8B on eight GPUs, everything shared out among its trainers.
fn in_parts() -> Recipe {
    let mut recipe = Recipe::default();
    recipe.sampling.max_thinking_tokens = 12288;
    recipe.sampling.max_answer_tokens = 2048;
    recipe.pipeline.micro_batch_tokens = 16384;
    recipe.model.activation_checkpointing = true;
    (recipe.cluster.trainers, recipe.cluster.generators) = (8, 8);
    recipe.cluster.sharding = Sharding::Full;
    recipe
}

const A100: u64 = 80_000_000_000;

#[test]
fn eight_trainers_with_everything_in_parts_fit_what_the_guide_says_they_fit() {
    let config = table::eight_billion().unwrap();
    let mut recipe = in_parts();
    assert!(fit(&setting(&recipe, &config), 0, A100).unwrap().fits());
    recipe.cluster.sharding = Sharding::Optimizer;
    let found = fit(&setting(&recipe, &config), 0, A100).unwrap();
    let sets: Vec<&str> = found.changes.iter().map(|change| change.set.as_str()).collect();
    assert!(!found.fits() && found.can_fit() && sets == ["cluster.sharding=full"], "{found:?}");
    // One trainer has nobody to share with.
    recipe.cluster.sharding = Sharding::Full;
    recipe.cluster.trainers = 1;
    assert!(!fit(&setting(&recipe, &config), 0, A100).unwrap().fits());
}

#[test]
fn copies_of_weights_in_parts_are_the_hosts_and_a_generator_has_its_own_base() {
    let config = table::eight_billion().unwrap();
    let whole = 2 * config.parameter_count() as u64;
    let mut recipe = in_parts();
    recipe.cluster.generators = 0;
    let first = of(&setting(&recipe, &config), 0).unwrap();
    assert_eq!(first.of(Holder::Published), 0);
    let on_host = host(&setting(&recipe, &config)).unwrap();
    assert_eq!(on_host.published, 2 * whole);
    // Masters and moments, whoever writes which part.
    assert_eq!(on_host.checkpoint, 6 * whole);
    assert!(first.of(Holder::Generator) >= whole);
    let other = of(&setting(&recipe, &config), 1).unwrap();
    assert_eq!(first.total_without_generator(), other.total());
    // An adapter's own numbers are whole on every rank, and its base is in parts.
    recipe.adapter = Adapter::Lora { rank: 32, alpha: 32.0, layers: Vec::new() };
    let first = of(&setting(&recipe, &config), 0).unwrap();
    assert!(first.of(Holder::Generator) >= whole, "{first:?}");
    assert_eq!(host(&setting(&recipe, &config)).unwrap().published, 0);
    assert!(first.of(Holder::Published) > 0);
    // Beside a whole base it holds its adapter alone.
    recipe.cluster.sharding = Sharding::Optimizer;
    assert!(of(&setting(&recipe, &config), 0).unwrap().of(Holder::Generator) < whole);
}

#[test]
fn owners_hold_less_of_a_mixture_than_ranks_that_gather_and_are_proposed_where_they_can_own() {
    let config = table::scout().unwrap();
    let mut recipe = in_parts();
    let by = |recipe: &Recipe, holder| of(&setting(recipe, &config), 1).unwrap().of(holder);
    let gathered = by(&recipe, Holder::Weights);
    let found = fit(&setting(&recipe, &config), 1, 200_000_000_000).unwrap();
    assert_eq!(found.changes[0].set, "cluster.experts=owned", "{found:?}");
    recipe.cluster.experts = Experts::Owned;
    // A layer has 16 experts of 3 · 5120 · 8192 numbers, of which two are gathered at once.
    let experts = 2 * 16 * 3 * 5120 * 8192;
    assert!(by(&recipe, Holder::Weights) < gathered - experts, "{gathered}");
    assert!(by(&recipe, Holder::Gradients) > 0);
    // More trainers than experts cannot own them.
    recipe.cluster.trainers = 8;
    let more = fit(&setting(&recipe, &config), 0, 100_000_000_000).unwrap().on_more.unwrap();
    assert!(more.trainers > 16, "{more:?}");
    assert!(more.sets.contains(&"cluster.experts=gathered".to_owned()), "{more:?}");
    recipe.cluster.trainers = 32;
    recipe.cluster.experts = Experts::Gathered;
    let found = fit(&setting(&recipe, &config), 1, 20_000_000_000).unwrap();
    assert!(!found.changes.iter().any(|change| change.set.contains("experts")), "{found:?}");
    // A dense model has none.
    let config = table::eight_billion().unwrap();
    let found = fit(&setting(&in_parts(), &config), 1, 20_000_000_000).unwrap();
    assert!(!found.changes.iter().any(|change| change.set.contains("experts")), "{found:?}");
}

#[test]
fn what_one_device_cannot_hold_is_said_to_fit_on_more() {
    let config = table::eight_billion().unwrap();
    let mut recipe = in_parts();
    (recipe.cluster.trainers, recipe.cluster.generators) = (1, 0);
    recipe.cluster.sharding = Sharding::Optimizer;
    recipe.pipeline.weights = WeightSets::Shared;
    let found = fit(&setting(&recipe, &config), 0, A100).unwrap();
    let more = found.on_more.unwrap();
    // Two devices of one trainer are as many trainers': the generator is beside the first.
    let apart = setting(&recipe, &config).with_generator_on(Device::Cuda(1));
    assert_eq!(fit(&apart, 0, A100).unwrap().on_more.as_ref(), Some(&more));
    assert_eq!(more.sets[0], format!("cluster.trainers={}", more.trainers));
    assert!(more.sets.contains(&"pipeline.weights=copied".to_owned()), "{more:?}");
    recipe.pipeline.weights = WeightSets::Copied;
    (recipe.cluster.trainers, recipe.cluster.sharding) = (more.trainers, Sharding::Full);
    // The cache takes what the device leaves.
    let as_said = Setting::of(&recipe, &config, Device::Cuda(0), Some(A100));
    assert_eq!(of(&as_said, 0).unwrap().total(), more.total);
}

#[test]
fn a_generator_on_a_device_of_its_own_takes_nothing_of_the_trainers() {
    let config = table::eight_billion().unwrap();
    let recipe = Recipe::default();
    let beside = setting(&recipe, &config);
    assert_eq!(of_generator_apart(&beside).unwrap(), None);
    let apart = setting(&recipe, &config).with_generator_on(Device::Cuda(1));
    let trainer = of(&apart, 0).unwrap();
    assert_eq!(trainer.total(), of(&beside, 0).unwrap().total_without_generator());
    let generator = of_generator_apart(&apart).unwrap().unwrap();
    assert!(generator.of(Holder::Generator) >= 2 * config.parameter_count() as u64);
    assert!(generator.cache_tokens > 0 && generator.total() <= usable(H200));
}

#[test]
fn an_error_without_room_names_what_a_resume_may_change() {
    let config = table::eight_billion().unwrap();
    let mut recipe = Recipe::default();
    for device_bytes in [Some(H200), None] {
        let setting = Setting::of(&recipe, &config, Device::Cuda(0), device_bytes);
        let cache = of(&setting, 0).unwrap().of(Holder::Cache);
        assert!(cache < H200, "a cache that was made fits: {cache}");
        let said = out_of_room(&setting, 0).unwrap();
        assert!(!said.contains("TiB") && !said.contains("adapter"), "{said}");
        for key in ["pipeline.weights=shared", "optimizer.moments=bf16", "optimizer.gradients=bf16"]
        {
            assert!(said.contains(key), "{said}");
        }
    }
    recipe.cluster.trainers = 8;
    recipe.model.activation_checkpointing = true;
    let said = out_of_room(&setting(&recipe, &config), 0).unwrap();
    assert!(said.contains("cluster.sharding=full"), "{said}");
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
        for sharding in [Sharding::Optimizer, Sharding::Full] {
            let of_ranks = |ranks| {
                let mut recipe = recipe.clone();
                (recipe.cluster.trainers, recipe.cluster.sharding) = (ranks, sharding.clone());
                recipe.model.activation_checkpointing = true;
                of(&setting(&recipe, &config), 1).unwrap().total()
            };
            prop_assert!(of_ranks(64) <= of_ranks(8) && of_ranks(8) <= of_ranks(2));
        }
        let bytes = gigabytes * 1_000_000_000;
        let found = fit(&setting(&recipe, &config), 0, bytes).unwrap();
        if let Some(tokens) = found.largest_micro_batch {
            recipe.pipeline.micro_batch_tokens = tokens as u32;
            prop_assert!(fit(&setting(&recipe, &config), 0, bytes).unwrap().fits());
            recipe.pipeline.micro_batch_tokens = (tokens + tokens / 32) as u32;
            prop_assert!(tokens > 1 << 19 || !fit(&setting(&recipe, &config), 0, bytes).unwrap().fits());
        }
    }
}
