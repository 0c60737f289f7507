//! Tool calls of a Llama 3 the whole way: its chat template and tokens, the server, a session that goes
//! on, and the `tools` environment. The policy says its lines; everything else is as in a run.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scalerl_environment::{Chat, Environments, Surroundings};
use scalerl_recipe::{Recipe, Source};
use scalerl_rollout::{
    Completion, Environment as _, EpisodeVerdict, FinishReason, GeneratorError, Live, Pending,
    Policy, PolicyVersion, Prompt, PromptId, SampleRequest,
};
use scalerl_serve::tools::Family;
use scalerl_serve::{ChatFormat as _, Limits, Server, ServerOptions, Special};
use scalerl_task::Problem;
use serde_json::{Value, json};

use super::chat::ModelChat;

const CALL: &str = r#"{"name": "python", "parameters": {"code": "print(6 * 7)"}}"#;

fn chat() -> Arc<ModelChat> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/llama3_tools");
    Arc::new(ModelChat::load(&folder).unwrap())
}

/// Says its lines, markers and all, and keeps what it was shown.
struct Scripted {
    chat: Arc<ModelChat>,
    lines: Vec<String>,
    shown: Mutex<Vec<Vec<u32>>>,
}

impl Scripted {
    fn saying(lines: &[&str]) -> Arc<Self> {
        let lines = lines.iter().map(ToString::to_string).collect();
        Arc::new(Self { chat: chat(), lines, shown: Mutex::default() })
    }

    /// The tokens it was shown at one of its turns, as text.
    fn shown(&self, turn: usize) -> String {
        self.chat.decode(&self.shown.lock().unwrap()[turn], Special::Show).unwrap()
    }
}

impl Policy for Scripted {
    fn generate(
        &self,
        request: SampleRequest,
        _live: Option<Live>,
    ) -> Pending<'_, Result<Vec<Completion>, GeneratorError>> {
        let mut shown = self.shown.lock().unwrap();
        let token_ids = self.chat.encode(&self.lines[shown.len()]).unwrap();
        shown.push(request.prompt_token_ids);
        let count = token_ids.len();
        let completion = Completion {
            logprobs: vec![-0.5; count],
            versions: vec![PolicyVersion(1); count],
            is_injected: vec![false; count],
            text: self.chat.decode(&token_ids, Special::Hide).unwrap(),
            thinking_tokens: 0,
            finish: FinishReason::Stop,
            token_ids,
        };
        Box::pin(std::future::ready(Ok(vec![completion])))
    }
}

fn serve() -> Server {
    let options = ServerOptions {
        address: "127.0.0.1:0".to_owned(),
        api_key: None,
        model: "llama".to_owned(),
        max_model_len: 100_000,
        load: None,
        limits: Limits { grace: Duration::from_millis(200), ..Limits::default() },
    };
    Server::start(options, chat(), None).unwrap()
}

