//! Environments written in Python, as users write them: played, printing, failing, hanging, dying.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod scripted;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scalerl_rollout::EpisodeVerdict;
use scripted::{Gated, Scripted, environments, environments_within, play};
use tokio::sync::Semaphore;

const GAME: &str = r#"
import os, sys, time

print("a line while it is read")

class Environment:
    def reset(self, task, seed):
        print("reset", seed, file=sys.stdout)
        self.word, self.turns = task["word"], 0
        return f"The word has {len(self.word)} letters."

    def step(self, text):
        os.write(1, b"straight to the descriptor\n")
        self.turns += 1
        if text == "raise":
            raise ValueError("what a turn")
        if text == "hang":
            time.sleep(60)
        if text == "die":
            os._exit(3)
        if text == "nan":
            return "", float("nan"), True
        if text == "nonsense":
            return 7
        done = text == self.word
        return "no", 1.0 if done else 0.25, done, {"turns": self.turns}
"#;

fn game(folder: &std::path::Path, source: &str) -> String {
    let file = folder.join("game.py");
    std::fs::write(&file, source).unwrap();
    format!("{{ type = \"python\", file = \"{}\", workers = 1 }}", file.display())
}

#[tokio::test]
async fn a_class_plays_over_several_turns_and_its_rewards_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let made = environments(&game(folder.path(), GAME), folder.path()).unwrap();
    let policy = Scripted::saying(&["bush", "tree"]);
    let outcome = play(&made, policy.clone()).await.unwrap();
    let EpisodeVerdict::Reward(reward) = outcome.verdict else { panic!("{outcome:?}") };
    assert!((reward.value - 1.25).abs() < 1e-9 && reward.is_correct, "{reward:?}");
    assert!(!outcome.is_truncated);
    assert_eq!(outcome.metrics["turns"].to_bits(), 2.0_f64.to_bits());
    // The second turn read the first as it was written, and nothing else was made of it.
    let first = "plain:Play.\nuser:The word has 4 letters.\n";
    assert_eq!(policy.shown(), [first.to_owned(), format!("{first}bush\nuser:no\n")]);
    let log = std::fs::read_to_string(folder.path().join("environment-games.log")).unwrap();
    for line in ["a line while it is read", "reset 9", "straight to the descriptor"] {
        assert!(log.contains(line), "{log}");
    }
}

#[tokio::test]
async fn what_fails_is_an_error_of_its_episode_and_the_next_one_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let made = environments(&game(folder.path(), GAME), folder.path()).unwrap();
    for (line, expected) in [
        ("raise", "ValueError: what a turn"),
        ("hang", "no answer within 3 s"),
        ("die", "its worker ended with exit status: 3"),
        ("nan", "cannot be sent"),
        ("nonsense", "step returned 7"),
    ] {
        let error = play(&made, Scripted::saying(&[line])).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{line}: {error}");
        let outcome = play(&made, Scripted::saying(&["tree"])).await.unwrap();
        assert!(matches!(outcome.verdict, EpisodeVerdict::Reward(reward) if reward.is_correct));
    }
}

#[tokio::test]
async fn an_episode_without_room_keeps_what_it_earned_and_is_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let made = environments(&game(folder.path(), GAME), folder.path()).unwrap();
    let policy = Scripted { lines: vec!["bush".into()], room: Some(2), ..Scripted::default() };
    let outcome = play(&made, policy.into()).await.unwrap();
    assert!(outcome.is_truncated);
    assert!(
        matches!(outcome.verdict, EpisodeVerdict::Reward(reward) if (reward.value - 0.5).abs() < 1e-9)
    );
}

/// Says in files when a turn has begun, and waits there for another.
const WAITING: &str = r#"
import os, time

class Environment:
    def reset(self, task):
        pass

    def step(self, text):
        if text == "wait":
            open("FOLDER/begun", "w").close()
            while not os.path.exists("FOLDER/go"):
                time.sleep(0.01)
        return "on", 1.0, text == "end"

    def close(self):
        print("closed")
"#;

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_episode_that_is_given_up_in_a_turn_takes_no_other_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let source = WAITING.replace("FOLDER", folder.path().to_str().unwrap());
    let choice = game(folder.path(), &source);
    let made = environments_within(Duration::from_mins(1), &choice, folder.path());
    let made = Arc::new(made.unwrap());
    let inner = Scripted::saying(&["on", "end"]);
    let policy = Arc::new(Gated { inner: inner.clone(), gate: Semaphore::new(1) });
    let (theirs, playing) = (policy.clone(), made.clone());
    let other = tokio::spawn(async move { play(&playing, theirs).await });
    until(|| inner.shown().len() == 1).await;

    let given_up = tokio::spawn(async move { play(&made, Scripted::saying(&["wait"])).await });
    until(|| folder.path().join("begun").exists()).await;
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    std::fs::write(folder.path().join("go"), "").unwrap();
    policy.gate.add_permits(1);

    let outcome = other.await.unwrap().unwrap();
    assert!(
        matches!(outcome.verdict, EpisodeVerdict::Reward(reward) if (reward.value - 2.0).abs() < 1e-9)
    );
    // What the worker held for it is put away as well.
    until(|| closed(folder.path()) == 2).await;
}

fn closed(folder: &Path) -> usize {
    let log = std::fs::read_to_string(folder.join("environment-games.log")).unwrap_or_default();
    log.lines().filter(|line| *line == "closed").count()
}

#[tokio::test]
async fn gymnasium_and_skyrl_shapes_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    let gym = "class Environment:\n    def reset(self, *, seed=None, options=None):\n        return 'obs', {'a': 1}\n    def step(self, action):\n        return 'x', 1.0, False, True, {'b': 2}\n";
    let sky = "class Environment:\n    def reset(self):\n        pass\n    def step(self, action):\n        return {'observations': [{'role': 'user', 'content': 'x'}], 'reward': 1.0, 'done': True, 'metadata': {'c': 3}}\n";
    for (source, key, is_truncated) in [(gym, "b", true), (sky, "c", false)] {
        let made = environments(&game(folder.path(), source), folder.path()).unwrap();
        let outcome = play(&made, Scripted::saying(&["go"])).await.unwrap();
        assert!(outcome.metrics.contains_key(key), "{outcome:?}");
        assert_eq!(outcome.is_truncated, is_truncated, "{outcome:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_changed_under_a_run_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let made = environments(&game(folder.path(), GAME), folder.path()).unwrap();
    game(folder.path(), "raise SystemExit('changed')");
    // Also not after a worker has been started again.
    play(&made, Scripted::saying(&["die"])).await.unwrap_err();
    play(&made, Scripted::saying(&["tree"])).await.unwrap();
}

#[test]
fn what_cannot_be_played_is_refused_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let error = environments("{ type = \"python\", file = \"not/there.py\" }", folder.path());
    let error = error.err().unwrap();
    assert!(error.contains("environment.file: not/there.py"), "{error}");
    for (source, expected) in [
        ("import nowhere_to_be_found", "nowhere_to_be_found"),
        ("class Other: pass", "has no class Environment"),
        ("class Environment:\n    def reset(self): pass\n", "has no method step"),
    ] {
        let error = environments(&game(folder.path(), source), folder.path()).err().unwrap();
        assert!(error.contains(expected), "{error}");
    }
}
