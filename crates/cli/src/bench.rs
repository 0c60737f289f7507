//! `scalerl bench train` and `scalerl bench head`: timings for shapes given as numbers.

use std::io::Write;

use clap::Subcommand;
use scalerl_model::bench::{HeadBench, Shape, TrainBench, bench_head, bench_train};
use scalerl_model::check::{KernelCheck, check_training};
use scalerl_model::network::Activations;
use scalerl_model::train::{ComputeKind, KeptIn, LearnerOptions};
use scalerl_torch::device;
use scalerl_torch::profile::{DeviceTime, KernelTime};
use scalerl_torch::tch::Kind;

use crate::arithmetic::{ArithmeticArgs, Precision};
use crate::failure::BadInput;

/// What can be timed on a model.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Optimizer steps on random tokens: tokens/s, TFLOP/s, memory, where the time goes.
    Train(TrainArgs),
    /// The head's modes: error against float64, and time.
    Head(HeadArgs),
    /// Generation on random prompts: tokens/s, share of the memory's bandwidth, where the time goes.
    Decode(crate::decode::Args),
    /// Generation over HTTP beside the generator alone: tokens/s, time to the first token.
    Serve(crate::bench_serve::Args),
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct TrainArgs {
    #[arg(long, default_value_t = 4)]
    layers: i64,
    #[arg(long, default_value_t = 256)]
    dim: i64,
    #[arg(long, default_value_t = 4)]
    heads: i64,
    #[arg(long, default_value_t = 2)]
    kv_heads: i64,
    #[arg(long, default_value_t = 768)]
    ffn: i64,
    #[arg(long, default_value_t = 512)]
    vocab: i64,
    /// Sequences of a step.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Tokens of a sequence.
    #[arg(long, default_value_t = 256)]
    seq: usize,
    /// Lengths spread evenly up to --seq instead of all being --seq.
    #[arg(long)]
    mixed: bool,
    /// Most tokens through the network at once; 0 is no limit.
    #[arg(long, default_value_t = 0)]
    micro_batch_tokens: usize,
    #[arg(long, default_value_t = 5)]
    warmup: usize,
    #[arg(long, default_value_t = 20)]
    steps: usize,
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// Compare every fast path of a training step with plain torch operations instead of timing.
    #[arg(long)]
    check: bool,
    /// List the kernels that a step runs, longest first (CUDA).
    #[arg(long)]
    kernels: bool,
    /// Hold all logits at once instead of chunks.
    #[arg(long)]
    whole_logits: bool,
    /// Compute activations again in the backward pass.
    #[arg(long)]
    recompute: bool,
    /// Keep the optimizer's moments in bf16.
    #[arg(long)]
    bf16_moments: bool,
    /// Add gradients up in bf16.
    #[arg(long)]
    bf16_gradients: bool,
    /// CPU threads; 0 leaves libtorch's choice.
    #[arg(long, default_value_t = 0)]
    threads: i32,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct HeadArgs {
    #[arg(long, default_value_t = 4096)]
    tokens: i64,
    #[arg(long, default_value_t = 896)]
    dim: i64,
    #[arg(long, default_value_t = 151_936)]
    vocab: i64,
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// auto, cpu, cuda or cuda:N.
    #[arg(long, default_value = "auto")]
    device: String,
    /// Kind of hidden states and matrix.
    #[arg(long, default_value = "bf16")]
    dtype: Precision,
    /// Print a JSON object per line instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs one bench.
pub(crate) fn run(what: &What, out: &mut dyn Write) -> anyhow::Result<()> {
    match what {
        What::Train(args) => train(args, out),
        What::Head(args) => head(args, out),
        What::Decode(args) => crate::decode::run(args, out),
        What::Serve(args) => crate::bench_serve::run(args, out),
    }
}

fn train(args: &TrainArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let device = args.arithmetic.device()?;
    if args.check {
        return report_checks(&check_training(device)?, out);
    }
    if args.threads > 0 {
        scalerl_torch::tch::set_num_threads(args.threads);
    }
    let mut options = LearnerOptions::of(device);
    options.optimizer.warmup_steps = 0;
    options.optimizer.lr = 1e-3;
    options.compute = match args.arithmetic.kind(device) {
        Kind::BFloat16 => ComputeKind::BFloat16,
        _ => ComputeKind::Float32,
    };
    if let Some(mode) = args.arithmetic.head() {
        options.head.mode = mode;
    }
    if args.whole_logits {
        options.head.chunk_bytes = None;
    }
    if args.recompute {
        options.activations = Activations::Recompute;
    }
    if args.bf16_moments {
        options.optimizer.moments = KeptIn::BFloat16;
    }
    if args.bf16_gradients {
        options.gradients = KeptIn::BFloat16;
    }
    let shape = Shape {
        layers: args.layers,
        width: args.dim,
        heads: args.heads,
        kv_heads: args.kv_heads,
        feed_forward: args.ffn,
        vocabulary: args.vocab,
    };
    let bench = TrainBench {
        shape,
        sequences: args.batch,
        length: args.seq,
        is_mixed: args.mixed,
        micro_batch_tokens: args.micro_batch_tokens,
        warmup: args.warmup,
        steps: args.steps.max(1),
        is_profiled: args.kernels,
        seed: 1,
        device,
        options,
    };
    let timing = bench_train(&bench).map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&timing)?)?;
        return Ok(());
    }
    writeln!(
        out,
        "train scalerl params={:.1}M tokens/step={} ms/step={:.2} tokens/s={:.0} TFLOP/s={:.2} peak={:.2}GB loss={:.4} cpu_ms/step={:.1}",
        timing.parameters as f64 / 1e6,
        timing.tokens_per_step,
        timing.ms_per_step,
        timing.tokens_per_s,
        timing.tflops,
        timing.peak_bytes as f64 / 1e9,
        timing.loss,
        timing.cpu_ms_per_step
    )?;
    write!(out, "  of which")?;
    for (part, ms) in &timing.parts_ms {
        write!(out, " {part}={ms:.2}ms")?;
    }
    writeln!(out)?;
    if let Some(why) = scalerl_torch::attention::why_no_cudnn() {
        writeln!(out, "  cuDNN's attention was given up: {why}")?;
    }
    match &timing.device {
        Some(device) => kernels(device, out)?,
        None if args.kernels => writeln!(out, "  kernels: there is no CUDA device")?,
        None => {}
    }
    Ok(())
}

