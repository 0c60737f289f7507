//! `scalerl study --race`: who is paused, that nothing of it is lost, and that a kill changes nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Outcome, command, finish, folder, points, signal};

/// One seed each. `bf16-head` ends 0.09 lower, `alternating` rises half as fast, `twin` is the base by
/// another name.
fn study() -> String {
    let twin = "\n[[variants]]\nname = \"twin\"\nset.optimizer.beta1 = 0.91\n";
    crate::STUDY.replace("seeds = [1, 2]", "seeds = [1]") + twin
}

/// Runs slow enough that a signal reaches them on the way.
fn raced(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(folder, arguments);
    command.arg("--race").env("PRETEND_DELAY_MS", "40");
    command
}

fn done(command: Command) -> Outcome {
    let outcome = finish(command);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    outcome
}

fn table(folder: &Path) -> String {
    fs::read_to_string(folder.join("out/table.md")).unwrap()
}

/// The decisions without the times they were made at.
fn decisions(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("out/race.jsonl")).unwrap();
    text.lines().map(|line| line.split_once(',').unwrap().1.to_owned()).collect()
}

fn row<'a>(table: &'a str, heading: &str, variant: &str) -> &'a str {
    let part = table.split(heading).nth(1).unwrap_or_else(|| panic!("{heading} in {table}"));
    let start = format!("| {variant} |");
    part.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{part}"))
}

#[test]
fn a_race_pauses_what_cannot_win_and_its_runs_can_go_on() {
    let raced_in = folder(&study());
    let outcome = done(raced(raced_in.path(), &[]));
    assert!(outcome.err.contains("race: bf16-head is paused at 25.0 %"), "{}", outcome.err);
    let text = table(raced_in.path());
    let paused = row(&text, "## The race", "bf16-head");
    // Its wide forecast from a quarter brings it back once; the next one is enough.
    assert!(outcome.err.contains("race: bf16-head comes back at 25.0 %"), "{}", outcome.err);
    assert!(paused.contains("| 37.5 % |") && paused.contains("paused"), "{paused}");
    assert!(row(&text, "## The race", "base").contains("ran to its end"), "{text}");
    assert!(!outcome.err.contains("paused at 100"), "{}", outcome.err);
    // What is known of it is a part, and gets no verdict.
    assert!(row(&text, "## Variants", "bf16-head").ends_with("| paused |"), "{text}");
    assert!(text.contains("and saved "), "{text}");
    assert!(text.contains("This is the winner of one seed"), "{text}");
    let events = raced_in.path().join("out/runs/bf16-head-s1/events.jsonl");
    let events = fs::read_to_string(events).unwrap();
    assert!(events.lines().last().unwrap().contains("\"reason\":\"asked\""), "{events}");
    // The small files make the same page.
    let kept = text.clone();
    fs::remove_dir_all(raced_in.path().join("out/runs")).unwrap();
    done(command(raced_in.path(), &["--redraw"]));
    assert_eq!(table(raced_in.path()), kept);
}

#[test]
fn without_the_race_the_paused_runs_come_to_the_points_of_a_full_study() {
    let (full, raced_in) = (folder(&study()), folder(&study()));
    done(command(full.path(), &[]));
    done(raced(raced_in.path(), &["--jobs", "2"]));
    assert!(points(raced_in.path()).len() < points(full.path()).len());
    let outcome = done(command(raced_in.path(), &["--resume"]));
    assert!(outcome.err.contains("without --race its paused runs go on"), "{}", outcome.err);
    assert_eq!(points(raced_in.path()), points(full.path()));
    assert_eq!(
        row(&table(raced_in.path()), "## Variants", "bf16-head"),
        row(&table(full.path()), "## Variants", "bf16-head")
    );
}

#[test]
fn a_tie_is_not_turned_into_a_winner() {
    let folder = folder(&study());
    done(raced(folder.path(), &["--jobs", "4"]));
    let text = table(folder.path());
    let sentence = text.lines().find(|line| line.contains("The highest end is that of")).unwrap();
    let names: BTreeSet<&str> = ["base", "twin"].into();
    let (first, rest) = sentence.split_once("It cannot be told apart from").unwrap();
    // The same law and the same seed: whichever was paused, neither is above the other.
    let named = |text: &str| names.iter().filter(|name| text.contains(**name)).count();
    assert_eq!((named(first), named(rest.split('.').next().unwrap())), (1, 1), "{sentence}");
}

