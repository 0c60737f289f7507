//! Agents that own their loop, and the built-in tools: against a policy that says its lines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod scripted;

use scalerl_rollout::EpisodeVerdict;
use scripted::{Scripted, environments, play};

/// What an agent script looks like: nothing of ours in it but the address.
const AGENT: &str = r#"
import json, os, sys, urllib.request

asked = json.loads(sys.stdin.readline())
assert os.environ["OPENAI_BASE_URL"] == asked["base_url"]
assert os.environ["OPENAI_API_KEY"] == asked["api_key"]
mode = sys.argv[1]

def chat(messages):
    body = json.dumps({"model": asked["model"], "messages": messages}).encode()
    request = urllib.request.Request(asked["base_url"] + "/chat/completions", body,
        {"Content-Type": "application/json", "Authorization": "Bearer " + asked["api_key"]})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

messages = [{"role": "user", "content": "Guess " + str(len(asked["task"]["word"])) + " letters."}]
for turn in range(2):
    said = chat(messages)
    messages += [said, {"role": "user", "content": "no"}]
if mode == "die":
    sys.exit("out of luck")
if mode == "silent":
    sys.exit(0)
print("some chatter")
print(json.dumps({"reward": float(said["content"] == asked["task"]["word"]), "metrics": {"turns": 2}}))
"#;

fn agent(folder: &std::path::Path, mode: &str) -> String {
    let file = folder.join("agent.py");
    std::fs::write(&file, AGENT).unwrap();
    format!("{{ type = \"program\", command = [\"python3\", \"{}\", \"{mode}\"] }}", file.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_plays_over_http_and_its_tokens_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let made = environments(&agent(folder.path(), "play"), folder.path()).unwrap();
    let policy = Scripted::saying(&["bush", "tree"]);
    let outcome = play(&made, policy.clone()).await.unwrap();
    assert!(
        matches!(outcome.verdict, EpisodeVerdict::Reward(one) if one.is_correct && (one.value - 1.0).abs() < 1e-9)
    );
    assert_eq!(outcome.metrics["turns"].to_bits(), 2.0_f64.to_bits());
    // The second call goes on from the tokens of the first.
    let shown = policy.shown();
    assert_eq!(shown, ["user:Guess 4 letters.\n", "user:Guess 4 letters.\nbush\nuser:no\n"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_fails_is_an_error_with_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, expected) in [("die", "out of luck"), ("silent", "last line must be")] {
        let made = environments(&agent(folder.path(), mode), folder.path()).unwrap();
        let error = play(&made, Scripted::saying(&["tree"])).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    let made = environments("{ type = \"program\", command = [\"/not/there\"] }", folder.path());
    let error = play(&made.unwrap(), Scripted::saying(&["tree"])).await.unwrap_err();
    assert!(error.to_string().contains("/not/there"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_tool_runs_what_a_turn_calls_and_the_verifier_reads_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let made = match environments("\"tools\"", folder.path()) {
        Ok(made) => made,
        Err(problem) if std::env::var_os("SCALERL_REQUIRE_SANDBOX").is_some() => {
            panic!("{problem}")
        }
        // Said by the sandbox's own tests.
        Err(_) => return,
    };
    let call = |code: &str| {
        let call = serde_json::json!({"name": "python", "arguments": {"code": code}});
        format!("Let me see. <tool_call>\n{call}\n</tool_call>")
    };
    let (right, wrong) = (call("print(6 * 7)"), call("1 / 0"));
    let policy = Scripted::saying(&[&right, &wrong, "It is 42."]);
    let outcome = play(&made, policy.clone()).await.unwrap();
    assert_eq!(outcome.verdict, EpisodeVerdict::AskVerifier);
    assert_eq!(outcome.metrics["tool_calls"].to_bits(), 2.0_f64.to_bits());
    let shown = policy.shown();
    assert!(shown[1].ends_with("tool:42\n"), "{shown:?}");
    assert!(shown[2].ends_with("ZeroDivisionError: division by zero\n"), "{shown:?}");
    assert!(shown[2].starts_with(&shown[1]), "nothing was made into tokens again");
}
