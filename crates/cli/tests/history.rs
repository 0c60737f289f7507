//! Finished runs as history, and what a forecast says of them, as a user sees it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

struct Outcome {
    code: i32,
    out: String,
    err: String,
}

/// A folder of logs, and commands in it.
struct Logs(tempfile::TempDir);

impl Logs {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A run of `last` points on the law, with a small wiggle instead of noise.
    fn run(self, name: &str, ceiling: f64, midpoint: f64, last: u32) -> Self {
        let row = |i: u32| {
            let i = f64::from(i);
            let value = 0.3 + (ceiling - 0.3) / (1.0 + (midpoint / i).powf(1.8));
            format!("{i},{},4096\n", value + 0.003 * (2.4 * i).sin())
        };
        let rows: String = (1..=last).map(row).collect();
        self.file(&format!("{name}.csv"), &format!("gpu_hours,pass_rate,samples\n{rows}"))
    }

    fn file(self, name: &str, text: &str) -> Self {
        std::fs::write(self.path().join(name), text).unwrap();
        self
    }

    fn scalerl(&self, arguments: &[&str]) -> Outcome {
        self.fed("", arguments)
    }

    fn fed(&self, input: &str, arguments: &[&str]) -> Outcome {
        let mut child = Command::new(env!("CARGO_BIN_EXE_scalerl"))
            .args(arguments)
            .current_dir(self.path())
            .env("XDG_DATA_HOME", self.path().join("data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Outcome {
            code: output.status.code().expect("no signal"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn fit(&self, arguments: &[&str]) -> Value {
        let outcome = self.scalerl(&[&["fit", "--json"], arguments].concat());
        assert_eq!(outcome.code, 0, "{}", outcome.err);
        serde_json::from_str::<Value>(&outcome.out).unwrap()["runs"][0].clone()
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn width(run: &Value) -> f64 {
    number(&run["forecasts"][0]["high"]) - number(&run["forecasts"][0]["low"])
}

#[test]
fn finished_runs_narrow_the_forecast_and_are_named() {
    let logs = Logs::new().run("old-s1", 0.7, 10.0, 60).run("old-s2", 0.705, 14.0, 60);
    let logs = logs.run("young", 0.7, 25.0, 30);
    let with = logs.fit(&["young.csv", "--at", "60", "--history", "old-s1.csv", "old-s2.csv"]);
    let without = logs.fit(&["young.csv", "--at", "60", "--history", "old-s1.csv", "--no-history"]);
    assert!(number(&with["history_weight"]) > 0.9 && number(&without["history_weight"]) == 0.0);
    assert!(without["history"].as_array().unwrap().is_empty());
    assert!(width(&with) < 0.7 * width(&without), "{with} {without}");
    let text = logs.scalerl(&["fit", "young.csv", "--history", "old-s1.csv", "old-s2.csv"]).out;
    assert!(text.contains("of the forecast rests on 2 finished runs: old-s"), "{text}");
}

#[test]
fn a_run_that_contradicts_its_history_goes_back_to_itself() {
    let logs = Logs::new().run("low", 0.42, 10.0, 60).run("young", 0.7, 25.0, 30);
    let with = logs.fit(&["young.csv", "--at", "60", "--history", "low.csv"]);
    let without = logs.fit(&["young.csv", "--at", "60"]);
    assert!(number(&with["history_weight"]) < 0.05, "{with}");
    let value = |run: &Value| number(&run["forecasts"][0]["value"]);
    assert!((value(&with) - value(&without)).abs() < 0.005);
    let text = logs.scalerl(&["fit", "young.csv", "--history", "low.csv"]).out;
    assert!(text.contains("The run contradicts its history"), "{text}");
}

#[test]
fn a_library_keeps_runs_and_refuses_another_model() {
    let logs = Logs::new().run("old-s1", 0.7, 10.0, 60).run("young", 0.7, 25.0, 30);
    let library = logs.path().join("data/scalerl/history.jsonl");
    let empty = logs.scalerl(&["history", "list"]);
    assert!(empty.out.contains("no runs yet"), "{}", empty.out);
    let add = ["history", "add", "old-s1.csv", "--model", "small", "--evaluation", "gsm8k"];
    assert!(logs.scalerl(&add).err.contains("added old-s1"));
    assert!(logs.scalerl(&add).err.contains("old-s1 is there already"));
    let list = logs.scalerl(&["history", "list"]).out;
    assert!(list.contains("old-s1") && list.contains("small") && list.contains("gsm8k"), "{list}");
    let library = library.to_str().unwrap();
    let text = std::fs::read_to_string(library).unwrap();
    assert!(text.starts_with(r#"{"name":"old-s1","model":"small","evaluation":"gsm8k""#), "{text}");

    let same = logs.fit(&["young.csv", "--history", library, "--model", "small"]);
    assert!(number(&same["history_weight"]) > 0.5);
    let other = logs.scalerl(&["fit", "young.csv", "--history", library, "--model", "large"]);
    assert_eq!(other.code, 0, "{}", other.err);
    assert!(other.err.contains("no history: old-s1 (another model)"), "{}", other.err);
    assert!(!other.out.contains("rests on"), "{}", other.out);

    let gone = logs.scalerl(&["history", "remove", "old-s1", "nobody"]);
    assert_eq!(gone.code, 2);
    assert!(gone.err.contains("removed old-s1") && gone.err.contains("no run nobody"));
    assert!(logs.scalerl(&["history", "list"]).out.contains("no runs yet"));
}

#[test]
fn bad_histories_are_refused_by_name() {
    let logs = Logs::new().run("short", 0.7, 3.0, 6).run("young", 0.7, 25.0, 30);
    for (arguments, message) in [
        (vec!["fit", "young.csv", "--history", "nowhere.csv"], "nowhere.csv"),
        (vec!["fit", "young.csv", "--history", "short.csv"], "no finished run in it"),
        (vec!["history", "add", "short.csv"], "no finished run in it"),
        (vec!["history", "list", "--file", "young.csv"], "young.csv: line 1"),
    ] {
        let outcome = logs.scalerl(&arguments);
        assert_eq!(outcome.code, 2, "{arguments:?}: {}", outcome.err);
        assert!(outcome.err.contains(message), "{arguments:?}: {}", outcome.err);
        assert!(outcome.err.contains("hint: "), "{arguments:?}: {}", outcome.err);
    }
    assert!(!logs.path().join("data/scalerl/history.jsonl").exists());
}

#[test]
fn a_twin_is_shown_as_a_rival() {
    let logs = Logs::new().run("base-s1", 0.7, 20.0, 60).run("base-s2", 0.7, 21.0, 30);
    let run = logs.fit(&["base-s2.csv", "--at", "60", "--history", "base-s1.csv"]);
    assert_eq!(run["twins"][0]["name"], "base-s1");
    let (twin, at) = (&run["twins"][0]["value"], &run["twins"][0]["at"]);
    assert!((number(twin) - 0.652).abs() < 0.01 && (number(at) - 60.0).abs() < 1e-9, "{run}");
    let text = logs.scalerl(&["fit", "base-s2.csv", "--at", "60", "--history", "base-s1.csv"]).out;
    assert!(text.contains("Its twin base-s1 (same recipe, another seed) had 0.6"), "{text}");
}

#[test]
fn compare_says_the_lead_first_and_then_its_cause() {
    let logs = Logs::new().run("a", 0.7, 20.0, 60).run("b", 0.6, 20.0, 60);
    let text = logs.scalerl(&["compare", "a.csv", "b.csv"]).out;
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("Now, at 60 a leads b by 0.0") && first.contains("at 120 a leads b"),
        "{first}"
    );
    assert!(first.contains("ahead with 100 %"), "{first}");
    assert!(first.contains("a and b differ in their ceiling"), "{first}");
    let turned = logs.scalerl(&["compare", "b.csv", "a.csv"]).out;
    assert!(turned.contains("a leads b by 0.0") && turned.contains("with 100 %"), "{turned}");
    // Half of the way: a lead whose cause the points do not tell.
    let early = logs.scalerl(&["compare", "a.csv", "b.csv", "--until", "15"]).out;
    assert!(!early.contains("efficiency"), "{early}");
}

#[test]
fn backtest_has_every_rival_beside_ours() {
    let entropy = |i: u32| {
        let value = 0.3 + 0.4 / (1.0 + (15.0 / f64::from(i)).powf(1.8));
        format!("{i},{value},{}\n", (1.0 - value).ln() + 1.0)
    };
    let rows: String = (1..=40).map(entropy).collect();
    let logs = Logs::new().file("log.csv", &format!("gpu_hours,pass_rate,entropy\n{rows}"));
    let outcome = logs.scalerl(&["backtest", "log.csv", "--json", "--fractions", "0.5"]);
    let found: Value = serde_json::from_str(&outcome.out).unwrap();
    let rivals: Vec<&str> = found["rivals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["rival"].as_str().unwrap())
        .collect();
    for rival in ["last_value", "power_law", "offset_power_law", "log_error", "entropy"] {
        assert!(rivals.contains(&rival), "{rival} of {rivals:?}");
    }
}

#[test]
fn a_run_that_has_not_moved_is_flat_and_not_called_early() {
    for value in ["0.25", "0"] {
        let row = |i: u32| format!("{i},{value}\n");
        let rows: String = (1..=60).map(row).collect();
        let logs = Logs::new().file("flat.csv", &format!("gpu_hours,pass_rate\n{rows}"));
        let run = logs.fit(&["flat.csv"]);
        assert_eq!(run["verdict"], "flat", "{value}");
        let (low, value) = (number(&run["ceiling"]["low"]), value.parse::<f64>().unwrap());
        assert!(low > value - 5e-4, "a lower bound below every point: {low}");
        let text = logs.scalerl(&["fit", "flat.csv", "--target", "0.9"]).out;
        assert!(text.contains("none to be seen: flat at"), "{text}");
        assert!(!text.contains("early") && !text.contains("lies above the ceiling"), "{text}");
    }
}

#[test]
fn notes_on_compute_are_kept_with_several_runs_and_input_may_be_piped() {
    let row = |i: u32| format!("{},{}\n", 1_740_000_000 + 600 * i, 0.3 + 0.01 * f64::from(i));
    let text = format!("ts,pass_rate\n{}", (0..30).map(row).collect::<String>());
    let logs = Logs::new().file("a.csv", &text).file("b.csv", &text);
    let clock = "GPU-hours are clock time (`ts`, in seconds";
    let outcome = logs.scalerl(&["fit", "a.csv", "b.csv", "--x", "ts", "--gpus", "8"]);
    assert_eq!(outcome.out.matches(clock).count(), 2, "{}", outcome.out);
    let outcome = logs.fed(&text, &["fit", "-", "--x", "ts", "--gpus", "8", "--json"]);
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    let found: Value = serde_json::from_str(&outcome.out).unwrap();
    let last = number(&found["runs"][0]["last_compute"]);
    assert!((last - 29.0 * 600.0 / 3600.0 * 8.0).abs() < 1e-6, "{last}");
}
