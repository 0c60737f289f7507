//! Times optimizer steps on random tokens.

use std::time::Instant;

use serde::Serialize;
use tch::{Device, Kind, Tensor};

use super::Shape;
use crate::folder::Model;
use crate::packed::share_out;
use crate::sft::SftError;
use crate::train::{Learner, LearnerOptions, TrainingBatch};
use scalerl_torch::profile::{DeviceTime, profile};
use scalerl_torch::shim;
use scalerl_torch::stopwatch::Stopwatch;

/// What to time.
#[derive(Debug, Clone, Copy)]
pub struct TrainBench {
    pub shape: Shape,
    pub sequences: usize,
    pub length: usize,
    /// Lengths spread evenly up to `length` instead of all being `length`.
    pub is_mixed: bool,
    /// Most tokens through the network at once; 0 is no limit.
    pub micro_batch_tokens: usize,
    pub warmup: usize,
    pub steps: usize,
    /// Whether kernels are listed, in steps of their own (CUDA).
    pub is_profiled: bool,
    pub seed: i64,
    pub device: Device,
    pub options: LearnerOptions,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct TrainTiming {
    pub parameters: i64,
    pub tokens_per_step: usize,
    pub micro_batches: usize,
    pub ms_per_step: f64,
    /// Processor time of all threads; on a shared machine the fairer number.
    pub cpu_ms_per_step: f64,
    pub tokens_per_s: f64,
    /// 6 operations per parameter and token, and 6 · layers · width of all heads per pair of
    /// tokens that see each other.
    pub tflops: f64,
    /// Peak of the device's allocator, or of the process on the CPU.
    pub peak_bytes: u64,
    pub loss: f64,
    /// Milliseconds per part of a step, measured apart from the timing above.
    pub parts_ms: Vec<(&'static str, f64)>,
    /// What the device did in a step, measured apart from both.
    pub device: Option<DeviceTime>,
}

impl TrainBench {
    fn lengths(&self) -> Vec<usize> {
        (0..self.sequences)
            .map(|index| {
                let share = if self.is_mixed { index * 37 % 64 + 1 } else { 64 };
                (self.length * share / 64).max(2)
            })
            .collect()
    }

    fn batches(&self) -> Result<Vec<TrainingBatch>, SftError> {
        let lengths = self.lengths();
        let vocabulary = self.shape.vocabulary;
        let capacity =
            if self.micro_batch_tokens == 0 { usize::MAX } else { self.micro_batch_tokens };
        let shares = if capacity == usize::MAX {
            vec![(0..lengths.len()).collect()]
        } else {
            share_out(&lengths, capacity)
        };
        let mut batches = Vec::new();
        for share in shares {
            let mut sequences: Vec<Vec<i64>> = Vec::new();
            for index in share {
                // One token more than counts: the last one is only a target.
                let shape = [lengths[index] as i64 + 1];
                let tokens = Tensor::f_randint(vocabulary, shape, (Kind::Int64, Device::Cpu))?;
                sequences.push(Vec::try_from(&tokens)?);
            }
            batches.push(TrainingBatch::all_scored(&sequences, vocabulary, self.device)?);
        }
        Ok(batches)
    }
}

fn one_step(
    learner: &mut Learner,
    batches: &[TrainingBatch],
    scored: usize,
) -> Result<Tensor, SftError> {
    let device = learner.model.device();
    let mut loss = Tensor::f_zeros(&[] as &[i64], (Kind::Float, device))?;
    for batch in batches {
        let shape = [batch.scored() as i64];
        let weights = Tensor::f_full(shape, 1.0 / scored as f64, (Kind::Float, device))?;
        let scores = learner.cross_entropy(batch, &weights)?;
        loss = loss.f_sub(&scores.logprob.f_sum(Kind::Float)?)?;
    }
    learner.step()?;
    Ok(loss)
}

/// Runs the bench.
pub fn bench_train(bench: &TrainBench) -> Result<TrainTiming, SftError> {
    let model = Model::random(bench.shape.config()?, bench.seed, Kind::Float, bench.device)?;
    let parameters = model.config.parameter_count();
    let mut learner = Learner::new(model, bench.options)?;
    let batches = bench.batches()?;
    let scored: usize = batches.iter().map(TrainingBatch::scored).sum();
    let _ = one_step(&mut learner, &batches, scored)?;
    let is_cuda = bench.device != Device::Cpu;
    if is_cuda {
        shim::synchronize(bench.device)?;
        shim::reset_peak(bench.device)?;
    }
    for _ in 0..bench.warmup {
        let _ = one_step(&mut learner, &batches, scored)?;
    }
    shim::synchronize(bench.device)?;
    let (start, cpu) = (Instant::now(), process_seconds());
    let mut loss = Tensor::new();
    for _ in 0..bench.steps {
        loss = one_step(&mut learner, &batches, scored)?;
    }
    shim::synchronize(bench.device)?;
    let seconds = start.elapsed().as_secs_f64() / bench.steps as f64;
    let cpu_seconds = (process_seconds() - cpu) / bench.steps as f64;
    let peak_bytes = if is_cuda { shim::peak_memory(bench.device)?.0 } else { process_peak() };
    learner.stopwatch = Some(Stopwatch::start(bench.device)?);
    for _ in 0..bench.steps {
        let _ = one_step(&mut learner, &batches, scored)?;
    }
    let laps = learner.stopwatch.take().map(|watch| watch.laps).unwrap_or_default();
    let parts = laps.into_iter().map(|(name, sum)| (name, sum * 1e3 / bench.steps as f64));
    let device = (bench.is_profiled && is_cuda).then(|| {
        let mut some =
            || (0..3).try_for_each(|_| one_step(&mut learner, &batches, scored).map(drop));
        // What the profiler sets up for itself is not in the second pass.
        profile(bench.device, 3, &mut some)?;
        profile(bench.device, 3, &mut some)
    });
    let lengths = bench.lengths();
    let tokens: usize = lengths.iter().sum();
    let pairs: f64 = lengths.iter().map(|length| (length * length) as f64).sum();
    let operations = 6.0 * parameters as f64 * tokens as f64
        + 6.0 * (bench.shape.layers * bench.shape.width) as f64 * pairs;
    Ok(TrainTiming {
        parameters,
        tokens_per_step: tokens,
        micro_batches: batches.len(),
        ms_per_step: seconds * 1e3,
        cpu_ms_per_step: cpu_seconds * 1e3,
        tokens_per_s: tokens as f64 / seconds,
        tflops: operations / seconds / 1e12,
        peak_bytes,
        loss: loss.f_double_value(&[])? / scored as f64,
        parts_ms: parts.collect(),
        device: device.transpose()?,
    })
}

/// The largest memory of this process so far, where the system says it.
fn process_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Processor time of this process in seconds, where the system says it.
fn process_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field is a name in brackets that may hold spaces; user and system time are the
    // 12th and 13th after it, in hundredths.
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
