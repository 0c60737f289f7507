//! /v1/chat/completions.

use scalerl_rollout::Sampling;
use serde_json::{Value, json};

use crate::client::{CHAT, error, events, post, serve};
use crate::fake::{END, FakePolicy, logprob, single, singles};

fn asks(text: &str) -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": text}]})
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

const TOOL: &str = r#"{"type": "function", "function": {"name": "add", "parameters": {}}}"#;

fn tool() -> Value {
    serde_json::from_str(TOOL).unwrap()
}

#[tokio::test]
async fn an_answer_has_text_reason_and_usage() {
    let policy = FakePolicy::says("hello");
    let server = serve(policy.clone());
    let (status, answer) = post(&server, CHAT, &asks("aab")).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "tiny");
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert_eq!(choice["message"]["content"], "hello");
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(choice["logprobs"], Value::Null);
    // <s> <|user|> aa b <|end|> <|assistant|>
    let usage = json!({"prompt_tokens": 6, "completion_tokens": 6, "total_tokens": 12});
    assert_eq!(answer["usage"], usage);
    assert_eq!(policy.prompt(0), [1, 3, 52, single('b'), 2, 4]);
}

#[tokio::test]
async fn token_ids_and_log_probs_are_those_of_the_completion() {
    let server = serve(FakePolicy::says("hé"));
    let more = json!({"return_token_ids": true, "logprobs": true, "top_logprobs": 2});
    let (_, answer) = post(&server, CHAT, &with(asks("x"), &more)).await;
    let ids = [singles("hé"), vec![END]].concat();
    assert_eq!(answer["prompt_token_ids"], json!([1, 3, single('x'), 2, 4]));
    assert_eq!(answer["choices"][0]["token_ids"], json!(ids));
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 3);
    for (entry, id) in content.iter().zip(&ids) {
        assert_eq!(entry["logprob"], json!(logprob(*id)));
        assert_eq!(entry["top_logprobs"].as_array().unwrap().len(), 2);
        assert_eq!(entry["top_logprobs"][0]["token"], "p");
        assert_eq!(entry["top_logprobs"][1]["logprob"], json!(-0.25));
    }
    assert_eq!(content[1]["token"], "é");
    assert_eq!(content[1]["bytes"], json!("é".as_bytes()));
    let more = json!({"logprobs": true, "return_tokens_as_token_ids": true});
    let (_, answer) = post(&server, CHAT, &with(asks("x"), &more)).await;
    let first = &answer["choices"][0]["logprobs"]["content"][0];
    assert_eq!(first["token"], format!("token_id:{}", single('h')));
    assert_eq!(first["top_logprobs"], json!([]));
}

/// Puts the pieces of each choice together: text, calls, tokens, log-probs, reason.
fn joined(events: &[Value], choice: usize) -> Value {
    let own = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    let own: Vec<&Value> = own.filter(|one| one["index"] == choice).collect();
    let text: String = own.iter().filter_map(|one| one["delta"]["content"].as_str()).collect();
    let list = |path: &str| -> Vec<Value> {
        own.iter().filter_map(|one| one.pointer(path)?.as_array().cloned()).flatten().collect()
    };
    let reasons: Vec<&Value> = own.iter().map(|one| &one["finish_reason"]).collect();
    let (last, before) = reasons.split_last().unwrap();
    assert!(before.iter().all(|reason| reason.is_null()), "{reasons:?}");
    json!({
        "text": text,
        "calls": list("/delta/tool_calls").iter().map(|call| call["function"].clone()).collect::<Value>(),
        "tokens": list("/token_ids"),
        "logprobs": list("/logprobs/content"),
        "reason": last,
    })
}

