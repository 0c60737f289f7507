//! `scalerl init` as a user runs it: from a file of problems to a recipe that trains.

#![cfg(feature = "train")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Folder(tempfile::TempDir);

impl Folder {
    /// With a model in it: a tokenizer, a chat template and a shape; its weights are random.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
        fs::create_dir(folder.path().join("model")).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            fs::copy(entry.path(), folder.path().join("model").join(entry.file_name())).unwrap();
        }
        let config = folder.path().join("model/config.json");
        let mut shape: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
        shape["max_position_embeddings"] = 4096.into();
        fs::write(&config, shape.to_string()).unwrap();
        Self(folder)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    fn scalerl(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scalerl"));
        command.args(arguments).current_dir(self.0.path()).env("CUDA_VISIBLE_DEVICES", "");
        command.output().unwrap()
    }

    fn works(&self, arguments: &[&str]) -> String {
        let output = self.scalerl(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}\n{said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What is said where something is refused.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.scalerl(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// The recipe for this data, after it was checked and tried.
    fn recipe(&self, data: &str) -> String {
        let file = "new.toml";
        fs::remove_file(self.0.path().join(file)).ok();
        let said = self.works(&["init", data, "--model", "model", "--out", file]);
        assert!(said.contains("task.verifier"), "{said}");
        assert!(self.works(&["recipe", "check", file]).starts_with("new.toml: fine\n"));
        let plan = self.works(&[
            "train",
            file,
            "--dry-run",
            "--device",
            "cpu",
            "--set",
            "model.weights=random",
        ]);
        assert!(plan.contains("to train on"), "{plan}");
        self.read(file)
    }
}

/// Twenty rows, each made of its number.
fn lines(row: impl Fn(usize) -> serde_json::Value) -> String {
    (0..20).map(|number| row(number).to_string() + "\n").collect()
}

#[test]
fn a_recipe_is_written_for_every_kind_of_data_and_can_be_tried() {
    let folder = Folder::new();
    let user = |text: String| serde_json::json!([{"role": "user", "content": text}]);
    let kinds: [(&str, String, &[&str]); 5] = [
        (
            "marked.jsonl",
            lines(
                |n| serde_json::json!({"question": format!("{n} and 1?"), "answer": format!("so\n#### {}", n + 1)}),
            ),
            &["answer_after = \"####\"", "verifier = \"math\"", "answer = \"boxed\""],
        ),
        (
            "boxed.jsonl",
            lines(
                |n| serde_json::json!({"problem": format!("{n} and 2?"), "solution": format!("\\boxed{{{}}}", n + 2)}),
            ),
            &["answer_boxed = true", "prompt_column = \"problem\""],
        ),
        (
            "nested.jsonl",
            lines(
                |n| serde_json::json!({"prompt": user(format!("{n} in \\boxed{{}}?")), "reward_model": {"ground_truth": n.to_string()}}),
            ),
            &["answer_column = \"reward_model.ground_truth\"", "prompt = \"chat\""],
        ),
        (
            "words.csv",
            (0..20).fold("Question,Answer\n".to_owned(), |text, n| {
                text + &format!("Who is {n}?,Anna\n")
            }),
            &["type = \"exact\"", "prompt_column = \"Question\""],
        ),
        (
            "countdown.jsonl",
            lines(
                |n| serde_json::json!({"question": format!("reach {n}"), "nums": [n, 1], "target": n + 1}),
            ),
            &["type = \"countdown\"", "answer_column = \"\""],
        ),
    ];
    for (name, text, expected) in kinds {
        folder.write(name, &text);
        let recipe = folder.recipe(name);
        for part in expected {
            assert!(recipe.contains(part), "{name}: no {part} in\n{recipe}");
        }
        let settings = recipe.lines().filter(|line| line.contains(" = ")).count();
        assert!(settings <= 24, "{name}: {settings} keys\n{recipe}");
    }
}

#[test]
fn a_recipe_that_is_there_is_not_overwritten() {
    let folder = Folder::new();
    folder
        .write("a.jsonl", &lines(|n| serde_json::json!({"question": n.to_string(), "answer": n})));
    folder.write("a.toml", "mine");
    let said = folder.refused(&["init", "a.jsonl"]);
    assert!(said.contains("a.toml exists") && said.contains("--out"), "{said}");
    assert_eq!(folder.read("a.toml"), "mine");
}

#[test]
fn what_is_no_task_leaves_no_file() {
    let folder = Folder::new();
    folder.write("a.jsonl", &lines(|n| serde_json::json!({"x": n, "y": n})));
    let said = folder.refused(&["init", "a.jsonl"]);
    assert!(said.contains("the columns are x, y") && said.contains("--problem"), "{said}");
    assert!(!folder.0.path().join("a.toml").exists());
}

/// Real data sets, where they are: `SCALERL_MATH_DATA` names a folder of them.
#[test]
fn real_data_sets_are_understood() {
    let Some(data) = std::env::var_os("SCALERL_MATH_DATA").map(PathBuf::from) else { return };
    let folder = Folder::new();
    let expected = [
        ("gsm8k_train.jsonl", "answer_after = \"####\""),
        ("math500.jsonl", "answer_column = \"answer\""),
        ("math_train.parquet", "answer_column = \"reward_model.ground_truth\""),
        ("svamp.json", "{Body}"),
        ("countdown_train.parquet", "type = \"countdown\""),
        ("dapo_math_17k.parquet", "answer_column = \"reward_model.ground_truth\""),
        ("aime24.jsonl", "verifier = \"math\""),
        ("aime25.jsonl", "verifier = \"math\""),
    ];
    for (name, part) in expected {
        let recipe = folder.recipe(&data.join(name).display().to_string());
        assert!(recipe.contains(part), "{name}: no {part} in\n{recipe}");
    }
}
