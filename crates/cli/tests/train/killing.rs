//! SIGKILL at random moments, and what the folder says afterwards.

use std::process::Command;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use scalerl_journal::What;

use crate::bench::{
    assert_none_skipped, audit, files, finish, folder, lines, reading, resume, succeed, train,
    wait_until,
};

/// Of each run.
const KILLS: usize = 30;

/// Small steps, each saved every other time, and more of them than a killed run can take.
pub(crate) const ENDLESS: [&str; 7] = [
    "pipeline.groups_per_step=4",
    "pipeline.group_size=4",
    "task.held_out=16",
    "evaluation.every_steps=3",
    "output.checkpoint_every_steps=2",
    "budget.axis=\"steps\"",
    "budget.steps=100000",
];

/// Starts, kills at a random moment after a random number of new events, and so on; then lets the
/// run come to its end. Returns its steps.
pub(crate) fn kill_and_resume(
    run: &str,
    kills: usize,
    seed: u64,
    begin: impl Fn(&[&str]) -> Command,
    set: &[&str],
) -> u64 {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let all: Vec<&str> = ENDLESS.iter().chain(set).copied().collect();
    for kill in 0..kills {
        let command = match kill {
            0 => begin(&all),
            _ => resume(run, &[]),
        };
        let mut child = { command }.spawn().unwrap();
        if kill > 0 && random.next_u32() % 5 == 0 {
            // While it starts, most likely.
            std::thread::sleep(Duration::from_micros(u64::from(random.next_u32() % 600_000)));
        } else {
            // Counted in events, so that a slow machine is killed in the same places as a fast one.
            let enough = lines(run) + 1 + (random.next_u32() % 90) as usize;
            wait_until(&mut child, "enough events", || lines(run) >= enough);
            std::thread::sleep(Duration::from_micros(u64::from(random.next_u32() % 40_000)));
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "the kill came too late");
    }
    let reached = reading(run).checkpoints.last().map_or(0, |one| one.version.0);
    let steps = reached + 3;
    succeed(resume(run, &[&format!("budget.steps={steps}")]));
    steps
}

#[test]
fn a_killed_pipeline_skips_no_prompt_and_trains_on_none_twice() {
    let set = ["objective.curriculum=\"none\"", "objective.off_policy.steps_behind=3"];
    let steps = kill_and_resume(
        "killed-pipeline",
        KILLS,
        1,
        |all| train("scalerl", "killed-pipeline", all),
        &set,
    );
    let reading = reading("killed-pipeline");
    let places = audit(&reading, 3);
    assert_none_skipped(&places, 1200);
    assert_eq!(reading.summary().version.0, steps);
    let all = reading.history.events.iter().chain(&reading.history.undone);
    let resumes = all.filter(|event| matches!(event.what, What::Resumed { .. })).count();
    println!("{steps} steps, {resumes} resumes, {} events undone", reading.history.undone.len());
    // A process killed while it started has resumed nothing.
    assert!((KILLS / 2..=KILLS).contains(&resumes), "{resumes} resumes");
    assert!(!reading.history.undone.is_empty(), "some kill has cost something");
}

#[test]
fn a_killed_run_without_lag_leaves_what_an_undisturbed_one_does() {
    let set = ["objective.off_policy.steps_behind=0", "objective.curriculum.threshold=0.7"];
    let steps = kill_and_resume("killed", KILLS, 2, |all| train("scalerl", "killed", all), &set);
    let killed = reading("killed");
    let budget = format!("budget.steps={steps}");
    let all: Vec<&str> = ENDLESS.iter().chain(&set).copied().chain([budget.as_str()]).collect();
    let straight = finish("straight", train("scalerl", "straight", &all));
    audit(&killed, 0);
    let text = killed.history.timeless_text().unwrap();
    assert!(text.lines().count() > 20 && text.contains("\"forecast\""));
    assert!(text == straight.history.timeless_text().unwrap(), "the histories differ");
    let weights =
        |run: &str| files(&folder().join(run).join(format!("checkpoints/step-{steps:06}/trainer")));
    assert!(weights("killed") == weights("straight"), "the trainers differ");
    for file in ["points.jsonl", "held_out.json"] {
        let length = |run: &str| std::fs::read(folder().join(run).join(file)).unwrap().len();
        assert!(length("killed") > 0 && length("straight") > 0, "{file}");
    }
}

#[test]
fn a_killed_warm_up_goes_on_with_the_same_command() {
    let set = [
        "model.weights.layers=1",
        "warm_up.steps=150",
        "budget.steps=2",
        "evaluation.generations=1",
    ];
    let with = |output: &str, run: &str| {
        let output = format!("output.folder=\"{output}\"");
        train("scalerl", run, &[&set[..], &[output.as_str()]].concat())
    };
    // Nothing is there at first.
    let metrics = || {
        let found = std::fs::read_dir(folder().join("warm-killed/warm-up")).ok();
        let first = found.and_then(|mut found| found.next())?.ok()?;
        std::fs::read_to_string(first.path().join("sft/metrics.jsonl")).ok()
    };
    let steps = || metrics().map_or(0, |text| text.lines().count());
    for enough in [1, 60, 110] {
        let mut child = with("warm-killed", "after-warm-up").spawn().unwrap();
        wait_until(&mut child, "the warm-up", || steps() >= enough);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder().join("after-warm-up").exists(), "a run begins after its warm-up");
    }
    succeed(with("warm-killed", "after-warm-up"));
    succeed(with("warm-straight", "after-straight"));
    let model = |output: &str| {
        let all = files(&folder().join(output)).into_iter();
        let mut found = all.filter(|(path, _)| path.ends_with("sft/model/model.safetensors"));
        found.next().unwrap().1
    };
    assert!(model("warm-killed") == model("warm-straight"), "the same weights, bit for bit");
}
