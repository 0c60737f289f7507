//! Answers as server-sent events, in the form of OpenAI's API.

use axum::response::Response;
use scalerl_http::{EventSender, event_stream};
use serde_json::Value;

/// Where a task writes its events.
pub(crate) struct Events(EventSender);

impl Events {
    pub(crate) async fn send(&self, event: &Value) {
        self.0.send(format!("data: {event}\n\n")).await;
    }
}

/// Answers with the events that `work` writes; [DONE] follows the last.
pub(crate) fn respond<F>(work: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    event_stream("data: [DONE]\n\n", |sender| work(Events(sender)))
}
