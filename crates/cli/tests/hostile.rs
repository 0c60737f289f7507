//! Files and numbers made to hurt, as a user meets them: every command ends by itself with exit code
//! 2, an error that names the file or key, and a hint. `make test-hostile` adds up the cases.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Seconds after which a command has hung. Each needs less than one.
const HUNG: &str = "300";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Something that never ends, or that nobody writes to, under a file's name.
    fn impostors(&self, name: &str) -> [String; 3] {
        let [pipe, zero, large] = ["pipe", "zero", "large"].map(|kind| format!("{kind}-{name}"));
        let made = Command::new("mkfifo").arg(self.path().join(&pipe)).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::symlink("/dev/zero", self.path().join(&zero)).unwrap();
        let holes = File::create(self.path().join(&large)).unwrap();
        holes.set_len(1 << 40).unwrap();
        [pipe, zero, large]
    }

    /// A command in this folder, which is killed when it hangs.
    fn scalerl(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(HUNG).arg(env!("CARGO_BIN_EXE_scalerl")).args(arguments);
        command.current_dir(self.path());
        command
    }

    /// What a command that must be refused says.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.scalerl(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.starts_with("error: ") && said.contains("\nhint: "), "{arguments:?}: {said}");
        said
    }
}

fn example() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/curves/scalerl-8b.csv");
    std::fs::read(path).unwrap()
}

#[test]
fn logs_recipes_and_studies_are_regular_files() {
    let folder = Folder::new();
    let logs = folder.impostors("log.csv");
    let recipes = folder.impostors("recipe.toml");
    let commands: [&[&str]; 7] = [
        &["fit"],
        &["compare"],
        &["backtest"],
        &["bench", "fit"],
        &["recipe", "show"],
        &["recipe", "check"],
        &["study"],
    ];
    let mut count = 0;
    for (place, command) in commands.iter().enumerate() {
        for file in if place < 4 { &logs } else { &recipes } {
            let said = folder.refused(&[command, &[file.as_str()][..]].concat());
            assert!(said.contains(file.as_str()), "{said}");
            count += 1;
        }
    }
    println!("hostile cases: {count}");
}

