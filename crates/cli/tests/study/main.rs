//! `scalerl study` and `scalerl predictions` as a user sees them, with simulated runs.
//!
//! The stand-in for training is the example `pretend_train`, which cargo builds beside this test.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod race;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const STUDY: &str = r#"
description = "Simulated."
base = "small"
seeds = [1, 2]
budget = { steps = 120 }
evaluation = { every_steps = 3, generations = 16 }
set.optimizer.lr = 5e-7

[[variants]]
name = "bf16-head"
change = "leave-one-out/bf16-head"

[[variants]]
name = "alternating"
change = "leave-one-out/ppo-off-policy"
seeds = [1]
"#;

struct Outcome {
    code: i32,
    out: String,
    err: String,
}

fn stand_in() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_scalerl")).with_file_name("examples");
    let path = path.join("pretend_train");
    assert!(path.exists(), "cargo builds {} with the tests of this crate", path.display());
    path
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command.arg("study").arg("study.toml").args(["--out", "out"]).args(arguments);
    command.arg("--program").arg(stand_in()).current_dir(folder).stdin(Stdio::null());
    command
}

fn finish(mut command: Command) -> Outcome {
    let output = command.output().unwrap();
    Outcome {
        code: output.status.code().expect("no signal"),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn folder(study: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("study.toml"), study).unwrap();
    folder
}

/// Waits until some run has measured something.
fn wait_for_points(folder: &Path, child: &mut Child) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(1) {
        let points = folder.join("out/runs/base-s1/points.jsonl");
        if fs::read_to_string(points).is_ok_and(|text| text.lines().count() >= 2) {
            return;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before anything was measured");
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nothing was measured in a minute");
}

/// The points of all runs, without times.
fn points(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("out/points.csv")).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

#[test]
fn a_study_runs_everything_and_says_what_came_out() {
    let folder = folder(STUDY);
    let outcome = finish(command(folder.path(), &["--jobs", "2"]));
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    for name in [
        "table.md",
        "study.csv",
        "study.json",
        "points.csv",
        "runs.jsonl",
        "curves.png",
        "slopes.png",
        "report.html",
    ] {
        let size = fs::metadata(folder.path().join("out").join(name)).unwrap().len();
        assert!(size > 200, "{name} has {size} bytes");
    }
    assert!(outcome.out.contains("bf16-head and base differ in their ceiling"), "{}", outcome.out);
    let json = fs::read_to_string(folder.path().join("out/study.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let states: Vec<&str> =
        json["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["finished"; 5]);
    let again = finish(command(folder.path(), &[]));
    assert_eq!(again.code, 2);
    assert!(again.err.contains("out holds runs already"), "{}", again.err);
    // Nothing is left to do: nothing is started, the tables are made again.
    let again = finish(command(folder.path(), &["--resume"]));
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(!again.err.contains("started") && !again.err.contains("goes on"), "{}", again.err);
}

#[test]
fn a_study_that_was_stopped_before_its_first_run_goes_on_with_the_command_it_prints() {
    let folder = folder(STUDY);
    let mut slow = command(folder.path(), &[]);
    // The stand-in makes its folder after this pause, as training does after its warm-up.
    slow.env("PRETEND_WARM_UP", "1").stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = slow.spawn().unwrap();
    let log = folder.path().join("out/logs/base-s1.log");
    let begun = Instant::now();
    while !fs::read_to_string(&log).is_ok_and(|text| text.contains("warm-up")) {
        assert!(child.try_wait().unwrap().is_none(), "the study ended");
        assert!(begun.elapsed() < Duration::from_mins(1), "waited in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("go on with: scalerl study study.toml --resume"), "{err}");
    assert!(!folder.path().join("out/runs/base-s1").exists());
    let resumed = finish(command(folder.path(), &["--resume"]));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
}

#[test]
fn a_study_that_was_interrupted_or_killed_comes_to_the_same_points() {
    let whole = folder(STUDY);
    assert_eq!(finish(command(whole.path(), &[])).code, 0);
    for (name, ends_in_order) in [("-INT", true), ("-TERM", true), ("-KILL", false)] {
        let stopped = folder(STUDY);
        let mut slow = command(stopped.path(), &[]);
        slow.env("PRETEND_DELAY_MS", "60").stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = slow.spawn().unwrap();
        wait_for_points(stopped.path(), &mut child);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code() == Some(0), ends_in_order, "{name}: {err}");
        if ends_in_order {
            assert!(err.contains("go on with: scalerl study study.toml --resume"), "{err}");
            let events = stopped.path().join("out/runs/base-s1/events.jsonl");
            let text = fs::read_to_string(events).unwrap();
            assert!(text.lines().last().unwrap().contains("\"reason\":\"asked\""), "{text}");
        }
        // A killed study leaves its child at work; the next one waits for it.
        let resumed = finish(command(stopped.path(), &["--resume"]));
        assert_eq!(resumed.code, 0, "{name}: {}", resumed.err);
        assert_eq!(points(whole.path()), points(stopped.path()), "{name}");
    }
}

#[test]
fn a_run_that_fails_is_reported_and_the_others_go_on() {
    let folder = folder(STUDY);
    let mut broken = command(folder.path(), &[]);
    broken.env("PRETEND_BREAK", "bf16-head-s1");
    let outcome = finish(broken);
    assert_eq!(outcome.code, 1);
    assert!(
        outcome.err.contains(
            "error: 1 run failed; --resume tries again\n  bf16-head-s1: the simulated device broke"
        ),
        "{}",
        outcome.err
    );
    let table = fs::read_to_string(folder.path().join("out/table.md")).unwrap();
    assert!(table.contains("| bf16-head-s1 | failed |"), "{table}");
    assert!(table.contains("| alternating-s1 | steps |"), "{table}");
    let mended = finish(command(folder.path(), &["--resume"]));
    assert_eq!(mended.code, 0, "{}", mended.err);
    assert!(mended.err.contains("bf16-head-s1: goes on"), "{}", mended.err);
}

#[test]
fn a_sweep_chooses_before_the_runs_begin() {
    let tuned = STUDY.replace(
        "[[variants]]\nname = \"bf16-head\"",
        "tune = { key = \"optimizer.lr\", values = [1e-8, 5e-7], budget_share = 0.4 }\n\
         [[variants]]\nname = \"bf16-head\"",
    );
    let folder = folder(&tuned);
    let outcome = finish(command(folder.path(), &["--jobs", "3", "--only", "base"]));
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    let recipe = fs::read_to_string(folder.path().join("out/runs/base-s2/recipe.toml")).unwrap();
    assert!(recipe.contains("lr = 5e-7"), "{recipe}");
    let table = fs::read_to_string(folder.path().join("out/table.md")).unwrap();
    assert!(table.contains("| base | optimizer.lr | 5e-7 |"), "{table}");
    let runs = fs::read_dir(folder.path().join("out/runs")).unwrap().count();
    assert_eq!(runs, 4, "two short runs and two seeds of the base, and no others");
    // What is kept of it is enough for the same tables and pictures.
    let out = folder.path().join("out");
    for name in ["runs", "table.md", "curves.png", "report.html"] {
        let path = out.join(name);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }
    let outcome = finish(command(folder.path(), &["--redraw"]));
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert_eq!(fs::read_to_string(out.join("table.md")).unwrap(), table);
    assert!(out.join("curves.png").is_file() && out.join("report.html").is_file());
    fs::remove_file(out.join("runs.jsonl")).unwrap();
    let outcome = finish(command(folder.path(), &["--redraw"]));
    assert_eq!(outcome.code, 2, "{}", outcome.err);
    assert!(outcome.err.contains("runs.jsonl"), "{}", outcome.err);
}

#[test]
fn a_bad_study_is_refused_before_anything_starts() {
    let cases = [
        (STUDY.replace("seeds = [1, 2]", "sedes = [1]"), "study.toml:4: unknown field `sedes`"),
        (
            STUDY.replace("change = \"leave-one-out/bf16-head\"", "set.objective.head = 1"),
            "unknown key `objective.head`",
        ),
        (STUDY.replace("base = \"small\"", "base = \"scalerl\""), "`model.path` is not set"),
        (STUDY.replace("{ steps = 120 }", "{ hours = 1 }"), "unknown field `hours`"),
    ];
    for (study, wanted) in cases {
        let folder = folder(&study);
        let outcome = finish(command(folder.path(), &[]));
        assert_eq!(outcome.code, 2, "{}", outcome.err);
        assert!(outcome.err.contains(wanted), "{}", outcome.err);
        assert!(outcome.err.contains("hint: "), "{}", outcome.err);
        assert!(!folder.path().join("out").exists());
    }
    let folder = folder(STUDY);
    let outcome = finish(command(folder.path(), &["--only", "fp8"]));
    assert_eq!(outcome.code, 2);
    assert!(outcome.err.contains("known: base, base-s1, base-s2, bf16-head"), "{}", outcome.err);
}

#[test]
fn a_changed_study_does_not_go_on_in_the_old_folder() {
    let folder = folder(STUDY);
    assert_eq!(finish(command(folder.path(), &["--only", "base"])).code, 0);
    let changed = STUDY.replace("every_steps = 3", "every_steps = 4");
    fs::write(folder.path().join("study.toml"), changed).unwrap();
    let outcome = finish(command(folder.path(), &["--resume"]));
    assert_eq!(outcome.code, 2);
    assert!(outcome.err.contains("`evaluation.every_steps` was 3"), "{}", outcome.err);
}

#[test]
fn predictions_are_kept_by_run_and_made_from_folders_or_from_the_small_files() {
    let folder = folder(STUDY);
    assert_eq!(finish(command(folder.path(), &[])).code, 0);
    let predictions = |path: &str, out: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
        command.args(["predictions", path, "--out", out]).current_dir(folder.path());
        let outcome = finish(command);
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        fs::read_to_string(folder.path().join(out)).unwrap()
    };
    // Without --out nothing is written.
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    let before = fs::read_dir(folder.path()).unwrap().count();
    let outcome = finish({
        command.args(["predictions", "out"]).current_dir(folder.path());
        command
    });
    assert!(outcome.out.contains("From half of the compute, 5 runs"), "{}", outcome.out);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);
    let page = predictions("out", "a.md");
    assert!(page.contains("- From half of the compute, 5 runs: mean absolute error 0.0"), "{page}");
    assert!(page.contains("| authors' grid | 5 |"), "{page}");
    assert!(page.contains("| study/alternating-s1 | simulated |"), "{page}");
    // The small files alone, as they are committed.
    let kept = folder.path().join("results/first");
    fs::create_dir_all(&kept).unwrap();
    for name in ["points.csv", "runs.jsonl"] {
        fs::copy(folder.path().join("out").join(name), kept.join(name)).unwrap();
    }
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    assert_eq!(predictions("results", "b.md").replace("b.png", "a.png"), page);
    assert_eq!(predictions("results", "a.md"), page, "the same rows again change nothing");
}
