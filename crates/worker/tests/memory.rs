//! What is counted for a run, against what its tensors really take on the CPU; and what an error without
//! room says.
//!
//! On the CPU bf16 layers are computed by other kernels, which keep more: what lasts is compared there,
//! not the peak. Peaks of bf16 are measured on a GPU by scripts/h200/memory.sh.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "numbers to read with --nocapture")]

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use scalerl_model::adapter;
use scalerl_model::bench::Shape;
use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_recipe::{Adapter, Compute, Filter, Gradients, Moments, Recipe};
use scalerl_rollout::{TrainBatch, TrainSequence, Trainer, TrainerError};
use scalerl_torch::shim;
use scalerl_worker::memory::{Holder, Setting, of};
use scalerl_worker::options::{adapter_config, compute_kind};
use scalerl_worker::ranks::{Deadlines, Launch, RankedTrainer, StoreHost, Team};
use scalerl_worker::{LocalTrainer, WeightStore};
use tch::{Device, Kind};

/// Of the measured peak, counted too much at most; too little is never counted.
const MOST_OVER: f64 = 0.08;

const MIB: f64 = (1 << 20) as f64;

/// All tensors of the process are counted.
static ALONE: Mutex<()> = Mutex::new(());

fn config() -> ModelConfig {
    let shape =
        Shape { layers: 6, width: 192, heads: 4, kv_heads: 4, feed_forward: 512, vocabulary: 3000 };
    shape.config().unwrap()
}

fn recipe(tokens: u32) -> Recipe {
    let mut recipe = Recipe::default();
    // Completions are written elsewhere.
    recipe.cluster.generators = 1;
    recipe.objective.filter = Filter::None;
    recipe.pipeline.micro_batch_tokens = tokens;
    recipe
}

fn with(recipe: &Recipe, change: impl FnOnce(&mut Recipe)) -> Recipe {
    let mut changed = recipe.clone();
    change(&mut changed);
    changed
}

/// Two micro-batches of as many tokens as fit.
fn batch(tokens: u32) -> TrainBatch {
    let (sequences, length) = (8, tokens as usize / 4);
    let token = |a: usize, b: usize| ((a * 7919 + b * 104_729) % 3000) as u32;
    let sequence = |index: usize| TrainSequence {
        prompt_token_ids: vec![1],
        completion_token_ids: (1..length).map(|place| token(index, place)).collect(),
        generator_logprobs: vec![-8.0; length - 1],
        weights: vec![1.0 / (sequences * length) as f64; length - 1],
        advantage: if index.is_multiple_of(2) { 1.0 } else { -1.0 },
    };
    TrainBatch { temperature: 1.0, sequences: (0..sequences).map(sequence).collect() }
}

fn model(recipe: &Recipe) -> Model {
    let config = adapter_config(recipe);
    let kind = if config.is_some() { compute_kind(recipe, Device::Cpu) } else { Kind::Float };
    let model = Model::random(self::config(), 1, kind, Device::Cpu).unwrap();
    adapter::start(model, None, config, 1).unwrap()
}

/// Bytes of tensors that were made since, between two steps and at the most.
struct Held {
    lasting: u64,
    peak: u64,
}

fn measure(recipe: &Recipe) -> Held {
    let (before, _) = shim::cpu_memory();
    let mut trainer = LocalTrainer::try_new(recipe, model(recipe), WeightStore::new()).unwrap();
    let batch = batch(recipe.pipeline.micro_batch_tokens);
    let mut published = Vec::new();
    // Two copies take turns.
    for _ in 0..2 {
        trainer.step(&batch).unwrap();
        published.push(trainer.publish().unwrap());
    }
    let lasting = shim::cpu_memory().0 - before;
    shim::reset_cpu_peak();
    trainer.step(&batch).unwrap();
    Held { lasting, peak: shim::cpu_memory().1 - before }
}

