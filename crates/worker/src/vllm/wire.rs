//! What is said to a vLLM server and what it answers (vLLM 0.32).
//!
//! Token ids in and out: text is made here, with the trainer's own tokenizer. Everything that
//! decides the distribution is sent with every request, so that a server's generation_config.json
//! changes nothing. Fields of an answer that are not needed are not looked at; those that are must
//! fit together, or the answer is garbage.

use std::path::Path;

use scalerl_generate::{Sampling, Token};
use scalerl_rollout::{LEAST_LOGPROB, PolicyVersion};
use serde::{Deserialize, Serialize};

use super::adapter::Form;
use super::client::CallError;
use super::fleet::Published;

pub(super) const GENERATE: &str = "/inference/v1/generate";

/// Names weights: the version, and whose, so that a server that was restarted or belongs to
/// another run is found out; and whether they are an adapter by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Labels {
    owner: String,
}

impl Labels {
    pub(super) fn new(owner: String) -> Self {
        Self { owner }
    }

    pub(super) fn of(&self, weights: &Published) -> String {
        let kind = match weights.form {
            Form::Whole => "",
            Form::Adapter => ADAPTER,
        };
        format!("{}:{}{kind}", self.owner, weights.version.0)
    }

    /// Of a server whose weights are being replaced: of no version, and of no base that an adapter fits.
    pub(super) fn between(&self, weights: &Published) -> String {
        format!("{}+loading", self.of(weights))
    }

    fn read(&self, label: &str) -> Option<PolicyVersion> {
        let number = label.strip_prefix(&self.owner)?.strip_prefix(':')?;
        number.strip_suffix(ADAPTER).unwrap_or(number).parse().ok().map(PolicyVersion)
    }

    /// For one publication. A version may have two: the adapter that a session checks servers with
    /// is not the run's.
    pub(super) fn salt(&self, weights: &Published) -> String {
        let folder = Path::new(&weights.folder).file_name().unwrap_or_default();
        format!("{}:{}", self.of(weights), folder.to_string_lossy())
    }
}

/// At the end of a label.
const ADAPTER: &str = "+adapter";

/// The label of a server that has been given none.
const STARTED: &str = "default";

/// Whether a server with this label, whoever gave it, has the base it was started with.
pub(super) fn is_of_own_base(label: &str) -> bool {
    label == STARTED || label.ends_with(ADAPTER)
}

/// Answer of `/weight_info`.
#[derive(Debug, Deserialize)]
pub(super) struct WeightInfo {
    pub(super) weight_version: String,
}

#[derive(Debug, Serialize)]
pub(super) struct GenerateBody<'a> {
    pub(super) token_ids: &'a [i64],
    /// The adapter's name; without one the server's own weights write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<&'a str>,
    pub(super) sampling_params: SamplingParams<'a>,
    /// Blocks of the prefix cache are found only by requests with the same salt: one for each
    /// publication, so that no prefix outlives its weights.
    pub(super) cache_salt: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct SamplingParams<'a> {
    n: u32,
    temperature: f64,
    top_p: f64,
    top_k: usize,
    min_p: f64,
    repetition_penalty: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    max_tokens: usize,
    stop_token_ids: &'a [i64],
    /// End tokens are those of `stop_token_ids` and no others.
    ignore_eos: bool,
    /// The sampled token's log-prob and no others.
    logprobs: u32,
    /// Only stop texts need the server's text.
    detokenize: bool,
    /// The tokens that hold one are written all the same.
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    stop: &'a [&'a str],
}

impl<'a> SamplingParams<'a> {
    pub(super) fn new(
        sampling: Sampling,
        seed: Option<u64>,
        max_tokens: usize,
        (stop_token_ids, stop): (&'a [i64], &'a [&'a str]),
    ) -> Self {
        Self {
            n: 1,
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            top_k: sampling.top_k,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            // torch takes 64 bits, but what carries it there may sign it; -1 would mean none.
            seed: seed.map(|seed| seed & (u64::MAX >> 1)),
            max_tokens,
            stop_token_ids,
            ignore_eos: true,
            logprobs: 0,
            detokenize: !stop.is_empty(),
            stop,
        }
    }
}

/// Most bytes of an answer of that many tokens; a token with its log-prob takes about 200.
pub(super) fn answer_limit(max_tokens: usize) -> usize {
    (1 << 16) + 1024 * max_tokens
}

#[derive(Debug, Deserialize)]
struct Answer {
    choices: Vec<Choice>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    finish_reason: Option<String>,
    token_ids: Option<Vec<i64>>,
    logprobs: Option<LogProbs>,
    weight_versions: Option<Vec<Span>>,
}

#[derive(Debug, Deserialize)]
struct LogProbs {
    content: Option<Vec<LogProb>>,
}

#[derive(Debug, Deserialize)]
struct LogProb {
    token_id: i64,
    logprob: f64,
}

/// Tokens `[start, end)` were chosen by weights of that label.
#[derive(Debug, Deserialize)]
struct Span {
    version: String,
    start: usize,
    end: usize,
}

/// An answer that can be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Written {
    Tokens(Vec<Token>),
    /// The server had other weights than those it was given: it was restarted, or somebody else
    /// uses it.
    ForeignWeights {
        label: String,
    },
    /// Given up on the server's side before a token was written.
    Aborted,
}

/// What was asked, as far as the answer must fit it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) max_tokens: usize,
    pub(super) vocabulary: i64,
    /// The server's version when it was asked, for servers that label no tokens: none of the
    /// tokens is older.
    pub(super) oldest: PolicyVersion,
}

