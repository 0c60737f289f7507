//! Ranks that share out the optimizer's memory have the numbers of one process.

use scalerl_model::folder::Model;
use scalerl_recipe::Compute;
use scalerl_rollout::PolicyVersion;
use scalerl_rollout::{StepReport, Trainer as _, TrainerError};
use scalerl_torch::device;
use scalerl_worker::ranks::{RankedTrainer, Team};
use scalerl_worker::{LocalTrainer, WeightStore};
use tch::{Device, Kind, Tensor};

use crate::batches::model_of;
use crate::crew::{
    Crew, FLOAT_SUMS, PATIENT, assert_same_report, batches, deadlines, distance, free_port, full,
    launch, local, masters, variant,
};

const VARIANTS: [&str; 4] = ["cispo", "gspo", "all-terms", "lora"];

#[test]
fn one_two_and_three_ranks_give_the_numbers_of_one_process() {
    for name in VARIANTS {
        let batches = batches(name, 4);
        let mut alone = local(name);
        let start = alone.masters().iter().map(Tensor::copy).collect::<Vec<_>>();
        let expected: Vec<StepReport> =
            batches.iter().map(|batch| alone.step(batch).unwrap()).collect();
        let moved = distance(alone.masters(), &start);
        for size in 1..=3 {
            let mut crew = Crew::start(name, size, PATIENT);
            for (batch, expected) in batches.iter().zip(&expected) {
                let found = crew.trainer().step(batch).unwrap();
                assert_same_report(&found, expected);
            }
            let masters = crew.masters();
            let apart = distance(&masters, alone.masters());
            println!("{name}, {size} ranks: weights moved by {moved:.1e}, apart by {apart:.1e}");
            assert!(apart <= FLOAT_SUMS && apart <= 1e-3 * moved, "{name} {size}: {apart} {moved}");
            assert!(crew.trainer().model().trained()[0].equal(&masters[0]), "what generators get");
            crew.end();
        }
    }
}

/// The network computes with rounded weights; masters are float32 and in parts.
#[test]
fn ranks_that_compute_in_bf16_follow_one_process_that_does() {
    let batches = batches("bf16", 3);
    let mut alone = local("bf16");
    let expected: Vec<StepReport> = batches.iter().map(|b| alone.step(b).unwrap()).collect();
    // One rank adds the same gradients in the same order; two round sums of bf16 differently.
    for (size, most) in [(1, FLOAT_SUMS), (2, 2e-2)] {
        let mut crew = Crew::start("bf16", size, PATIENT);
        for (batch, expected) in batches.iter().zip(&expected) {
            let found = crew.trainer().step(batch).unwrap();
            let apart = (found.gradient_norm / expected.gradient_norm - 1.0).abs();
            assert!(apart <= most, "{size}: {} {}", found.gradient_norm, expected.gradient_norm);
        }
        let masters = crew.masters();
        let apart = distance(&masters, alone.masters());
        println!("bf16, {size} ranks: apart by {apart:.1e}");
        assert!(apart <= most, "{size}: {apart}");
        let computed = &crew.trainer().model().parameters[1];
        assert_eq!(computed.kind(), Kind::BFloat16);
        assert!(computed.equal(&masters[1].to_kind(Kind::BFloat16)), "rounded masters");
        crew.end();
    }
}

#[test]
fn a_batch_of_fewer_sequences_than_ranks_is_a_step_all_the_same() {
    let mut batch = batches("cispo", 1).remove(0);
    batch.sequences.truncate(2);
    let expected = local("cispo").step(&batch).unwrap();
    let mut crew = Crew::start("cispo", 3, PATIENT);
    assert_same_report(&crew.trainer().step(&batch).unwrap(), &expected);
    crew.end();
}

#[test]
fn a_step_that_is_not_finite_is_refused_by_all_ranks_and_leaves_no_trace() {
    let batches = batches("cispo", 1);
    let mut crew = Crew::start("cispo", 2, PATIENT);
    let mut steep = batches[0].clone();
    steep.sequences[3].advantage = 1e300;
    let error = crew.trainer().step(&steep).unwrap_err();
    assert!(matches!(error, TrainerError::NotFinite { .. }), "{error}");
    let expected = local("cispo").step(&batches[0]).unwrap();
    assert_same_report(&crew.trainer().step(&batches[0]).unwrap(), &expected);
    crew.end();
}

#[test]
fn one_rank_over_nccl_gives_the_numbers_of_one_process() {
    if device::open().cuda_devices == 0 {
        let is_required = std::env::var_os("SCALERL_REQUIRE_CUDA").is_some();
        assert!(!is_required, "SCALERL_REQUIRE_CUDA is set and there is no CUDA device");
        println!("skipped: no CUDA device");
        return;
    }
    for name in ["cispo".to_owned(), full("cispo")] {
        compare_over_nccl(&name);
    }
}

fn compare_over_nccl(name: &str) {
    let gpu = Device::Cuda(0);
    // Attention on CUDA works in bf16, and its backward pass may add up in another order every time.
    let mut recipe = variant(name);
    recipe.model.compute = Compute::Bf16;
    // Its heads are multiples of eight wide.
    let there = || {
        let here = model_of(64, 1);
        let parameters = here.parameters.iter().map(|p| p.to_device(gpu)).collect();
        Model::over(here.config, parameters, None).unwrap()
    };
    let mut alone = LocalTrainer::try_new(&recipe, there(), WeightStore::new()).unwrap();
    let team = Team::join(&launch(0, 1, free_port()), gpu, deadlines(PATIENT)).unwrap();
    let mut ranked = RankedTrainer::lead(&recipe, there(), team, WeightStore::new()).unwrap();
    for (step, batch) in batches("cispo", 3).iter().enumerate() {
        let (found, expected) = (ranked.step(batch).unwrap(), alone.step(batch).unwrap());
        let apart = (found.loss - expected.loss).abs();
        let norms = (found.gradient_norm / expected.gradient_norm - 1.0).abs();
        println!("{name}, step {step}: losses {apart:.1e} apart, gradient norms {norms:.1e}");
        // Nothing was added up in another order before the first backward pass.
        let most = if step == 0 { [1e-6, 1e-4] } else { [1e-4, 1e-3] };
        assert!(apart <= most[0] && norms <= most[1], "{found:?}\n{expected:?}");
        assert_eq!(found.trained_tokens, expected.trained_tokens);
    }
    let expected: Vec<Tensor> = alone.masters().iter().map(|m| m.to_device(Device::Cpu)).collect();
    let apart = distance(&masters(&mut ranked), &expected);
    println!("weights apart by {apart:.1e}");
    assert!(apart <= 1e-5, "{apart}");
    let folder = tempfile::tempdir().unwrap();
    ranked.save(folder.path()).unwrap();
    assert_eq!(ranked.restore(folder.path()).unwrap(), PolicyVersion(3));
}