fn whole(answer: &Value, choice: usize) -> Value {
    let one = &answer["choices"][choice];
    let none = Vec::new();
    let calls = one["message"]["tool_calls"].as_array().unwrap_or(&none);
    json!({
        "text": one["message"]["content"].as_str().unwrap_or_default(),
        "calls": calls.iter().map(|call| call["function"].clone()).collect::<Value>(),
        "tokens": one["token_ids"],
        "logprobs": one["logprobs"]["content"],
        "reason": one["finish_reason"],
    })
}

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let call = r#"<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>"#;
    let texts = [
        "plain aab".to_owned(),
        format!("first\n{call}\n{call}"),
        format!(" {call}"),
        "half <tool_ca".to_owned(),
        "broken <tool_call>{</tool_call> rest ".to_owned(),
        String::new(),
        "a longer text that goes on and on".to_owned(),
    ];
    let count = texts.len();
    let server = serve(FakePolicy::new(move |_, index| {
        [singles(&texts[index as usize]), vec![END]].concat()
    }));
    for top in [0, 2] {
        for tools in [json!([]), json!([tool()])] {
            let body = with(
                asks("x"),
                &json!({"n": count, "tools": tools, "stop": ["on and"], "return_token_ids": true,
                        "logprobs": true, "top_logprobs": top, "max_tokens": 150}),
            );
            let (status, answer) = post(&server, CHAT, &body).await;
            assert_eq!(status, 200, "{answer}");
            let more = json!({"stream": true, "stream_options": {"include_usage": true}});
            let mut events = events(&server, CHAT, &with(body, &more)).await;
            let last = events.pop().unwrap();
            assert_eq!(last["usage"], answer["usage"]);
            assert_eq!(last["choices"], json!([]));
            assert!(events.iter().all(|event| event["object"] == "chat.completion.chunk"));
            assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
            assert_eq!(events[0]["prompt_token_ids"], answer["prompt_token_ids"]);
            for choice in 0..count {
                assert_eq!(joined(&events, choice), whole(&answer, choice), "choice {choice}");
            }
        }
    }
}

#[tokio::test]
async fn calls_are_read_and_a_stop_is_cut() {
    let text = r#"So: <tool_call>{"name": "add", "arguments": {"a": [1, "é"]}}</tool_call>"#;
    let server = serve(FakePolicy::says(text));
    let body = with(asks("x"), &json!({"tools": [tool()]}));
    let (_, answer) = post(&server, CHAT, &body).await;
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["content"], "So:");
    assert_eq!(message["tool_calls"][0]["function"]["name"], "add");
    assert_eq!(message["tool_calls"][0]["function"]["arguments"], r#"{"a":[1,"é"]}"#);
    assert_eq!(message["tool_calls"][0]["type"], "function");
    assert!(message["tool_calls"][0]["id"].as_str().unwrap().starts_with("call-"));
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    // Without tools, or with none allowed, it is text.
    for more in [json!({}), json!({"tools": [tool()], "tool_choice": "none"})] {
        let (_, answer) = post(&server, CHAT, &with(asks("x"), &more)).await;
        assert_eq!(answer["choices"][0]["message"]["content"], text);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    let (_, answer) = post(&server, CHAT, &with(asks("x"), &json!({"stop": "<tool"}))).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "So: ");
    let more = json!({"stop": ["<tool"], "include_stop_str_in_output": true});
    let (_, answer) = post(&server, CHAT, &with(asks("x"), &more)).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "So: <tool");
    let (_, answer) = post(&server, CHAT, &with(asks("x"), &json!({"max_tokens": 2}))).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "So");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn what_is_asked_reaches_the_policy() {
    let policy = FakePolicy::says("x");
    let server = serve(policy.clone());
    let more = json!({"temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": -3, "n": 2, "max_completion_tokens": 9,
        "stop": "q", "stop_token_ids": [77], "user": "me", "frequency_penalty": 0.0, "store": true});
    let (status, _) = post(&server, CHAT, &with(asks("x"), &more)).await;
    assert_eq!(status, 200);
    let asked = policy.asked.lock().unwrap()[0].clone();
    assert_eq!(
        (asked.sampling.temperature, asked.sampling.top_p, asked.sampling.top_k),
        (0.5, 0.9, 7)
    );
    assert_eq!((asked.seed, asked.count, asked.max_answer_tokens), (-3_i64 as u64, 2, 9));
    assert_eq!((asked.stop, asked.stop_token_ids), (vec!["q".to_owned()], vec![77]));
    // Nothing asked: everything that fits, and another seed every time.
    for _ in 0..2 {
        post(&server, CHAT, &asks("x")).await;
    }
    let asked = policy.asked.lock().unwrap();
    assert_eq!(asked[1].max_answer_tokens, 2000 - asked[1].prompt_token_ids.len() as u32);
    let free = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 };
    assert_eq!(asked[1].sampling, free);
    assert_ne!(asked[1].seed, asked[2].seed);
}