pub(super) fn read(body: &[u8], expected: Expected, labels: &Labels) -> Result<Written, CallError> {
    let garbage = |reason: String| CallError::Garbage { path: GENERATE.to_owned(), reason };
    let answer: Answer =
        serde_json::from_slice(body).map_err(|error| garbage(error.to_string()))?;
    let [choice] = <[Choice; 1]>::try_from(answer.choices)
        .map_err(|found| garbage(format!("{} completions for one", found.len())))?;
    let ids = choice.token_ids.unwrap_or_default();
    // What was written before is as good as any: the completion goes on from there.
    if choice.finish_reason.as_deref() == Some("abort") && ids.is_empty() {
        return Ok(Written::Aborted);
    }
    if ids.is_empty() || ids.len() > expected.max_tokens {
        let (found, most) = (ids.len(), expected.max_tokens);
        return Err(garbage(format!("{found} tokens where 1 to {most} were asked for")));
    }
    if let Some(id) = ids.iter().find(|id| !(0..expected.vocabulary).contains(*id)) {
        let size = expected.vocabulary;
        return Err(garbage(format!("token {id} is outside the vocabulary of {size}")));
    }
    let logprobs = choice.logprobs.and_then(|found| found.content).unwrap_or_default();
    if logprobs.len() != ids.len() || logprobs.iter().zip(&ids).any(|(l, id)| l.token_id != *id) {
        return Err(garbage(format!("{} log-probs for {} tokens", logprobs.len(), ids.len())));
    }
    let versions = match choice.weight_versions {
        None => vec![expected.oldest; ids.len()],
        Some(spans) => match versions(&spans, ids.len(), labels) {
            Ok(versions) => versions,
            Err(Mislabelled::Foreign(label)) => return Ok(Written::ForeignWeights { label }),
            Err(Mislabelled::Gap) => {
                return Err(garbage(format!("the spans {spans:?} do not cover {}", ids.len())));
            }
        },
    };
    let token = |((id, found), version): ((i64, LogProb), PolicyVersion)| {
        // vLLM writes -9999 for a log-prob it does not have.
        let is_there = found.logprob.is_finite() && found.logprob >= f64::from(LEAST_LOGPROB);
        // Rounding can leave a certain token a little above 0.
        let logprob = (is_there && found.logprob < 1e-3).then_some(found.logprob.min(0.0) as f32);
        let logprob = logprob.ok_or_else(|| garbage(format!("a log-prob of {}", found.logprob)));
        logprob.map(|logprob| Token {
            id,
            logprob: Some(logprob),
            version: version.0,
            is_injected: false,
        })
    };
    let tokens =
        ids.into_iter().zip(logprobs).zip(versions).map(token).collect::<Result<_, _>>()?;
    Ok(Written::Tokens(tokens))
}

enum Mislabelled {
    Foreign(String),
    Gap,
}

/// The version of each token.
fn versions(
    spans: &[Span],
    tokens: usize,
    labels: &Labels,
) -> Result<Vec<PolicyVersion>, Mislabelled> {
    let mut versions = Vec::with_capacity(tokens);
    for span in spans {
        if span.start != versions.len() || span.end < span.start || span.end > tokens {
            return Err(Mislabelled::Gap);
        }
        let version = labels.read(&span.version);
        let version = version.ok_or_else(|| Mislabelled::Foreign(span.version.clone()))?;
        versions.resize(span.end, version);
    }
    if versions.len() == tokens { Ok(versions) } else { Err(Mislabelled::Gap) }
}

/// Answer of `/v1/models`.
#[derive(Debug, Deserialize)]
pub(super) struct Models {
    pub(super) data: Vec<ServedModel>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ServedModel {
    pub(super) max_model_len: Option<u64>,
}
