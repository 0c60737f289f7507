//! The packages as they are, played by a policy that says its lines: `make test-environments`, which
//! installs them and names the Python of each in SCALERL_OPENENV_PYTHON, SCALERL_VERIFIERS_PYTHON and
//! SCALERL_TEXTARENA_PYTHON.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod scripted;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_environment::Environments;
use scalerl_rollout::{EpisodeVerdict, Outcome};
use scripted::{Scripted, environments_of, environments_within, play};

/// Packages take their time to load and to answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

fn python(package: &str) -> String {
    let name = format!("SCALERL_{package}_PYTHON");
    std::env::var(&name)
        .unwrap_or_else(|_| panic!("{name} is not set; make test-environments does"))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/environments").join(name)
}

fn reward(outcome: &Outcome) -> f64 {
    let EpisodeVerdict::Reward(reward) = outcome.verdict else { panic!("{outcome:?}") };
    reward.value
}

fn made(environment: &str, folder: &tempfile::TempDir) -> Environments {
    environments_within(PATIENCE, environment, folder.path())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn verifiers(file: &Path, arguments: &str) -> String {
    format!(
        "{{ type = \"verifiers\", python = \"{}\", environment = \"{}\", arguments = {arguments} }}",
        python("VERIFIERS"),
        file.display(),
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-environments"]
async fn verifiers_plays_many_episodes_at_once_and_their_tokens_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let made = Arc::new(made(&verifiers(&example("verifiers_repeat.py"), "{}"), &folder));
    let episodes = (0..8).map(|_| {
        let made = made.clone();
        tokio::spawn(async move {
            let policy = Scripted::saying(&["fig", "jade", "not this"]);
            (play(&made, policy.clone()).await.unwrap(), policy.shown())
        })
    });
    for episode in episodes.collect::<Vec<_>>() {
        let (outcome, shown) = episode.await.unwrap();
        assert!(!outcome.is_truncated);
        assert_eq!(outcome.metrics["turns"].to_bits(), 3.0_f64.to_bits());
        assert!((0.0..1.0).contains(&reward(&outcome)), "{outcome:?}");
        assert_eq!(outcome.metrics["reward_likeness"].to_bits(), reward(&outcome).to_bits());
        assert_eq!(shown.len(), 3);
        assert!(shown[0].starts_with("user:Repeat what I say, and nothing else. "), "{shown:?}");
        for (before, after) in shown.iter().zip(&shown[1..]) {
            assert!(after.starts_with(before), "nothing was made into tokens again: {shown:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-environments"]
async fn verifiers_scores_what_was_played_when_there_is_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let made = made(&verifiers(&example("verifiers_repeat.py"), "{}"), &folder);
    let policy = Scripted { lines: vec!["fig".into()], room: Some(1), ..Scripted::default() };
    let outcome = play(&made, policy.into()).await.unwrap();
    assert!(outcome.is_truncated);
    assert_eq!(outcome.metrics["turns"].to_bits(), 1.0_f64.to_bits());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-environments"]
async fn a_row_without_a_seed_is_the_data_of_a_verifiers_task() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["one", "two"];
    let row = serde_json::json!({"prompt": "Say one.", "words": words});
    let choice = verifiers(&example("verifiers_repeat.py"), "{}");
    let made = environments_of(&row, PATIENCE, &choice, folder.path()).unwrap();
    let policy = Scripted::saying(&words);
    let outcome = play(&made, policy.clone()).await.unwrap();
    assert!((reward(&outcome) - 1.0).abs() < 1e-9, "{outcome:?}");
    assert_eq!(policy.shown(), ["user:Say one.\n", "user:Say one.\none\nuser:two\n"]);
}

/// An environment that fails as its policy wishes.
const BROKEN: &str = r#"
import os, time
import verifiers.v1 as vf

__all__ = ["BrokenEnv", "BrokenTaskset"]

class BrokenTaskset(vf.Taskset[vf.Task, vf.TasksetConfig]):
    def load(self):
        return [vf.Task(vf.TaskData(prompt="What now?"), self.config.task) for _ in range(6)]

class BrokenEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()

class BrokenEnv(vf.Env[BrokenEnvConfig]):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as interaction:
            said = (await interaction.turn()).last_reply
        if said == "raise":
            raise ValueError("what a turn")
        if said == "die":
            os._exit(3)
        if said == "hang":
            time.sleep(120)
        if said != "silent":
            interaction.trace.record_reward("good", 1.0, 0.5)
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-environments"]
async fn what_fails_in_verifiers_is_an_error_of_its_episode_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken_games.py");
    std::fs::write(&file, BROKEN).unwrap();
    let choice = format!(
        "{{ type = \"verifiers\", python = \"{}\", environment = \"{}\" }}",
        python("VERIFIERS"),
        file.display()
    );
    let made = environments_within(Duration::from_secs(6), &choice, folder.path()).unwrap();
    for (line, expected) in [
        ("raise", "what a turn"),
        ("silent", "no reward"),
        ("die", "its worker ended with exit status: 3"),
        ("hang", "no sign of life within 6 s"),
    ] {
        let error = play(&made, Scripted::saying(&[line])).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{line}: {error}");
        let outcome = play(&made, Scripted::saying(&["well"])).await.unwrap();
        assert_eq!(reward(&outcome).to_bits(), 0.5_f64.to_bits());
    }
}

#[test]
#[ignore = "make test-environments"]
fn what_verifiers_cannot_play_is_refused_before_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = example("verifiers_repeat.py");
    let plain = folder.path().join("plain_tasks.py");
    let source = BROKEN.replace("\"BrokenEnv\", ", "");
    std::fs::write(&plain, source).unwrap();
    for (choice, expected) in [
        (verifiers(&file, "{ taskset = { num_tasks = 2 } }"), "source.count must be 2 or less"),
        (verifiers(&file, "{ taskset = { no_such = 1 } }"), "no_such"),
        (verifiers(Path::new("not/there.py"), "{}"), "there is no file not/there.py"),
        (verifiers(Path::new("no_such_module"), "{}"), "no_such_module"),
        (
            verifiers(&plain, "{ agent = { harness = { id = \"bash\" } } }"),
            "runs what the model writes; say where",
        ),
        (verifiers(&plain, "{ id = \"user-sim\" }"), "exactly one can be the policy's"),
    ] {
        let error = environments_within(PATIENCE, &choice, folder.path()).err();
        let error = error.unwrap_or_else(|| panic!("{choice} was taken"));
        assert!(error.contains("environment.environment") && error.contains(expected), "{error}");
    }
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn openenv() -> (Server, u16) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(python("OPENENV"));
    let child = command.arg(example("openenv_echo.py")).arg(port.to_string()).spawn().unwrap();
    let mut server = Server(child);
    let started = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(server.0.try_wait().unwrap().is_none(), "the server ended");
        assert!(started.elapsed() < Duration::from_mins(2), "the server does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    (server, port)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make test-environments"]
async fn openenv_plays_several_turns_and_their_rewards_add_up() {
    let (_server, port) = openenv();
    let folder = tempfile::tempdir().unwrap();
    let choice = format!(
        "{{ type = \"openenv\", url = \"ws://127.0.0.1:{port}/ws\", observation_key = \"word\" }}"
    );
    let made = Arc::new(made(&choice, &folder));
    // Seed 5, so the same words for all.
    let policy = Scripted::saying(&["fig"]);
    play(&made, policy.clone()).await.unwrap();
    let words: Vec<String> = policy.shown()[2]
        .lines()
        .filter_map(|line| line.strip_prefix("user:"))
        .map(str::to_owned)
        .collect();
    assert_eq!(words.len(), 3, "{:?}", policy.shown());
    let episodes = (0..8).map(|_| {
        let (made, words) = (made.clone(), words.clone());
        tokio::spawn(async move {
            let lines: Vec<&str> = words.iter().map(String::as_str).collect();
            play(&made, Scripted::saying(&lines)).await.unwrap()
        })
    });
    for episode in episodes.collect::<Vec<_>>() {
        let outcome = episode.await.unwrap();
        assert!((reward(&outcome) - 1.0).abs() < 1e-9, "{outcome:?}");
    }
}

#[tokio::test]
#[ignore = "make test-environments"]
async fn textarena_and_gymnasium_games_are_played_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let choice = |file: &str| {
        let file = example(file);
        format!(
            "{{ type = \"python\", file = \"{}\", python = \"{}\" }}",
            file.display(),
            python("TEXTARENA"),
        )
    };
    let guesses: Vec<String> = (1..=20).map(|number| format!("It is {number}.")).collect();
    let guesses: Vec<&str> = guesses.iter().map(String::as_str).collect();
    let policy = Scripted::saying(&guesses);
    let outcome = play(&made(&choice("textarena_game.py"), &folder), policy.clone()).await.unwrap();
    assert!(reward(&outcome) > 0.0, "{outcome:?}");
    let shown = policy.shown();
    assert!((2..=20).contains(&shown.len()), "{shown:?}");
    assert!(shown[0].contains("guess the number between 1 and 20"), "{shown:?}");
    assert!(shown[1].ends_with("The target number is higher.\n"), "{shown:?}");
    let policy = Scripted::saying(&["1", "0"]);
    let made = made(&choice("gymnasium_blackjack.py"), &folder);
    let outcome = play(&made, policy.clone()).await.unwrap();
    assert!([-1.0, 0.0, 1.0, 1.5].contains(&reward(&outcome)), "{outcome:?}");
    assert!(policy.shown()[0].contains("write 1 for another card"), "{:?}", policy.shown());
}
