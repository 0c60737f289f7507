//! Trainer ranks as real processes over Gloo: the numbers of one, checkpoints for any number, and
//! what happens when one of them is killed or frozen.
//!
//! The test is rank 0; the others are this very binary, asked for its one ignored test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod batches;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use batches::{batch, model, model_of, recipe, trained_as};
use rustix::process::{Pid, Signal, kill_process};
use scalerl_model::folder::Model;
use scalerl_recipe::{Adapter, Compute, Kl, RatioGrain, Recipe, Surrogate};
use scalerl_rollout::{PolicyVersion, StepReport, TrainBatch, Trainer, TrainerError};
use scalerl_torch::device;
use scalerl_worker::ranks::{Deadlines, Launch, RankedTrainer, StoreHost, Team, follow};
use scalerl_worker::{LocalTrainer, WeightStore};
use tch::{Device, Kind, Tensor};

/// float32 gradients added in another order; the optimizer's quotient keeps their relative error.
const FLOAT_SUMS: f64 = 1e-5;
const VARIANTS: [&str; 4] = ["cispo", "gspo", "all-terms", "lora"];

fn variant(name: &str) -> Recipe {
    let mut recipe = recipe();
    // Small pieces, so that every rank has several.
    recipe.pipeline.micro_batch_tokens = 24;
    match name {
        "gspo" => {
            recipe.objective.surrogate = Surrogate::Clip { low: 0.003, high: 0.005 };
            recipe.objective.ratio = RatioGrain::Sequence;
        }
        "lora" => {
            recipe.adapter = Adapter::Lora { rank: 4, alpha: 8.0, layers: Vec::new() };
            recipe.objective.kl = Kl::K3 { coefficient: 0.1 };
        }
        "bf16" => recipe.model.compute = Compute::Bf16,
        "all-terms" => {
            recipe.objective.kl = Kl::K3 { coefficient: 0.1 };
            recipe.objective.entropy_bonus = 0.01;
        }
        _ => {}
    }
    recipe
}

/// The model of a seed as the variant trains it.
fn start(name: &str, seed: i64) -> Model {
    trained_as(&variant(name), model(seed))
}

fn deadlines(operation: Duration) -> Deadlines {
    Deadlines {
        meeting: Duration::from_mins(1),
        operation,
        silence: Duration::from_mins(1),
        pulse: Duration::from_millis(200),
    }
}

const PATIENT: Duration = Duration::from_mins(1);

