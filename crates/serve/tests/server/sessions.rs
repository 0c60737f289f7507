//! Sessions: a key leads to its policy, and tokens are never made from text again.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use scalerl_serve::{ChatFormat as _, Server, Session, Special};
use serde_json::{Value, json};

use crate::client::{CHAT, options, post, read, send, start};
use crate::fake::{END, FakeChat, FakePolicy, single, singles};

async fn ask(server: &Server, session: &Session, body: &Value) -> (u16, Value) {
    read(send(server, CHAT, Some(session.api_key()), body).await).await
}

#[tokio::test]
async fn a_key_leads_to_its_policy_until_it_is_closed() {
    let server = start(options(), Some(FakePolicy::says("everybody")));
    let one = server.open(FakePolicy::says("one")).unwrap();
    let two = server.open(FakePolicy::says("two")).unwrap();
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    for (session, text) in [(&one, "one"), (&two, "two")] {
        let (_, answer) = ask(&server, session, &body).await;
        assert_eq!(answer["choices"][0]["message"]["content"], text);
    }
    assert_eq!(post(&server, CHAT, &body).await.1["choices"][0]["message"]["content"], "everybody");
    let key = one.api_key().to_owned();
    drop(one);
    let (status, answer) = read(send(&server, CHAT, Some(&key), &body).await).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (410, Some("session_closed")));
    assert_eq!(ask(&server, &two, &body).await.0, 200);
    // A right number with a wrong secret.
    let (number, secret) = two.api_key().rsplit_once('-').unwrap();
    let forged = format!("{number}-{}", secret.chars().rev().collect::<String>());
    assert_eq!(send(&server, CHAT, Some(&forged), &body).await.status(), 401);
}

#[tokio::test]
async fn without_a_policy_of_its_own_a_server_knows_sessions_only() {
    let server = start(options(), None);
    let body = json!({"messages": [{"role": "user", "content": "x"}]});
    assert_eq!(post(&server, CHAT, &body).await.0, 401);
    let session = server.open(FakePolicy::says("one")).unwrap();
    assert_eq!(ask(&server, &session, &body).await.0, 200);
}

#[tokio::test]
async fn closing_gives_up_calls_under_way() {
    let server = start(options(), None);
    let policy = FakePolicy::hangs();
    let session = server.open(policy.clone()).unwrap();
    let key = session.api_key().to_owned();
    let whole = json!({"messages": [{"role": "user", "content": "x"}]});
    let streamed = json!({"messages": whole["messages"], "stream": true});
    let closing = async {
        while policy.running.load(std::sync::atomic::Ordering::SeqCst) < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        drop(session);
    };
    let text = async { send(&server, CHAT, Some(&key), &streamed).await.text().await.unwrap() };
    let (whole, text, ()) = tokio::join!(send(&server, CHAT, Some(&key), &whole), text, closing);
    assert_eq!(whole.status(), 410);
    assert!(text.contains("session_closed"), "{text}");
}

/// The message that a client sends back.
fn sent_back(answer: &Value) -> Value {
    answer["choices"][0]["message"].clone()
}

#[tokio::test]
async fn a_turn_continues_the_tokens_that_were_drawn() {
    // `ab` as two tokens: encoded again it would be one.
    let policy = FakePolicy::says("ab");
    let server = start(options(), None);
    let session = server.open(policy.clone()).unwrap();
    let mut messages = vec![json!({"role": "user", "content": "aab"})];
    let (_, answer) = ask(&server, &session, &json!({"messages": messages})).await;
    messages.push(sent_back(&answer));
    messages.push(json!({"role": "user", "content": "ab"}));
    ask(&server, &session, &json!({"messages": messages})).await;
    let drawn = [policy.prompt(0), singles("ab"), vec![END]].concat();
    // The model has written the end itself, so the gap begins after it.
    assert_eq!(policy.prompt(1), [drawn.clone(), vec![3, 50, 2, 4]].concat());
    // Words that it did not say are rendered anew.
    messages[1]["content"] = json!("ba");
    ask(&server, &session, &json!({"messages": messages})).await;
    assert_eq!(policy.prompt(2), [policy.prompt(0), vec![51, END, 3, 50, 2, 4]].concat());
    // And so is another session's conversation.
    messages[1]["content"] = json!("ab");
    let other = server.open(policy.clone()).unwrap();
    ask(&server, &other, &json!({"messages": messages})).await;
    assert_eq!(policy.prompt(3)[6], 50, "one token, as text is encoded");
}

