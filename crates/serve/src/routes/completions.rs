//! `/v1/completions`: text or tokens in, their continuation out; with `echo` and `logprobs` the
//! log-likelihood of a given text.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use scalerl_rollout::TokenScore;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Shown;
use crate::caller::Call;
use crate::chat_format::{ChatError, ChatFormat};
use crate::choice::{Finish, Piece};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::job::{Finished, Job, Shape, Streamed, Usage};
use crate::logprobs;
use crate::sampling::Asked;
use crate::server::App;
use crate::stream::{Envelope, Frames};
use crate::text::TextRules;
use crate::versions::Span;

/// OpenAI's, where a client gives none.
const MAX_TOKENS: u32 = 16;
/// Most candidates that can be asked for at each place.
const MOST_TOP: usize = 20;
/// What an answer is, whole or an event of a stream.
const OBJECT: &str = "text_completion";

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Given {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    ManyTokens(Vec<Vec<u32>>),
}

/// What the client wants to see.
struct Completions {
    /// One per request, for `echo`.
    prompts: Vec<Vec<u32>>,
    /// As text, where it is echoed.
    echoed: Option<Vec<String>>,
    count: usize,
    logprobs: Option<usize>,
    shown: Shown,
    /// Where the next token of each choice stands in its text.
    offsets: Vec<usize>,
    envelope: Envelope,
}

/// A choice, whole or in an event of a stream.
#[derive(Serialize)]
struct TextChoice<'a> {
    index: usize,
    text: String,
    logprobs: Value,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_versions: Option<Vec<Span>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
}

pub(super) async fn answer(State(app): State<Arc<App>>, call: Call) -> Result<Response, ApiError> {
    let mut fields = Fields::new(call.body, "");
    super::check_model(&mut fields, &app)?;
    let given: Option<Given> = fields.take("prompt")?;
    let given = given.ok_or_else(|| ApiError::field("prompt", "prompt is missing"))?;
    let asked = Asked::read(&mut fields, &app)?;
    let logprobs: Option<usize> = fields.take("logprobs")?;
    if logprobs.is_some_and(|top| top > MOST_TOP) {
        let message = format!("logprobs must be 0 to {MOST_TOP}");
        return Err(ApiError::field("logprobs", message));
    }
    let is_echoed = fields.flag("echo")?;
    let shown = Shown::read(&mut fields)?;
    let streams = fields.flag("stream")?;
    fields.finish()?;
    let (prompts, echoed) = prompts(&app, given, is_echoed, &asked).await?;
    let request = |prompt: &Vec<u32>| asked.request(prompt.clone(), MAX_TOKENS, &app);
    let requests = prompts.iter().map(request).collect::<Result<Vec<_>, ApiError>>()?;
    let count = asked.count as usize;
    let shape = Completions {
        envelope: Envelope::new(app.name("cmpl"), OBJECT, app.options.model.clone()),
        offsets: vec![0; prompts.len() * count],
        prompts,
        echoed,
        count,
        logprobs,
        shown,
    };
    let ends = [app.chat.end_tokens(), &asked.stop_token_ids].concat();
    let job = Job {
        requests,
        rules: TextRules {
            ends,
            stop: asked.stop,
            keeps_stop: asked.keeps_stop,
            special: asked.special,
        },
        family: None,
        top: logprobs.filter(|top| is_echoed || *top > 0),
        shape,
        app,
        caller: call.caller,
        _place: call.place,
    };
    if streams { job.stream().await } else { job.answer().await }
}

