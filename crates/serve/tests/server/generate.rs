//! /inference/v1/generate: vLLM's shape, as verifiers' client reads it.

use serde_json::json;

use crate::client::{error, post, serve};
use crate::fake::{END, FakePolicy, logprob, singles};

const GENERATE: &str = "/inference/v1/generate";

#[tokio::test]
async fn tokens_go_in_and_come_out_one_log_prob_each() {
    let policy = FakePolicy::says("ab");
    let server = serve(policy.clone());
    let body = json!({"model": "tiny", "token_ids": [1, 5, 9], "sampling_params":
        {"temperature": 0.7, "max_tokens": 8, "stop_token_ids": [END], "logprobs": 1, "n": 2, "skip_special_tokens": false}});
    let (status, answer) = post(&server, GENERATE, &body).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(policy.prompt(0), [1, 5, 9]);
    assert!(answer["request_id"].is_string());
    let ids = [singles("ab"), vec![END]].concat();
    for (index, choice) in answer["choices"].as_array().unwrap().iter().enumerate() {
        let entry = |id: &u32| json!({"token": format!("token_id:{id}"), "token_id": id, "logprob": logprob(*id)});
        let expected = json!({
            "index": index,
            "token_ids": ids,
            "finish_reason": "stop",
            "logprobs": {"content": ids.iter().map(entry).collect::<Vec<_>>()},
            // The weights changed in mid-completion.
            "weight_versions": [
                {"version": "3", "start": 0, "end": 2},
                {"version": "4", "start": 2, "end": 3},
            ],
        });
        assert_eq!(*choice, expected);
    }
}

#[tokio::test]
async fn what_would_change_the_distribution_is_refused() {
    let server = serve(FakePolicy::says("ab"));
    for (inner, param) in [
        (json!({"min_p": 0.5}), "sampling_params.min_p"),
        (json!({"repetition_penalty": 1.1}), "sampling_params.repetition_penalty"),
        (json!({"logprobs": 5}), "sampling_params.logprobs"),
    ] {
        let body = json!({"token_ids": [1], "sampling_params": inner});
        let (status, answer) = post(&server, GENERATE, &body).await;
        assert_eq!((status, error(&answer).1), (400, param), "{answer}");
    }
    let (status, answer) = post(&server, GENERATE, &json!({"token_ids": []})).await;
    assert_eq!((status, error(&answer).1), (400, "token_ids"));
}
