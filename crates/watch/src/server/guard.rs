//! Who may ask: every request passes here before any route.
//!
//! - **Host.** A page of another site can make its own name mean 127.0.0.1 and then read this server
//!   with the reader's browser. Such a request carries that other name, so only names of this machine
//!   are answered, unless a key is asked for anyway.
//! - **Key.** Where one is set, everything but the question for it needs it: as `Authorization: Bearer`,
//!   or the cookie that the question leaves.
//! - **Headers.** Whatever slipped into a page could load nothing from elsewhere and send nothing
//!   anywhere.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use scalerl_http::key;

use super::{App, answer};

/// Name of the cookie.
pub(super) const COOKIE: &str = "scalerl-watch";
/// Where the key is asked for.
pub(super) const LOGIN: &str = "/login";

pub(super) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match refused(&app, &request) {
        Some(response) => response,
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    let policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; \
                  frame-ancestors 'none'";
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn refused(app: &App, request: &Request) -> Option<Response> {
    let headers = request.headers();
    let Some(known) = &app.api_key else {
        return (!is_own_host(headers)).then(|| {
            let text = "this page answers to names of this machine only (127.0.0.1, localhost)";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        });
    };
    let path = request.uri().path();
    if path == LOGIN || path.starts_with("/assets/") || has_key(app, known, headers) {
        return None;
    }
    let is_page = request.method() == Method::GET && (path == "/" || path.starts_with("/run/"));
    Some(if is_page {
        (StatusCode::UNAUTHORIZED, answer::login()).into_response()
    } else {
        (StatusCode::UNAUTHORIZED, "the key is missing or wrong").into_response()
    })
}

fn has_key(app: &App, known: &str, headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    let cookies = text(header::COOKIE).unwrap_or_default();
    let cookie =
        cookies.split(';').find_map(|one| one.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    bearer.is_some_and(|given| key::is_same(given, known))
        || cookie.is_some_and(|given| key::is_same(given, &app.session))
}

/// Whether the request names this machine.
fn is_own_host(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|value| value.to_str().ok()) else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, _)) => return name.parse::<Ipv6Addr>().is_ok_and(|ip| ip.is_loopback()),
            None => return false,
        },
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
