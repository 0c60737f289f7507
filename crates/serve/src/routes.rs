//! One file per route; here they are put together, and every answer is counted.

mod chat;
mod completions;
mod generate;
mod models;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::Uri;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::Value;

use crate::choice::Piece;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::logprobs::Spelling;
use crate::server::App;
use crate::versions::{self, Span};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/inference/v1/generate";
const MODELS: &str = "/v1/models";
const MODEL: &str = "/v1/models/{*name}";
const HEALTH: &str = "/health";
const METRICS: &str = "/metrics";

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(CHAT, post(chat::answer))
        .route(COMPLETIONS, post(completions::answer))
        .route(GENERATE, post(generate::answer))
        .route(MODELS, get(models::list))
        .route(MODEL, get(models::one))
        .route(HEALTH, get(models::health))
        .route(METRICS, get(models::metrics))
        .fallback(async |uri: Uri| ApiError::no_route(uri.path()))
        .method_not_allowed_fallback(async || ApiError::wrong_method())
        .layer(middleware::from_fn_with_state(app.clone(), count))
        .with_state(app)
}

/// Counts answers by route; what is no route is counted as one.
async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let known = [CHAT, COMPLETIONS, GENERATE, MODELS, HEALTH, METRICS];
    let route = known.into_iter().find(|route| *route == request.uri().path()).unwrap_or("other");
    let response = next.run(request).await;
    app.metrics.answered(route, response.status().as_u16());
    response
}

/// Refuses a call for another model than this one.
fn check_model(fields: &mut Fields, app: &App) -> Result<(), ApiError> {
    match fields.take::<String>("model")? {
        Some(asked) if asked != app.options.model => {
            Err(ApiError::no_model(&asked, &app.options.model))
        }
        _ => Ok(()),
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a client wants to see beside the answer.
#[derive(Debug, Clone, Copy)]
struct Shown {
    spelling: Spelling,
    has_token_ids: bool,
    /// In the last event of a stream.
    has_usage: bool,
}

impl Shown {
    fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let options: Option<Value> = fields.take("stream_options")?;
        let is_by_id = fields.flag("return_tokens_as_token_ids")?;
        Ok(Self {
            spelling: if is_by_id { Spelling::Id } else { Spelling::Text },
            has_token_ids: fields.flag("return_token_ids")?,
            has_usage: options.is_some_and(|options| options["include_usage"] == true),
        })
    }

    /// Where `return_token_ids` was asked for.
    fn token_ids(self, piece: &Piece) -> Option<Vec<u32>> {
        self.has_token_ids.then(|| piece.tokens.iter().map(|drawn| drawn.id).collect())
    }

    /// With the tokens: which weights chose them.
    fn weight_versions(self, piece: &Piece) -> Option<Vec<Span>> {
        self.has_token_ids.then(|| versions::spans(&piece.tokens, piece.begin))
    }
}
