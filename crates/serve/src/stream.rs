//! Answers as server-sent events, in the form of OpenAI's API.

use std::time::Duration;

use axum::response::Response;
use scalerl_http::{EventSender, event_stream};
use serde::Serialize;
use serde_json::Value;

/// Events that go out together: one write, however many there are.
#[derive(Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    pub(crate) fn push(&mut self, event: &Value) {
        self.0.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    }

    /// An event with one choice; the envelope is the same for all events of a stream.
    pub(crate) fn push_choice(&mut self, envelope: &Envelope, choice: &impl Serialize) {
        self.0.extend_from_slice(&envelope.0);
        // Plain fields and texts: nothing in them can fail, and a vector takes every byte.
        serde_json::to_writer(&mut self.0, choice).expect("a choice is JSON");
        self.0.extend_from_slice(b"]}\n\n");
    }
}

/// What every event of a stream begins with, up to its choices: written once, not once a token.
pub(crate) struct Envelope(Vec<u8>);

impl Envelope {
    /// Of an event whose last field is an empty list of choices.
    pub(crate) fn new(id: &str, object: &str, created: u64, model: &str) -> Self {
        let [id, object, model] = [id, object, model].map(Value::from);
        let head = format!(
            "data: {{\"id\":{id},\"object\":{object},\"created\":{created},\"model\":{model},\"choices\":["
        );
        Self(head.into_bytes())
    }
}

/// Where a task writes its events.
pub(crate) struct Events(EventSender);

impl Events {
    pub(crate) async fn send(&self, frames: Frames) {
        self.0.send(frames.0).await;
    }

    /// The same for the end of a stream.
    pub(crate) async fn send_last(&self, frames: Frames) {
        self.0.send_last(frames.0).await;
    }
}

/// Answers with the events that `work` writes; [DONE] follows the last.
pub(crate) fn respond<F>(last_words: Duration, work: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    event_stream(last_words, "data: [DONE]\n\n", |sender| work(Events(sender)))
}
