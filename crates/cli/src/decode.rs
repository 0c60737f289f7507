//! `scalerl bench decode`: tokens per second of generation for a shape given as numbers.

use std::io::Write;

use scalerl_generate::bench::{DecodeBench, DecodeTiming, bench_decode, bench_mismatch};
use scalerl_generate::{GeneratorOptions, check_kernels};
use scalerl_model::bench::Shape;
use scalerl_torch::tch;
use scalerl_torch::tch::Device;

use crate::arithmetic::ArithmeticArgs;
use crate::failure::BadInput;
use crate::sampling::SamplingArgs;

/// Options of `bench decode`.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Args {
    #[arg(long, default_value_t = 4)]
    layers: i64,
    #[arg(long, default_value_t = 128)]
    dim: i64,
    #[arg(long, default_value_t = 4)]
    heads: i64,
    #[arg(long, default_value_t = 2)]
    kv_heads: i64,
    #[arg(long, default_value_t = 384)]
    ffn: i64,
    #[arg(long, default_value_t = 512)]
    vocab: i64,
    /// Sequences at once.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Tokens of each prompt.
    #[arg(long, default_value_t = 32)]
    prompt: usize,
    /// Tokens to generate, the most of them with --fewest.
    #[arg(long, default_value_t = 256)]
    new: usize,
    /// Mixed lengths: from this many tokens to --new, eight requests per sequence at once.
    #[arg(long)]
    fewest: Option<usize>,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[arg(long, default_value_t = 3)]
    reps: usize,
    /// GB/s of the memory; measured by a large copy where it is not given.
    #[arg(long)]
    bandwidth: Option<f64>,
    /// Tokens in the KV cache [default: what the sequences need].
    #[arg(long)]
    cache_tokens: Option<usize>,
    #[command(flatten)]
    arithmetic: ArithmeticArgs,
    /// CPU threads; 0 leaves libtorch's choice.
    #[arg(long, default_value_t = 0)]
    threads: i32,
    /// Compare every kernel with torch operations on random inputs instead of timing.
    #[arg(long)]
    check: bool,
    /// Compare log-probs with the trainer's forward pass, for the three heads, instead of timing.
    #[arg(long)]
    mismatch: bool,
    /// Also time each kind of work inside a decode step (CUDA).
    #[arg(long)]
    breakdown: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn bench(&self) -> anyhow::Result<DecodeBench> {
        let device = self.arithmetic.device()?;
        if let Some(fewest) = self.fewest
            && (fewest == 0 || fewest > self.new)
        {
            return Err(
                BadInput::new(format!("--fewest {fewest} is not in 1 to {}", self.new)).into()
            );
        }
        let kind = self.arithmetic.kind(device);
        let mut options = GeneratorOptions::of(device);
        options.running = self.batch;
        let whole = (self.prompt + self.new).next_multiple_of(options.page_tokens) * self.batch;
        options.cache_tokens = self.cache_tokens.unwrap_or(whole + 8 * self.batch);
        options.head = self.arithmetic.head().unwrap_or(options.head);
        Ok(DecodeBench {
            shape: Shape {
                layers: self.layers,
                width: self.dim,
                heads: self.heads,
                kv_heads: self.kv_heads,
                feed_forward: self.ffn,
                vocabulary: self.vocab,
            },
            batch: self.batch,
            prompt: self.prompt,
            new: self.new,
            fewest: self.fewest,
            sampling: self.sampling.sampling(),
            repetitions: self.reps,
            bandwidth: self.bandwidth.map(|gigabytes| gigabytes * 1e9),
            is_broken_down: self.breakdown,
            device,
            kind,
            options,
        })
    }
}

/// Times, or checks kernels.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.threads > 0 {
        tch::set_num_threads(args.threads);
    }
    let bench = args.bench()?;
    if args.check {
        return crate::bench::report_checks(&check_kernels(bench.device)?, out);
    }
    if args.mismatch {
        return mismatch(&bench, out);
    }
    let timing = bench_decode(&bench).map_err(|error| BadInput::new(&error).hint(error.hint()))?;
    if args.json {
        writeln!(out, "{}", serde_json::to_string(&timing)?)?;
        return Ok(());
    }
    print(&bench, &timing, out)
}

fn mismatch(bench: &DecodeBench, out: &mut dyn Write) -> anyhow::Result<()> {
    for found in bench_mismatch(bench).map_err(|error| BadInput::new(&error).hint(error.hint()))? {
        writeln!(
            out,
            "mismatch head={:<6} tokens={} mean={:.2e} p99.9={:.2e} largest={:.2e} effective_sample_size={:.6}",
            format!("{:?}", found.head).to_lowercase(),
            found.tokens,
            found.mean,
            found.percentile_99_9,
            found.largest,
            found.effective_sample_size,
        )?;
    }
    Ok(())
}

fn print(bench: &DecodeBench, timing: &DecodeTiming, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(
        out,
        "decode scalerl params={:.1}M batch={} requests={} prompt={} new={} ms/step={:.3} new_tokens/s={:.0} (with prefill: {:.0}) \
         prefill_ms={:.1} bandwidth={:.0}GB/s share={:.0}% peak_pages={} set_aside={}",
        timing.parameters as f64 / 1e6,
        bench.batch,
        timing.requests,
        bench.prompt,
        bench.fewest.map_or_else(|| bench.new.to_string(), |f| format!("{f}-{}", bench.new)),
        timing.ms_per_decode_step,
        timing.decode_tokens_per_s,
        timing.new_tokens_per_s,
        timing.prefill_ms,
        timing.bandwidth_gb_per_s,
        timing.share_of_bandwidth * 1e2,
        timing.peak_pages,
        timing.set_aside,
    )?;
    write!(out, "  of which per step")?;
    for (part, ms) in &timing.parts_ms {
        write!(out, " {part}={ms:.3}ms")?;
    }
    writeln!(out)?;
    for part in &timing.breakdown {
        write!(out, "  {:<16} {:.3} ms", part.part, part.ms)?;
        if let Some(torch_ms) = part.torch_ms {
            write!(out, " (torch's product: {torch_ms:.3} ms)")?;
        }
        writeln!(out)?;
    }
    if let Some(why) = timing.why_no_kernels.as_ref().filter(|_| bench.device != Device::Cpu) {
        writeln!(out, "  without our kernels: {why}")?;
    }
    Ok(())
}
