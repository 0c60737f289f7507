//! Steps of a random model on as many processes as were started: for trying out a launcher, a
//! network, a GPU.
//!
//! ```text
//! cargo build --release -p scalerl-worker --example ranks
//! target/release/examples/ranks                                          # one process, no ranks
//! torchrun --no-python --nproc-per-node 3 target/release/examples/ranks
//! RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 target/release/examples/ranks cuda
//! ```
//! Arguments: device (cpu, cuda), width, layers, sequences, tokens of the longest, steps, sharding
//! (optimizer, full). Batches are made up and the same however many processes there are, so losses can
//! be compared.

#![expect(clippy::print_stdout, reason = "this is a program")]

use std::error::Error;

use scalerl_model::bench::Shape;
use scalerl_model::memory;
use scalerl_model::unloaded::UnloadedModel;
use scalerl_recipe::{Recipe, Sharding};
use scalerl_rollout::{TrainBatch, TrainSequence, Trainer};
use scalerl_torch::{device, shim};
use scalerl_worker::ranks::{Deadlines, Launch, RankedTrainer, Team, follow};
use scalerl_worker::{LocalTrainer, WeightStore};
use tch::{Device, Kind};

const VOCABULARY: i64 = 4096;

fn batch(step: usize, sequences: usize, longest: usize) -> TrainBatch {
    let token = |a: usize, b: usize| ((a * 7919 + b * 104_729 + step * 31) % 4000) as u32;
    let sequence = |index: usize| {
        // From a quarter of the longest up, as completions are.
        let tokens = longest / 4 + (index * 2_654_435_761 % 1000) * (longest - longest / 4) / 1000;
        TrainSequence {
            prompt_token_ids: (0..8).map(|t| token(index, t)).collect(),
            completion_token_ids: (8..8 + tokens).map(|t| token(index, t)).collect(),
            generator_logprobs: vec![-8.3; tokens],
            weights: vec![1.0 / (sequences * tokens) as f64; tokens],
            advantage: if index.is_multiple_of(2) { 1.0 } else { -1.0 },
        }
    };
    TrainBatch { temperature: 1.0, sequences: (0..sequences).map(sequence).collect() }
}

fn run(trainer: &mut impl Trainer, sequences: usize, longest: usize, steps: usize) -> Outcome {
    for step in 0..steps {
        let report = trainer.step(&batch(step, sequences, longest))?;
        println!(
            "step {}: loss {:.9}, gradient norm {:.9}, {} tokens, {:.3} s",
            step + 1,
            report.loss,
            report.gradient_norm,
            report.tokens,
            report.seconds
        );
    }
    Ok(())
}

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "cpu".to_owned());
    let mut number = |usual: usize| arguments.next().map_or(Ok(usual), |text| text.parse());
    let (width, layers) = (number(128)? as i64, number(4)? as i64);
    let (sequences, longest, steps) = (number(24)?, number(256)?, number(4)?);
    let is_full = match arguments.next().as_deref() {
        None | Some("optimizer") => false,
        Some("full") => true,
        Some(other) => return Err(format!("`{other}` is neither optimizer nor full").into()),
    };

    let launch = Launch::from_environment()?;
    let local_rank = launch.as_ref().map_or(0, |launch| launch.local_rank);
    let name = if kind == "cuda" { format!("cuda:{local_rank}") } else { kind };
    let device = device::parse(&name)?;
    let heads = (width / 64).max(1);
    let (kv_heads, feed_forward, vocabulary) = (heads, 4 * width, VOCABULARY);
    let shape = Shape { layers, width, heads, kv_heads, feed_forward, vocabulary };
    let config = shape.config()?;
    let parameters = config.parameter_count();
    let mut model = UnloadedModel::random(config, 1, device);
    let mut recipe = Recipe::default();
    // The same work in both schemes.
    recipe.model.activation_checkpointing = true;
    if is_full {
        recipe.cluster.sharding = Sharding::Full;
    } else {
        model = model.loaded(Kind::Float)?;
    }
    recipe.optimizer.lr = 1e-4;
    recipe.optimizer.warmup_steps = 0;

    match launch {
        None => {
            println!("one process, {parameters} parameters on {device:?}");
            let model = model.load(Kind::Float)?;
            let mut trainer = LocalTrainer::try_new(&recipe, model, WeightStore::new())?;
            run(&mut trainer, sequences, longest, steps)?;
        }
        Some(launch) => {
            let team = Team::join(&launch, device, Deadlines::default())?;
            if launch.rank > 0 {
                println!("rank {} ends at {}", launch.rank, follow(&recipe, model, team)?);
                say_memory(device);
                return Ok(());
            }
            let sharding = if is_full { "full" } else { "optimizer" };
            println!("{} ranks, {sharding}, {parameters} parameters on {device:?}", launch.world);
            let mut trainer = RankedTrainer::lead(&recipe, model, team, WeightStore::new())?;
            run(&mut trainer, sequences, longest, steps)?;
        }
    }
    say_memory(device);
    Ok(())
}

/// The most that this process has held: on its GPU, or of the machine's memory.
fn say_memory(device: Device) {
    let peak = if device == Device::Cpu {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        memory::meminfo(&status, "VmHWM:")
    } else {
        shim::peak_memory(device).ok().map(|(peak, _)| peak)
    };
    if let Some(peak) = peak {
        println!("peak memory: {:.3} GB", peak as f64 / 1e9);
    }
}
