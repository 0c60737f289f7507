//! Routes, one line each; what they answer is in `answer.rs`. A refusal is an answer too, so both sides
//! of a result are responses.

#![expect(clippy::result_large_err, reason = "a response is made once a request")]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use scalerl_http::key;
use serde::Deserialize;

use super::{App, answer, events, guard};
use crate::room::{Run, read};
use crate::samples::{self, Wish};
use crate::stop;
use crate::view::{self, list};

/// Bytes of a body: a key.
const BODY: usize = 4096;
/// The first answer about a run waits so long for its journal.
const FIRST: Duration = Duration::from_millis(400);
/// Characters of a search.
const LONGEST_SEARCH: usize = 500;
/// What a stop must carry the token in.
const TOKEN: &str = "x-watch-token";

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/list", get(list_rows))
        .route("/compare", get(compare))
        .route("/compare/figure", get(compare_figure))
        .route("/run/{slug}", get(run))
        .route("/run/{slug}/parts", get(parts))
        .route("/run/{slug}/samples", get(read_samples))
        .route("/run/{slug}/stop", post(ask_stop))
        .route("/events", get(follow))
        .route("/assets/{name}", get(async |Path(name): Path<String>| answer::asset(&name)))
        .route(guard::LOGIN, post(login))
        .fallback(async || nothing())
        .layer(DefaultBodyLimit::max(BODY))
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

type Shared = State<Arc<App>>;

fn nothing() -> Response {
    (StatusCode::NOT_FOUND, "there is no such page, and no such run").into_response()
}

fn find(app: &App, slug: &str) -> Result<Arc<Run>, Response> {
    app.room.run(slug).ok_or_else(nothing)
}

/// Reads files away from the thread that serves.
async fn away<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        (StatusCode::INTERNAL_SERVER_ERROR, "reading the run folder failed").into_response()
    })
}

/// Every run with what is known of it; the first time, what can be known in a moment.
async fn glances(app: &Arc<App>) -> Result<Vec<answer::Listed>, Response> {
    app.room.want_list();
    let room = app.room.clone();
    let is_new = room.runs().values().all(|run| read(&run.glance).is_none());
    if is_new {
        let first = room.clone();
        away(move || first.glance_at_all()).await?;
    }
    let runs = room.runs();
    Ok(runs.values().map(|run| (run.slug.clone(), read(&run.glance))).collect())
}

async fn index(State(app): Shared) -> Result<Response, Response> {
    let listed = glances(&app).await?;
    Ok(answer::index(&list::rows(&listed), listed.len()))
}

async fn list_rows(State(app): Shared) -> Result<Response, Response> {
    Ok(answer::html(list::rows(&glances(&app).await?)))
}

#[derive(Deserialize)]
struct Chosen {
    runs: Option<String>,
}

async fn chosen(app: &Arc<App>, chosen: &Chosen) -> Result<String, Response> {
    let listed = glances(app).await?;
    let names = chosen.runs.as_deref().unwrap_or_default();
    let names: Vec<&str> = names.split(',').take(list::MOST_COMPARED).collect();
    let wanted = listed.into_iter().filter(|(slug, _)| names.contains(&slug.as_str()));
    let runs: Vec<_> = wanted.filter_map(|(slug, glance)| Some((slug, glance?))).collect();
    away(move || list::compared(&runs)).await
}

async fn compare(State(app): Shared, Query(query): Query<Chosen>) -> Result<Response, Response> {
    Ok(answer::compare(&chosen(&app, &query).await?))
}

async fn compare_figure(
    State(app): Shared,
    Query(query): Query<Chosen>,
) -> Result<Response, Response> {
    Ok(answer::html(chosen(&app, &query).await?))
}

async fn run(State(app): Shared, Path(slug): Path<String>) -> Result<Response, Response> {
    let run = find(&app, &slug)?;
    app.room.want(&run);
    let mut revision = app.room.subscribe();
    let ready = async {
        while read(&run.parts).is_none_or(|parts| parts.is_unfinished) {
            if revision.changed().await.is_err() {
                break;
            }
        }
    };
    // A long journal is shown as far as it has been read.
    let _ = tokio::time::timeout(FIRST, ready).await;
    let parts = read(&run.parts).unwrap_or_else(|| Arc::new(view::Parts::reading(0.0)));
    Ok(answer::run(&run.slug, &parts))
}

async fn parts(State(app): Shared, Path(slug): Path<String>) -> Result<Response, Response> {
    let run = find(&app, &slug)?;
    app.room.want(&run);
    let parts = read(&run.parts).unwrap_or_else(|| Arc::new(view::Parts::reading(0.0)));
    Ok(answer::json(&*parts))
}

#[derive(Deserialize)]
struct Search {
    step: Option<u64>,
    kind: Option<String>,
    text: Option<String>,
    verdict: Option<String>,
    skip: Option<usize>,
}

async fn read_samples(
    State(app): Shared,
    Path(slug): Path<String>,
    Query(search): Query<Search>,
) -> Result<Response, Response> {
    let run = find(&app, &slug)?;
    let text: String = search.text.unwrap_or_default().chars().take(LONGEST_SEARCH).collect();
    let wish = Wish {
        step: search.step,
        is_training: search.kind.as_deref().and_then(|kind| match kind {
            "training" => Some(true),
            "evaluation" => Some(false),
            _ => None,
        }),
        text,
        is_right: search.verdict.as_deref().and_then(|verdict| match verdict {
            "right" => Some(true),
            "wrong" => Some(false),
            _ => None,
        }),
        skip: search.skip.unwrap_or(0),
    };
    let Ok(place) = app.searches.clone().try_acquire_owned() else {
        let text = "other searches are under way; try again in a moment";
        return Err((StatusCode::SERVICE_UNAVAILABLE, text).into_response());
    };
    let html = away(move || {
        let _place = place;
        let folder = run.folder()?;
        let until = run.newest_step();
        Some(view::samples::page(&samples::find(&folder, &wish, until), &wish))
    });
    html.await?.map(answer::html).ok_or_else(nothing)
}

#[derive(Deserialize)]
struct Followed {
    run: Option<String>,
}

async fn follow(State(app): Shared, Query(query): Query<Followed>) -> Result<Response, Response> {
    let run = query.run.map(|slug| find(&app, &slug)).transpose()?;
    Ok(events::follow(app, run))
}

/// Asks the run to stop, where the token is right.
async fn ask_stop(
    State(app): Shared,
    Path(slug): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let run = find(&app, &slug)?;
    let given = headers.get(TOKEN).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !key::is_same(given, &app.token) {
        let text = "the token is missing or wrong; it was printed when this page was started";
        return Err((StatusCode::FORBIDDEN, text).into_response());
    }
    let asked = away(move || run.folder().map(|folder| stop::ask(&folder))).await?;
    Ok(match asked {
        Some(Ok(pid)) => {
            let text = format!("process {pid} was asked to stop; it finishes its step and saves");
            (StatusCode::ACCEPTED, text).into_response()
        }
        Some(Err(error)) => (StatusCode::CONFLICT, error.to_string()).into_response(),
        None => nothing(),
    })
}

/// The body is the key; the answer a cookie.
async fn login(State(app): Shared, body: String) -> Response {
    let is_right = app.api_key.as_ref().is_none_or(|known| key::is_same(body.trim(), known));
    if !is_right {
        return (StatusCode::UNAUTHORIZED, "the key is wrong").into_response();
    }
    let cookie = format!("{}={}; HttpOnly; SameSite=Strict; Path=/", guard::COOKIE, app.session);
    ([(header::SET_COOKIE, cookie)], "welcome").into_response()
}
