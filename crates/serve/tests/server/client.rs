//! A client: JSON in, JSON or events out.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Response};
use scalerl_rollout::Policy;
use scalerl_serve::{Limits, Server, ServerOptions};
use serde_json::Value;

use crate::fake::FakeChat;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const COMPLETIONS: &str = "/v1/completions";

pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        address: "127.0.0.1:0".to_owned(),
        api_key: None,
        model: "tiny".to_owned(),
        max_model_len: 2000,
        load: None,
        limits: Limits { grace: Duration::from_millis(200), ..Limits::default() },
    }
}

pub(crate) fn start(options: ServerOptions, policy: Option<Arc<dyn Policy>>) -> Server {
    Server::start(options, Arc::new(FakeChat), policy).unwrap()
}

pub(crate) fn serve(policy: Arc<dyn Policy>) -> Server {
    start(options(), Some(policy))
}

pub(crate) async fn send(server: &Server, path: &str, key: Option<&str>, body: &Value) -> Response {
    let url = format!("{}{path}", server.url());
    let mut request = Client::new().post(url).body(body.to_string());
    if let Some(key) = key {
        request = request.header("Authorization", format!("Bearer {key}"));
    }
    request.send().await.unwrap()
}

pub(crate) async fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    read(send(server, path, None, body).await).await
}

pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

pub(crate) async fn get(server: &Server, path: &str) -> (u16, String) {
    let response = reqwest::get(format!("{}{path}", server.url())).await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// The events of a stream, of which the last is [DONE].
pub(crate) async fn events(server: &Server, path: &str, body: &Value) -> Vec<Value> {
    let response = send(server, path, None, body).await;
    assert_eq!(response.status(), 200);
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let text = response.text().await.unwrap();
    let mut events: Vec<&str> =
        text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(events.pop(), Some("[DONE]"));
    events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

pub(crate) fn error(answer: &Value) -> (&str, &str) {
    let error = &answer["error"];
    (error["message"].as_str().unwrap(), error["param"].as_str().unwrap_or_default())
}
