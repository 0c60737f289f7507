//! MLflow and Trackio over a server that drops, delays, fails, answers nonsense and restarts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use scalerl_journal::StopReason;
use scalerl_recipe::TrackerChoice;

use super::journal::Journal;
use super::server::{Mood, Server};
use super::{Shown, deliver, expected, export, export_all, sorted, target};
use crate::{Delivery, Following, Target, TrackError};

fn mlflow(server: &Server) -> Target {
    target(&TrackerChoice::Mlflow { url: Some(server.url.clone()) })
}

fn trackio(server: &Server) -> Target {
    target(&TrackerChoice::Trackio { url: Some(server.url.clone()) })
}

/// What the newest MLflow run shows.
fn of_mlflow(server: &Server) -> Shown {
    let database = server.database.lock().unwrap();
    let (_, kept) = database.runs.values().next_back().unwrap();
    sorted(kept.iter().map(|(name, step, _, value)| (name.clone(), *step, *value)).collect())
}

fn of_trackio(server: &Server, run: &str) -> Shown {
    let database = server.database.lock().unwrap();
    let mut values = Vec::new();
    for (_, step, metrics) in &database.rows[run] {
        for (name, value) in metrics.as_object().unwrap() {
            if let (true, Some(value)) = (name != "unix_time", value.as_f64()) {
                values.push((name.clone(), *step, value));
            }
        }
    }
    sorted(values)
}

#[test]
fn every_bad_answer_is_tried_again_and_nothing_is_there_twice() {
    use Mood::{Drops, Fails, Garbles, LosesAnswers, Well};
    let bad = [Drops, Fails, Garbles, LosesAnswers];
    for count in 0..12 {
        let parent = tempfile::tempdir().unwrap();
        let (server, mut journal) = (Server::start(), Journal::create(parent.path()));
        journal.train(1, 6);
        // Trouble with the request of that number, of every kind.
        for target in [mlflow(&server), trackio(&server)] {
            let mut moods = vec![Well; count];
            moods.extend(bad);
            server.will(&moods);
            export(&journal.path, &target);
        }
        journal.train(7, 9);
        for target in [mlflow(&server), trackio(&server)] {
            export(&journal.path, &target);
        }
        assert_eq!(of_mlflow(&server), expected(&journal.path), "trouble after {count} requests");
        assert_eq!(of_trackio(&server, "run-1"), expected(&journal.path));
        assert_eq!(
            server.database.lock().unwrap().runs.len(),
            1,
            "a creation not answered is found"
        );
    }
}

#[test]
fn rows_that_do_not_count_any_more_make_a_fresh_run_with_the_history_that_does() {
    let parent = tempfile::tempdir().unwrap();
    let (server, mut journal) = (Server::start(), Journal::create(parent.path()));
    let targets = [mlflow(&server), trackio(&server)];
    journal.train(1, 5);
    let kept = journal.lines();
    journal.train(6, 8);
    export_all(&journal.path, &targets);
    let mut journal = journal.resume(5, kept);
    journal.train(6, 7);
    journal.stop(7, StopReason::Steps);
    export_all(&journal.path, &targets);
    assert_eq!(of_mlflow(&server), expected(&journal.path));
    assert_eq!(of_trackio(&server, "run-1.2"), expected(&journal.path));
    let database = server.database.lock().unwrap();
    let (ids, tags): (Vec<_>, Vec<_>) =
        database.runs.iter().map(|(id, (tags, _))| (id.clone(), tags)).unzip();
    assert_eq!(tags[0]["scalerl.superseded_by"], ids[1]);
    assert_eq!((tags[0]["name"].as_str(), tags[1]["name"].as_str()), ("run-1", "run-1.2"));
    assert_eq!((&*database.status[&ids[0]], &*database.status[&ids[1]]), ("KILLED", "FINISHED"));
    assert!(database.rows.contains_key("run-1 (superseded)"));
    assert!(database.params[&ids[1]].contains(&"optimizer.lr=0.001".to_owned()));
    let table = database.artifacts.iter().find(|(path, _)| path.contains(&ids[1])).unwrap();
    assert!(table.1.contains("There are 5."), "{table:?}");
}

