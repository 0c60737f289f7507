//! `scalerl serve` and `scalerl bench serve` as a user runs them, on a tiny model taught for the test.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Two float32 passes over the same weights.
const SAME_WEIGHTS: f64 = 1e-5;

fn scalerl(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command.args(arguments).env("OMP_WAIT_POLICY", "passive").env_remove("SCALERL_API_KEY");
    command
}

/// A folder with a model that writes letters backwards, for the most part.
fn model() -> &'static str {
    static MODEL: OnceLock<String> = OnceLock::new();
    MODEL.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve");
        // Missing at the first time.
        std::fs::remove_dir_all(&folder).ok();
        std::fs::create_dir_all(&folder).unwrap();
        let mut text = String::new();
        for index in 0..200_usize {
            let word = [index / 100, index / 10 % 10, index % 10].map(|i| b"abcdefghij"[i] as char);
            let (asked, answer): (String, String) =
                (word.iter().collect(), word.iter().rev().collect());
            writeln!(text, r#"{{"prompt": "{asked}>", "completion": "{answer}"}}"#).unwrap();
        }
        std::fs::write(folder.join("train.jsonl"), text).unwrap();
        let shape = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
        let mut command = scalerl(&["sft", "--device", "cpu", "--from-scratch", "--steps", "12"]);
        command.args(["--batch", "16", "--lr", "0.005", "--train", "train.jsonl", "--out", "out"]);
        let output = command.arg("--model").arg(shape).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder.join("out/model").to_str().unwrap().to_owned()
    })
}

struct Served {
    child: Child,
    out: BufReader<ChildStdout>,
    url: String,
}

impl Served {
    fn start(more: &[&str]) -> Self {
        let mut command =
            scalerl(&["serve", model(), "--device", "cpu", "--address", "127.0.0.1:0"]);
        let mut child = command.args(more).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("{line}")).trim_end_matches("/v1").to_owned();
        Self { child, out, url }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.send(path, &body.to_string());
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    fn send(&self, path: &str, body: &str) -> (u16, String) {
        let request = reqwest::Client::new().post(format!("{}{path}", self.url));
        let request = request.body(body.to_owned());
        block_on(async {
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        })
    }

    fn metric(&self, name: &str) -> String {
        let url = format!("{}/metrics", self.url);
        let text = block_on(async { reqwest::get(url).await.unwrap().text().await.unwrap() });
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).to_owned()
    }

    /// Asks it to stop; what else it has printed, and its exit code.
    fn stop(mut self, signal: Signal) -> (String, Option<i32>) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        (said, self.child.wait().unwrap().code())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Stopped already, or in the way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Tokens and log-probs that `scalerl generate` writes greedily.
fn generated(more: &[&str]) -> (Value, Vec<f64>) {
    let mut command = scalerl(&["generate", "--device", "cpu", "--model", model(), "--json"]);
    let output = command.args(["--temperature", "0", "--max-tokens", "12"]).args(more).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    (answer["tokens"].clone(), serde_json::from_value(answer["logprobs"].clone()).unwrap())
}

fn floats(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().filter_map(Value::as_f64).collect()
}

#[test]
fn greedy_answers_are_those_of_generate_whole_and_streamed() {
    let served = Served::start(&[]);
    let (tokens, logprobs) = generated(&["--prompt", "abc>"]);
    let body = json!({"prompt": "abc>", "temperature": 0, "max_tokens": 12, "return_token_ids": true, "logprobs": 0});
    let answer = served.post("/v1/completions", &body);
    assert_eq!(answer["choices"][0]["token_ids"], tokens);
    assert_eq!(floats(&answer["choices"][0]["logprobs"]["token_logprobs"]), logprobs);
    let (tokens, _) = generated(&["--prompt", "abc", "--chat"]);
    let messages = json!([{"role": "user", "content": "abc"}]);
    let mut body =
        json!({"messages": messages, "temperature": 0, "max_tokens": 12, "return_token_ids": true});
    let answer = served.post("/v1/chat/completions", &body);
    assert_eq!(answer["choices"][0]["token_ids"], tokens);
    body["stream"] = json!(true);
    let (_, text) = served.send("/v1/chat/completions", &body.to_string());
    let (mut streamed, mut said) = (Vec::new(), String::new());
    for event in text.split("data: ").filter(|event| event.starts_with('{')) {
        let event: Value = serde_json::from_str(event.trim()).unwrap();
        let choice = &event["choices"][0];
        streamed.extend(choice["token_ids"].as_array().cloned().unwrap_or_default());
        said += choice["delta"]["content"].as_str().unwrap_or_default();
    }
    assert_eq!(json!(streamed), tokens);
    assert_eq!(json!(said), answer["choices"][0]["message"]["content"]);
}

