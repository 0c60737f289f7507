//! /v1/completions.

use scalerl_serve::{ChatFormat as _, Special};
use serde_json::{Value, json};

use crate::client::{COMPLETIONS, error, events, post, serve};
use crate::fake::{END, FakeChat, FakePolicy, logprob, single, singles};

#[tokio::test]
async fn a_prompt_is_a_text_or_tokens_or_several() {
    let policy = FakePolicy::says("yes");
    let server = serve(policy.clone());
    let encoded = vec![1, 52, single('b')];
    for (prompt, expected) in [
        (json!("aab"), vec![encoded.clone()]),
        (json!(["aab", "c"]), vec![encoded.clone(), vec![1, single('c')]]),
        (json!([5, 6]), vec![vec![5, 6]]),
        (json!([[5, 6], [7]]), vec![vec![5, 6], vec![7]]),
    ] {
        policy.asked.lock().unwrap().clear();
        let (status, answer) = post(&server, COMPLETIONS, &json!({"prompt": prompt, "n": 2})).await;
        assert_eq!(status, 200, "{answer}");
        let mut asked: Vec<Vec<u32>> =
            (0..expected.len()).map(|call| policy.prompt(call)).collect();
        asked.sort();
        let mut sorted = expected.clone();
        sorted.sort();
        assert_eq!(asked, sorted);
        let choices = answer["choices"].as_array().unwrap();
        assert_eq!(choices.len(), 2 * expected.len());
        for (index, choice) in choices.iter().enumerate() {
            assert_eq!(choice["index"], index);
            assert_eq!(
                (&choice["text"], &choice["finish_reason"]),
                (&json!("yes"), &json!("stop"))
            );
        }
        let prompts: usize = expected.iter().map(Vec::len).sum();
        assert_eq!(answer["usage"]["prompt_tokens"], prompts);
        assert_eq!(answer["usage"]["completion_tokens"], 8 * expected.len());
    }
    assert_eq!(policy.asked.lock().unwrap()[0].max_answer_tokens, 16);
}

#[tokio::test]
async fn an_echo_has_the_prompts_log_probs() {
    let server = serve(FakePolicy::says("yé"));
    for max_tokens in [0, 1, 16] {
        let body = json!({"prompt": "aab", "echo": true, "logprobs": 1, "max_tokens": max_tokens});
        let (status, answer) = post(&server, COMPLETIONS, &body).await;
        assert_eq!(status, 200, "{answer}");
        let written = [single('y'), single('é'), END];
        let ids = [&[1, 52, single('b')], &written[..max_tokens.min(3)]].concat();
        let choice = &answer["choices"][0];
        let text = FakeChat.decode(&ids, Special::Hide).unwrap();
        assert_eq!(choice["text"], text);
        let found = &choice["logprobs"];
        let text_of = |id: &u32| FakeChat.decode(&[*id], Special::Show).unwrap();
        assert_eq!(found["tokens"], json!(ids.iter().map(text_of).collect::<Vec<_>>()));
        let mut expected: Vec<Value> = ids.iter().map(|id| json!(logprob(*id))).collect();
        expected[0] = Value::Null;
        assert_eq!(found["token_logprobs"], json!(expected));
        assert_eq!(found["top_logprobs"][0], Value::Null);
        assert_eq!(found["top_logprobs"][1], json!({"p": -0.125}));
        assert_eq!(found["top_logprobs"].as_array().unwrap().len(), ids.len());
        assert_eq!(found["text_offset"].as_array().unwrap()[..3], [json!(0), json!(3), json!(5)]);
        let streamed = json!({"stream": true, "prompt": "aab", "echo": true, "logprobs": 1, "max_tokens": max_tokens});
        let events = events(&server, COMPLETIONS, &streamed).await;
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["choices"][0], *choice);
    }
}

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let server = serve(FakePolicy::new(|request, index| {
        let length = 7 + request.prompt_token_ids.len() + index as usize;
        let text: String = "a long éé text".chars().take(length).collect();
        [singles(&text), vec![END]].concat()
    }));
    for more in [json!({}), json!({"logprobs": 0}), json!({"logprobs": 2}), json!({"echo": true})] {
        let mut body = json!({"prompt": ["x", "yy"], "n": 2, "max_tokens": 50, "return_token_ids": true,
            "stop": ["tex"], "stream_options": {"include_usage": true}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, answer) = post(&server, COMPLETIONS, &body).await;
        assert_eq!(status, 200, "{answer}");
        body["stream"] = json!(true);
        let mut events = events(&server, COMPLETIONS, &body).await;
        assert_eq!(events.pop().unwrap()["usage"], answer["usage"]);
        assert_eq!(answer["choices"].as_array().unwrap().len(), 4);
        for whole in answer["choices"].as_array().unwrap() {
            let own = events.iter().map(|event| &event["choices"][0]);
            let own: Vec<&Value> = own.filter(|one| one["index"] == whole["index"]).collect();
            let text: String = own.iter().map(|one| one["text"].as_str().unwrap()).collect();
            assert_eq!(text, whole["text"]);
            for path in ["/token_ids", "/logprobs/token_logprobs", "/logprobs/text_offset"] {
                let parts = own.iter().filter_map(|one| one.pointer(path)?.as_array().cloned());
                let parts: Vec<Value> = parts.flatten().collect();
                let expected = whole.pointer(path).cloned().unwrap_or(json!([]));
                assert_eq!(json!(parts), expected, "{path} with {more}");
            }
            assert_eq!(own.last().unwrap()["finish_reason"], whole["finish_reason"]);
        }
    }
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_by_its_name() {
    let server = serve(FakePolicy::says("x"));
    for (body, param) in [
        (json!({}), "prompt"),
        (json!({"prompt": []}), "prompt"),
        (json!({"prompt": [[]]}), "prompt"),
        (json!({"prompt": {"a": 1}}), "prompt"),
        (json!({"prompt": "x", "logprobs": 21}), "logprobs"),
        (json!({"prompt": "x", "best_of": 4}), "best_of"),
        (json!({"prompt": "x", "suffix": "y"}), "suffix"),
        (json!({"prompt": "x", "prompt_logprobs": 1}), "prompt_logprobs"),
    ] {
        let (status, answer) = post(&server, COMPLETIONS, &body).await;
        assert_eq!((status, error(&answer).1), (400, param), "{answer}");
    }
    let long = json!({"prompt": vec![5; 2000]});
    let (status, answer) = post(&server, COMPLETIONS, &long).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("context_length_exceeded")));
}
