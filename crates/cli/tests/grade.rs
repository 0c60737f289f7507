//! `scalerl grade` as a user sees it: rows, percentages, error text, exit code.

#![cfg(feature = "grade")]
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

const ROWS: &str = r#"{"gold": "1/2", "pred": "So it is $\\boxed{0.5}$.", "expected": 1}
{"gold": "228", "pred": "\\boxed{56 + 52 + 72 + 48}"}

{"gold": "3", "pred": null, "expected": 0}
{"gold": "\\frac{7}{8}", "pred": "\\frac{7}{9}", "expected": 1}
{"gold": "6", "pred": "$\\sum_{k=1}^{3} k$"}
"#;

/// Runs the command on what it gets by standard input.
fn grade(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_scalerl"))
        .arg("grade")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Standard output without its last line, which is a time.
fn shown(output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    lines[..lines.len() - 1].join("\n")
}

#[test]
fn every_row_is_shown_with_its_verdict_and_the_share_of_equal_ones() {
    let output = grade(&["-"], ROWS);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(shown(&output), @r"
    line 1     equal      1/2 | So it is $\boxed{0.5}$.
    line 2     equal      228 | \boxed{56 + 52 + 72 + 48}
    line 4     different  3 | no answer
    line 5     different  \frac{7}{8} | \frac{7}{9}  (expected equal)
    line 6     undecided  6 | $\sum_{k=1}^{3} k$  (the prediction cannot be read as mathematics)
    5 rows: 2 equal (40.0 %), 2 different, 1 undecided, 0 errors
    agreement 66.7 % (2 of 3), wrongly equal 0, wrongly different 1
    ");
}

#[test]
fn quiet_shows_only_rows_that_need_a_reader() {
    let output = grade(&["-", "--quiet", "--evaluated"], ROWS);
    insta::assert_snapshot!(shown(&output), @r"
    line 5     different  \frac{7}{8} | \frac{7}{9}  (expected equal)
    5 rows: 1 equal (20.0 %), 4 different, 0 undecided, 0 errors
    agreement 66.7 % (2 of 3), wrongly equal 0, wrongly different 1
    ");
}

#[test]
fn machines_get_one_object_a_row_and_one_for_all() {
    let output = grade(&["-", "--json"], ROWS);
    let text = String::from_utf8(output.stdout).unwrap();
    let objects: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 6);
    assert_eq!((&objects[2]["row"], &objects[2]["line"]), (&2.into(), &4.into()));
    assert_eq!(objects[2]["verdict"], "different");
    let summary = &objects[5]["summary"];
    assert_eq!((&summary["rows"], &summary["equal"]), (&5.into(), &2.into()));
    assert_eq!(summary["equal_share"], 0.4);
}

#[test]
fn a_broken_row_is_named_by_its_line() {
    let output =
        grade(&["-"], "{\"gold\": \"1\", \"pred\": \"1\"}\n{\"gold\": null, \"pred\": \"1\"}\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty(), "nothing is graded when a row is broken");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("error: -: line 2: `gold` is null"), "{error}");
    assert!(error.contains("hint: a row is one JSON object per line"), "{error}");
}
