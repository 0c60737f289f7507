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
#[derive(Debug, Clone)]
pub struct EventSender(Sender<Bytes>);

impl EventSender {
    /// Sends lines as they are; an event ends with an empty one. Whoever does not listen any more
    /// ends the task.
    pub async fn send(&self, event: String) {
        drop(self.0.send(event.into()).await);
    }
}

/// Answers with the events that `work` writes; `last` follows when it has ended by itself.
pub fn event_stream<F>(last: &'static str, work: impl FnOnce(EventSender) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let work = work(EventSender(sender.clone()));
    tokio::spawn(async move {
        tokio::select! {
            () = work => if !last.is_empty() { drop(sender.send(last.into()).await) },
            () = sender.closed() => {}
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Body::new(EventBody(receiver))).into_response()
}
