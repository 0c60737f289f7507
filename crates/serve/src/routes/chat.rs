//! `/v1/chat/completions`: messages in, a message out.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use scalerl_rollout::TokenScore;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Shown;
use crate::caller::{Call, Caller};
use crate::chat_format::{Extras, Special};
use crate::choice::{Finish, Piece};
use crate::conversation::{self, Turn};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::job::{Finished, Job, Shape, Streamed, Usage};
use crate::logprobs;
use crate::sampling::Asked;
use crate::server::App;
use crate::stream::{Envelope, Frames};
use crate::text::TextRules;
use crate::tools::{Family, ToolCall};
use crate::versions::Span;

/// Most candidates that can be asked for at each place.
const MOST_TOP: usize = 20;
/// What an event of a stream is.
const CHUNK: &str = "chat.completion.chunk";

/// What the client wants to see.
struct Chat {
    messages: Vec<Value>,
    extras: Extras,
    prompt: Vec<u32>,
    has_logprobs: bool,
    shown: Shown,
    envelope: Envelope,
}

/// A choice in an event of a stream.
#[derive(Serialize)]
struct ChatChunk<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: Value,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight_versions: Option<Vec<Span>>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

struct Read {
    messages: Vec<Value>,
    extras: Extras,
    family: Option<Family>,
    asked: Asked,
    top: Option<usize>,
    has_logprobs: bool,
    shown: Shown,
    streams: bool,
}

pub(super) async fn answer(State(app): State<Arc<App>>, call: Call) -> Result<Response, ApiError> {
    let read = read(Fields::new(call.body, ""), &app)?;
    let Read { messages, extras, family, asked, .. } = read;
    let turns = call.caller.session.as_ref().map(|session| session.turns()).unwrap_or_default();
    let chat = app.chat.clone();
    // Templates and tokenizers take their time.
    let work = move || {
        let prompt = conversation::prompt(&*chat, &turns, &messages, &extras);
        prompt.map(|prompt| (prompt, messages, extras))
    };
    let rendered = tokio::task::spawn_blocking(work).await;
    let rendered = rendered.map_err(|_| ApiError::bad("the chat template panics on this"))?;
    let (prompt, messages, extras) = rendered?;
    let request = asked.request(prompt.clone(), u32::MAX, &app)?;
    if request.max_answer_tokens == 0 {
        return Err(ApiError::field("max_tokens", "max_tokens must be at least 1"));
    }
    // Marks of calls may be special tokens.
    let special = if family.is_some() { Special::Show } else { asked.special };
    let ends = [app.chat.end_tokens(), &asked.stop_token_ids].concat();
    let shape = Chat {
        envelope: Envelope::new(app.name("chatcmpl"), CHUNK, app.options.model.clone()),
        messages,
        extras,
        prompt,
        has_logprobs: read.has_logprobs,
        shown: read.shown,
    };
    let job = Job {
        requests: vec![request],
        rules: TextRules { ends, stop: asked.stop, keeps_stop: asked.keeps_stop, special },
        family,
        top: read.top,
        shape,
        app,
        caller: call.caller,
        _place: call.place,
    };
    if read.streams { job.stream().await } else { job.answer().await }
}

fn read(mut fields: Fields, app: &App) -> Result<Read, ApiError> {
    super::check_model(&mut fields, app)?;
    let messages = conversation::messages(fields.take("messages")?.unwrap_or_default())?;
    let (tools, family) = tools(&mut fields, app)?;
    let variables: Map<String, Value> = fields.take("chat_template_kwargs")?.unwrap_or_default();
    let asked = Asked::read(&mut fields, app)?;
    let has_logprobs = fields.flag("logprobs")?;
    let top: Option<usize> = fields.take("top_logprobs")?;
    let top = top.filter(|top| *top > 0);
    if top.is_some_and(|top| top > MOST_TOP || !has_logprobs) {
        let message = format!("top_logprobs must be 0 to {MOST_TOP} and needs logprobs: true");
        return Err(ApiError::field("top_logprobs", message));
    }
    let read = Read {
        messages,
        extras: Extras { tools, variables },
        family,
        asked,
        top,
        has_logprobs,
        shown: Shown::read(&mut fields)?,
        streams: fields.flag("stream")?,
    };
    fields.finish()?;
    Ok(read)
}

