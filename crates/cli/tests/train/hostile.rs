//! Damaged folders, poisoned checkpoints, changed data, models without weights: said, kept, refused or
//! recovered from, with what to do.

mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use scalerl_journal::{Checkpoint, What};
use scalerl_task::synthetic::{Synthetic, chain::Chain};
use serde_json::{Value, json};

use crate::bench::{
    Said, audit, events, files, folder, reading, resume, said, scalerl, succeed, train,
};
use crate::spoil::rewrite;

/// A few quick steps, each saved.
const QUICK: [&str; 9] = [
    "pipeline.groups_per_step=4",
    "pipeline.group_size=4",
    "task.held_out=16",
    "evaluation.generations=1",
    "evaluation.every_steps=100",
    "output.checkpoint_every_steps=1",
    "output.keep_latest=3",
    // In lockstep every step has its checkpoint: in a pipeline they may wait for an evaluation.
    "objective.off_policy.steps_behind=0",
    "budget.axis=\"steps\"",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    QUICK.iter().chain(more).copied().collect()
}

fn newest(run: &str) -> Checkpoint {
    reading(run).checkpoints.pop().unwrap()
}

fn assert_refused(said: &Said, words: &[&str]) {
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("\nhint: ") || said.err.starts_with("hint: "), "{}", said.err);
    for word in words {
        assert!(said.err.contains(word), "`{word}` is missing in: {}", said.err);
    }
}

#[test]
fn a_lost_or_empty_history_is_refused_and_nothing_is_changed() {
    let run = "history-lost";
    succeed(train("scalerl", run, &with(&["budget.steps=4"])));
    let path = folder().join(run).join("events.jsonl");
    let kept = fs::read(&path).unwrap();
    for is_removed in [true, false] {
        fs::write(&path, "").unwrap();
        if is_removed {
            fs::remove_file(&path).unwrap();
        }
        let before = files(&folder().join(run));
        let refused = said(resume(run, &["budget.steps=6"]));
        assert_refused(&refused, &["events.jsonl is missing or empty", "of step 4", "model.path"]);
        assert!(files(&folder().join(run)) == before, "a refusal changes nothing");
    }
    fs::write(&path, kept).unwrap();
    succeed(resume(run, &["budget.steps=6"]));
    audit(&reading(run), 8);
}

