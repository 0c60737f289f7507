//! `scalerl sft` as a user runs it: killed in the middle, resumed, and the same to the last bit.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
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

/// `scalerl generate` with this model and this standard input.
fn generate(folder: &Path, arguments: &[&str], input: &str) -> (String, String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
    command.args(["generate", "--device", "cpu", "--model", "out/model", "--temperature", "0"]);
    command.args(["--max-tokens", "8"]).args(arguments).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn generate_reads_standard_input_and_chats_without_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    write_task(&folder.path().join("train.jsonl"));
    assert!(command(folder.path(), "out", &[]).output().unwrap().status.success());

    let (given, err, code) = generate(folder.path(), &["--prompt", "abc>"], "");
    assert_eq!(code, Some(0), "{err}");
    let (piped, ..) = generate(folder.path(), &["-"], "abc>\n");
    assert_eq!(given, piped, "the same prompt, however it comes");
    let (several, ..) = generate(folder.path(), &["--prompts", "-"], "abc>\nbcd>\n");
    assert!(several.contains("--- prompt 2, completion 1"), "{several}");
    let (_, err, code) = generate(folder.path(), &["-"], "");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("there is no prompt"), "{err}");

    // The same question asked anew is answered the same; later in a conversation the model reads more.
    let (chat, err, code) = generate(folder.path(), &[], "abc\n/reset\nabc\n/exit\nabc\n");
    assert_eq!(code, Some(0), "{err}");
    let answers: Vec<&str> = chat.lines().filter(|line| !line.starts_with('[')).collect();
    assert_eq!(answers.len(), 2, "{chat}");
    assert_eq!(answers[0], answers[1], "{chat}");
    let (asked, ..) = generate(folder.path(), &["--chat", "--prompt", "abc"], "");
    assert!(chat.starts_with(&asked), "the first turn is a chat prompt\n{chat}\n{asked}");
    // A conversation that outgrows the model's context says so and goes on.
    let long = "abcdefghij".repeat(20);
    let (chat, err, code) = generate(folder.path(), &[], &format!("{long}\nabc\n"));
    assert_eq!(code, Some(0), "{err}");
    assert!(chat.contains("/reset begins anew]"), "{chat}");
    assert!(chat.ends_with(answers[0]) || chat.contains(answers[0]), "{chat}");
}