#[test]
fn a_race_that_was_stopped_or_killed_comes_to_the_same_decisions() {
    let whole = folder(&study());
    done(raced(whole.path(), &[]));
    let wanted = decisions(whole.path());
    for (name, wait_for) in [("-INT", 1), ("-KILL", 2)] {
        let stopped = folder(&study());
        let mut command = raced(stopped.path(), &[]);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        let log = stopped.path().join("out/race.jsonl");
        while fs::read_to_string(&log).unwrap_or_default().lines().count() < wait_for {
            assert!(child.try_wait().unwrap().is_none(), "the study ended");
            assert!(begun.elapsed() < Duration::from_mins(2), "waited in vain");
            std::thread::sleep(Duration::from_millis(20));
        }
        signal(&child, name);
        let err = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        if name == "-INT" {
            assert!(err.contains("scalerl study study.toml --resume --race --out"), "{err}");
        }
        done(raced(stopped.path(), &["--resume"]));
        assert_eq!(decisions(stopped.path()), wanted, "{name} after {wait_for}");
    }
}

#[test]
fn two_that_look_after_one_race_come_to_the_same_decisions() {
    let alone = folder(&study());
    done(raced(alone.path(), &[]));
    let shared = folder(&study());
    let mut first = raced(shared.path(), &[]);
    let first = first.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    while !shared.path().join("out/runs/base-s1/points.jsonl").exists() {
        assert!(begun.elapsed() < Duration::from_mins(2), "waited in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = finish(raced(shared.path(), &["--resume"]));
    let first = first.wait_with_output().unwrap();
    let err = String::from_utf8(first.stderr).unwrap();
    assert!(first.status.success() && second.code == 0, "{err}\n{}", second.err);
    assert_eq!(decisions(shared.path()), decisions(alone.path()), "{err}\n{}", second.err);
}

#[test]
fn what_is_saved_can_go_to_more_seeds_of_those_that_went_on() {
    let worse = "[[variants]]\nchange = \"leave-one-out/bf16-head\"\n";
    let worse = |name: &str| format!("{worse}name = \"{name}\"\nset.optimizer.beta1 = 0.92\n");
    let folder = folder(&format!("{}{}{}", study(), worse("bf16-two"), worse("bf16-three")));
    let outcome = done(raced(folder.path(), &["--add-seeds"]));
    assert!(outcome.err.contains("race: what was saved pays for"), "{}", outcome.err);
    let log = fs::read_to_string(folder.path().join("out/race.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    let added = last["added_seeds"].as_array().unwrap();
    assert!(!added.is_empty(), "{log}");
    for one in added {
        let (variant, seed) = (one[0].as_str().unwrap(), one[1].as_u64().unwrap());
        assert!(seed >= 2, "{log}");
        let run = folder.path().join(format!("out/runs/{variant}-s{seed}/events.jsonl"));
        let events = fs::read_to_string(run).unwrap();
        assert!(events.lines().last().unwrap().contains("\"reason\":\"steps\""), "{events}");
    }
    let text = table(folder.path());
    assert!(text.contains(&format!("What was saved went to {} more runs.", added.len())), "{text}");
}

#[test]
fn a_variant_whose_run_fails_is_out_and_the_race_goes_on() {
    let folder = folder(&study());
    let mut broken = raced(folder.path(), &[]);
    broken.env("PRETEND_BREAK", "bf16-head-s1");
    let outcome = finish(broken);
    assert_eq!(outcome.code, 1, "{}", outcome.err);
    let text = table(folder.path());
    assert!(row(&text, "## The race", "bf16-head").ends_with("| out |"), "{text}");
    assert!(row(&text, "## The race", "base").contains("ran to its end"), "{text}");
}

#[test]
fn a_race_of_some_variants_or_of_a_strange_loss_is_refused() {
    for arguments in [&["--race", "--only", "base"][..], &["--race", "--race-loss", "3"]] {
        let folder = folder(&study());
        let outcome = finish(command(folder.path(), arguments));
        assert_eq!(outcome.code, 2, "{}", outcome.err);
        assert!(!folder.path().join("out").exists());
    }
}
