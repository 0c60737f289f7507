//! Each head mode: how far its log-probs are from float64, and how long it takes.

use std::time::Instant;

use serde::Serialize;
use tch::{Device, Kind, TchError, Tensor};

use crate::head::{Head, HeadMode, HeadOptions, TokenGradients};
use scalerl_torch::shim;

/// What to time.
#[derive(Debug, Clone, Copy)]
pub struct HeadBench {
    pub tokens: i64,
    pub width: i64,
    pub vocabulary: i64,
    pub steps: usize,
    pub device: Device,
    /// Kind of the hidden states and of the matrix: bf16 as in training, or float32.
    pub kind: Kind,
}

/// One mode's numbers.
#[derive(Debug, Clone, Serialize)]
pub struct HeadTiming {
    pub mode: HeadMode,
    /// Largest and mean |logprob - float64| over the tokens compared.
    pub largest_error: f64,
    pub mean_error: f64,
    /// Log-probs and entropies.
    pub score_ms: f64,
    /// Those and both gradients.
    pub score_and_backward_ms: f64,
}

/// Tokens compared with float64: enough for a tail, few enough for whole float64 logits.
const COMPARED: i64 = 512;

/// Times every mode on the same numbers.
pub fn bench_head(bench: &HeadBench) -> Result<Vec<HeadTiming>, TchError> {
    tch::manual_seed(1);
    let options = (Kind::Float, bench.device);
    // Spread as after a final norm and in a trained head: logits of a few units.
    let hidden = Tensor::f_randn([bench.tokens, bench.width], options)?.f_to_kind(bench.kind)?;
    let weight = Tensor::f_randn([bench.vocabulary, bench.width], options)?;
    let weight = weight.f_mul_scalar(3.0 / (bench.width as f64).sqrt())?.f_to_kind(bench.kind)?;
    let integers = (Kind::Int64, bench.device);
    let targets = Tensor::f_randint(bench.vocabulary, [bench.tokens], integers)?;
    let expected = float64(&hidden, &weight, &targets)?;
    [HeadMode::Exact, HeadMode::Split, HeadMode::Bf16]
        .into_iter()
        .map(|mode| {
            let head = Head::new(&weight, HeadOptions { mode, ..HeadOptions::of(bench.device) })?;
            let scores = head.score(&hidden, &targets)?;
            let count = expected.size()[0];
            let error = scores.logprob.f_narrow(0, 0, count)?.f_to_kind(Kind::Double)?;
            let error = error.f_sub(&expected)?.f_abs()?;
            let slope = Tensor::f_full([bench.tokens], -1.0 / bench.tokens as f64, options)?;
            let mut grad = Tensor::f_zeros([bench.vocabulary, bench.width], options)?;
            let score_ms = timed(bench, || head.score(&hidden, &targets).map(drop))?;
            let both = || {
                let gradient_of = |range: std::ops::Range<i64>, _: &_| {
                    let logprob = slope.f_narrow(0, range.start, range.end - range.start)?;
                    Ok(TokenGradients { logprob, entropy: None })
                };
                head.score_and_backward(&hidden, &targets, Some(&mut grad), gradient_of).map(drop)
            };
            Ok(HeadTiming {
                mode,
                largest_error: error.f_max()?.f_double_value(&[])?,
                mean_error: error.f_mean(Kind::Double)?.f_double_value(&[])?,
                score_ms,
                score_and_backward_ms: timed(bench, both)?,
            })
        })
        .collect()
}

fn float64(hidden: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Tensor, TchError> {
    let count = COMPARED.min(hidden.size()[0]);
    let hidden = hidden.f_narrow(0, 0, count)?.f_to_kind(Kind::Double)?;
    let logits = hidden.f_mm(&weight.f_to_kind(Kind::Double)?.f_tr()?)?;
    let targets = targets.f_narrow(0, 0, count)?.f_unsqueeze(1)?;
    logits.f_log_softmax(-1, Kind::Double)?.f_gather(1, &targets, false)?.f_squeeze_dim(1)
}

fn timed(
    bench: &HeadBench,
    mut work: impl FnMut() -> Result<(), TchError>,
) -> Result<f64, TchError> {
    work()?;
    work()?;
    shim::synchronize(bench.device)?;
    let start = Instant::now();
    for _ in 0..bench.steps {
        work()?;
    }
    shim::synchronize(bench.device)?;
    Ok(start.elapsed().as_secs_f64() * 1e3 / bench.steps as f64)
}
