//! Answers as server-sent events, in the form of OpenAI's API.

use std::time::Duration;

use axum::response::Response;
use scalerl_http::{EventSender, event_stream};
use serde::Serialize;
use serde_json::{Value, json};

/// Events that go out together: one write, however many there are.
#[derive(Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    pub(crate) fn push(&mut self, event: &Value) {
        self.0.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    }

    /// An event with one choice; the envelope is the same for all events of a stream.
    pub(crate) fn push_choice(&mut self, envelope: &Envelope, choice: &impl Serialize) {
        self.0.extend_from_slice(&envelope.head);
        // Plain fields and texts: nothing in them can fail, and a vector takes every byte.
        serde_json::to_writer(&mut self.0, choice).expect("a choice is JSON");
        self.0.extend_from_slice(b"]}\n\n");
    }
}

/// What an answer and every event of a stream say besides their choices.
pub(crate) struct Envelope {
    id: String,
    /// What an event of a stream is.
    object: &'static str,
    created: u64,
    model: String,
    /// An event up to its choices: written once, not once a token.
    head: Vec<u8>,
}

impl Envelope {
    /// Of an answer that is being made now.
    pub(crate) fn new(id: String, object: &'static str, model: String) -> Self {
        let created = crate::routes::now();
        let [named, what, of] = [&id, object, &model].map(Value::from);
        let head = format!(
            "data: {{\"id\":{named},\"object\":{what},\"created\":{created},\"model\":{of},\"choices\":["
        );
        Self { id, object, created, model, head: head.into_bytes() }
    }

    /// The whole of something with these choices.
    pub(crate) fn body(&self, object: &str, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    /// An event of a stream.
    pub(crate) fn event(&self, choices: &[Value]) -> Value {
        self.body(self.object, choices)
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