/// Prints comparisons; an error where one is wrong.
pub(crate) fn report_checks(checks: &[KernelCheck], out: &mut dyn Write) -> anyhow::Result<()> {
    for check in checks {
        let verdict = if check.is_right() { "ok" } else { "WRONG" };
        writeln!(
            out,
            "{verdict:<6} {:<60} {:.2e} (limit {:.0e})",
            check.what, check.error, check.limit
        )?;
    }
    anyhow::ensure!(
        checks.iter().all(KernelCheck::is_right),
        "a fast path differs from torch operations"
    );
    Ok(())
}

/// A table of kernels; what adds up to less than a thousandth is one line.
fn kernels(device: &DeviceTime, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "  device {:.2} ms a step, {:.2} of it idle", device.ms, device.idle_ms)?;
    let is_shown = |kernel: &&KernelTime| kernel.ms >= 1e-3 * device.ms;
    for kernel in device.kernels.iter().take_while(is_shown) {
        let name: String = kernel.name.chars().take(110).collect();
        writeln!(out, "  {:9.3} ms  {:5} calls in 3 steps  {name}", kernel.ms, kernel.calls)?;
    }
    let rest: f64 = device.kernels.iter().skip_while(is_shown).map(|kernel| kernel.ms).sum();
    writeln!(out, "  {rest:9.3} ms  all others")
}

fn head(args: &HeadArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let device = device::parse(&args.device).map_err(BadInput::new)?;
    let bench = HeadBench {
        tokens: args.tokens,
        width: args.dim,
        vocabulary: args.vocab,
        steps: args.steps.max(1),
        device,
        kind: args.dtype.kind(),
    };
    for timing in bench_head(&bench)? {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&timing)?)?;
            continue;
        }
        writeln!(
            out,
            "head {:<6} error max={:.2e} mean={:.2e}  score={:.2}ms  score+backward={:.2}ms",
            format!("{:?}", timing.mode).to_lowercase(),
            timing.largest_error,
            timing.mean_error,
            timing.score_ms,
            timing.score_and_backward_ms
        )?;
    }
    Ok(())
}
