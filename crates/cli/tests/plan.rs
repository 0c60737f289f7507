//! `scalerl plan` and `scalerl replay` as a user sees them, on the recorded studies of this repository.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::path::Path;
use std::process::{Command, Output};

fn scalerl(command: &str, arguments: &[&str]) -> Output {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut program = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    program.arg(command).args(arguments).current_dir(repository).output().unwrap()
}

fn plan(arguments: &[&str]) -> Output {
    scalerl("plan", arguments)
}

fn json(arguments: &[&str]) -> serde_json::Value {
    let output = plan(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_plan_is_read_off_recorded_runs() {
    let output = plan(&["docs/results/leave-one-out", "--evaluation", "256x2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for wanted in [
        "19 finished runs",
        "of binomial",
        "10 degrees of freedom",
        "to see a difference of 0.02 with a chance of 0.8",
        "Cheapest: ",
        "256 × 2",
        "1024 × 4 (pilot)",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

#[test]
fn a_smaller_difference_takes_more() {
    let hours = |difference: &str| {
        let answer = json(&["docs/results/leave-one-out", "--difference", difference]);
        let factor = answer["pilot"]["noise"]["over_binomial"].as_f64().unwrap();
        assert!((0.3..1.2).contains(&factor), "{factor}");
        answer["cheapest"]["device_hours"].as_f64().unwrap()
    };
    assert!(hours("0.02") < hours("0.01"));
}

#[test]
fn runs_without_a_second_seed_are_refused_with_what_to_do() {
    let output = plan(&["docs/results/gsm8k-0.5b"]);
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("no variant among these has two seeds") && err.contains("--seed-spread"));
    let answer = json(&["docs/results/gsm8k-0.5b", "--seed-spread", "0.01"]);
    assert!(answer["cheapest"]["seeds"].as_u64().unwrap() >= 2);
    for bad in [&["docs/results", "--difference", "2"][..], &["docs/results", "--evaluation", "9"]]
    {
        assert_eq!(plan(bad).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn a_recorded_study_is_raced_again() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("racing.md");
    let output = scalerl("replay", &["docs/results/batch-size", "--out", page.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("Recorded studies") && text.contains("halving by current value"),
        "{text}"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let race = page.lines().find(|line| line.contains("batch-2048 0.25")).unwrap();
    assert!(race.starts_with("| batch-size, seed 1 |") && race.contains("batch-512 1,"), "{race}");
    assert!(page.contains("| batch-size, seed 1 | batch-size, seed 2 | 0.0037 |"), "{page}");
    assert_eq!(scalerl("replay", &[]).status.code(), Some(2));
    assert_eq!(scalerl("replay", &["docs/results/gsm8k-0.5b"]).status.code(), Some(2));
}
