//! How far generator and trainer are apart: the same weights, the same tokens, two ways through.
//!
//! A model generates with its cache, graphs and kernels; then the trainer's packed forward pass
//! scores the same tokens. What is left is rounding, and what it does to importance weights.

use serde::Serialize;
use tch::Tensor;

use super::DecodeBench;
use super::decode::random_weights;
use crate::{GenerateError, Generator, GeneratorOptions, Request};
use scalerl_model::config::ModelConfig;
use scalerl_model::folder::Model;
use scalerl_model::head::{Head, HeadMode, HeadOptions};
use scalerl_model::packed::Packed;

/// Differences of log-probs over all sampled tokens.
#[derive(Debug, Clone, Serialize)]
pub struct Mismatch {
    pub head: HeadMode,
    pub tokens: usize,
    pub mean: f64,
    pub percentile_99_9: f64,
    pub largest: f64,
    /// Of the importance weights trainer / generator, as a share of the tokens; 1 is perfect.
    pub effective_sample_size: f64,
}

/// Generates with each head and scores with the same head on the trainer's side.
pub fn bench_mismatch(bench: &DecodeBench) -> Result<Vec<Mismatch>, GenerateError> {
    // A wider start than usual: distributions as sharp as a trained model's.
    let config = ModelConfig { initial_spread: 0.06, ..bench.shape.config()? };
    let weights = random_weights(&config, bench.kind, bench.device)?;
    let requests = bench.requests()?;
    [HeadMode::Exact, HeadMode::Split, HeadMode::Bf16]
        .into_iter()
        .map(|mode| {
            let model = || {
                let weights = weights.iter().map(Tensor::shallow_clone).collect();
                Model::over(config.clone(), weights, None)
            };
            one(bench, mode, [model()?, model()?], &requests)
        })
        .collect()
}

fn one(
    bench: &DecodeBench,
    mode: HeadMode,
    [model, judge]: [Model; 2],
    requests: &[Request],
) -> Result<Mismatch, GenerateError> {
    let options = GeneratorOptions { head: mode, ..bench.options };
    let mut generator = Generator::new(model, options)?;
    for request in requests {
        generator.submit(request.clone())?;
    }
    let completions = generator.finish_all()?;
    let head_options = HeadOptions {
        mode,
        temperature: bench.sampling.temperature,
        ..HeadOptions::of(bench.device)
    };
    let head = Head::new(judge.network.head(), head_options)?;
    let mut apart = Vec::new();
    for completion in completions {
        let prompt = &requests[completion.request.0 as usize].prompt;
        let ids: Vec<i64> =
            prompt.iter().copied().chain(completion.tokens.iter().map(|t| t.id)).collect();
        let (sampled, from) = (completion.tokens.len() as i64, prompt.len() as i64 - 1);
        let hidden = judge.network.hidden(&Packed::new(&[&ids[..]], bench.device)?)?;
        let targets = Tensor::f_from_slice(&ids[prompt.len()..])?.f_to_device(bench.device)?;
        let scores = head.score(&hidden.f_narrow(0, from, sampled)?, &targets)?;
        let scores = Vec::<f32>::try_from(&scores.logprob.f_to_device(tch::Device::Cpu)?)?;
        let own = completion.tokens.iter().map(|token| token.logprob.unwrap_or(f32::NAN));
        apart.extend(scores.into_iter().zip(own).map(|(a, b)| f64::from(a) - f64::from(b)));
    }
    Ok(summary(mode, &apart))
}

fn summary(head: HeadMode, apart: &[f64]) -> Mismatch {
    let mut sizes: Vec<f64> = apart.iter().map(|x| x.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let count = sizes.len() as f64;
    let weights = apart.iter().map(|x| x.exp());
    let (sum, squares) = weights.fold((0.0, 0.0), |(sum, squares), w| (sum + w, squares + w * w));
    Mismatch {
        head,
        tokens: sizes.len(),
        mean: sizes.iter().sum::<f64>() / count,
        percentile_99_9: sizes[(sizes.len() - 1) * 999 / 1000],
        largest: sizes[sizes.len() - 1],
        effective_sample_size: sum * sum / squares / count,
    }
}
