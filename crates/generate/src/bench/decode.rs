//! Times generation on random prompts of a random model.
//!
//! Lengths are given, nothing stops early, so every run does the same work as
//! scripts/h200/decode_torch.py. With mixed lengths, eight times as many requests as running
//! sequences pass through: whoever ends makes room for the next. (At the end nobody follows, and a
//! part of the batch stays empty: a training run never gets there, and a short bench would measure
//! little else.)

use std::time::Instant;

use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::{GenerateError, Generator, GeneratorOptions, PartTime, Request, Sampling};
use scalerl_model::bench::Shape;
use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_model::layout::{Parameter, Start, layout};
use scalerl_torch::device;
use scalerl_torch::shim;
use scalerl_torch::stopwatch::Stopwatch;

/// Requests of a run with mixed lengths, in batches.
const MIXED_BATCHES: usize = 8;

/// What to time.
#[derive(Debug, Clone, Copy)]
pub struct DecodeBench {
    pub shape: Shape,
    /// Sequences at once.
    pub batch: usize,
    pub prompt: usize,
    /// Tokens to generate, or the most of them where lengths are mixed.
    pub new: usize,
    /// The fewest tokens to generate; lengths are spread evenly between the two.
    pub fewest: Option<usize>,
    pub sampling: Sampling,
    pub repetitions: usize,
    /// Bytes per second that the memory delivers; measured where it is not given.
    pub bandwidth: Option<f64>,
    /// Whether each kind of work of a decode step is timed apart (CUDA).
    pub is_broken_down: bool,
    pub device: Device,
    pub kind: Kind,
    pub options: GeneratorOptions,
}

/// What was measured: the fastest repetition, after one that is thrown away.
#[derive(Debug, Clone, Serialize)]
pub struct DecodeTiming {
    pub parameters: i64,
    pub requests: usize,
    pub new_tokens: usize,
    pub steps: usize,
    /// Steps that only decode, prompts done.
    pub ms_per_decode_step: f64,
    pub new_tokens_per_s: f64,
    /// Tokens of decode-only steps per second of those steps.
    pub decode_tokens_per_s: f64,
    pub prefill_ms: f64,
    pub bandwidth_gb_per_s: f64,
    /// Bytes that a decode step must read (weights once, keys and values of every sequence) over
    /// what the memory delivers in the time it took.
    pub share_of_bandwidth: f64,
    /// Milliseconds per step and part, measured apart from the timing above.
    pub parts_ms: Vec<(&'static str, f64)>,
    /// Kinds of work inside the decode graph, halfway through the longest completion.
    pub breakdown: Vec<PartTime>,
    pub peak_pages: usize,
    pub set_aside: u64,
    /// Why torch operations were used in place of CUDA kernels, if they were.
    pub why_no_kernels: Option<String>,
}

impl DecodeBench {
    fn lengths(&self) -> Vec<usize> {
        let Some(fewest) = self.fewest else { return vec![self.new; self.batch] };
        let count = MIXED_BATCHES * self.batch;
        let spread = self.new - fewest.min(self.new);
        // 37 is prime to the count: neighbours differ, and all lengths appear.
        (0..count).map(|i| fewest + spread * (i * 37 % count) / (count - 1).max(1)).collect()
    }

