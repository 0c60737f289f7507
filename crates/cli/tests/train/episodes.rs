//! Episodes of several turns on a real model: they are learned from, kept to be read, and survive
//! SIGKILL.

use std::process::Command;

use scalerl_journal::{Sample, What};

use crate::bench::{audit, events, files, finish, folder, reading, scalerl, succeed};
use crate::killing::{ENDLESS, kill_and_resume};
use crate::learning::rise;

/// Standard errors that a rise over several turns must have.
const SURE: f64 = 5.0;

fn train(run: &str, set: &[&str]) -> Command {
    let mut command =
        scalerl(&["train", "episodes", "--device", "cpu", "--run", run, "--no-history"]);
    for one in ["output.folder=\"runs\"", "output.sampled_completions=64"].iter().chain(set) {
        command.args(["--set", one]);
    }
    command
}

/// A store of two tools, read and added by turns (`recipes/episodes.toml`).
#[test]
fn a_model_learns_to_use_two_tools_over_several_turns() {
    let reading =
        finish("episodes", train("episodes", &["budget.steps=60", "evaluation.every_steps=6"]));
    let (first, last, errors) = rise(&reading);
    println!("episodes: {first:.3} to {last:.3}, {errors:.1} standard errors");
    assert!(errors > SURE, "{first:.3} to {last:.3}, {errors:.1} standard errors");
    audit(&reading, 8);
    for what in events(&reading) {
        assert!(!matches!(what, What::VerifierFailed { .. }), "{what:?}");
    }
    let text =
        std::fs::read_to_string(folder().join("episodes/samples/step-000060.jsonl")).unwrap();
    let samples: Vec<Sample> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(samples.iter().any(|sample| sample.turns > 3), "no episode of several turns");
    for sample in samples.iter().filter(|sample| sample.reward.unwrap().is_correct) {
        // What the environment said is marked, and what was written is all there.
        let whole: String = sample.parts.iter().map(|part| part.text.as_str()).collect();
        assert!(whole.contains(&format!("={}", sample.answer)), "{sample:?}");
        assert!(sample.parts.iter().any(|part| part.is_injected), "{sample:?}");
        assert!(sample.parts.len() as u32 >= 2 * sample.turns - 1, "{sample:?}");
    }
    succeed(scalerl(&["report", "episodes"]));
    let page = std::fs::read_to_string(folder().join("episodes/report.html")).unwrap();
    assert!(page.contains("put in by the environment"), "the report shows who wrote what");
}

#[test]
fn killed_in_the_middle_of_episodes_a_run_leaves_what_an_undisturbed_one_does() {
    let set = ["objective.off_policy.steps_behind=0"];
    let steps =
        kill_and_resume("killed-episodes", 12, 3, |all| train("killed-episodes", all), &set);
    let budget = format!("budget.steps={steps}");
    let all: Vec<&str> = ENDLESS.iter().chain(&set).copied().chain([budget.as_str()]).collect();
    let straight = finish("straight-episodes", train("straight-episodes", &all));
    let killed = reading("killed-episodes");
    audit(&killed, 0);
    assert!(
        killed.history.timeless_text().unwrap() == straight.history.timeless_text().unwrap(),
        "the histories differ"
    );
    let weights =
        |run: &str| files(&folder().join(run).join(format!("checkpoints/step-{steps:06}/trainer")));
    assert!(weights("killed-episodes") == weights("straight-episodes"), "the trainers differ");
}
