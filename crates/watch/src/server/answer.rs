//! Answers: the frames of the pages around their pieces, and the files of the page itself.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use crate::glance::Glance;
use crate::view::Parts;

/// A run of the list.
pub(super) type Listed = (String, Option<Arc<Glance>>);

static BOARD_STYLE: LazyLock<String> = LazyLock::new(scalerl_board::stylesheet);
const STYLE: &str = include_str!("../page/watch.css");
const SCRIPT: &str = include_str!("../page/watch.js");
const ICON: &str = include_str!("../page/icon.svg");

pub(super) fn asset(name: &str) -> Response {
    let (kind, text) = match name {
        "board.css" => ("text/css; charset=utf-8", BOARD_STYLE.as_str()),
        "watch.css" => ("text/css; charset=utf-8", STYLE),
        "board.js" => ("text/javascript; charset=utf-8", scalerl_board::script()),
        "watch.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let cached = (header::CACHE_CONTROL, "no-cache");
    ([(header::CONTENT_TYPE, kind), cached], text).into_response()
}

pub(super) fn html(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

pub(super) fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned());
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// The frame of every page. `title` and `data` are slugs and words of our own.
fn frame(title: &str, data: &str, body: &str) -> Response {
    html(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"/assets/icon.svg\" type=\"image/svg+xml\">\n\
         <link rel=\"stylesheet\" href=\"/assets/board.css\">\n\
         <link rel=\"stylesheet\" href=\"/assets/watch.css\">\n\
         <script src=\"/assets/board.js\" defer></script>\n\
         <script src=\"/assets/watch.js\" defer></script>\n</head>\n<body {data}>\n\
         <header class=\"bar\"><a class=\"home\" href=\"/\">scalerl</a>\
         <span id=\"link\" role=\"status\" title=\"connection to the server\">connecting</span>\
         </header>\n<main>\n{body}</main>\n</body>\n</html>\n"
    ))
}

pub(super) fn index(rows: &str, count: usize) -> Response {
    let empty = if count > 0 {
        ""
    } else {
        "<p>No runs are in the folders that were named. They appear here when they begin.</p>"
    };
    let body = format!(
        "<h1>Runs</h1>\n<div class=\"tools\"><input id=\"filter\" type=\"search\" \
         placeholder=\"filter by name or state\" aria-label=\"filter\">\
         <button id=\"compare\" type=\"button\" disabled>compare</button></div>\n{empty}\
         <div class=\"scroll runs\"><table><thead><tr><th></th><th>run</th><th>state</th>\
         <th class=\"number\">step</th><th class=\"number\">pass rate</th><th>curve</th>\
         <th class=\"number\">at twice the compute</th><th class=\"number\">device-hours</th>\
         <th>last event</th></tr></thead><tbody id=\"rows\">{rows}</tbody></table></div>\n"
    );
    frame("Runs · scalerl", "data-page=\"list\"", &body)
}

pub(super) fn compare(figure: &str) -> Response {
    let body = format!("<h1>Runs side by side</h1>\n<section id=\"compared\">{figure}</section>\n");
    frame("Compare · scalerl", "data-page=\"compare\"", &body)
}

pub(super) fn run(slug: &str, parts: &Parts) -> Response {
    let mut body = format!(
        "<h1>{slug}</h1>\n<nav class=\"parts\" aria-label=\"contents\">\
         <a href=\"#curve\">curve</a><a href=\"#forecasts\">forecasts</a>\
         <a href=\"#compute\">compute</a><a href=\"#steps\">steps</a>\
         <a href=\"#trouble\">stability</a><a href=\"#fleet\">processes</a>\
         <a href=\"#samples\">completions</a></nav>\n"
    );
    let known = |id: &str| parts.all.iter().find(|part| part.id == id);
    let places = [
        ("head", ""),
        ("curve", "Pass rate against compute"),
        ("forecasts", "Forecasts beside what came"),
        ("compute", "Where the device-hours go"),
        ("steps", "Training, step by step"),
        ("trouble", "Stability, errors, sessions"),
        ("fleet", "Processes"),
    ];
    for (id, heading) in places {
        let heading =
            if heading.is_empty() { String::new() } else { format!("<h2>{heading}</h2>") };
        let html = known(id).map_or("", |part| &part.html);
        let _ = writeln!(
            body,
            "<section id=\"{id}\">{heading}<div class=\"part\">{html}</div></section>"
        );
    }
    body.push_str(SAMPLES);
    body.push_str(STOP);
    let data = format!("data-page=\"run\" data-run=\"{slug}\" data-state=\"{}\"", parts.state);
    frame(&format!("{slug} · scalerl"), &data, &body)
}

const SAMPLES: &str = "<section id=\"samples\"><h2>Completions and episodes</h2>\
    <form class=\"tools\" id=\"search\"><input name=\"text\" type=\"search\" \
    placeholder=\"search in prompts and completions\" aria-label=\"search\">\
    <input name=\"step\" type=\"number\" min=\"0\" placeholder=\"step\" aria-label=\"step\">\
    <select name=\"kind\" aria-label=\"of\"><option value=\"\">evaluation and training</option>\
    <option value=\"evaluation\">evaluation</option><option value=\"training\">training</option>\
    </select><select name=\"verdict\" aria-label=\"verdict\"><option value=\"\">right and wrong\
    </option><option value=\"right\">right</option><option value=\"wrong\">wrong</option></select>\
    <button>search</button></form>\
    <div class=\"tools\"><label>colour tokens by <select id=\"colour\"><option value=\"none\">\
    nothing</option><option value=\"logprob\" selected>log-prob</option>\
    <option value=\"version\">version</option></select></label>\
    <span class=\"key\" id=\"key\" aria-hidden=\"true\"></span></div>\
    <div id=\"found\" data-colour=\"logprob\"><p class=\"quiet\">not read yet</p></div></section>\n";

const STOP: &str = "<section id=\"stop\"><h2>Stop</h2><p>The run finishes its step, saves a \
    checkpoint and ends; it can be resumed.</p><form class=\"tools\" id=\"stopping\">\
    <input name=\"token\" type=\"password\" autocomplete=\"off\" required \
    placeholder=\"token\" aria-label=\"token\"><button class=\"danger\">stop this run</button>\
    <output id=\"stopped\"></output></form></section>\n";

/// Asks for the key.
pub(super) fn login() -> Response {
    frame(
        "scalerl",
        "data-page=\"login\"",
        "<h1>Key</h1><form class=\"tools\" id=\"login\"><input name=\"key\" type=\"password\" \
         autocomplete=\"current-password\" required placeholder=\"key\" aria-label=\"key\">\
         <button>open</button><output id=\"refused\"></output></form>\n",
    )
}
