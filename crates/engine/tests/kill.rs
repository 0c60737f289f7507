//! A real process, real time, a trainer on its own thread, and SIGKILL at thirty random moments.
//!
//! The test starts itself again as the run to be killed (`the_run_to_be_killed` does nothing
//! unless it is told a folder).

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rig::{Rig, audit, digest};
use scalerl_engine::{OwnThread, fake, on_signals, run};
use scalerl_journal::{Reading, StopReason, What};

/// Names the folder in the environment of the killed process.
const FOLDER: &str = "SCALERL_TEST_KILL_FOLDER";
const LAG: &str = "SCALERL_TEST_KILL_LAG";
const STEPS: &str = "SCALERL_TEST_KILL_STEPS";
const KILLS: usize = 30;

/// More steps than a run that is killed thirty times can take.
const ENDLESS: u64 = 1_000_000;

fn rig(lag: u64, steps: u64) -> Rig {
    let budget = format!("budget.steps={steps}");
    let rig = Rig::pipeline(lag).with(&[&budget, "output.checkpoint_every_steps=1"]);
    Rig { slowness_ms: 4, ..rig }
}

fn real_run(lag: u64, steps: u64, path: &Path) -> StopReason {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let rig = rig(lag, steps);
        let own_thread = |trainer, _: fake::Delays| OwnThread::start(trainer).unwrap();
        let parts = rig.parts(own_thread, on_signals().unwrap());
        run(Rig::folder(path), parts).await.unwrap().reason
    })
}

#[test]
fn the_run_to_be_killed() {
    if let Some(path) = std::env::var_os(FOLDER) {
        let number = |name| std::env::var(name).unwrap().parse().unwrap();
        let reason = real_run(number(LAG), number(STEPS), &PathBuf::from(path));
        assert!([StopReason::Steps, StopReason::Asked].contains(&reason));
    }
}

fn child(path: &Path, lag: u64, steps: u64) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_run_to_be_killed", "--nocapture"])
        .env(FOLDER, path)
        .env(LAG, lag.to_string())
        .env(STEPS, steps.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A moment nobody chose, up to `longest`.
fn moment(longest: Duration) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    longest.mul_f64(f64::from(now.subsec_nanos() % 1009) / 1009.0)
}

/// Kills thirty times, then lets the run come to its end; returns its steps.
fn kill_and_resume(path: &Path, lag: u64) -> u64 {
    for _ in 0..KILLS {
        let mut child = child(path, lag, ENDLESS);
        std::thread::sleep(Duration::from_millis(15) + moment(Duration::from_millis(250)));
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "the kill came too late");
    }
    let reached = Reading::load(path).unwrap().checkpoints.last().map_or(0, |one| one.version.0);
    let steps = reached + 5;
    assert!(child(path, lag, steps).wait().unwrap().success());
    steps
}

#[test]
fn thirty_kills_lose_no_prompt_and_train_on_none_twice() {
    let folder = tempfile::tempdir().unwrap();
    let steps = kill_and_resume(folder.path(), 3);
    let reading = audit(folder.path(), 3);
    assert_eq!(reading.summary().version.0, steps);
    let resumed = |event: &&scalerl_journal::Event| matches!(event.what, What::Resumed { .. });
    let all = reading.history.events.iter().chain(&reading.history.undone);
    let resumes = all.filter(resumed).count();
    println!("{steps} steps, {resumes} resumes");
    // A process killed before its first event has nothing to resume.
    assert!((KILLS / 2..=KILLS).contains(&resumes));
}

#[test]
fn thirty_kills_without_lag_leave_the_same_events_as_none() {
    let (straight, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let steps = kill_and_resume(killed.path(), 0);
    assert_eq!(real_run(0, steps, straight.path()), StopReason::Steps);
    audit(killed.path(), 0);
    let (straight, killed) =
        (Reading::load(straight.path()).unwrap(), Reading::load(killed.path()).unwrap());
    assert_eq!(killed.history.timeless_text().unwrap(), straight.history.timeless_text().unwrap());
    assert_eq!(digest(&killed), digest(&straight));
}

#[test]
fn sigterm_ends_in_order_and_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = child(folder.path(), 3, ENDLESS);
    while Reading::load(folder.path()).map_or(0, |reading| reading.checkpoints.len()) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success(), "exit code 0");
    let stopped = audit(folder.path(), 3);
    let status = stopped.status();
    assert_eq!(status, scalerl_journal::Status::Stopped { reason: StopReason::Asked });
    assert_eq!(real_run(3, stopped.summary().version.0 + 5, folder.path()), StopReason::Steps);
    audit(folder.path(), 3);
}