async fn ask(server: &Server, key: &str, messages: &Value) -> Value {
    let tools = json!([{"type": "function", "function": {"name": "python", "parameters": {"type": "object"}}}]);
    let body = json!({"messages": messages, "tools": tools, "return_token_ids": true});
    let url = format!("{}/v1/chat/completions", server.url());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(url).header("Authorization", format!("Bearer {key}"));
    let text = request.body(body.to_string()).send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_session_goes_on_from_calls_with_either_end_and_either_form() {
    assert_eq!(chat().tool_family(), Some(Family::Llama3));
    let tagged = format!("<|python_tag|>{CALL}<|eom_id|>");
    for said in [format!("{CALL}<|eot_id|>"), format!("{CALL}<|eom_id|>"), tagged] {
        let policy = Scripted::saying(&[&said, "It is 42.<|eot_id|>"]);
        let server = serve();
        let session = server.open(policy.clone()).unwrap();
        let mut messages = json!([{"role": "user", "content": "What is 6 * 7?"}]);
        let answer = ask(&server, session.api_key(), &messages).await;
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        assert_eq!(choice["message"]["content"], Value::Null);
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "python");
        assert_eq!(function["arguments"], r#"{"code":"print(6 * 7)"}"#);
        let first = policy.shown(0);
        assert!(first.contains("Environment: ipython"), "{first}");
        assert!(first.contains("Given the following functions"), "{first}");

        let list = messages.as_array_mut().unwrap();
        list.push(choice["message"].clone());
        let id = &choice["message"]["tool_calls"][0]["id"];
        list.push(json!({"role": "tool", "tool_call_id": id, "content": "42"}));
        let answer = ask(&server, session.api_key(), &messages).await;
        assert_eq!(answer["choices"][0]["message"]["content"], "It is 42.", "{answer}");
        // Token for token what was drawn, one end, then the tool's turn as the template has it.
        let shown = policy.shown.lock().unwrap().clone();
        let begun = [shown[0].clone(), policy.chat.encode(&said).unwrap()].concat();
        assert_eq!(shown[1][..begun.len()], begun);
        let gap = policy.chat.decode(&shown[1][begun.len()..], Special::Show).unwrap();
        let expected = "<|start_header_id|>ipython<|end_header_id|>\n\n\"42\"<|eot_id|>\
                        <|start_header_id|>assistant<|end_header_id|>\n\n";
        assert_eq!(gap, expected, "after {said}");
    }
}

#[tokio::test]
async fn two_calls_at_once_are_read_and_gone_on_from() {
    let said = format!("{CALL}; {CALL}<|eom_id|>");
    let policy = Scripted::saying(&[&said, "Twice 42.<|eot_id|>"]);
    let server = serve();
    let session = server.open(policy.clone()).unwrap();
    let mut messages = json!([{"role": "user", "content": "Twice."}]);
    let answer = ask(&server, session.api_key(), &messages).await;
    let message = answer["choices"][0]["message"].clone();
    assert_eq!(message["tool_calls"].as_array().unwrap().len(), 2, "{answer}");
    let list = messages.as_array_mut().unwrap();
    list.push(message);
    list.extend([
        json!({"role": "tool", "content": "42"}),
        json!({"role": "tool", "content": "42"}),
    ]);
    let answer = ask(&server, session.api_key(), &messages).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Twice 42.", "{answer}");
    // The template itself refuses two calls in one message; the tokens that were drawn need no template.
    assert!(policy.shown(1).contains(&said), "{}", policy.shown(1));
    let answer = ask(&server, server.open(policy).unwrap().api_key(), &messages).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("single tool-calls"), "{answer}");
}

#[tokio::test]
async fn the_tools_environment_is_played_in_its_form() {
    let text = "[[task.datasets]]\nname = \"math\"\nsource = { type = \"seeds\", count = 3, prompt = \"x\" }\n\
                environment = { type = \"tools\", tools = [\"python\"], allow_without_sandbox = true }\n";
    let source = Source::Text { name: "test".into(), text: text.to_owned() };
    let recipe = Recipe::load(&[source], &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let surroundings = Surroundings {
        chat: Chat::new(chat()),
        turn_timeout: Duration::from_mins(1),
        timeout: Duration::from_mins(2),
        longest: 1 << 16,
        folder: folder.path().to_owned(),
    };
    let problem = |id: &PromptId| {
        let messages = vec![scalerl_task::Message::new("user", "What is 6 * 7?")];
        let problem = Problem::plain("What is 6 * 7?", "42").named("math", &id.0);
        Some(Arc::new(Problem { id: id.clone(), messages, ..problem }))
    };
    let environments = Environments::of(&recipe, problem, &surroundings).unwrap().unwrap();
    let tagged = format!("<|python_tag|>{CALL}<|eom_id|>");
    let policy = Scripted::saying(&[&tagged, "It is 42.<|eot_id|>"]);
    let prompt = Prompt {
        id: PromptId("math/0".into()),
        dataset: "math".into(),
        text: "What is 6 * 7?".into(),
        token_ids: vec![0],
        answer: "42".into(),
    };
    let outcome = environments.play(&prompt, 1, policy.clone()).await.unwrap();
    assert_eq!(outcome.verdict, EpisodeVerdict::AskVerifier);
    let metrics: Vec<(&str, f64)> =
        outcome.metrics.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(metrics, [("tool_calls", 1.0), ("turns", 2.0)]);
    let second = policy.shown(1);
    let expected = format!(
        "{tagged}<|start_header_id|>ipython<|end_header_id|>\n\n\"42\"<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n"
    );
    assert!(second.ends_with(&expected), "{second}");
    assert!(second.contains("Runs a Python program"), "{second}");
}