    pub(super) fn requests(&self) -> Result<Vec<Request>, GenerateError> {
        let make = |(i, length): (usize, usize)| {
            let shape = [self.prompt as i64];
            let ids = Tensor::f_randint(self.shape.vocabulary, shape, (Kind::Int64, Device::Cpu))?;
            Ok(Request {
                sampling: self.sampling,
                seed: i as u64,
                ..Request::new(Vec::try_from(&ids)?, length)
            })
        };
        self.lengths().into_iter().enumerate().map(make).collect()
    }
}

#[derive(Default)]
struct Totals {
    seconds: f64,
    decode_seconds: f64,
    decode_steps: usize,
    decode_tokens: usize,
    /// Keys and values read by decode steps, in tokens.
    context_tokens: usize,
    steps: usize,
    tokens: usize,
}

fn run(generator: &mut Generator, requests: &[Request]) -> Result<Totals, GenerateError> {
    let device = generator.model().device();
    shim::synchronize(device)?;
    let start = Instant::now();
    for request in requests {
        generator.submit(request.clone())?;
    }
    let mut run = Totals::default();
    let page = generator.usage().tokens_per_page;
    while !generator.is_idle() {
        let held = generator.usage().pages_in_use;
        let begun = Instant::now();
        let report = generator.step()?;
        run.steps += 1;
        run.tokens += report.tokens.len();
        if report.computed == report.tokens.len() {
            run.decode_seconds += begun.elapsed().as_secs_f64();
            run.decode_steps += 1;
            run.decode_tokens += report.tokens.len();
            // A sequence's last page is half full on average.
            run.context_tokens += (held * page).saturating_sub(report.tokens.len() * page / 2);
        }
    }
    shim::synchronize(device)?;
    run.seconds = start.elapsed().as_secs_f64();
    Ok(run)
}

/// Bytes per second of a large copy, read and written bytes both counted.
pub fn measured_bandwidth(device: Device) -> Result<f64, GenerateError> {
    let count = if device == Device::Cpu { 1 << 25 } else { 1 << 29 };
    let from = Tensor::f_ones([count], (Kind::Float, device))?;
    let mut to = from.f_empty_like()?;
    let mut best = f64::INFINITY;
    for _ in 0..4 {
        shim::synchronize(device)?;
        let start = Instant::now();
        to.f_copy_(&from)?;
        shim::synchronize(device)?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(2.0 * 4.0 * count as f64 / best)
}

/// Random weights made on the device: a large model takes seconds on a host.
pub(super) fn random_weights(
    config: &ModelConfig,
    kind: Kind,
    device: Device,
) -> Result<Vec<Tensor>, GenerateError> {
    device::open();
    tch::manual_seed(1);
    let make = |parameter: &Parameter| {
        let (shape, on) = (&parameter.shape[..], (kind, device));
        match parameter.start {
            Start::Normal => Tensor::f_randn(shape, on)?.f_mul_scalar(config.initial_spread),
            Start::Ones => Tensor::f_ones(shape, on),
            Start::Zeros => Tensor::f_zeros(shape, on),
        }
    };
    Ok(layout(config).iter().map(make).collect::<Result<_, _>>()?)
}

/// Runs the bench.
pub fn bench_decode(bench: &DecodeBench) -> Result<DecodeTiming, GenerateError> {
    let config = bench.shape.config()?;
    let weights = random_weights(&config, bench.kind, bench.device)?;
    let model = Model::over(config, weights, None)?;
    let parameters = model.config.parameter_count();
    // The embedding is looked up, not read through.
    let read = parameters - bench.shape.vocabulary * bench.shape.width;
    let weight_bytes = read as f64 * bench.kind.elt_size_in_bytes() as f64;
    let bandwidth = match bench.bandwidth {
        Some(given) => given,
        None => measured_bandwidth(bench.device)?,
    };
    let mut generator = Generator::new(model, bench.options)?;
    let why_no_kernels = generator.why_no_kernels().map(str::to_owned);
    let requests = bench.requests()?;
    let _ = run(&mut generator, &requests)?;
    let mut best: Option<Totals> = None;
    for _ in 0..bench.repetitions.max(1) {
        let run = run(&mut generator, &requests)?;
        if best.as_ref().is_none_or(|best| run.seconds < best.seconds) {
            best = Some(run);
        }
    }
    let best = best.expect("at least one repetition");
    let usage = generator.usage();
    generator.attention_seconds = 0.0;
    generator.stopwatch = Some(Stopwatch::start(bench.device)?);
    let watched = run(&mut generator, &requests)?;
    let laps = generator.stopwatch.take().map(|watch| watch.laps).unwrap_or_default();
    let per_step = 1e3 / watched.steps as f64;
    let mut parts_ms: Vec<(&'static str, f64)> =
        laps.into_iter().map(|(name, seconds)| (name, seconds * per_step)).collect();
    if bench.device == Device::Cpu {
        parts_ms.push(("attention (inside network)", generator.attention_seconds * per_step));
    }
    let breakdown = if bench.is_broken_down {
        generator.breakdown(bench.batch, bench.prompt + bench.new / 2)?
    } else {
        Vec::new()
    };
    let bytes = weight_bytes * best.decode_steps as f64
        + (best.context_tokens * generator.bytes_per_token()) as f64;
    Ok(DecodeTiming {
        parameters,
        requests: requests.len(),
        new_tokens: best.tokens,
        steps: best.steps,
        ms_per_decode_step: best.decode_seconds * 1e3 / best.decode_steps.max(1) as f64,
        new_tokens_per_s: best.tokens as f64 / best.seconds,
        decode_tokens_per_s: best.decode_tokens as f64 / best.decode_seconds.max(1e-12),
        prefill_ms: (best.seconds - best.decode_seconds) * 1e3,
        bandwidth_gb_per_s: bandwidth / 1e9,
        share_of_bandwidth: bytes / bandwidth / best.decode_seconds.max(1e-12),
        parts_ms,
        breakdown,
        peak_pages: usage.peak_pages,
        set_aside: usage.set_aside,
        why_no_kernels,
    })
}
