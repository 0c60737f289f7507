//! One HTTP call to one server: a deadline, a token, and no more bytes than asked for.
//!
//! Dropping the future of a call closes its connection, by which the server knows that nobody
//! waits for the answer any more. Proxies and redirects are not followed: servers are named by
//! their own address, on a private network.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Method, StatusCode};
use serde::Serialize;
use thiserror::Error;

/// A server that is there takes a connection at once.
const CONNECT: Duration = Duration::from_secs(5);

/// Bytes of an error's text that are shown.
const SHOWN: usize = 300;

/// Why a call has no answer to use.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CallError {
    /// No connection, a broken one, or no answer in time.
    #[error("{path}: {reason}")]
    Unreachable { path: String, reason: String },
    /// The server has failed at this.
    #[error("{path}: answered {status}: {text}")]
    Failed { path: String, status: u16, text: String },
    /// The server does not do this.
    #[error("{path}: refused with {status}: {text}{}", refusal_hint(path, *status))]
    Refused { path: String, status: u16, text: String },
    /// It would do this, and the outcome would be wrong.
    #[error("{reason}")]
    Unfit { reason: String },
    /// The answer is not what this endpoint answers.
    #[error("{path}: an answer that cannot be used: {reason}")]
    Garbage { path: String, reason: String },
}

fn refusal_hint(path: &str, status: u16) -> &'static str {
    match status {
        404 | 405 if path.ends_with("load_lora_adapter") => {
            " (start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora, \
             docs/vllm.md)"
        }
        401 | 403 => " (is pipeline.generator.token_file right?)",
        404 | 405 => {
            " (start the server with --enable-scale-out and VLLM_SERVER_DEV_MODE=1, docs/vllm.md)"
        }
        _ => "",
    }
}

/// One call: what, with which body, how long, how much.
pub(super) struct Call<'a, B> {
    /// With its query.
    pub(super) path: &'a str,
    /// `None` gets, `Some` posts.
    pub(super) body: Option<&'a B>,
    pub(super) deadline: Duration,
    /// Most bytes of the answer.
    pub(super) limit: usize,
}

/// Calls one server.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    /// Without a slash at its end.
    url: String,
    token: Option<HeaderValue>,
}

impl Client {
    /// Fails where the token has characters that no header can carry, or TLS cannot be set up.
    pub(super) fn new(url: &str, token: Option<&str>) -> Result<Self, String> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .no_proxy()
            .redirect(Policy::none())
            .build()
            .map_err(|error| format!("no HTTP client: {}", chain(&error)))?;
        let token = token
            .map(|token| {
                let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                    .map_err(|_| "the token has characters that a header cannot carry")?;
                value.set_sensitive(true);
                Ok::<_, String>(value)
            })
            .transpose()?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The body of a successful answer.
    pub(super) async fn call<B: Serialize>(&self, call: Call<'_, B>) -> Result<Vec<u8>, CallError> {
        let path = call.path.to_owned();
        let deadline = call.deadline;
        if let Ok(answer) = tokio::time::timeout(deadline, self.exchange(call)).await {
            return answer;
        }
        let reason = format!("no answer within {} s", deadline.as_secs_f64());
        Err(CallError::Unreachable { path, reason })
    }

    async fn exchange<B: Serialize>(&self, call: Call<'_, B>) -> Result<Vec<u8>, CallError> {
        let path = call.path.to_owned();
        let unreachable = |error: reqwest::Error| CallError::Unreachable {
            path: path.clone(),
            reason: chain(&error),
        };
        let method = if call.body.is_some() { Method::POST } else { Method::GET };
        let mut request = self.http.request(method, format!("{}{}", self.url, call.path));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some(body) = call.body {
            let body = serde_json::to_vec(body).expect("our own bodies can be written as JSON");
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let mut response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let limit = if status.is_success() { call.limit } else { call.limit.min(1 << 16) };
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if body.len() + chunk.len() > limit {
                let reason = format!("it is longer than {limit} bytes");
                return Err(CallError::Garbage { path: path.clone(), reason });
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() { Ok(body) } else { Err(failure(path, status, &body)) }
    }
}

fn failure(path: String, status: StatusCode, body: &[u8]) -> CallError {
    let text = String::from_utf8_lossy(body);
    let mut text: String = text.trim().chars().take(SHOWN).collect();
    if text.is_empty() {
        status.canonical_reason().unwrap_or("no reason given").clone_into(&mut text);
    }
    let is_passing = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    let status = status.as_u16();
    if is_passing {
        CallError::Failed { path, status, text }
    } else {
        CallError::Refused { path, status, text }
    }
}

/// An error with its causes: the outermost alone says only that a request failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
