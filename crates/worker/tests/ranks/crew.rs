//! Ranks of a test: rank 0 in its process, the others as this very binary.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use scalerl_model::folder::Model;
use scalerl_model::train::checkpoint::each_master;
use scalerl_recipe::{Adapter, Compute, Experts, Kl, RatioGrain, Recipe, Sharding, Surrogate};
use scalerl_rollout::{StepReport, TrainBatch, Trainer as _};
use scalerl_torch::shim;
use scalerl_worker::ranks::{Deadlines, Launch, RankedTrainer, StoreHost, Team};
use scalerl_worker::{LocalTrainer, WeightStore};
use tch::{Device, Tensor};

use crate::batches::{batch, model, model_of_experts, recipe, tied_model, trained_as};

/// float32 gradients added in another order; the optimizer's quotient keeps their relative error.
pub(crate) const FLOAT_SUMS: f64 = 1e-5;

/// What a variant is called when its ranks share out weights and gradients too.
pub(crate) fn full(name: &str) -> String {
    format!("full {name}")
}

/// The same with experts that stay with their owners.
pub(crate) fn owned(name: &str) -> String {
    full(&format!("owned {name}"))
}

/// The variant's model and objective, whatever its ranks share out.
fn plain(name: &str) -> &str {
    let name = name.strip_prefix("full ").unwrap_or(name);
    name.strip_prefix("owned ").unwrap_or(name)
}

pub(crate) fn variant(name: &str) -> Recipe {
    let mut recipe = recipe();
    if name.starts_with("full ") {
        recipe.cluster.sharding = Sharding::Full;
        recipe.model.activation_checkpointing = true;
    }
    if name.starts_with("full owned ") {
        recipe.cluster.experts = Experts::Owned;
    }
    let name = plain(name);
    // Small pieces, so that every rank has several.
    recipe.pipeline.micro_batch_tokens = 24;
    match name {
        "gspo" => {
            recipe.objective.surrogate = Surrogate::Clip { low: 0.003, high: 0.005 };
            recipe.objective.ratio = RatioGrain::Sequence;
        }
        "lora" | "lora of experts" => {
            recipe.adapter = Adapter::Lora { rank: 4, alpha: 8.0, layers: Vec::new() };
            recipe.objective.kl = Kl::K3 { coefficient: 0.1 };
        }
        "bf16" | "bf16 of experts" => recipe.model.compute = Compute::Bf16,
        "all-terms" | "all-terms of experts" => {
            recipe.objective.kl = Kl::K3 { coefficient: 0.1 };
            recipe.objective.entropy_bonus = 0.01;
        }
        _ => {}
    }
    recipe
}

/// The model of a seed as the variant trains it.
pub(crate) fn start(name: &str, seed: i64) -> Model {
    trained_as(&variant(name), untrained(name, seed))
}

pub(crate) fn untrained(name: &str, seed: i64) -> Model {
    match plain(name) {
        "experts" | "lora of experts" | "all-terms of experts" | "bf16 of experts" => {
            model_of_experts(seed)
        }
        "one expert" => to_few_experts(model_of_experts(seed)),
        "tied" => tied_model(seed),
        _ => model(seed),
    }
}

/// Routers that send every token to the same experts, and none to the others.
fn to_few_experts(model: Model) -> Model {
    let _guard = tch::no_grad_guard();
    for (known, parameter) in model.layout.iter().zip(&model.parameters) {
        if known.name.ends_with("router") {
            let _ = parameter.shallow_clone().zero_();
        }
    }
    model
}

pub(crate) fn deadlines(operation: Duration) -> Deadlines {
    Deadlines {
        meeting: Duration::from_mins(1),
        operation,
        silence: Duration::from_mins(1),
        pulse: Duration::from_millis(200),
    }
}

pub(crate) const PATIENT: Duration = Duration::from_mins(1);

/// Rank 0 in this process, the others in their own.
pub(crate) struct Crew {
    pub(crate) trainer: Option<RankedTrainer>,
    pub(crate) others: Vec<Child>,
    /// Where the trainer leaves weights.
    pub(crate) weight_store: Arc<WeightStore>,
}

pub(crate) fn free_port() -> u16 {
    // Below those that the system gives out by itself: no connection takes it before it is used.
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 60) as u16 * 200;
    std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed) % 200)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

/// How a rank's disk takes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Fast,
    /// So long for each tensor.
    Slow(Duration),
    /// As slow, and from the first tensor on the rank has no memory for a step.
    SlowWithoutMemory(Duration),
    /// No file becomes larger than four kilobytes.
    Full,
    /// From the first file on the rank can have so many bytes more.
    WithRoom(u64),
}

/// A rank of its own process.
pub(crate) fn spawn(name: &str, rank: usize, size: usize, port: u16, operation: Duration) -> Child {
    spawn_on(Disk::Fast, name, rank, size, port, operation)
}