#[test]
fn the_pipe_of_a_shell_is_read_to_its_end() {
    let folder = Folder::new();
    let mut child = folder.scalerl(&["fit", "/dev/stdin", "--json"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&example()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let fitted: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(fitted.to_string().contains("ceiling"), "{fitted}");
}

#[test]
fn run_folders_hold_regular_files() {
    let mut count = 0;
    for name in ["recipe.toml", "environment.json", "events.jsonl"] {
        for kind in ["pipe", "zero"] {
            let folder = Folder::new();
            let run = folder.path().join("run");
            std::fs::create_dir(&run).unwrap();
            for (file, text) in
                [("recipe.toml", "seed = 1\n"), ("environment.json", "{}"), ("events.jsonl", "")]
            {
                std::fs::write(run.join(file), text).unwrap();
            }
            std::fs::remove_file(run.join(name)).unwrap();
            if kind == "pipe" {
                assert!(Command::new("mkfifo").arg(run.join(name)).status().unwrap().success());
            } else {
                std::os::unix::fs::symlink("/dev/zero", run.join(name)).unwrap();
            }
            for command in ["status", "report", "fit", "predictions"] {
                // Some read other files first and find those wanting: what matters is that they end.
                let output = folder.scalerl(&[command, "run"]).output().unwrap();
                let said = String::from_utf8(output.stderr).unwrap();
                assert_ne!(
                    output.status.code(),
                    Some(124),
                    "{command}, {kind} {name} hung: {said}"
                );
                assert!(matches!(output.status.code(), Some(0 | 2)), "{command}, {name}: {said}");
                count += 1;
            }
        }
    }
    println!("hostile cases: {count}");
}

#[cfg(feature = "grade")]
#[test]
fn graded_files_are_regular_files() {
    let folder = Folder::new();
    for file in folder.impostors("answers.jsonl") {
        assert!(folder.refused(&["grade", &file]).contains(&file));
    }
    std::fs::write(folder.path().join("row.jsonl"), "{\"gold\": \"1\", \"pred\": \"1\"}\n")
        .unwrap();
    let opinion = ["grade", "row.jsonl", "--second-opinion", "math-verify", "--timeout-s"];
    for seconds in ["1e300", "inf", "nan", "0"] {
        let said = folder.refused(&[&opinion[..], &[seconds][..]].concat());
        assert!(said.contains("timeout_s"), "{said}");
    }
    println!("hostile cases: 7");
}

#[cfg(feature = "train")]
mod train {
    use super::*;

    /// A model folder with a tokenizer and a template.
    fn tiny_chat() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/testdata/tiny_chat");
        path.display().to_string()
    }

    fn dry_run(folder: &Folder, set: &str) -> String {
        folder.refused(&["train", "quickstart", "--device", "cpu", "--dry-run", "--set", set])
    }

    #[test]
    fn absurd_sizes_are_refused_before_anything_is_made() {
        let folder = Folder::new();
        let new = |keys: &str| format!("model.weights={{ type = \"new\", {keys} }}");
        let chain = |keys: &str| {
            format!("task.datasets=[{{ name = \"a\", source = {{ type = \"chain\", {keys} }} }}]")
        };
        let cases = [
            ("experts", new("experts = 1_000_000_000")),
            ("experts", new("experts = 65_536, layers = 4096")),
            ("parameters", new("width = 131_072, layers = 4096, feed_forward = 1_048_576")),
            ("270", chain("min_steps = 1, max_steps = 1, count = 10_000_000")),
            ("count", chain("count = 1_000_000_000_000")),
            ("max_steps", chain("max_steps = 4_000_000_000")),
            ("verifier_timeout_s", "task.verifier_timeout_s=1e300".into()),
            ("groups_per_step", "pipeline.groups_per_step=4_000_000_000".into()),
        ];
        for (word, set) in &cases {
            let said = dry_run(&folder, set);
            assert!(said.contains(word), "{set}: {said}");
        }
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "a plan leaves nothing behind");
        println!("hostile cases: {}", cases.len());
    }

    #[test]
    fn a_model_that_does_not_fit_is_refused_before_it_is_made() {
        let folder = Folder::new();
        let set = "model.weights={ type = \"new\", width = 131_072, layers = 8, feed_forward = 1_048_576 }";
        let said = folder.refused(&[
            "train",
            "quickstart",
            "--device",
            "cpu",
            "--set",
            set,
            "--set",
            "warm_up.examples=\"none\"",
        ]);
        assert!(said.contains("GiB for its weights"), "{said}");
        assert!(!folder.path().join("runs/quickstart-1").exists(), "a folder blocks the next try");
        println!("hostile cases: 1");
    }

    #[test]
    fn data_of_a_recipe_is_regular_files() {
        let folder = Folder::new();
        let model = format!("model.path=\"{}\"", tiny_chat());
        for file in folder.impostors("data.jsonl") {
            let source = format!("{{ type = \"files\", path = \"{file}\" }}");
            let data = format!("task.datasets=[{{ name = \"a\", source = {source} }}]");
            let mut arguments = vec!["train", "scalerl", "--device", "cpu", "--dry-run"];
            for set in [&data, &model, "model.weights=\"random\"", "budget.steps=1"] {
                arguments.extend(["--set", set]);
            }
            let said = folder.refused(&arguments);
            assert!(said.contains(&file), "{said}");
        }
        println!("hostile cases: 3");
    }

    #[test]
    fn a_template_or_tokenizer_that_runs_wild_is_refused() {
        let cases = [
            ("chat_template.jinja", "{{ \"%999999999d\"|format(1) }}".to_owned(), "memory"),
            (
                "chat_template.jinja",
                "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
                    .to_owned(),
                "steps",
            ),
            ("tokenizer.json", wild_tokenizer(), "tried on"),
        ];
        for (name, text, word) in &cases {
            let folder = Folder::new();
            let model = folder.path().join("model");
            std::fs::create_dir(&model).unwrap();
            for file in std::fs::read_dir(tiny_chat()).unwrap() {
                let file = file.unwrap();
                std::fs::copy(file.path(), model.join(file.file_name())).unwrap();
            }
            std::fs::write(model.join(name), text).unwrap();
            let said = folder.refused(&["generate", "--model", "model", "--chat", "--prompt", "x"]);
            assert!(said.contains(name) && said.contains(word), "{said}");
        }
        println!("hostile cases: {}", cases.len());
    }

    fn wild_tokenizer() -> String {
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": null, "post_processor": null, "decoder": null,
            "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(x+x+)+y"},
                              "behavior": "Isolated", "invert": false},
            "model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"},
        })
        .to_string()
    }

    #[test]
    fn prompts_and_examples_are_regular_files() {
        let folder = Folder::new();
        for file in folder.impostors("prompts.jsonl") {
            let said = folder.refused(&["generate", "--model", &tiny_chat(), "--prompts", &file]);
            assert!(said.contains(&file), "{said}");
        }
        println!("hostile cases: 3");
    }
}
