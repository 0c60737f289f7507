//! Signals, locks, and what a resumed run may change.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command};

use scalerl_journal::{Status, StopReason, What};

use crate::bench::{
    Said, audit, events, files, folder, lines, reading, resume, said, scalerl, train, wait_until,
};

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn assert_refused(said: &Said, words: &[&str]) {
    assert_eq!(said.code, Some(2), "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "`{word}` is missing in: {}", said.err);
    }
}

#[test]
fn a_signal_ends_a_run_in_order_and_it_goes_on_later() {
    let set = ["budget.steps=100000", "output.checkpoint_every_steps=1000"];
    let mut child = train("scalerl", "signalled", &set).spawn().unwrap();
    wait_until(&mut child, "some steps", || lines("signalled") > 80);

    // Alive: nobody else may write.
    assert_refused(&said(resume("signalled", &[])), &["signalled", "hint:"]);
    assert_refused(&said(train("scalerl", "signalled", &[])), &["signalled", "--resume"]);

    signal(&child, "-INT");
    let ended: Said = child.wait_with_output().unwrap().into();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("go on with: scalerl train --resume signalled"), "{}", ended.out);
    assert!(ended.err.contains("asked to stop"), "{}", ended.err);
    let stopped = reading("signalled");
    assert_eq!(stopped.status(), Status::Stopped { reason: StopReason::Asked });
    audit(&stopped, 8);
    let reached = stopped.summary().version.0;
    assert!(reached > 0 && stopped.checkpoints.last().unwrap().version.0 == reached);

    let other = said(resume("signalled", &["objective.surrogate.cap=4.0"]));
    assert_refused(&other, &["objective.surrogate", "cap = 5.0", "cap = 4.0", "start a new run"]);

    // From another folder: the model it started from is found again, not warmed up anew.
    let steps = reached + 3;
    let elsewhere = tempfile::tempdir().unwrap();
    let run = folder().join("signalled");
    let mut longer = resume(run.to_str().unwrap(), &[&format!("budget.steps={steps}")]);
    longer.current_dir(elsewhere.path());
    let longer = said(longer);
    assert!(files(elsewhere.path()).is_empty(), "{longer:?}");
    assert_eq!(longer.code, Some(0), "{longer:?}");
    assert!(longer.err.contains(&format!("going on after step {reached} ")), "{}", longer.err);
    let ended = reading("signalled");
    audit(&ended, 8);
    assert_eq!(ended.summary().version.0, steps);
    assert_eq!(ended.history.lost.tokens_trained, 0, "a run that was asked to stop loses no step");
    let resumed = events(&ended).filter(|what| matches!(what, What::Resumed { .. }));
    assert_eq!(resumed.count(), 1);
    assert!(folder().join("signalled/recipe.before-1.toml").is_file());
}

#[test]
fn sigterm_before_the_first_step_is_saved_too() {
    let mut child = train("scalerl", "early", &["budget.steps=100000"]).spawn().unwrap();
    wait_until(&mut child, "the start", || lines("early") > 0);
    signal(&child, "-TERM");
    assert!(child.wait().unwrap().success());
    assert_eq!(reading("early").status(), Status::Stopped { reason: StopReason::Asked });
    let longer = said(resume("early", &["budget.steps=4"]));
    assert_eq!(longer.code, Some(0), "{longer:?}");
    audit(&reading("early"), 8);
    // What an error without memory advises.
    let lean = [
        "budget.steps=6",
        "optimizer.moments=bf16",
        "optimizer.gradients=bf16",
        "pipeline.micro_batch_tokens=3000",
        "model.activation_checkpointing=true",
    ];
    let longer = said(resume("early", &lean));
    assert_eq!(longer.code, Some(0), "{longer:?}");
    let ended = reading("early");
    audit(&ended, 8);
    assert_eq!(ended.summary().version.0, 6);
    assert!(ended.recipe.contains("moments = \"bf16\""), "{}", ended.recipe);
}

/// Reads what a command says until a line begins so, then asks it to stop; all that it said, and how it
/// ended.
fn stopped_at(mut command: Command, line: &str) -> Said {
    let mut child = command.spawn().unwrap();
    let mut err = String::new();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    loop {
        let Some(said) = lines.next() else {
            panic!("it ended before `{line}`: {err}{:?}", child.wait_with_output());
        };
        err.push_str(&(said.clone() + "\n"));
        if said.starts_with(line) {
            break;
        }
    }
    signal(&child, "-INT");
    lines.for_each(|said| err.push_str(&(said + "\n")));
    Said { err, ..child.wait_with_output().unwrap().into() }
}

