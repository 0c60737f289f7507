//! `scalerl sft` as a user runs it: killed in the middle, resumed, and the same to the last bit.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Three letters backwards, with the tiny tokenizer of the model crate.
fn write_task(path: &Path) {
    let mut text = String::new();
    for index in 0..400_usize {
        let word = [index / 100, index / 10 % 10, index % 10].map(|i| b"abcdefghij"[i] as char);
        let asked: String = word.iter().collect();
        let answer: String = word.iter().rev().collect();
        writeln!(text, r#"{{"prompt": "{asked}>", "completion": "{answer}"}}"#).unwrap();
    }
    std::fs::write(path, text).unwrap();
}

fn command(folder: &Path, out: &str, extra: &[&str]) -> Command {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command
        .current_dir(folder)
        .env("OMP_WAIT_POLICY", "passive")
        .args(["sft", "--device", "cpu", "--from-scratch", "--train", "train.jsonl", "--out", out])
        .args(["--steps", "30", "--batch", "16", "--lr", "0.005", "--save-every", "7"])
        .arg("--model")
        .arg(model)
        .args(extra);
    command
}

#[test]
fn a_run_killed_by_the_system_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    write_task(&folder.path().join("train.jsonl"));
    let whole = command(folder.path(), "whole", &[]).output().unwrap();
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));

    let mut child = command(folder.path(), "broken", &[]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let seen = lines.map(Result::unwrap).find(|line| line.starts_with("step     17"));
    assert!(seen.is_some(), "step 17 was never printed");
    child.kill().unwrap();
    child.wait().unwrap();

    let again = command(folder.path(), "broken", &[]).output().unwrap();
    assert_eq!(again.status.code(), Some(2), "an occupied folder needs --resume");
    let resumed = command(folder.path(), "broken", &["--resume"]).output().unwrap();
    let said = String::from_utf8_lossy(&resumed.stdout);
    assert!(said.contains("going on after step"), "{said}");
    for file in ["metrics.jsonl", "model/model.safetensors"] {
        let read = |out: &str| std::fs::read(folder.path().join(out).join(file)).unwrap();
        assert!(read("whole") == read("broken"), "{file} differs");
    }
}
