//! How far a server's log-probs are from ours, measured before a run depends on them.
//!
//! The loss divides the trainer's probability of a token by the generator's. When the two engines
//! disagree about the same weights, that ratio is wrong from the first step on, and a wrong flag is
//! enough: raw log-probs in place of processed ones, a head in bf16, other weights, another rotary
//! base. So each server writes a few completions and the trainer's own model scores them.
//!
//! A fresh adapter changes nothing, and one that was trained a little changes little, so a server that
//! leaves it out would not be noticed: where adapters go by themselves, the measurement is made with one
//! that changes every layer ([`stirred`]).

use scalerl_model::folder::Model;
use scalerl_model::head::HeadOptions;
use scalerl_model::layout::Start;
use scalerl_model::train::{BatchError, TrainingBatch};
use scalerl_rollout::{Completion, GeneratorError, SampleRequest};
use tch::{Device, Kind, TchError, Tensor};
use thiserror::Error;

use super::VllmGenerator;

/// What one server's log-probs are like, beside ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Agreement {
    pub url: String,
    /// Tokens compared.
    pub tokens: usize,
    /// Mean of |their log-prob − ours|.
    pub mean: f64,
    /// Largest of them.
    pub largest: f64,
}

impl std::fmt::Display for Agreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, tokens, mean, largest } = self;
        write!(
            f,
            "vLLM server {url}: log-probs of {tokens} tokens differ from ours by {mean:.1e} "
        )?;
        write!(f, "on average, {largest:.1e} at most")
    }
}

/// Why a server cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum AgreementError {
    #[error("{agreement}; the recipe allows {limit:.1e} on average")]
    Apart { agreement: Agreement, limit: f64 },
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    #[error("the trainer's model cannot score what vLLM wrote: {0}")]
    Scoring(#[from] BatchError),
}

impl AgreementError {
    /// What to try next, printed by the CLI as a `hint:` line.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Apart { .. } => {
                "start vLLM with --logprobs-mode processed_logprobs, --hf-overrides \
                 '{\"head_dtype\":\"float32\"}' and the dtype of model.compute, and, where the \
                 adapter goes by itself, with the very weights the run starts from; docs/vllm.md says how. \
                 Only then raise pipeline.generator.logprob_tolerance"
            }
            _ => "see docs/vllm.md for how servers are started",
        }
    }
}

/// Lets every server write the requests under the weights it has, and scores them with `model`,
/// which must hold the same. `Err` for the first server whose mean difference is above `limit`.
pub async fn measure_agreement(
    generator: &VllmGenerator,
    model: &Model,
    head: HeadOptions,
    requests: &[SampleRequest],
    limit: f64,
) -> Result<Vec<Agreement>, AgreementError> {
    let mut found = Vec::new();
    for (index, server) in generator.load().into_iter().enumerate() {
        let mut differences = Vec::new();
        for request in requests {
            let temperature = f64::from(request.sampling.temperature);
            let head = HeadOptions { temperature, ..head };
            for written in generator.generate_on(request, Some(index)).await? {
                differences.extend(compare(model, head, request, &written)?);
            }
        }
        let tokens = differences.len();
        let agreement = Agreement {
            url: server.url,
            tokens,
            mean: differences.iter().sum::<f64>() / tokens.max(1) as f64,
            largest: differences.iter().copied().fold(0.0, f64::max),
        };
        if tokens == 0 || agreement.mean.is_nan() || agreement.mean > limit {
            return Err(AgreementError::Apart { agreement, limit });
        }
        found.push(agreement);
    }
    Ok(found)
}

/// The model with numbers added to the half of its adapter that starts as zeros, so that each adapted
/// layer's output moves by about a tenth of its input. Without an adapter it is the model as it is.
pub fn stirred(model: &Model) -> Result<Model, TchError> {
    let stir = model.adapter.as_ref().map(|adapter| {
        // A is uniform within 1/√inputs.
        0.3 / (adapter.config.scale() * (adapter.config.rank as f64).sqrt())
    });
    let copies = model.trained().iter().zip(model.trained_layout()).map(|(tensor, known)| {
        let copy = tensor.f_detach_copy()?;
        match stir.filter(|_| known.start == Start::Zeros) {
            None => Ok(copy),
            Some(bound) => scattered(&copy, bound)?.f_add(&copy),
        }
    });
    model.with_trained(copies.collect::<Result<_, TchError>>()?)
}

/// Numbers within the bound, evenly scattered and the same each time.
fn scattered(like: &Tensor, bound: f64) -> Result<Tensor, TchError> {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    let count = like.numel() as i64;
    let steps = Tensor::f_arange(count, (Kind::Double, Device::Cpu))?.f_mul_scalar(GOLDEN)?;
    let unit = steps.f_frac()?.f_sub_scalar(0.5)?;
    let numbers = unit.f_mul_scalar(2.0 * bound)?.f_view(&like.size()[..])?;
    numbers.f_to_kind(like.kind())?.f_to_device(like.device())
}

/// |theirs − ours| of every sampled token.
fn compare(
    model: &Model,
    head: HeadOptions,
    request: &SampleRequest,
    written: &Completion,
) -> Result<Vec<f64>, BatchError> {
    let prompt = request.prompt_token_ids.len();
    let tokens = request.prompt_token_ids.iter().chain(&written.token_ids);
    let tokens: Vec<i64> = tokens.copied().map(i64::from).collect();
    let mut is_scored = vec![false; prompt];
    is_scored.extend(written.is_injected.iter().map(|is_injected| !is_injected));
    let batch =
        TrainingBatch::new(&[tokens], &[is_scored], model.config.vocabulary, model.device())?;
    let scores = model.score(&batch, head)?;
    let ours = scores.logprob.f_to_kind(Kind::Double)?.f_to_device(Device::Cpu)?;
    let ours = Vec::<f64>::try_from(&ours)?;
    let sampled = written.logprobs.iter().zip(&written.is_injected);
    let theirs = sampled.filter(|(_, is_injected)| !**is_injected).map(|(logprob, _)| *logprob);
    Ok(theirs.zip(ours).map(|(theirs, ours)| (f64::from(theirs) - ours).abs()).collect())
}
