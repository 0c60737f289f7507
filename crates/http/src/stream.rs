//! Server-sent events: a body that is written while the answer is.
//!
//! A task writes events into a channel, the connection reads them. A client that goes away drops
//! the body, which closes the channel, which ends the task and frees all it holds. One that reads
//! slowly makes the task wait.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use http_body::Frame;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Pieces that wait for a slow client before the task waits with them.
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

/// Where a task writes its events.
#[derive(Debug, Clone)]
pub struct EventSender {
    sender: Sender<Bytes>,
    /// For the last words, when the clock of the request has run out or is not asked any more.
    last_words: Duration,
}

impl EventSender {
    /// Sends lines as they are; an event ends with an empty one. Waits for a slow client; whoever does
    /// not listen any more ends the task.
    pub async fn send(&self, events: impl Into<Bytes>) {
        let events = events.into();
        if !events.is_empty() {
            drop(self.sender.send(events).await);
        }
    }

    /// The same for the end of a stream, which waits for a bounded time.
    pub async fn send_last(&self, events: impl Into<Bytes>) {
        drop(tokio::time::timeout(self.last_words, self.send(events)).await);
    }
}

/// Answers with the events that `work` writes; `last` follows when it has ended by itself, and a slow
/// client has `last_words` to take it.
pub fn event_stream<F>(
    last_words: Duration,
    last: &'static str,
    work: impl FnOnce(EventSender) -> F,
) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let events = || EventSender { sender: sender.clone(), last_words };
    let (work, end) = (work(events()), events());
    tokio::spawn(async move {
        let all = async {
            work.await;
            end.send_last(last).await;
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
