//! How tokens are drawn and where a text ends, as a client asks for it.

use scalerl_rollout::{GroupId, SampleRequest, Sampling};
use serde::Deserialize;

use crate::chat_format::Special;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::server::App;

/// Texts that may end a completion.
const MOST_STOPS: usize = 64;

/// One value or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

/// What every route that generates has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    pub(crate) sampling: Sampling,
    pub(crate) count: u32,
    pub(crate) stop: Vec<String>,
    pub(crate) stop_token_ids: Vec<u32>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) seed: u64,
    /// Whether a stop text stays in the text.
    pub(crate) keeps_stop: bool,
    pub(crate) special: Special,
}

impl Asked {
    pub(crate) fn read(fields: &mut Fields, app: &App) -> Result<Self, ApiError> {
        let count: u32 = fields.take("n")?.unwrap_or(1);
        let most = app.options.limits.choices;
        if count == 0 || count > most {
            let name = fields.name("n");
            return Err(ApiError::field(&name, format!("{name} must be 1 to {most}, not {count}")));
        }
        let stop: Option<OneOrMore<String>> = fields.take("stop")?;
        let stop = match stop {
            None => Vec::new(),
            Some(OneOrMore::One(text)) => vec![text],
            Some(OneOrMore::More(texts)) => texts,
        };
        if stop.len() > MOST_STOPS || stop.iter().any(String::is_empty) {
            let name = fields.name("stop");
            let message = format!("{name} must be at most {MOST_STOPS} texts, none of them empty");
            return Err(ApiError::field(&name, message));
        }
        let seed: Option<i64> = fields.take("seed")?;
        let limit: Option<u32> = fields.take("max_completion_tokens")?;
        let max_tokens = fields.take("max_tokens")?.or(limit).map(|limit: u32| limit);
        let hides: bool = fields.take("skip_special_tokens")?.unwrap_or(true);
        Ok(Self {
            sampling: sampling(fields)?,
            count,
            stop,
            stop_token_ids: fields.take("stop_token_ids")?.unwrap_or_default(),
            max_tokens,
            seed: seed.map_or_else(|| app.fresh_seed(), |seed| seed as u64),
            keeps_stop: fields.flag("include_stop_str_in_output")?,
            special: if hides { Special::Hide } else { Special::Show },
        })
    }

    /// A request to the policy. `max_tokens` is what the client asked for, or `otherwise`, and never
    /// more than fits.
    pub(crate) fn request(
        &self,
        prompt: Vec<u32>,
        otherwise: u32,
        app: &App,
    ) -> Result<SampleRequest, ApiError> {
        let (length, most) = (prompt.len() as u64, u64::from(app.options.max_model_len));
        if length >= most {
            let message =
                format!("the prompt has {length} tokens, prompt and answer together {most}");
            return Err(ApiError::too_long(message));
        }
        let room = (most - length) as u32;
        let limit = app.options.limits.max_tokens.unwrap_or(u32::MAX);
        let max_tokens = self.max_tokens.unwrap_or_else(|| otherwise.min(room).min(limit));
        if max_tokens > limit {
            let message =
                format!("max_tokens {max_tokens} is above this server's limit of {limit}");
            return Err(ApiError::field("max_tokens", message));
        }
        if max_tokens > room {
            let message = format!(
                "the prompt has {length} tokens and max_tokens is {max_tokens}; together at most {most} fit"
            );
            return Err(ApiError::too_long(message));
        }
        Ok(SampleRequest {
            group: GroupId(0),
            prompt_token_ids: prompt,
            count: self.count,
            sampling: self.sampling,
            max_thinking_tokens: 0,
            max_answer_tokens: max_tokens,
            end_of_thinking: Vec::new(),
            interruptions: Vec::new(),
            stop: self.stop.clone(),
            stop_token_ids: self.stop_token_ids.clone(),
            end_of_answer: None,
            seed: self.seed,
        })
    }
}

fn sampling(fields: &mut Fields) -> Result<Sampling, ApiError> {
    let temperature: f32 = fields.take("temperature")?.unwrap_or(1.0);
    let top_p: f32 = fields.take("top_p")?.unwrap_or(1.0);
    let top_k: i64 = fields.take("top_k")?.unwrap_or(0);
    let refuse = |name: &str, message: &str| {
        let name = fields.name(name);
        Err(ApiError::field(&name, format!("{name} {message}")))
    };
    if !(temperature >= 0.0 && temperature.is_finite()) {
        return refuse("temperature", "must be 0 or above");
    }
    if !(top_p > 0.0 && top_p <= 1.0) {
        return refuse("top_p", "must be above 0 and at most 1");
    }
    let Ok(top_k) = u32::try_from(top_k.max(0)) else {
        return refuse("top_k", "is too large");
    };
    if top_k == 0 && temperature == 0.0 {
        return Ok(Sampling { temperature, top_p: 1.0, top_k });
    }
    Ok(Sampling { temperature, top_p, top_k })
}