#[test]
fn a_damaged_checkpoint_is_said_and_kept() {
    let run = "checkpoint-damaged";
    succeed(train("scalerl", run, &with(&["budget.steps=4"])));
    let checkpoint = newest(run);
    let weights = checkpoint.path.join("trainer/model/model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&weights, &bytes).unwrap();
    let resumed = succeed(resume(run, &["budget.steps=6"]));
    let name = checkpoint.name();
    let expected = format!("DAMAGED: checkpoints/{name}: trainer/model/model.safetensors is not");
    assert!(resumed.err.contains(&expected), "{}", resumed.err);
    assert!(
        resumed.err.contains(&format!("kept as checkpoints/damaged-{name}")),
        "{}",
        resumed.err
    );
    let kept = folder().join(run).join("checkpoints").join(format!("damaged-{name}"));
    assert_eq!(fs::read(kept.join("trainer/model/model.safetensors")).unwrap(), bytes);
    let reading = reading(run);
    assert_eq!(events(&reading).filter(|what| matches!(what, What::Damaged { .. })).count(), 1);
    audit(&reading, 8);
}

#[test]
fn groups_that_would_break_every_step_are_set_aside_on_resume() {
    let run = "poisoned";
    let phases = [
        "objective.off_policy={type=\"ppo-off-policy\",steps_per_phase=4}",
        "objective.curriculum=\"none\"",
        // In the middle of a phase: its later batches wait.
        "budget.steps=5",
    ];
    succeed(train("scalerl", run, &with(&phases)));
    let mut spoilt = 0;
    rewrite(&newest(run), "groups.jsonl", |text| {
        let spoil = |(index, line): (usize, &str)| {
            let mut group: Value = serde_json::from_str(line).unwrap();
            let completion = &mut group["judged"]["rollouts"][0]["completion"];
            match index % 4 {
                0 => completion["logprobs"][0] = json!(-1e30),
                1 => completion["token_ids"][0] = json!(4_000_000),
                2 => completion["text"] = json!("</think>42"),
                _ => return line.to_owned() + "\n",
            }
            spoilt += 1;
            group.to_string() + "\n"
        };
        let waiting = text.lines().filter(|line| line.contains("\"queued\"")).count();
        assert!(waiting >= 4, "{waiting} groups wait");
        text.lines().enumerate().map(spoil).collect()
    });
    let resumed = succeed(resume(run, &["budget.steps=9"]));
    assert!(resumed.err.contains("set aside group "), "{}", resumed.err);
    let reading = reading(run);
    assert_eq!(reading.summary().set_aside, spoilt);
    assert_eq!(reading.summary().version.0, 9);
    assert_eq!(files(&folder().join(run).join("set-aside")).len(), spoilt);
    audit(&reading, 3);
    succeed(resume(run, &["budget.steps=10"]));
}

/// What another row has in a column.
type Change = fn(usize) -> Option<(&'static str, Value)>;

/// Rows of the small task as a file, with a column that a verifier might read.
fn write_rows(path: &Path, change: Change) {
    let task = Synthetic::Chain(Chain { operations: (1, 3), ..Chain::default() });
    let mut text = String::new();
    for (row, problem) in task.problems("chains", 1, 200).unwrap().into_iter().enumerate() {
        let mut value = json!({
            "prompt": problem.text(), "answer": problem.answer, "tests": [row, row + 1],
        });
        if let Some((column, other)) = change(row) {
            value[column] = other;
        }
        text.push_str(&value.to_string());
        text.push('\n');
    }
    fs::write(path, text).unwrap();
}

#[test]
fn data_that_changed_is_refused_by_its_row() {
    let (run, data) = ("data-changed", folder().join("changing.jsonl"));
    write_rows(&data, |_| None);
    let source = "task.datasets=[{name=\"chains\",source={type=\"files\",path=\"changing.jsonl\"},\
                  verifier={type=\"exact\"}}]";
    let [weights, examples, path] = from_model(warm_model());
    let prompt = "task.prompt={type=\"plain\",template=\"{prompt}\"}";
    let set = [source, prompt, "budget.steps=2", &weights, &examples, &path];
    succeed(train("scalerl", run, &with(&set)));
    let refused = |expected: &str| {
        let said = said(resume(run, &["budget.steps=4"]));
        assert_refused(&said, &[expected, "another run"]);
    };
    let changes: [(Change, &str); 4] = [
        (|row| (row == 117).then_some(("answer", json!("7"))), "the answer of chains/117"),
        (|row| (row == 3).then_some(("prompt", json!("9+9="))), "the prompt of chains/3"),
        (|row| (row == 0).then_some(("tests", json!([0, 7]))), "a column of chains/0"),
        (|row| (row > 0).then_some(("more", json!(1))), "a column of chains/1"),
    ];
    for (change, expected) in changes {
        write_rows(&data, change);
        refused(expected);
    }
    write_rows(&data, |_| None);
    let whole = fs::read_to_string(&data).unwrap();
    fs::write(&data, whole.lines().take(199).collect::<Vec<_>>().join("\n")).unwrap();
    refused("chains/199 is gone");
    fs::write(&data, &whole).unwrap();
    succeed(resume(run, &["budget.steps=4"]));
    audit(&reading(run), 8);
}

/// The model that all runs here start from.
fn warm_model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        succeed(train("scalerl", "for-its-model", &with(&["budget.steps=1"])));
        let text = fs::read(folder().join("for-its-model/policy.json")).unwrap();
        let policy: Value = serde_json::from_slice(&text).unwrap();
        PathBuf::from(policy["folder"].as_str().unwrap())
    })
}

/// Starts from that model as from anybody's.
fn from_model(model: &Path) -> [String; 3] {
    [
        "model.weights=\"pretrained\"".to_owned(),
        "warm_up.examples=\"none\"".to_owned(),
        format!("model.path=\"{}\"", model.display()),
    ]
}

