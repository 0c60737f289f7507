//! When the events of a stream go out, and that however they are cut they say the same.

use std::time::{Duration, Instant};

use scalerl_serve::{Limits, ServerOptions};
use serde_json::{Value, json};

use crate::client::{CHAT, COMPLETIONS, events, options, post, send, start};
use crate::fake::{END, FakePolicy, singles, version};

const TEXT: &str = "a text of some length, which is told one token after the other";

fn window(stream_window: Duration) -> ServerOptions {
    ServerOptions { limits: Limits { stream_window, ..options().limits }, ..options() }
}

fn asks(stream: bool) -> Value {
    json!({"messages": [{"role": "user", "content": "x"}], "prompt": "x", "logprobs": 1, "max_tokens": 200,
        "return_token_ids": true, "return_tokens_as_token_ids": true, "stream": stream})
}

/// Of one route: the fields that another does not know taken out.
fn body(path: &str, stream: bool) -> Value {
    let mut body = asks(stream);
    if path == CHAT {
        body.as_object_mut().unwrap().remove("prompt");
        body["logprobs"] = json!(true);
    } else {
        body.as_object_mut().unwrap().remove("messages");
        body["logprobs"] = json!(0);
    }
    body
}

fn choices(events: &[Value]) -> Vec<Value> {
    events.iter().flat_map(|event| event["choices"].as_array().unwrap().clone()).collect()
}

/// The version of every token, out of spans that must follow on one another.
fn versions<'a>(choices: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    let mut versions = Vec::new();
    let spans =
        choices.into_iter().filter_map(|choice| choice["weight_versions"].as_array()).flatten();
    for span in spans {
        assert_eq!(span["start"], versions.len(), "{span}");
        let end = span["end"].as_u64().unwrap() as usize;
        versions.resize(end, span["version"].as_str().unwrap().to_owned());
    }
    versions
}

#[tokio::test]
async fn tokens_of_one_window_share_an_event_and_none_is_lost() {
    let pace = Duration::from_millis(1);
    let ids = [singles(TEXT), vec![END]].concat();
    let expected: Vec<String> = (0..ids.len()).map(|place| version(place).0.to_string()).collect();
    let mut counts = Vec::new();
    for milliseconds in [0, 20] {
        let options = window(Duration::from_millis(milliseconds));
        let server = start(options, Some(FakePolicy::says_slowly(TEXT, pace)));
        for path in [CHAT, COMPLETIONS] {
            let (status, whole) = post(&server, path, &body(path, false)).await;
            assert_eq!(status, 200, "{whole}");
            let whole = &whole["choices"][0];
            let events = events(&server, path, &body(path, true)).await;
            let pieces = choices(&events);
            let text = |one: &Value| {
                let content = one["delta"]["content"].as_str().or(one["text"].as_str());
                content.unwrap_or_default().to_owned()
            };
            assert_eq!(pieces.iter().map(text).collect::<String>(), TEXT);
            for list in ["/token_ids", "/logprobs/content", "/logprobs/token_logprobs"] {
                let parts = pieces.iter().filter_map(|one| one.pointer(list)?.as_array().cloned());
                let parts: Vec<Value> = parts.flatten().collect();
                assert_eq!(json!(parts), *whole.pointer(list).unwrap_or(&json!([])), "{list}");
            }
            assert_eq!(versions(&pieces), expected);
            assert_eq!(versions([whole]), expected);
            counts.push(events.len());
        }
    }
    // Most tokens had an event of their own; with the window about one in twenty has.
    let [all, all_text, few, few_text] = counts[..] else { panic!("{counts:?}") };
    assert!(all > 40 && all_text > 40, "{counts:?}");
    assert!(few <= 12 && few_text <= 12, "{counts:?}");
}

#[tokio::test]
async fn the_first_token_and_the_end_wait_for_no_window() {
    // Far longer than the test may take.
    let options = window(Duration::from_hours(1));
    let policy = FakePolicy::says_slowly("abc", Duration::from_millis(20));
    let server = start(options, Some(policy));
    let begun = Instant::now();
    let mut response = send(&server, COMPLETIONS, None, &body(COMPLETIONS, true)).await;
    let first = response.chunk().await.unwrap().unwrap();
    let first = String::from_utf8(first.to_vec()).unwrap();
    let event: Value = serde_json::from_str(first.trim().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(event["choices"][0]["token_ids"], json!(singles("a")));
    let rest = response.text().await.unwrap();
    let rest: Vec<&str> = rest.split_terminator("\n\n").collect();
    let [last, "data: [DONE]"] = rest[..] else { panic!("{rest:?}") };
    let event: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(event["choices"][0]["token_ids"], json!([singles("bc"), vec![END]].concat()));
    assert_eq!(event["choices"][0]["finish_reason"], "stop");
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}