/// The tools that the model is told of, and the form in which it calls them.
fn tools(fields: &mut Fields, app: &App) -> Result<(Vec<Value>, Option<Family>), ApiError> {
    let tools: Vec<Value> = fields.take("tools")?.unwrap_or_default();
    let choice: Option<Value> = fields.take("tool_choice")?;
    let is_off = match &choice {
        None => false,
        Some(Value::String(word)) if word == "auto" => false,
        Some(Value::String(word)) if word == "none" => true,
        Some(_) => {
            let message = "tool_choice must be auto or none: the model cannot be forced to call";
            return Err(ApiError::field("tool_choice", message));
        }
    };
    if is_off || tools.is_empty() {
        return Ok((Vec::new(), None));
    }
    for (index, tool) in tools.iter().enumerate() {
        if tool["type"] != "function" || !tool["function"]["name"].is_string() {
            let name = format!("tools[{index}]");
            let message =
                format!("{name} must be {{\"type\": \"function\", \"function\": {{\"name\": …}}}}");
            return Err(ApiError::field(&name, message));
        }
    }
    let family = app.chat.tool_family();
    if family.is_none() {
        let message = "this model's chat template knows no tools";
        return Err(ApiError::field("tools", message));
    }
    Ok((tools, family))
}

fn calls(app: &App, calls: &[ToolCall]) -> Vec<Value> {
    let call = |(index, call): (usize, &ToolCall)| {
        json!({
            "index": index,
            "id": app.name("call"),
            "type": "function",
            "function": {"name": call.name, "arguments": Value::Object(call.arguments.clone()).to_string()},
        })
    };
    calls.iter().enumerate().map(call).collect()
}

impl Chat {
    fn logprobs(
        &self,
        app: &App,
        piece: &Piece,
        scores: Option<&[TokenScore]>,
    ) -> Result<Value, ApiError> {
        if !self.has_logprobs {
            return Ok(Value::Null);
        }
        let scores = scores.and_then(|scores| scores.get(self.prompt.len()..));
        let tokens = logprobs::drawn(&piece.tokens, scores);
        Ok(logprobs::chat(&*app.chat, self.shown.spelling, &tokens)?)
    }
}

impl Shape for Chat {
    fn whole(&self, app: &App, finished: &[Finished], usage: Usage) -> Result<Value, ApiError> {
        let choice = |(index, one): (usize, &Finished)| -> Result<Value, ApiError> {
            let has_calls = !one.message.tool_calls.is_empty();
            let is_silent = has_calls && one.message.content.is_empty();
            let content = (!is_silent).then_some(&one.message.content);
            let mut message = json!({"role": "assistant", "content": content, "refusal": null});
            if has_calls {
                message["tool_calls"] = calls(app, &one.message.tool_calls).into();
            }
            let mut choice = json!({
                "index": index,
                "message": message,
                "logprobs": self.logprobs(app, &one.piece, one.scores.as_deref())?,
                "finish_reason": one.piece.finish.map(Finish::name),
            });
            if let Some(ids) = self.shown.token_ids(&one.piece) {
                choice["token_ids"] = json!(ids);
                choice["weight_versions"] = json!(self.shown.weight_versions(&one.piece));
            }
            Ok(choice)
        };
        let choices: Result<Vec<Value>, ApiError> =
            finished.iter().enumerate().map(choice).collect();
        let mut body = self.envelope.body("chat.completion", &choices?);
        body["usage"] = usage.json();
        if self.shown.has_token_ids {
            body["prompt_token_ids"] = json!(self.prompt);
        }
        Ok(body)
    }

    fn remember(&self, caller: &Caller, finished: &[Finished]) {
        let Some(session) = &caller.session else { return };
        let answer = |one: &Finished| {
            let tokens = one.piece.tokens.iter().map(|drawn| drawn.id).collect();
            (one.message.clone(), tokens)
        };
        session.remember(Turn {
            messages: self.messages.clone(),
            extras: self.extras.clone(),
            prompt: self.prompt.clone(),
            answers: finished.iter().map(answer).collect(),
        });
    }
}

impl Streamed for Chat {
    fn opening(&self, choices: usize, frames: &mut Frames) {
        for index in 0..choices {
            let delta = json!({"role": "assistant", "content": ""});
            let opening =
                json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
            let mut event = self.envelope.event(&[opening]);
            if self.shown.has_token_ids {
                event["prompt_token_ids"] = json!(self.prompt);
            }
            frames.push(&event);
        }
    }

    fn chunk(
        &mut self,
        app: &App,
        (index, piece): (usize, &Piece),
        scores: Option<&[TokenScore]>,
        frames: &mut Frames,
    ) -> Result<(), ApiError> {
        let tool_calls = calls(app, &piece.tool_calls);
        let chunk = ChatChunk {
            index,
            delta: Delta { content: &piece.text, tool_calls },
            logprobs: self.logprobs(app, piece, scores)?,
            finish_reason: piece.finish.map(Finish::name),
            token_ids: self.shown.token_ids(piece),
            weight_versions: self.shown.weight_versions(piece),
        };
        frames.push_choice(&self.envelope, &chunk);
        Ok(())
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn has_usage(&self) -> bool {
        self.shown.has_usage
    }
}