/// Tokens of every prompt, and their texts where they are echoed.
async fn prompts(
    app: &Arc<App>,
    given: Given,
    is_echoed: bool,
    asked: &Asked,
) -> Result<(Vec<Vec<u32>>, Option<Vec<String>>), ApiError> {
    let (chat, special) = (app.chat.clone(), asked.special);
    // Tokenizers take their time.
    let work = move || -> Result<_, ChatError> {
        let encode = |text: &String| chat.encode_plain(text);
        let prompts = match given {
            Given::Text(text) => vec![encode(&text)?],
            Given::Texts(texts) => texts.iter().map(encode).collect::<Result<_, _>>()?,
            Given::Tokens(ids) => vec![ids],
            Given::ManyTokens(lists) => lists,
        };
        let text = |ids: &Vec<u32>| chat.decode(ids, special);
        let echoed = is_echoed.then(|| prompts.iter().map(text).collect()).transpose()?;
        Ok((prompts, echoed))
    };
    let encoded = tokio::task::spawn_blocking(work).await;
    let encoded = encoded.map_err(|_| ApiError::bad("the tokenizer panics on this"))?;
    let (prompts, echoed) =
        encoded.map_err(|error| ApiError::field("prompt", error.to_string()))?;
    let most = app.options.limits.prompts;
    if prompts.is_empty() || prompts.len() > most || prompts.iter().any(Vec::is_empty) {
        let message =
            format!("prompt must be 1 to {most} texts or lists of tokens, none of them empty");
        return Err(ApiError::field("prompt", message));
    }
    Ok((prompts, echoed))
}

impl Completions {
    /// Text and log-probs of a choice or a part of one; the first part has the echo in front.
    fn parts(
        &self,
        chat: &dyn ChatFormat,
        (choice, piece): (usize, &Piece),
        scores: Option<&[TokenScore]>,
        offset: &mut usize,
    ) -> Result<(String, Value), ChatError> {
        let prompt = choice / self.count;
        let ids = &self.prompts[prompt];
        let echoed = self.echoed.as_ref().filter(|_| *offset == 0).map(|texts| &texts[prompt]);
        let text = format!("{}{}", echoed.map_or("", |text| text), piece.text);
        if self.logprobs.is_none() {
            // A stream has begun: what is echoed is echoed once.
            *offset = (*offset).max(1);
            return Ok((text, Value::Null));
        }
        let mut tokens = match (echoed, scores) {
            (Some(_), Some(scores)) => logprobs::given(ids, scores),
            _ => Vec::new(),
        };
        let own = scores.and_then(|scores| scores.get(ids.len()..));
        tokens.extend(logprobs::drawn(&piece.tokens, own));
        Ok((text, logprobs::legacy(chat, self.shown.spelling, &tokens, offset)?))
    }

    fn choice(
        &self,
        (index, piece): (usize, &Piece),
        (text, logprobs): (String, Value),
    ) -> TextChoice<'_> {
        let prompt = &self.prompts[index / self.count];
        TextChoice {
            index,
            text,
            logprobs,
            finish_reason: piece.finish.map(Finish::name),
            token_ids: self.shown.token_ids(piece),
            weight_versions: self.shown.weight_versions(piece),
            // In a stream once, with the first tokens.
            prompt_token_ids: (self.shown.has_token_ids && piece.begin == 0).then_some(prompt),
        }
    }
}

impl Shape for Completions {
    fn whole(&self, app: &App, finished: &[Finished], usage: Usage) -> Result<Value, ApiError> {
        let choice = |(index, one): (usize, &Finished)| -> Result<Value, ApiError> {
            let part = (index, &one.piece);
            let parts = self.parts(&*app.chat, part, one.scores.as_deref(), &mut 0)?;
            Ok(json!(self.choice(part, parts)))
        };
        let choices: Result<Vec<Value>, ApiError> =
            finished.iter().enumerate().map(choice).collect();
        let mut body = self.envelope.event(&choices?);
        body["usage"] = usage.json();
        Ok(body)
    }
}

impl Streamed for Completions {
    fn chunk(
        &mut self,
        app: &App,
        (choice, piece): (usize, &Piece),
        scores: Option<&[TokenScore]>,
        frames: &mut Frames,
    ) -> Result<(), ApiError> {
        let mut offset = self.offsets[choice];
        let parts = self.parts(&*app.chat, (choice, piece), scores, &mut offset)?;
        self.offsets[choice] = offset;
        frames.push_choice(&self.envelope, &self.choice((choice, piece), parts));
        Ok(())
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn has_usage(&self) -> bool {
        self.shown.has_usage
    }
}
