//! `/inference/v1/generate`: tokens in, tokens out, no text anywhere. vLLM's route for trainers.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::caller::Call;
use crate::choice::{Drawn, Finish};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::job::{Finished, Job, Shape, Usage};
use crate::sampling::Asked;
use crate::server::App;
use crate::text::TextRules;
use crate::versions;

struct Tokens {
    has_logprobs: bool,
}

pub(super) async fn answer(State(app): State<Arc<App>>, call: Call) -> Result<Response, ApiError> {
    let mut fields = Fields::new(call.body, "");
    super::check_model(&mut fields, &app)?;
    let ids: Option<Vec<u32>> = fields.take("token_ids")?;
    let ids = ids.filter(|ids| !ids.is_empty());
    let ids = ids.ok_or_else(|| ApiError::field("token_ids", "token_ids must not be empty"))?;
    let inner: Map<String, Value> = fields.take("sampling_params")?.unwrap_or_default();
    fields.finish()?;
    let mut inner = Fields::new(inner, "sampling_params.");
    let logprobs: Option<i64> = inner.take("logprobs")?;
    if logprobs.is_some_and(|count| !(0..=1).contains(&count)) {
        let message = "sampling_params.logprobs must be 0 or 1: the sampled token's own";
        return Err(ApiError::field("sampling_params.logprobs", message));
    }
    // How answers are sent: here always whole.
    let _: Option<Value> = inner.take("output_kind")?;
    let asked = Asked::read(&mut inner, &app)?;
    inner.finish()?;
    let request = asked.request(ids, u32::MAX, &app)?;
    let job = Job {
        requests: vec![request],
        rules: TextRules {
            ends: Vec::new(),
            stop: Vec::new(),
            keeps_stop: true,
            special: asked.special,
        },
        family: None,
        top: None,
        shape: Tokens { has_logprobs: logprobs.is_some() },
        app,
        caller: call.caller,
        _place: call.place,
    };
    job.answer().await
}

impl Shape for Tokens {
    fn whole(&self, app: &App, finished: &[Finished], _: Usage) -> Result<Value, ApiError> {
        let choice = |(index, one): (usize, &Finished)| {
            let tokens = &one.piece.tokens;
            let entry = |drawn: &Drawn| {
                let Drawn { id, logprob, .. } = drawn;
                json!({"token": format!("token_id:{id}"), "token_id": id, "logprob": logprob})
            };
            let logprobs = self
                .has_logprobs
                .then(|| json!({"content": tokens.iter().map(entry).collect::<Vec<Value>>()}));
            json!({
                "index": index,
                "token_ids": tokens.iter().map(|drawn| drawn.id).collect::<Vec<u32>>(),
                "finish_reason": one.piece.finish.map(Finish::name),
                "logprobs": logprobs,
                "weight_versions": versions::spans(tokens, 0),
            })
        };
        let choices: Vec<Value> = finished.iter().enumerate().map(choice).collect();
        Ok(json!({"request_id": app.name("generate"), "choices": choices}))
    }
}
