//! Server-sent events: a body that is written while the answer is.
//!
//! A task writes events into a channel, the connection reads them. A client that goes away drops
//! the body, which closes the channel, which ends the task and frees all it holds. One that reads
//! slowly makes the task wait, and gets what was drawn meanwhile in one piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Frames that wait for a slow client before the task waits with them.
const AHEAD: usize = 4;

struct EventBody(Receiver<Bytes>);

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

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
pub(crate) struct Events {
    sender: Sender<Bytes>,
    /// For the last words, when the clock of the request has run out or is not asked any more.
    last_words: Duration,
}

impl Events {
    /// Waits for a slow client; whoever does not listen any more ends the task.
    pub(crate) async fn send(&self, frames: Frames) {
        if !frames.0.is_empty() {
            drop(self.sender.send(frames.0.into()).await);
        }
    }

    /// The same for the end of a stream.
    pub(crate) async fn send_last(&self, frames: Frames) {
        drop(tokio::time::timeout(self.last_words, self.send(frames)).await);
    }
}

/// Answers with the events that `work` writes; [DONE] follows the last.
pub(crate) fn respond<F>(last_words: Duration, work: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let events = || Events { sender: sender.clone(), last_words };
    let (work, last) = (work(events()), events());
    tokio::spawn(async move {
        let all = async {
            work.await;
            last.send_last(Frames(b"data: [DONE]\n\n".to_vec())).await;
        };
        tokio::select! {
            () = all => {}
            () = sender.closed() => {}
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::new(EventBody(receiver))).into_response()
}
