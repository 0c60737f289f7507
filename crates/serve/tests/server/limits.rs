//! Bounds: sizes, numbers, deadlines; clients that go away, a server that stops.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use reqwest::Client;
use scalerl_serve::{Limits, ServerOptions};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::client::{CHAT, COMPLETIONS, error, get, options, post, send, serve, start};
use crate::fake::FakePolicy;

fn limits(limits: Limits) -> ServerOptions {
    ServerOptions { limits, ..options() }
}

fn asks() -> Value {
    json!({"messages": [{"role": "user", "content": "x"}]})
}

/// Until a number is reached; the test's own time limit is the only clock.
async fn until(policy: &FakePolicy, running: usize) {
    let reached = async {
        while policy.running.load(Ordering::SeqCst) != running {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap();
}

#[tokio::test]
async fn a_large_body_and_a_broken_one_are_refused() {
    let server =
        start(limits(Limits { body_bytes: 1000, ..options().limits }), Some(FakePolicy::says("x")));
    let large = json!({"messages": [{"role": "user", "content": "x".repeat(2000)}]});
    let (status, answer) = post(&server, CHAT, &large).await;
    assert_eq!(status, 413, "{answer}");
    assert!(error(&answer).0.contains("1000 bytes"));
    for body in ["{", "[]", ""] {
        let response =
            Client::new().post(format!("{}{CHAT}", server.url())).body(body).send().await;
        assert_eq!(response.unwrap().status(), 400, "{body}");
    }
}

#[tokio::test]
async fn too_many_requests_are_told_to_come_again() {
    let policy = FakePolicy::hangs();
    let server = start(limits(Limits { requests: 2, ..options().limits }), Some(policy.clone()));
    let body = asks();
    let hanging = async {
        tokio::join!(send(&server, CHAT, None, &body), send(&server, CHAT, None, &body));
    };
    let mut hanging = Box::pin(hanging);
    tokio::select! {
        () = &mut hanging => panic!("they hang"),
        () = until(&policy, 2) => {}
    }
    let third = send(&server, CHAT, None, &asks()).await;
    assert_eq!(third.status(), 429);
    assert_eq!(third.headers()["retry-after"], "1");
    // Their places are free once they are gone.
    drop(hanging);
    until(&policy, 0).await;
    let again = send(&server, CHAT, None, &body);
    tokio::select! {
        response = again => panic!("{} in place of a wait", response.status()),
        () = until(&policy, 1) => {}
    }
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place() {
    let policy = FakePolicy::hangs();
    let server = serve(policy.clone());
    for (path, body) in [
        (CHAT, asks()),
        (CHAT, json!({"messages": asks()["messages"], "stream": true})),
        (COMPLETIONS, json!({"prompt": ["a", "b", "c"]})),
        (COMPLETIONS, json!({"prompt": ["a", "b", "c"], "stream": true})),
    ] {
        let call = async {
            let mut response = send(&server, path, None, &body).await;
            // A stream has begun and never ends.
            while response.chunk().await.unwrap().is_some() {}
        };
        let count = body["prompt"].as_array().map_or(1, Vec::len);
        tokio::select! {
            () = call => panic!("it hangs"),
            () = until(&policy, count) => {}
        }
        until(&policy, 0).await;
    }
}

#[tokio::test]
async fn what_takes_too_long_is_given_up() {
    let policy = FakePolicy::hangs();
    let deadline = Duration::from_millis(50);
    let server = start(limits(Limits { deadline, ..options().limits }), Some(policy.clone()));
    let (status, answer) = post(&server, CHAT, &asks()).await;
    assert_eq!((status, answer["error"]["type"].as_str()), (504, Some("timeout_error")));
    let streamed = json!({"messages": asks()["messages"], "stream": true});
    let text = send(&server, CHAT, None, &streamed).await.text().await.unwrap();
    assert!(text.contains("timeout_error") && text.ends_with("data: [DONE]\n\n"), "{text}");
    until(&policy, 0).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let policy = FakePolicy::hangs();
    let server = start(limits(Limits { connections: 1, ..options().limits }), Some(policy.clone()));
    let body = asks();
    let mut first = Box::pin(send(&server, CHAT, None, &body));
    tokio::select! {
        _ = &mut first => panic!("it hangs"),
        () = until(&policy, 1) => {}
    }
    let mut second = Box::pin(crate::client::get(&server, "/health"));
    tokio::select! {
        _ = &mut second => panic!("there is one place only"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    drop(first);
    assert_eq!(second.await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_lets_go_of_what_hangs() {
    let policy = FakePolicy::hangs();
    let server = serve(policy.clone());
    let url = format!("{}{CHAT}", server.url());
    let call = tokio::spawn(Client::new().post(url.clone()).body(asks().to_string()).send());
    until(&policy, 1).await;
    drop(server);
    until(&policy, 0).await;
    assert!(call.await.unwrap().is_err());
    assert!(reqwest::get(url).await.is_err(), "nobody listens");
}

#[tokio::test]
async fn a_policy_that_panics_is_an_error_of_its_call_alone() {
    let server = serve(FakePolicy::says("x"));
    for streams in [false, true] {
        let body = json!({"prompt": ["?", "fine"], "stream": streams});
        let text = send(&server, COMPLETIONS, None, &body).await.text().await.unwrap();
        assert!(text.contains("ended without an answer"), "{text}");
    }
    assert_eq!(post(&server, CHAT, &asks()).await.0, 200);
}

#[tokio::test]
async fn a_client_that_stops_reading_keeps_its_place_no_longer_than_the_deadline_twice() {
    let policy = FakePolicy::says(&"a".repeat(300));
    let deadline = Duration::from_millis(1500);
    let limited = Limits { deadline, stream_window: Duration::ZERO, ..options().limits };
    let server = start(limits(limited), Some(policy));
    // More than the system's buffers take.
    let mut body = asks();
    let more = json!({"n": 128, "max_tokens": 400, "stream": true, "logprobs": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let body = body.to_string();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let address = server.url().trim_start_matches("http://").parse().unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let head = format!("POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    let begun = Instant::now();
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let under_way = async |count: &str| {
        let line = format!("scalerl_requests_under_way {count}");
        while !get(&server, "/metrics").await.1.lines().any(|one| one == line) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let patience = Duration::from_mins(1);
    tokio::time::timeout(patience, under_way("1")).await.unwrap();
    // Nothing is read, and nothing else ends it.
    tokio::time::timeout(patience, under_way("0")).await.unwrap();
    assert!(begun.elapsed() >= 2 * deadline, "{:?}: it never waited", begun.elapsed());
    drop(stream);
}