fn copy(from: &Path, name: &str) -> PathBuf {
    let to = folder().join(name);
    fs::create_dir_all(&to).unwrap();
    for (path, bytes) in files(from) {
        fs::write(to.join(path), bytes).unwrap();
    }
    to
}

#[test]
fn a_model_whose_weights_cannot_be_read_is_refused_by_the_plan_and_leaves_no_folder() {
    let whole = warm_model();
    let [missing, cut, other, shard] =
        ["no-weights", "cut-weights", "other-weights", "no-shard"].map(|name| copy(whole, name));
    let file = "model.safetensors";
    fs::remove_file(missing.join(file)).unwrap();
    let bytes = fs::read(whole.join(file)).unwrap();
    fs::write(cut.join(file), &bytes[..bytes.len() - 100]).unwrap();
    let config = fs::read_to_string(other.join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["intermediate_size"] = json!(256);
    fs::write(other.join("config.json"), config.to_string()).unwrap();
    fs::remove_file(shard.join(file)).unwrap();
    let index = json!({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}});
    fs::write(shard.join("model.safetensors.index.json"), index.to_string()).unwrap();
    for (model, expected) in [
        (missing, "no model.safetensors"),
        (cut, "not a whole safetensors file"),
        (other, "config.json asks for"),
        (shard, "model-00001-of-00001.safetensors"),
    ] {
        let [weights, examples, path] = from_model(&model);
        let set = with(&[&weights, &examples, &path]);
        for plan in [Some("--dry-run"), None] {
            let mut command = train("scalerl", "never-began", &set);
            command.args(plan);
            assert_refused(&said(command), &[expected]);
            assert!(!folder().join("never-began").exists(), "a folder was left");
        }
    }
}

#[test]
fn a_start_that_failed_or_was_killed_before_its_first_event_does_not_block_the_next() {
    let run = "start-failed";
    let mut command = train("scalerl", run, &with(&["budget.steps=1", "cluster.generators=1"]));
    // Nobody listens there.
    command.env("SCALERL_REDIS", "redis://127.0.0.1:1");
    let failed = said(command);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.err.contains("Redis"), "{}", failed.err);
    assert!(!folder().join(run).exists(), "a folder was left");
    // As a kill would leave it: with records of another model and other data in it.
    let path = folder().join(run);
    fs::create_dir_all(path.join("samples")).unwrap();
    for name in ["recipe.toml", "environment.json", "events.jsonl", "run.lock"] {
        fs::write(path.join(name), "").unwrap();
    }
    fs::write(path.join("policy.json"), "{\"folder\":\"/nowhere\",\"random\":null}").unwrap();
    fs::write(path.join("held_out.json"), "{}").unwrap();
    fs::write(path.join("problems.fingerprints"), "nonsense\n").unwrap();
    succeed(train("scalerl", run, &with(&["budget.steps=1"])));
    audit(&reading(run), 8);
    assert_refused(&said(train("scalerl", run, &with(&["budget.steps=1"]))), &["--resume"]);
}

#[test]
fn status_and_report_tell_of_groups_that_were_set_aside() {
    let run = "poisoned-and-told";
    let phases =
        ["objective.off_policy={type=\"ppo-off-policy\",steps_per_phase=2}", "budget.steps=1"];
    succeed(train("scalerl", run, &with(&phases)));
    rewrite(&newest(run), "groups.jsonl", |text| {
        text.replacen("\"logprobs\":[", "\"logprobs\":[-1e30,", 1)
    });
    succeed(resume(run, &["budget.steps=3"]));
    let status = succeed(scalerl(&["status", run, "--json"])).out;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["run"]["set_aside"], 1, "{status}");
    succeed(scalerl(&["report", run]));
    let page = fs::read_to_string(folder().join(run).join("report.html")).unwrap();
    assert!(page.contains("Groups that no step could use"), "the report is silent");
    assert!(page.contains("set-aside/group-"), "where it is");
}