fn compare(name: &str, recipe: &Recipe) {
    let found = measure(recipe);
    let config = config();
    let counted = of(&Setting::of(recipe, &config, Device::Cpu, None), 0).unwrap();
    let lasting: u64 = [Holder::Weights, Holder::Masters, Holder::Moments, Holder::Published]
        .iter()
        .map(|holder| counted.of(*holder))
        .sum();
    let over = counted.total() as f64 / found.peak as f64 - 1.0;
    println!(
        "{name}: lasting {:.2} MiB, counted {:.2}; peak {:.2}, counted {:.2}, {:+.1} %",
        found.lasting as f64 / MIB,
        lasting as f64 / MIB,
        found.peak as f64 / MIB,
        counted.total() as f64 / MIB,
        100.0 * over
    );
    let apart = lasting as f64 / found.lasting as f64 - 1.0;
    assert!(apart.abs() < 0.002, "{name}: lasting {} {lasting}", found.lasting);
    if recipe.model.compute == Compute::F32 {
        assert!((0.0..MOST_OVER).contains(&over), "{name}: {over}");
    }
}

#[test]
fn what_is_counted_is_what_tensors_take() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    shim::count_cpu_memory().unwrap();
    for (tokens, recomputes) in [(512, false), (512, true), (2048, false), (2048, true)] {
        let base = with(&recipe(tokens), |recipe| {
            recipe.model.activation_checkpointing = recomputes;
            recipe.model.compute = Compute::F32;
        });
        let how = if recomputes { "recomputed" } else { "kept" };
        let name = |what: &str| format!("{tokens} tokens, {how}, {what}");
        compare(&name("float32"), &base);
        let lora = with(&base, |recipe| {
            recipe.adapter = Adapter::Lora { rank: 16, alpha: 32.0, layers: Vec::new() };
        });
        compare(&name("adapter"), &lora);
        compare(&name("moments"), &with(&base, |recipe| recipe.optimizer.moments = Moments::Bf16));
        let narrow = with(&base, |recipe| recipe.model.compute = Compute::Bf16);
        compare(&name("bf16"), &narrow);
        let lean = with(&narrow, |recipe| {
            recipe.optimizer.moments = Moments::Bf16;
            recipe.optimizer.gradients = Gradients::Bf16;
        });
        compare(&name("bf16, lean"), &lean);
    }
}

/// A step on a device that has a little more than lasts.
fn without_room(trainer: &mut dyn FnMut() -> Result<(), TrainerError>) -> TrainerError {
    shim::limit_cpu_memory(shim::cpu_memory().0 + 4 * (1 << 20));
    let failed = trainer();
    shim::limit_cpu_memory(u64::MAX);
    failed.unwrap_err()
}

fn assert_names_holders(error: &TrainerError) {
    println!("{error}");
    assert!(matches!(error, TrainerError::OutOfMemory { .. }), "{error}");
    let said = error.to_string();
    for words in ["most is held by activations", "MiB", "--set ", "saves"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(said.matches("most is held by").count(), 1, "said once: {said}");
}

#[test]
fn a_step_without_room_names_who_holds_it_and_the_next_one_is_as_if_nothing_had_been() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    shim::count_cpu_memory().unwrap();
    let recipe = with(&recipe(2048), |recipe| recipe.model.compute = Compute::F32);
    let batch = batch(2048);
    let trainer = || LocalTrainer::try_new(&recipe, model(&recipe), WeightStore::new()).unwrap();
    let mut other = trainer();
    let expected = other.step(&batch).unwrap();
    let mut own = trainer();
    assert_names_holders(&without_room(&mut || own.step(&batch).map(drop)));
    let found = own.step(&batch).unwrap();
    assert_eq!(found.loss.to_bits(), expected.loss.to_bits());
    assert_eq!(found.gradient_norm.to_bits(), expected.gradient_norm.to_bits());
    for (own, other) in own.masters().iter().zip(other.masters()) {
        assert!(own.equal(other), "weights after the step");
    }
    assert_names_holders(&without_room(&mut || own.publish().map(drop)));
}

#[test]
fn so_does_a_rank() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    shim::count_cpu_memory().unwrap();
    let recipe = with(&recipe(2048), |recipe| recipe.model.compute = Compute::F32);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let launch = Launch {
        token: None,
        rank: 0,
        world: 1,
        local_rank: 0,
        address: "127.0.0.1".to_owned(),
        port,
        host: StoreHost::RankZero,
        attempt: 0,
    };
    let patience = Duration::from_mins(1);
    let deadlines =
        Deadlines { meeting: patience, operation: patience, silence: patience, pulse: patience };
    let team = Team::join(&launch, Device::Cpu, deadlines).unwrap();
    let mut lead = RankedTrainer::lead(&recipe, model(&recipe), team, WeightStore::new()).unwrap();
    let batch = batch(2048);
    assert_names_holders(&without_room(&mut || lead.step(&batch).map(drop)));
}