#[test]
fn rows_that_a_server_took_before_a_kill_are_known_though_nobody_heard_of_it() {
    let parent = tempfile::tempdir().unwrap();
    let (server, mut journal) = (Server::start(), Journal::create(parent.path()));
    journal.train(1, 3);
    let kept = journal.lines();
    journal.train(4, 6);
    // The rows arrive, the answer does not, and the process is gone.
    server.will(&[Mood::LosesAnswers]);
    Delivery::new(&journal.path, trackio(&server)).unwrap().pass().unwrap_err();
    let mut journal = journal.resume(3, kept);
    journal.train(4, 5);
    export(&journal.path, &trackio(&server));
    assert_eq!(of_trackio(&server, "run-1.2"), expected(&journal.path));
}

#[test]
fn a_resume_that_takes_nothing_back_goes_on_in_the_same_run() {
    let parent = tempfile::tempdir().unwrap();
    let (server, mut journal) = (Server::start(), Journal::create(parent.path()));
    journal.train(1, 5);
    let kept = journal.lines();
    journal.stop(5, StopReason::Asked);
    export(&journal.path, &mlflow(&server));
    let mut journal = journal.resume(5, kept);
    journal.train(6, 7);
    export(&journal.path, &mlflow(&server));
    assert_eq!(of_mlflow(&server), expected(&journal.path));
    let database = server.database.lock().unwrap();
    assert_eq!(database.runs.len(), 1);
    assert_eq!(database.status.values().next().unwrap(), "RUNNING", "the end is taken back");
}

#[test]
fn a_server_that_is_gone_in_the_middle_gets_everything_when_it_is_back() {
    let parent = tempfile::tempdir().unwrap();
    let (server, mut journal) = (Server::start(), Journal::create(parent.path()));
    journal.train(1, 4);
    let mut delivery = Delivery::new(&journal.path, mlflow(&server)).unwrap();
    deliver(&mut delivery);
    server.stop();
    journal.train(5, 9);
    let error = delivery.pass().unwrap_err();
    assert!(matches!(error, TrackError::Unreachable { .. }), "{error}");
    server.restart();
    deliver(&mut delivery);
    assert_eq!(of_mlflow(&server), expected(&journal.path));
}

#[test]
fn a_live_run_has_its_trouble_said_once_and_its_end_is_bounded() {
    let parent = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(parent.path());
    // Nobody listens at this port any more.
    let closed = Server::start();
    closed.stop();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    let say: crate::Say = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
    let targets = [mlflow(&closed), target(&TrackerChoice::Jsonl)];
    let following = Following::start(&journal.path, &targets, &say);
    journal.train(1, 5);
    journal.stop(5, StopReason::Steps);
    std::thread::sleep(Duration::from_millis(1500));
    let started = Instant::now();
    let behind = following.end(Duration::from_secs(2));
    assert!(started.elapsed() < Duration::from_secs(4), "the last effort has a deadline");
    assert_eq!(behind.len(), 1, "{behind:?}");
    assert!(
        behind[0].contains("scalerl export") && behind[0].ends_with("--to mlflow sends the rest")
    );
    assert_eq!(lines.lock().unwrap().len(), 1, "one line for one trouble: {lines:?}");
    // The other tracker has everything.
    let text = std::fs::read_to_string(journal.path.join("track/metrics.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 7);
}

#[test]
fn nothing_is_sent_that_a_resume_is_about_to_take_back() {
    let parent = tempfile::tempdir().unwrap();
    let (server, mut journal) = (Server::start(), Journal::create(parent.path()));
    journal.train(1, 4);
    let kept = journal.lines();
    journal.train(5, 8);
    let say: crate::Say = Arc::new(|_: &str| {});
    // The trackers start before the process that goes on has said so.
    let following = Following::start(&journal.path, &[mlflow(&server)], &say);
    std::thread::sleep(Duration::from_millis(500));
    assert!(
        server.database.lock().unwrap().runs.is_empty(),
        "it waits for the process that goes on"
    );
    let mut journal = journal.resume(4, kept);
    journal.train(5, 6);
    assert_eq!(following.end(Duration::from_secs(20)), [""; 0]);
    assert_eq!(of_mlflow(&server), expected(&journal.path));
    assert_eq!(server.database.lock().unwrap().runs.len(), 1, "no run was superseded");
}
