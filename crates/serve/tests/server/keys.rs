//! Keys, models, health, metrics: who may ask, and what everybody may know.

use std::sync::Arc;

use scalerl_serve::{Load, Server, ServerOptions, StartError};
use serde_json::{Value, json};

use crate::client::{CHAT, get, options, post, read, send, serve, start};
use crate::fake::{FakeChat, FakePolicy};

fn asks() -> Value {
    json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5})
}

#[tokio::test]
async fn only_the_right_key_opens() {
    let options = ServerOptions { api_key: Some("sesame".to_owned()), ..options() };
    let server = start(options, Some(FakePolicy::says("x")));
    for key in
        [None, Some("sesam"), Some("sesamf"), Some(""), Some("session-0-00"), Some("session-x")]
    {
        let (status, answer) = read(send(&server, CHAT, key, &asks()).await).await;
        assert_eq!(
            (status, answer["error"]["code"].as_str()),
            (401, Some("invalid_api_key")),
            "{key:?}"
        );
    }
    assert_eq!(send(&server, CHAT, Some("sesame"), &asks()).await.status(), 200);
    assert_eq!(get(&server, "/v1/models").await.0, 401);
    assert_eq!(get(&server, "/metrics").await.0, 401);
    assert_eq!(get(&server, "/health").await.0, 200);
}

#[test]
fn others_than_this_machine_need_a_key() {
    let start = |address: &str, key: Option<&str>| {
        let api_key = key.map(str::to_owned);
        let options = ServerOptions { address: address.to_owned(), api_key, ..options() };
        Server::start(options, Arc::new(FakeChat), None).map(drop)
    };
    let error = start("0.0.0.0:0", None).unwrap_err();
    assert!(matches!(error, StartError::NoKey { .. }), "{error}");
    assert!(error.hint().contains("--api-key"));
    assert!(matches!(start("0.0.0.0:0", Some("")), Err(StartError::NoKey { .. })));
    assert!(start("0.0.0.0:0", Some("key")).is_ok());
    assert!(matches!(start("nowhere", None), Err(StartError::Address { .. })));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(matches!(start(&address, None), Err(StartError::Bind { .. })));
}

#[tokio::test]
async fn the_model_is_named_and_what_is_no_route_says_so() {
    let server = serve(FakePolicy::says("x"));
    let (status, text) = get(&server, "/v1/models").await;
    let models: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &models["object"]), (200, &json!("list")));
    assert_eq!(models["data"][0]["id"], "tiny");
    assert_eq!(models["data"][0]["object"], "model");
    assert_eq!(models["data"][0]["max_model_len"], 2000);
    assert_eq!(get(&server, "/v1/models/tiny").await.0, 200);
    for (path, status) in [("/v1/models/other", 404), ("/v1/nothing", 404), (CHAT, 405)] {
        let (found, text) = get(&server, path).await;
        assert_eq!(found, status, "{path}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["error"]["message"].is_string(), "{answer}");
    }
}

#[tokio::test]
async fn metrics_count_and_health_knows_a_dead_generator() {
    let load = Load { running: 3, waiting: 2, cache_usage: 0.25, why_gone: None };
    let of = move || load.clone();
    let options = ServerOptions { load: Some(Arc::new(of)), ..options() };
    let server = start(options, Some(FakePolicy::says("hello")));
    post(&server, CHAT, &asks()).await;
    post(&server, CHAT, &json!({"n": 0})).await;
    let (status, text) = get(&server, "/metrics").await;
    assert_eq!(status, 200);
    for line in [
        "scalerl_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1",
        "scalerl_requests_total{route=\"/v1/chat/completions\",status=\"400\"} 1",
        "scalerl_prompt_tokens_total 5",
        "scalerl_generated_tokens_total 5",
        "scalerl_requests_under_way 0",
        "scalerl_sequences_running 3",
        "scalerl_sequences_waiting 2",
        "scalerl_cache_usage_ratio 0.25",
        "scalerl_time_to_first_token_seconds_count 1",
        "scalerl_request_seconds_count 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert_eq!(get(&server, "/health").await.0, 200);
    let of = || Load { why_gone: Some("it burnt".to_owned()), ..Load::default() };
    let options = ServerOptions { load: Some(Arc::new(of)), ..crate::client::options() };
    let (status, text) = get(&start(options, None), "/health").await;
    assert!(status == 503 && text.contains("it burnt"), "{text}");
}