#[tokio::test]
async fn messages_come_in_every_spelling() {
    let policy = FakePolicy::says("x");
    let server = serve(policy.clone());
    let call = |arguments: Value| json!({"id": "1", "type": "function", "function": {"name": "add", "arguments": arguments}});
    let plain = json!({"messages": [
        {"role": "system", "content": "one\ntwo"},
        {"role": "assistant", "content": null, "tool_calls": [call(json!("{\"a\": 1}"))], "refusal": null},
        {"role": "tool", "content": "3", "tool_call_id": "1"},
    ]});
    let parts = json!({"messages": [
        {"role": "developer", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"role": "assistant", "tool_calls": [call(json!({"a": 1}))]},
        {"role": "tool", "content": "3", "tool_call_id": "1", "name": "add"},
    ]});
    for body in [plain, parts] {
        let (status, answer) = post(&server, CHAT, &body).await;
        assert_eq!(status, 200, "{answer}");
    }
    assert_eq!(policy.prompt(0), policy.prompt(1));
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_by_its_name() {
    let server = serve(FakePolicy::says("x"));
    let image = json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]});
    let cases = [
        (json!({"messages": []}), "messages", "empty"),
        (
            json!({"messages": [{"role": "alien", "content": "x"}]}),
            "messages[0].role",
            "system, user",
        ),
        (image, "messages[0].content", "text only"),
        (asks("refuse me"), "messages", "the chat template refuses"),
        (
            with(asks("x"), &json!({"tools": [tool()], "tool_choice": "required"})),
            "tool_choice",
            "auto or none",
        ),
        (with(asks("x"), &json!({"tools": [{"type": "web"}]})), "tools[0]", "function"),
        (with(asks("x"), &json!({"min_p": 0.1})), "min_p", "not supported"),
        (
            with(asks("x"), &json!({"response_format": {"type": "json_object"}})),
            "response_format",
            "not supported",
        ),
        (with(asks("x"), &json!({"logit_bias": {"5": 1}})), "logit_bias", "not supported"),
        (with(asks("x"), &json!({"temperature": -1})), "temperature", "0 or above"),
        (with(asks("x"), &json!({"top_p": 0})), "top_p", "above 0"),
        (with(asks("x"), &json!({"n": 0})), "n", "1 to 128"),
        (with(asks("x"), &json!({"stop": ""})), "stop", "empty"),
        (with(asks("x"), &json!({"max_tokens": 0})), "max_tokens", "at least 1"),
        (with(asks("x"), &json!({"max_tokens": 2000})), "", "together at most 2000"),
        (with(asks("x"), &json!({"top_logprobs": 3})), "top_logprobs", "needs logprobs"),
        (asks("!"), "", "not that"),
        (with(asks("!"), &json!({"stream": true})), "", "not that"),
    ];
    for (body, param, message) in cases {
        let (status, answer) = post(&server, CHAT, &body).await;
        assert_eq!(status, 400, "{body}: {answer}");
        assert_eq!(error(&answer).1, param, "{answer}");
        assert!(error(&answer).0.contains(message), "{answer}");
        assert_eq!(answer["error"]["type"], "invalid_request_error");
    }
    let (status, answer) = post(&server, CHAT, &with(asks("x"), &json!({"model": "other"}))).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (404, Some("model_not_found")));
}