#[test]
fn an_unstable_run_goes_back_to_its_best_checkpoint_at_half_the_rate_twice_at_most() {
    // Every step is a bad one by this limit, and three in a row are enough.
    let set = [
        "budget.steps=100",
        "output.checkpoint_every_steps=2",
        "evaluation.every_steps=2",
        "stopping.effective_sample_share=1.0",
        "stopping.patience_steps=3",
        "stopping.when_unstable=go-back",
    ];
    let ended = said(train("scalerl", "unstable", &set));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.err.matches("going back to step").count(), 2, "{}", ended.err);
    assert!(ended.out.contains("has gone back 2 times"), "{}", ended.out);
    let run = reading("unstable");
    assert_eq!(run.status(), Status::Stopped { reason: StopReason::Unstable });
    audit(&run, 8);
    let rate = |line: &&str| line.starts_with("lr = 1.25e-4") || line.starts_with("lr = 0.000125");
    assert!(
        run.recipe.lines().any(|line| rate(&line)),
        "a quarter of the first rate: {}",
        run.recipe
    );
    assert!(run.history.lost.device_hours() > 0.0, "what was undone is booked");

    // By hand: to a step that there is, and to one that there is not.
    let first = run.checkpoints.first().unwrap().version.0;
    let mut back = resume("unstable", &["optimizer.lr=1e-4", "stopping.when_unstable=warn"]);
    back.args(["--from", &first.to_string(), "--set", &format!("budget.steps={}", first + 2)]);
    let back = said(back);
    assert_eq!(back.code, Some(0), "{back:?}");
    assert!(back.err.contains(&format!("going back to step {first}")), "{}", back.err);
    audit(&reading("unstable"), 8);
    if run.checkpoints.len() > 1 {
        let kept = files(&folder().join("unstable/checkpoints"));
        assert!(kept.keys().any(|path| path.to_string_lossy().contains("undone-step-")));
    }
    let mut nowhere = resume("unstable", &[]);
    nowhere.args(["--from", "77"]);
    assert_refused(&said(nowhere), &["no such checkpoint", "there are those of steps"]);
    // Without going back the rate stays.
    assert_refused(&said(resume("unstable", &["optimizer.lr=1e-3"])), &["optimizer.lr", "--from"]);
}

#[test]
fn a_signal_in_the_warm_up_saves_it_and_the_same_command_goes_on() {
    let set = ["warm_up.steps=3000", "output.folder=warm-asked"];
    let ended = stopped_at(train("scalerl", "after-asking", &set), "warm-up  step     1 of 3000");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("asked to stop: saving the warm-up"), "{}", ended.err);
    assert!(ended.out.contains("the same command goes on"), "{}", ended.out);
    assert!(!folder().join("after-asking").exists(), "a run begins after its warm-up");
    let saved = files(&folder().join("warm-asked"));
    let saved = saved.keys().any(|path| path.display().to_string().contains("checkpoints/step-"));
    assert!(saved, "no checkpoint of the warm-up");

    let ended = stopped_at(train("scalerl", "after-asking", &set), "going on with the warm-up");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let step = |text: &str| {
        text.split("after step ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok())
    };
    assert!(step(&ended.err).is_some_and(|step: u64| step >= 1), "{}", ended.err);
}

#[test]
fn status_tells_alive_from_killed_with_time_left_and_cost_and_lists_a_folder() {
    let set = ["budget.steps=100000", "evaluation.every_steps=2", "evaluation.generations=1"];
    let mut child = train("scalerl", "several/watched", &set).spawn().unwrap();
    let events = folder().join("several/watched/events.jsonl");
    let text = || std::fs::read_to_string(&events).unwrap_or_default();
    wait_until(&mut child, "a forecast", || text().contains("\"forecast\""));
    let status = |arguments: &[&str]| {
        let said = said(scalerl(&[&["status"], arguments].concat()));
        assert_eq!(said.code, Some(0), "{said:?}");
        said.out
    };
    let alive = status(&["several/watched", "--price-per-hour", "3.5"]);
    for words in [" of 100000  ", "  alive\n", "left until budget.steps", "device-hours = "] {
        assert!(alive.contains(words), "`{words}` is missing in: {alive}");
    }
    signal(&child, "-KILL");
    child.wait().unwrap();
    let killed = status(&["several/watched"]);
    assert!(killed.contains("  killed\n"), "{killed}");
    assert!(killed.contains("scalerl train --resume several/watched"), "{killed}");
    assert!(killed.contains("forecast   at twice the compute"), "{killed}");

    std::fs::create_dir_all(folder().join("several/broken")).unwrap();
    for name in ["recipe.toml", "events.jsonl", "environment.json"] {
        std::fs::write(folder().join("several/broken").join(name), "not one").unwrap();
    }
    let table = status(&["several"]);
    let rows: Vec<&str> = table.lines().collect();
    assert_eq!(rows.len(), 3, "{table}");
    assert!(rows[1].contains("broken   unreadable: "), "{table}");
    assert!(rows[2].contains("watched  killed "), "{table}");
    let json: serde_json::Value = serde_json::from_str(&status(&["several", "--json"])).unwrap();
    assert_eq!(json[1]["state"], "killed");
    assert!(json[1]["left"]["seconds"].as_f64().unwrap() > 0.0, "{json}");
}