#[test]
fn an_echo_scores_what_was_drawn_as_it_was_drawn() {
    let served = Served::start(&["--name", "tiny"]);
    let body = json!({"model": "tiny", "prompt": "abc>", "seed": 3, "n": 8, "max_tokens": 12,
        "return_token_ids": true, "logprobs": 0});
    let answer = served.post("/v1/completions", &body);
    let mut compared = 0;
    for choice in answer["choices"].as_array().unwrap() {
        let drawn = floats(&choice["logprobs"]["token_logprobs"]);
        let ids = |list: &Value| list.as_array().unwrap().clone();
        let whole = [ids(&choice["prompt_token_ids"]), ids(&choice["token_ids"])].concat();
        let echo = json!({"prompt": whole, "echo": true, "max_tokens": 0, "logprobs": 1});
        let echo = served.post("/v1/completions", &echo);
        let scores = floats(&echo["choices"][0]["logprobs"]["token_logprobs"]);
        assert_eq!(scores.len(), whole.len() - 1, "the first token follows nothing");
        for (score, drawn) in scores[scores.len() - drawn.len()..].iter().zip(&drawn) {
            assert!((score - drawn).abs() <= SAME_WEIGHTS, "{score} for {drawn}");
            compared += 1;
        }
    }
    assert!(compared > 16, "{compared}");
}

#[test]
fn a_client_that_goes_away_frees_its_place_in_the_batch() {
    let served = Served::start(&[]);
    let body =
        json!({"prompt": "a", "max_tokens": 120, "n": 100, "stream": true, "temperature": 5});
    let url = format!("{}/v1/completions", served.url);
    block_on(async {
        let request = reqwest::Client::new().post(url).body(body.to_string());
        let mut response = request.send().await.unwrap();
        response.chunk().await.unwrap().unwrap();
    });
    let mut free = false;
    for _ in 0..2000 {
        free = served.metric("scalerl_sequences_running") == "0"
            && served.metric("scalerl_requests_under_way") == "0";
        if free {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(free);
    assert_eq!(served.metric("scalerl_cache_usage_ratio"), "0");
    // Given up: what was asked for was never written.
    assert_eq!(served.metric("scalerl_generated_tokens_total"), "0");
}

#[test]
fn signals_stop_it_in_order() {
    for signal in [Signal::INT, Signal::TERM] {
        let served = Served::start(&[]);
        assert_eq!(served.stop(signal), ("stopped\n".to_owned(), Some(0)));
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_what_to_do() {
    let refused = |arguments: &[&str]| {
        let output = scalerl(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains("\nhint: "), "{said}");
        said
    };
    let said = refused(&["serve", model(), "--address", "0.0.0.0:0"]);
    assert!(said.contains("there is no API key") && said.contains("SCALERL_API_KEY"), "{said}");
    assert!(refused(&["serve", model(), "--address", "here"]).contains("here is not an address"));
    let nothing = PathBuf::from(model()).join("nothing");
    refused(&["serve", nothing.to_str().unwrap()]);
    refused(&["serve", model(), "--cache-tokens", "3"]);
    refused(&["bench", "serve", model(), "--new", "4000"]);
}

#[test]
fn every_call_that_the_guide_shows_is_answered() {
    let served = Served::start(&[]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut calls = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("curl http://127.0.0.1:8000")) {
        let (path, body) = line.split_once(" -d ").unwrap();
        let (status, text) = served.send(path, body.trim_matches('\''));
        assert_eq!(status, 200, "{line}: {text}");
        calls += 1;
    }
    assert!(calls >= 4, "{calls}");
}

#[test]
fn the_bench_measures_both_sides() {
    let sizes = ["--connections", "4", "--rounds", "2", "--prompt", "8", "--new", "16", "--json"];
    let mut command = scalerl(&["bench", "serve", model(), "--device", "cpu"]);
    let output = command.args(sizes).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let timing: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&timing["connections"], &timing["requests"]), (&json!(4), &json!(8)));
    for number in ["alone_tokens_per_s", "streamed_tokens_per_s", "whole_tokens_per_s"] {
        assert!(timing[number].as_f64().unwrap() > 0.0, "{timing}");
    }
    let (p50, p99) = (&timing["first_token_ms_p50"], &timing["first_token_ms_p99"]);
    assert!(p50.as_f64().unwrap() > 0.0 && p50.as_f64() <= p99.as_f64(), "{timing}");
}
