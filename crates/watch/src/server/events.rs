//! Server-sent events: that something has changed, not what. The page then asks for the pieces it
//! shows, so that a slow reader never has old ones waiting.
//!
//! An open page keeps its run, or the list, read; closing it ends the task within a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use scalerl_http::event_stream;
use serde_json::json;

use super::App;
use crate::room::Run;

/// Without a change, a sign of life.
const SIGN: Duration = Duration::from_secs(10);
/// At most so often.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) fn follow(app: Arc<App>, run: Option<Arc<Run>>) -> Response {
    let Ok(place) = app.following.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open").into_response();
    };
    event_stream("", |events| async move {
        let _place = place;
        let mut revision = app.room.subscribe();
        let mut said = None;
        loop {
            match &run {
                Some(run) => app.room.want(run),
                None => app.room.want_list(),
            }
            let now = (
                app.room.list_generation(),
                run.as_ref().map(|run| run.drawn.load(Ordering::Acquire)),
            );
            if said == Some(now) {
                events.send(": still here\n\n".to_owned()).await;
            } else {
                let data = json!({"list": now.0, "run": now.1});
                events.send(format!("retry: 2000\ndata: {data}\n\n")).await;
                said = Some(now);
            }
            tokio::time::sleep(PAUSE).await;
            // The sender lives in the room, which this task holds.
            let _ = tokio::time::timeout(SIGN, revision.changed()).await;
        }
    })
}