/// Rank 0 in this process, the others in their own.
struct Crew {
    trainer: Option<RankedTrainer>,
    others: Vec<Child>,
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A rank of its own process.
fn spawn(name: &str, rank: usize, size: usize, port: u16, operation: Duration) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "a_rank_that_another_test_has_started"])
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", size.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("SCALERL_TEST_VARIANT", name)
        .env("SCALERL_TEST_OPERATION_MS", operation.as_millis().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn launch(rank: usize, size: usize, port: u16) -> Launch {
    Launch {
        token: None,
        rank,
        world: size,
        local_rank: 0,
        address: "127.0.0.1".to_owned(),
        port,
        host: StoreHost::RankZero,
        attempt: 0,
    }
}

impl Crew {
    fn start(name: &str, size: usize, operation: Duration) -> Self {
        let port = free_port();
        let others = (1..size).map(|rank| spawn(name, rank, size, port, operation)).collect();
        let launch = launch(0, size, port);
        let team = Team::join(&launch, Device::Cpu, deadlines(operation)).unwrap();
        let trainer =
            RankedTrainer::lead(&variant(name), start(name, 1), team, WeightStore::new()).unwrap();
        Self { trainer: Some(trainer), others }
    }

    fn trainer(&mut self) -> &mut RankedTrainer {
        self.trainer.as_mut().unwrap()
    }

    /// Ends the run; every rank must leave by itself and content.
    fn end(mut self) {
        drop(self.trainer.take());
        for other in &mut self.others {
            assert!(other.wait().unwrap().success(), "a rank failed");
        }
    }

    fn signal(&self, rank: usize, signal: Signal) {
        kill_process(Pid::from_child(&self.others[rank - 1]), signal).unwrap();
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for other in &mut self.others {
            let _ = other.kill();
            let _ = other.wait();
        }
    }
}

#[test]
#[ignore = "the other tests of this file start it as a process of its own"]
fn a_rank_that_another_test_has_started() {
    let launch = Launch::from_environment().unwrap().expect("started by another test");
    let operation = std::env::var("SCALERL_TEST_OPERATION_MS").unwrap().parse().unwrap();
    let recipe = variant(&std::env::var("SCALERL_TEST_VARIANT").unwrap());
    let team =
        Team::join(&launch, Device::Cpu, deadlines(Duration::from_millis(operation))).unwrap();
    if launch.rank == 0 {
        let mut trainer = RankedTrainer::lead(&recipe, model(1), team, WeightStore::new()).unwrap();
        let batch = batch(&recipe, 2);
        loop {
            trainer.step(&batch).unwrap();
        }
    }
    // Another model than rank 0's: its weights must be the ones that count.
    let model = trained_as(&recipe, model(100 + launch.rank as i64));
    follow(&recipe, model, team).unwrap();
}

fn local(name: &str) -> LocalTrainer {
    LocalTrainer::try_new(&variant(name), start(name, 1), WeightStore::new()).unwrap()
}

/// Batches recorded by other models, so that ratios are not 1.
fn batches(name: &str, count: i64) -> Vec<TrainBatch> {
    (2..2 + count).map(|seed| batch(&variant(name), seed)).collect()
}

fn assert_same_report(found: &StepReport, expected: &StepReport) {
    for (what, found, expected) in [
        ("loss", found.loss, expected.loss),
        ("gradient norm", found.gradient_norm, expected.gradient_norm),
        ("entropy", found.entropy, expected.entropy),
        ("mean ratio", found.ratio.mean, expected.ratio.mean),
        ("least ratio", found.ratio.min, expected.ratio.min),
        ("largest ratio", found.ratio.max, expected.ratio.max),
        ("clipped", found.ratio.clip_fraction, expected.ratio.clip_fraction),
        ("k3", found.ratio.kl_k3, expected.ratio.kl_k3),
        ("|log|", found.ratio.mean_abs_log, expected.ratio.mean_abs_log),
        ("rate", found.learning_rate, expected.learning_rate),
        ("operations", found.model_flops, expected.model_flops),
        ("KL", found.reference_kl.unwrap_or(0.0), expected.reference_kl.unwrap_or(0.0)),
    ] {
        let most = FLOAT_SUMS * expected.abs().max(1.0);
        assert!((found - expected).abs() <= most, "{what}: {found} {expected}");
    }
    assert_eq!(
        (found.version, found.tokens, found.trained_tokens),
        (expected.version, expected.tokens, expected.trained_tokens)
    );
}

fn row(masters: &[Tensor]) -> Tensor {
    let flat: Vec<Tensor> = masters.iter().map(|master| master.flatten(0, -1)).collect();
    Tensor::cat(&flat, 0)
}

/// ‖found − expected‖ / ‖expected‖.
fn distance(found: &[Tensor], expected: &[Tensor]) -> f64 {
    let (found, expected) = (row(found), row(expected));
    (found - &expected).norm().double_value(&[]) / expected.norm().double_value(&[])
}

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
            let masters = crew.trainer().gather_masters().unwrap();
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
        let masters = crew.trainer().gather_masters().unwrap();
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
fn a_checkpoint_of_three_ranks_goes_on_with_two_with_one_and_without_ranks() {
    let name = "all-terms";
    let batches = batches(name, 5);
    let mut alone = local(name);
    let expected: Vec<StepReport> = batches.iter().map(|b| alone.step(b).unwrap()).collect();

    let root = tempfile::tempdir().unwrap();
    let folder = |step: usize| root.path().join(step.to_string());
    let mut crew = Crew::start(name, 3, PATIENT);
    assert_same_report(&crew.trainer().step(&batches[0]).unwrap(), &expected[0]);
    assert_same_report(&crew.trainer().step(&batches[1]).unwrap(), &expected[1]);
    crew.trainer().save(&folder(2)).unwrap();
    let mut before = crew.trainer().gather_masters().unwrap();
    crew.end();
    for (size, step) in [(2, 2), (1, 3)] {
        let mut crew = Crew::start(name, size, PATIENT);
        let version = crew.trainer().restore(&folder(step)).unwrap();
        assert_eq!(version, PolicyVersion(step as u64));
        let restored = crew.trainer().gather_masters().unwrap();
        assert!(row(&restored).equal(&row(&before)), "every weight to the last bit");
        assert_same_report(&crew.trainer().step(&batches[step]).unwrap(), &expected[step]);
        crew.trainer().save(&folder(step + 1)).unwrap();
        before = crew.trainer().gather_masters().unwrap();
        crew.end();
    }
    let mut resumed = local(name);
    assert_eq!(resumed.restore(&folder(4)).unwrap(), PolicyVersion(4));
    assert!(row(resumed.masters()).equal(&row(&before)));
    assert_same_report(&resumed.step(&batches[4]).unwrap(), &expected[4]);
    assert!(distance(resumed.masters(), alone.masters()) <= FLOAT_SUMS);
}

#[test]
fn ranks_take_up_what_one_process_saved_and_refuse_what_is_damaged() {
    let batches = batches("cispo", 2);
    let mut alone = local("cispo");
    alone.step(&batches[0]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    alone.save(folder.path()).unwrap();

    let mut crew = Crew::start("cispo", 2, PATIENT);
    assert_eq!(crew.trainer().restore(folder.path()).unwrap(), PolicyVersion(1));
    let masters = crew.trainer().gather_masters().unwrap();
    assert!(row(&masters).equal(&row(alone.masters())));
    let expected = alone.step(&batches[1]).unwrap();
    assert_same_report(&crew.trainer().step(&batches[1]).unwrap(), &expected);

    let file = folder.path().join("step-00000001/learner.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let said = crew.trainer().restore(folder.path()).unwrap_err().to_string();
    assert!(said.contains("SHA-256"), "{said}");
    // A folder that cannot be written is an error; the ranks stay together.
    let said = crew.trainer().save(std::path::Path::new("/proc/nowhere")).unwrap_err();
    assert!(matches!(said, TrainerError::Storage { .. }), "{said}");
    assert_eq!(crew.trainer().version(), PolicyVersion(2));
    crew.trainer().step(&batches[0]).unwrap();
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

/// Steps until one fails; how long that one took, and what it said.
fn failing_step(trainer: &mut RankedTrainer, batch: &TrainBatch) -> (Duration, TrainerError) {
    for _ in 0..1000 {
        let started = Instant::now();
        if let Err(error) = trainer.step(batch) {
            return (started.elapsed(), error);
        }
    }
    panic!("a thousand steps without the rank that is gone");
}

#[test]
fn a_killed_rank_ends_the_step_with_an_error_within_the_deadline() {
    let operation = Duration::from_secs(10);
    let batch = batches("cispo", 1).remove(0);
    let mut crew = Crew::start("cispo", 3, operation);
    crew.trainer().step(&batch).unwrap();
    // In the middle of steps, wherever that finds them.
    let victim = Pid::from_child(&crew.others[1]);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        kill_process(victim, Signal::KILL).unwrap();
    });
    let (took, error) = failing_step(crew.trainer(), &batch);
    killer.join().unwrap();
    println!("after {took:?}: {error}");
    assert!(took < operation, "{took:?}");
    assert!(matches!(error, TrainerError::RankLost { .. }), "{error}");
    let said = crew.trainer().step(&batch).unwrap_err().to_string();
    assert!(said.contains("a trainer rank is lost: earlier"), "{said}");
    // The other rank that is left must not stay behind.
    drop(crew.trainer.take());
    let started = Instant::now();
    assert!(!crew.others[0].wait().unwrap().success(), "it says that something was wrong");
    assert!(started.elapsed() < 2 * operation, "{:?}", started.elapsed());
}

#[test]
fn a_frozen_rank_ends_the_step_at_the_deadline() {
    let operation = Duration::from_secs(2);
    let batch = batches("cispo", 1).remove(0);
    let mut crew = Crew::start("cispo", 2, operation);
    crew.trainer().step(&batch).unwrap();
    crew.signal(1, Signal::STOP);
    let (took, error) = failing_step(crew.trainer(), &batch);
    println!("after {took:?}: {error}");
    assert!(took < 4 * operation, "{took:?}");
    assert!(error.to_string().contains("not done within 2.0 s"), "{error}");
}

#[test]
fn a_rank_that_dies_between_steps_is_noticed_before_the_next() {
    let mut crew = Crew::start("cispo", 2, PATIENT);
    assert_eq!(crew.trainer().lost(), None);
    crew.signal(1, Signal::KILL);
    let started = Instant::now();
    while crew.trainer().lost().is_none() {
        assert!(started.elapsed() < Duration::from_secs(10), "nobody noticed");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("noticed after {:?}: {}", started.elapsed(), crew.trainer().lost().unwrap());
}

#[test]
fn the_other_ranks_end_when_rank_0_is_killed_or_frozen() {
    for signal in [Signal::KILL, Signal::STOP] {
        let (port, operation) = (free_port(), Duration::from_secs(2));
        let leader = spawn("cispo", 0, 2, port, operation);
        let crew = Crew { trainer: None, others: vec![leader] };
        let patience = Deadlines { silence: Duration::from_secs(3), ..deadlines(operation) };
        let team = Team::join(&launch(1, 2, port), Device::Cpu, patience).unwrap();
        let followed = std::thread::spawn(move || follow(&variant("cispo"), model(5), team));
        std::thread::sleep(Duration::from_millis(300));
        crew.signal(1, signal);
        let started = Instant::now();
        let error = followed.join().unwrap().unwrap_err();
        println!("after {:?}: {error}", started.elapsed());
        assert!(started.elapsed() < 3 * patience.silence, "{:?}", started.elapsed());
    }
}

#[test]
fn one_rank_over_nccl_gives_the_numbers_of_one_process() {
    if device::open().cuda_devices == 0 {
        let is_required = std::env::var_os("SCALERL_REQUIRE_CUDA").is_some();
        assert!(!is_required, "SCALERL_REQUIRE_CUDA is set and there is no CUDA device");
        println!("skipped: no CUDA device");
        return;
    }
    let gpu = Device::Cuda(0);
    // Attention on CUDA works in bf16, and its backward pass may add up in another order every time.
    let mut recipe = variant("cispo");
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
        println!("step {step}: losses {apart:.1e} apart, gradient norms {norms:.1e}");
        // Nothing was added up in another order before the first backward pass.
        let most = if step == 0 { [1e-6, 1e-4] } else { [1e-4, 1e-3] };
        assert!(apart <= most[0] && norms <= most[1], "{found:?}\n{expected:?}");
        assert_eq!(found.trained_tokens, expected.trained_tokens);
    }
    let expected: Vec<Tensor> = alone.masters().iter().map(|m| m.to_device(Device::Cpu)).collect();
    let apart = distance(&ranked.gather_masters().unwrap(), &expected);
    println!("weights apart by {apart:.1e}");
    assert!(apart <= 1e-5, "{apart}");
    let folder = tempfile::tempdir().unwrap();
    ranked.save(folder.path()).unwrap();
    assert_eq!(ranked.restore(folder.path()).unwrap(), PolicyVersion(3));
}
