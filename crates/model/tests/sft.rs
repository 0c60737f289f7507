//! Fine-tuning from file to folder: it learns, it marks answers, it resumes to the same bits.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use scalerl_model::folder::Model;
use scalerl_model::sft::{DataError, Progress, Reader, SftError, SftOptions, run};
use scalerl_model::train::{AdamWConfig, checkpoint};
use scalerl_torch::tch::{Device, Kind};

const GO_ON: ControlFlow<()> = ControlFlow::Continue(());

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tiny_chat")
}

/// The synthetic task: write three letters backwards.
fn write_task(path: &Path, from: usize, count: usize, is_chat: bool) {
    let letters = "abcdefghij".as_bytes();
    let mut text = String::new();
    for index in from..from + count {
        // Steps of 7 through 1000 words visit each of them once.
        let word = index * 7 % 1000;
        let word = [word / 100, word / 10 % 10, word % 10].map(|digit| letters[digit] as char);
        let asked: String = word.iter().collect();
        let answer: String = word.iter().rev().collect();
        let line = if is_chat {
            format!(
                r#"{{"messages": [{{"role": "user", "content": "{asked}"}}, {{"role": "assistant", "content": "{answer}"}}]}}"#
            )
        } else {
            format!(r#"{{"prompt": "{asked}>", "completion": "{answer}"}}"#)
        };
        writeln!(text, "{line}").unwrap();
    }
    std::fs::write(path, text).unwrap();
}

fn options(folder: &Path, steps: u64) -> SftOptions {
    write_task(&folder.join("train.jsonl"), 0, 800, true);
    write_task(&folder.join("valid.jsonl"), 800, 60, true);
    SftOptions {
        base: None,
        adapter: None,
        model: tiny(),
        is_from_scratch: true,
        train: folder.join("train.jsonl"),
        validation: Some(folder.join("valid.jsonl")),
        steps,
        examples_per_step: 32,
        max_tokens: 64,
        micro_batch_tokens: 128,
        optimizer: AdamWConfig { lr: 1e-2, warmup_steps: 10, epsilon: 1e-8, ..Default::default() },
        validate_every: 10,
        save_every: 10,
        keep: 2,
        seed: 5,
        is_recomputing: false,
    }
}

#[test]
fn a_small_model_learns_to_write_backwards() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let options = options(folder.path(), 150);
    let mut first = None;
    let outcome = run(&options, &out, Device::Cpu, false, &mut |progress| {
        if let Progress::Line(line) = progress {
            first = first.or(line["loss"].as_f64());
        }
        GO_ON
    })
    .unwrap()
    .unwrap();
    let held_out = outcome.validation_loss.unwrap();
    assert!(first.unwrap() > 2.0, "{first:?}");
    assert!(held_out < 0.1, "held-out loss {held_out}, training loss {}", outcome.last_loss);
    let model = Model::load(&outcome.model, Kind::Float, Device::Cpu).unwrap();
    assert!(model.folder.unwrap().join("tokenizer.json").is_file());
}

#[test]
fn a_run_that_was_killed_goes_on_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), 34);
    let whole = folder.path().join("whole");
    run(&options, &whole, Device::Cpu, false, &mut |_| GO_ON).unwrap();

    let broken = folder.path().join("broken");
    let killed = catch_unwind(AssertUnwindSafe(|| {
        run(&options, &broken, Device::Cpu, false, &mut |progress| {
            let Progress::Line(line) = progress else { return GO_ON };
            assert!(line["step"] != 27, "killed on purpose");
            GO_ON
        })
    }));
    assert!(killed.is_err());
    assert!(!broken.join("model").exists());
    let mut resumed_at = None;
    run(&options, &broken, Device::Cpu, true, &mut |progress| {
        if let Progress::Started { resumed_at: at, .. } = progress {
            resumed_at = Some(*at);
        }
        GO_ON
    })
    .unwrap();
    assert_eq!(resumed_at, Some(20));
    for file in ["metrics.jsonl", "model/model.safetensors", "model/config.json"] {
        let read = |out: &Path| std::fs::read(out.join(file)).unwrap();
        assert!(read(&whole) == read(&broken), "{file} differs");
    }
}

#[test]
fn an_occupied_folder_and_other_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), 2);
    let out = folder.path().join("out");
    run(&options, &out, Device::Cpu, false, &mut |_| GO_ON).unwrap();
    let again = run(&options, &out, Device::Cpu, false, &mut |_| GO_ON);
    assert!(matches!(again, Err(SftError::OutExists { .. })));
    options.seed = 6;
    let said = run(&options, &out, Device::Cpu, true, &mut |_| GO_ON).unwrap_err().to_string();
    assert!(said.contains("seed"), "{said}");
}

#[test]
fn a_damaged_checkpoint_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), 2);
    let out = folder.path().join("out");
    run(&options, &out, Device::Cpu, false, &mut |_| GO_ON).unwrap();
    let (_, path) = checkpoint::list(&out.join("checkpoints")).unwrap().pop().unwrap();
    let tensors = path.join("learner.safetensors");
    let mut bytes = std::fs::read(&tensors).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&tensors, bytes).unwrap();
    let said = run(&options, &out, Device::Cpu, true, &mut |_| GO_ON).unwrap_err().to_string();
    assert!(said.contains("learner.safetensors") && said.contains("SHA-256"), "{said}");
}

#[test]
fn only_answers_and_their_end_are_learned() {
    let reader = Reader::load(&tiny(), 64).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (is_chat, prompt) in [(true, "<|user|>bbc<|assistant|>"), (false, "bbc>")] {
        let path = folder.path().join("data.jsonl");
        write_task(&path, 16, 1, is_chat);
        let (examples, _) = reader.read(&path).unwrap();
        let example = &examples[0];
        let answers: Vec<i64> = picked(&example.tokens, &example.is_answer, true);
        let asked: Vec<i64> = picked(&example.tokens, &example.is_answer, false);
        assert_eq!(reader.tokenizer.decode_all(&asked).unwrap(), prompt);
        assert_eq!(reader.tokenizer.decode_all(&answers).unwrap(), "cbb</s>");
    }
}

fn picked(tokens: &[i64], flags: &[bool], wanted: bool) -> Vec<i64> {
    tokens.iter().zip(flags).filter(|(_, flag)| **flag == wanted).map(|(token, _)| *token).collect()
}

#[test]
fn bad_lines_are_named_by_file_and_number() {
    let reader = Reader::load(&tiny(), 64).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.jsonl");
    for (text, expected) in [
        ("{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"a\"}\n", "line 2"),
        ("not json\n", "line 1"),
        ("{\"messages\": [{\"role\": \"user\"}]}\n", "message 1: `content`"),
        ("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n", "no answer"),
    ] {
        std::fs::write(&path, text).unwrap();
        let said = reader.read(&path).unwrap_err().to_string();
        assert!(said.contains(expected) && said.contains("bad.jsonl"), "{expected}: {said}");
    }
    std::fs::write(&path, "\n").unwrap();
    assert!(matches!(reader.read(&path), Err(DataError::Empty { .. })));
}
