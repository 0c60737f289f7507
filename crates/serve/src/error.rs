//! Errors as OpenAI's clients read them: `{"error": {"message", "type", "param", "code"}}`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use scalerl_rollout::GeneratorError;
use serde_json::{Value, json};

use crate::chat_format::ChatError;

/// Why a call is not answered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    kind: &'static str,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind, param: None, code: None }
    }

    /// A request that cannot be served as it is.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// The same, for one field of it.
    pub(crate) fn field(name: &str, message: impl Into<String>) -> Self {
        Self { param: Some(name.to_owned()), ..Self::bad(message) }
    }

    pub(crate) fn too_long(message: impl Into<String>) -> Self {
        Self { code: Some("context_length_exceeded"), ..Self::bad(message) }
    }

    pub(crate) fn no_key() -> Self {
        let message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY`";
        let code = Some("invalid_api_key");
        Self { code, ..Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message) }
    }

    pub(crate) fn closed() -> Self {
        let message = "the session of this API key is closed: its episode is over";
        let code = Some("session_closed");
        Self { code, ..Self::new(StatusCode::GONE, "invalid_request_error", message) }
    }

    pub(crate) fn no_model(asked: &str, served: &str) -> Self {
        let message = format!("the model `{asked}` does not exist; this server has `{served}`");
        let code = Some("model_not_found");
        let param = Some("model".to_owned());
        Self { param, code, ..Self::new(StatusCode::NOT_FOUND, "invalid_request_error", message) }
    }

    pub(crate) fn no_route(path: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "invalid_request_error",
            format!("there is no {path} here"),
        )
    }

    pub(crate) fn wrong_method() -> Self {
        let message = "this route is there for another method";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
    }

    pub(crate) fn busy(most: usize) -> Self {
        let message = format!("{most} requests are under way already; try again");
        let code = Some("rate_limit_exceeded");
        Self { code, ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message) }
    }

    pub(crate) fn too_large(most: usize) -> Self {
        let message = format!("the body has more than {most} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    pub(crate) fn slow_body(seconds: u64) -> Self {
        let message = format!("the body did not come within {seconds} s");
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", message)
    }

    pub(crate) fn late(seconds: u64) -> Self {
        let message = format!("the request took longer than {seconds} s and was given up");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message)
    }

    pub(crate) fn gone(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", message)
    }

    fn server(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    pub(crate) fn body(&self) -> Value {
        let Self { message, kind, param, code, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}

impl From<GeneratorError> for ApiError {
    fn from(error: GeneratorError) -> Self {
        let message = error.to_string();
        match error {
            GeneratorError::TooLong { .. } => Self::too_long(message),
            // Of the policy, such as an episode that has had its turns: no fault of the request's form.
            GeneratorError::Refused { .. } => Self { code: Some("refused"), ..Self::bad(message) },
            GeneratorError::Gone { .. } => Self::gone(message),
            GeneratorError::Late { .. } => {
                Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message)
            }
            _ => Self::server(message),
        }
    }
}

impl From<ChatError> for ApiError {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Tokenizer(_) => Self::server(error.to_string()),
            _ => Self::field("messages", error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut answer = json_response(&self.body());
        *answer.status_mut() = self.status;
        let headers = answer.headers_mut();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

/// An answer in JSON.
pub(crate) fn json_response(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_policy_refuses_has_a_code_and_what_is_written_wrong_has_none() {
        let reason = "the episode has had its 8 turns".to_owned();
        let body = ApiError::from(GeneratorError::Refused { reason }).body();
        assert_eq!(body["error"]["code"], "refused");
        let body = ApiError::from(GeneratorError::TooLong { asked: 9, limit: 8 }).body();
        assert_eq!(body["error"]["code"], "context_length_exceeded");
        assert_eq!(ApiError::bad("no JSON").body()["error"]["code"], Value::Null);
    }
}