fn spawn_on(
    disk: Disk,
    name: &str,
    rank: usize,
    size: usize,
    port: u16,
    operation: Duration,
) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = match disk {
        Disk::Full => {
            let mut shell = Command::new("sh");
            shell.args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""]).arg(program);
            shell
        }
        _ => Command::new(program),
    };
    if let Disk::Slow(each) | Disk::SlowWithoutMemory(each) = disk {
        command.env("SCALERL_TEST_WRITE_MS", each.as_millis().to_string());
    }
    if let Disk::SlowWithoutMemory(_) = disk {
        command.env("SCALERL_TEST_NO_MEMORY", "1");
    }
    if let Disk::WithRoom(bytes) = disk {
        command.env("SCALERL_TEST_ROOM", bytes.to_string());
    }
    command
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

pub(crate) fn launch(rank: usize, size: usize, port: u16) -> Launch {
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

/// Enough for a tensor of a file, too little for a step.
const ROOM_TO_WRITE: u64 = 8 << 10;

/// A team whose own file takes so long for each tensor.
pub(crate) fn writing_slowly(team: Team, each: Duration) -> Team {
    team.with_write_watch(Arc::new(move || std::thread::sleep(each)))
}

/// The same, and only small tensors can be made once it has begun.
pub(crate) fn writing_without_memory(team: Team, each: Duration) -> Team {
    shim::count_cpu_memory().unwrap();
    team.with_write_watch(Arc::new(move || {
        shim::limit_cpu_memory(shim::cpu_memory().0 + ROOM_TO_WRITE);
        std::thread::sleep(each);
    }))
}

/// So many bytes more from the first file on.
pub(crate) fn with_room(team: Team, bytes: u64) -> Team {
    shim::count_cpu_memory().unwrap();
    team.with_write_watch(Arc::new(move || shim::limit_cpu_memory(shim::cpu_memory().0 + bytes)))
}

impl Crew {
    pub(crate) fn start(name: &str, size: usize, operation: Duration) -> Self {
        Self::start_on(&vec![Disk::Fast; size], name, operation)
    }

    /// As many ranks as disks.
    pub(crate) fn start_on(disks: &[Disk], name: &str, operation: Duration) -> Self {
        let (port, size) = (free_port(), disks.len());
        let others = (1..size)
            .map(|rank| spawn_on(disks[rank], name, rank, size, port, operation))
            .collect();
        let launch = launch(0, size, port);
        let mut team = Team::join(&launch, Device::Cpu, deadlines(operation)).unwrap();
        if let Disk::Slow(each) = disks[0] {
            team = writing_slowly(team, each);
        }
        let weight_store = WeightStore::new();
        let model = start(name, 1);
        let trainer =
            RankedTrainer::lead(&variant(name), model, team, weight_store.clone()).unwrap();
        Self { trainer: Some(trainer), others, weight_store }
    }

    pub(crate) fn trainer(&mut self) -> &mut RankedTrainer {
        self.trainer.as_mut().unwrap()
    }

    /// Everything that is trained.
    pub(crate) fn masters(&mut self) -> Vec<Tensor> {
        masters(self.trainer())
    }

    /// Ends the run; every rank must leave by itself and content.
    pub(crate) fn end(mut self) {
        drop(self.trainer.take());
        for other in &mut self.others {
            assert!(other.wait().unwrap().success(), "a rank failed");
        }
    }

    /// Waits for ranks that end with an error.
    pub(crate) fn wait(&mut self) {
        for other in &mut self.others {
            assert!(!other.wait().unwrap().success(), "a rank ended as if all were well");
        }
    }

    pub(crate) fn signal(&self, rank: usize, signal: Signal) {
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

/// Everything that is trained, as a checkpoint has it.
pub(crate) fn masters(trainer: &mut RankedTrainer) -> Vec<Tensor> {
    let folder = tempfile::tempdir().unwrap();
    trainer.save(folder.path()).unwrap();
    let step = format!("step-{:08}", trainer.version().0);
    let mut masters = Vec::new();
    each_master(&folder.path().join(step), trainer.model().trained_layout(), |master| {
        masters.push(master.copy());
        Ok(())
    })
    .unwrap();
    masters
}

pub(crate) fn local(name: &str) -> LocalTrainer {
    LocalTrainer::try_new(&variant(name), start(name, 1), WeightStore::new()).unwrap()
}

/// Batches recorded by other models, so that ratios are not 1.
pub(crate) fn batches(name: &str, count: i64) -> Vec<TrainBatch> {
    (2..2 + count).map(|seed| batch(&variant(name), seed)).collect()
}

pub(crate) fn assert_same_report(found: &StepReport, expected: &StepReport) {
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

pub(crate) fn row(masters: &[Tensor]) -> Tensor {
    let flat: Vec<Tensor> = masters.iter().map(|master| master.flatten(0, -1)).collect();
    Tensor::cat(&flat, 0)
}

/// ‖found − expected‖ / ‖expected‖.
pub(crate) fn distance(found: &[Tensor], expected: &[Tensor]) -> f64 {
    let (found, expected) = (row(found), row(expected));
    (found - &expected).norm().double_value(&[]) / expected.norm().double_value(&[])
}
