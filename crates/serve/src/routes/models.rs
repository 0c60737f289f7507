//! What is served, how it is, and what was counted.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::error::{ApiError, json_response};
use crate::server::App;

fn model(app: &App) -> Value {
    json!({
        "id": app.options.model,
        "object": "model",
        "created": super::now(),
        "owned_by": "scalerl",
        "max_model_len": app.options.max_model_len,
    })
}

pub(super) async fn list(State(app): State<Arc<App>>, _: Caller) -> Response {
    json_response(&json!({"object": "list", "data": [model(&app)]}))
}

pub(super) async fn one(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    _: Caller,
) -> Result<Response, ApiError> {
    if name != app.options.model {
        return Err(ApiError::no_model(&name, &app.options.model));
    }
    Ok(json_response(&model(&app)))
}

/// Open to everybody: it tells nothing but whether the server works.
pub(super) async fn health(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let load = app.options.load.as_ref().map(|load| load());
    match load.and_then(|load| load.why_gone) {
        Some(reason) => Err(ApiError::gone(format!("the generator is gone: {reason}"))),
        None => Ok(json_response(&json!({"status": "ok"}))),
    }
}

pub(super) async fn metrics(State(app): State<Arc<App>>, _: Caller) -> Response {
    let load = app.options.load.as_ref().map(|load| load());
    let text = app.metrics.text(app.under_way(), load.as_ref());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
