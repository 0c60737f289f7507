//! Server-sent events: a body that is written while the answer is.
//!
//! A task writes events into a channel, the connection reads them. A client that goes away drops
//! the body, which closes the channel, which ends the task and frees all it holds.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use serde_json::Value;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Events that wait for a slow client before the task waits with them.
const AHEAD: usize = 64;

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

/// Where a task writes its events.
pub(crate) struct Events(Sender<Bytes>);

impl Events {
    pub(crate) async fn send(&self, event: &Value) {
        // Whoever does not listen any more ends the task.
        drop(self.0.send(format!("data: {event}\n\n").into()).await);
    }
}

/// Answers with the events that `work` writes; [DONE] follows the last.
pub(crate) fn respond<F>(work: impl FnOnce(Events) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let work = work(Events(sender.clone()));
    tokio::spawn(async move {
        tokio::select! {
            () = work => drop(sender.send("data: [DONE]\n\n".into()).await),
            () = sender.closed() => {}
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::new(EventBody(receiver))).into_response()
}
