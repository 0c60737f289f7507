//! Who calls: the key is looked at, the policy found, and a place taken among the requests under way.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use scalerl_rollout::Policy;
use serde_json::{Map, Value};
use tokio::sync::OwnedSemaphorePermit;

use crate::error::ApiError;
use crate::server::App;
use crate::session::SessionState;
use scalerl_http::key;

/// Longest that a client may take to send a body.
const BODY: Duration = Duration::from_secs(30);

/// A client with a right key.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) session: Option<Arc<SessionState>>,
}

impl Caller {
    fn of(parts: &Parts, app: &App) -> Result<Self, ApiError> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = header.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        if let Some(session) = given.and_then(|key| app.sessions.find(key)) {
            let session = session?;
            return Ok(Self { policy: session.policy.clone(), session: Some(session) });
        }
        let is_right = match &app.options.api_key {
            Some(known) => given.is_some_and(|given| key::is_same(given, known)),
            None => true,
        };
        match &app.policy {
            Some(policy) if is_right => Ok(Self { policy: policy.clone(), session: None }),
            _ => Err(ApiError::no_key()),
        }
    }

    /// Runs work until it is done, late, or its session closed.
    pub(crate) async fn within<T>(
        &self,
        deadline: Duration,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let closed = async {
            let Some(session) = &self.session else { return std::future::pending().await };
            // Ends with the session; its sender lives as long as `session`.
            let _ = session.is_closed.subscribe().wait_for(|is_closed| *is_closed).await;
        };
        tokio::select! {
            outcome = work => outcome,
            () = closed => Err(ApiError::closed()),
            () = tokio::time::sleep(deadline) => Err(ApiError::late(deadline.as_secs())),
        }
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        Self::of(parts, app)
    }
}

/// A caller with a place, and what it asks for.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    pub(crate) body: Map<String, Value>,
    /// Held until the call is answered.
    pub(crate) place: OwnedSemaphorePermit,
}

impl FromRequest<Arc<App>> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let caller = Caller::of(&parts, app)?;
        let limits = &app.options.limits;
        let busy = |_| ApiError::busy(limits.requests);
        let place = app.places.clone().try_acquire_owned().map_err(busy)?;
        let read = tokio::time::timeout(BODY, to_bytes(body, limits.body_bytes)).await;
        let read = read.map_err(|_| ApiError::slow_body(BODY.as_secs()))?;
        // A body that breaks off reads as too large as well: nobody is there to be told.
        let bytes: Bytes = read.map_err(|_| ApiError::too_large(limits.body_bytes))?;
        let body = match serde_json::from_slice(&bytes) {
            Ok(Value::Object(body)) => body,
            Ok(_) => return Err(ApiError::bad("the body must be a JSON object")),
            Err(error) => return Err(ApiError::bad(format!("the body is not JSON: {error}"))),
        };
        Ok(Self { caller, body, place })
    }
}