#[tokio::test]
async fn cut_off_stopped_and_calling_answers_are_continued_too() {
    let call = r#"a<tool_call>{"name": "add", "arguments": {"b": 12}}</tool_call>"#;
    for (text, more) in [
        ("abab", json!({"max_tokens": 3})),
        ("ab, ab", json!({"stop": [","]})),
        (call, json!({"tools": [{"type": "function", "function": {"name": "add"}}]})),
        ("ab", json!({"stream": true})),
        ("", json!({})),
    ] {
        let policy = FakePolicy::says(text);
        let server = start(options(), None);
        let session = server.open(policy.clone()).unwrap();
        let mut body =
            json!({"messages": [{"role": "user", "content": "x"}], "return_token_ids": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (message, tokens) = if more["stream"] == true {
            let response = send(&server, CHAT, Some(session.api_key()), &body).await;
            response.text().await.unwrap();
            (json!({"role": "assistant", "content": text}), [singles(text), vec![END]].concat())
        } else {
            let (_, answer) = ask(&server, &session, &body).await;
            let tokens = serde_json::from_value(answer["choices"][0]["token_ids"].clone()).unwrap();
            (sent_back(&answer), tokens)
        };
        let last = json!({"role": "tool", "content": "12", "tool_call_id": "1"});
        body["messages"].as_array_mut().unwrap().extend([message, last]);
        body["stream"] = json!(false);
        ask(&server, &session, &body).await;
        let drawn = [policy.prompt(0), tokens.clone()].concat();
        let gap: &[u32] = if tokens.last() == Some(&END) { &[] } else { &[END] };
        assert_eq!(policy.prompt(1), [&drawn[..], gap, &[6, 53, 2, 4]].concat(), "{text} {more}");
    }
}

/// A conversation: what the user says in each turn, and what the model draws.
type Talk = Vec<(String, Vec<u32>)>;

fn talks() -> impl Strategy<Value = Talk> {
    let says = "[ab12 .é]{0,6}";
    // Any way to write the letters, ends in the middle of the text included.
    let token = prop::sample::select(vec![
        single('a'),
        single('b'),
        50,
        51,
        52,
        single('1'),
        single('é'),
        single('<'),
        END,
    ]);
    prop::collection::vec((says, prop::collection::vec(token, 1..8)), 1..6)
}

async fn talk(talk: Talk, count: u32) -> Result<(), TestCaseError> {
    let drawn: Vec<Vec<u32>> = talk.iter().map(|(_, tokens)| tokens.clone()).collect();
    let users = |request: &[u32]| request.iter().filter(|id| **id == 3).count();
    let turns = drawn.clone();
    let policy =
        FakePolicy::new(move |request, _| turns[users(&request.prompt_token_ids) - 1].clone());
    let server = start(options(), None);
    let session = server.open(policy.clone()).unwrap();
    let mut messages: Vec<Value> = Vec::new();
    let mut before: Vec<u32> = Vec::new();
    for (turn, (text, _)) in talk.iter().enumerate() {
        messages.push(json!({"role": "user", "content": text}));
        let body =
            json!({"messages": messages, "max_tokens": 6, "n": count, "return_token_ids": true});
        let (status, answer) = ask(&server, &session, &body).await;
        prop_assert_eq!(status, 200, "{}", answer);
        let prompt = policy.prompt(turn);
        prop_assert!(prompt.starts_with(&before), "{:?} does not begin with {:?}", prompt, before);
        prop_assert_eq!(&answer["prompt_token_ids"], &json!(prompt));
        // Nothing is invented between the two but what the template writes.
        let new = FakeChat.decode(&prompt[before.len()..], Special::Show).unwrap();
        let is_ended = before.is_empty() || before.last() == Some(&END);
        let start = if turn == 0 {
            "<s>"
        } else if is_ended {
            ""
        } else {
            "<|end|>"
        };
        prop_assert_eq!(new, format!("{start}<|user|>{text}<|end|><|assistant|>"));
        let tokens: Vec<u32> =
            serde_json::from_value(answer["choices"][0]["token_ids"].clone()).unwrap();
        let end = drawn[turn].iter().position(|id| *id == END).map_or(6, |end| end + 1);
        prop_assert_eq!(&tokens[..], &drawn[turn][..drawn[turn].len().min(end).min(6)]);
        before = [prompt, tokens].concat();
        messages.push(sent_back(&answer));
    }
    Ok(())
}

#[test]
fn stitching_loses_and_invents_no_token() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut runner =
        TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
    let run = |(conversation, count)| runtime.block_on(talk(conversation, count));
    runner.run(&(talks(), 1_u32..3), run).unwrap();
}

#[test]
fn a_session_does_not_show_its_key() {
    let server = start(options(), None);
    let session = server.open(FakePolicy::says("x") as Arc<_>).unwrap();
    assert!(!format!("{session:?} {server:?}").contains(session.api_key()));
}
