//! Episodes through the whole loop, on fakes: what is trained on, what fails, what a kill leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;

use std::time::Duration;

use proptest::prelude::*;
use scalerl_engine::fake::FakeEnvironment;
use scalerl_journal::{Reading, Sample, StopReason, What};

use rig::{Rig, audit, digest};

const ENVIRONMENT: FakeEnvironment = FakeEnvironment {
    turns: 4,
    slowness: Duration::from_millis(200),
    fails: 0.0,
    hangs: 0.0,
    forgets: 0.1,
};

fn played(rig: Rig, environment: FakeEnvironment) -> Rig {
    Rig { environment: Some(environment), ..rig }.with(&[
        "episode.max_turns=5",
        "episode.max_tokens=200",
        "episode.timeout_s=20",
    ])
}

fn failures(reading: &Reading) -> Vec<String> {
    let reason = |what: &What| match what {
        What::VerifierFailed { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    reading.history.events.iter().filter_map(|event| reason(&event.what)).collect()
}

/// Samples of evaluations (`step`) or of what was trained on (`train`).
fn samples(folder: &tempfile::TempDir, kind: &str) -> Vec<Sample> {
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(folder.path().join("samples")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with(kind) {
            samples.extend(scalerl_journal::read_samples(&entry.path()).unwrap());
        }
    }
    samples
}

#[test]
fn episodes_are_trained_on_measured_and_kept_to_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let end = played(Rig::pipeline(2), ENVIRONMENT).run(folder.path());
    assert_eq!((end.reason, end.version.0), (StopReason::Steps, 14));
    let reading = audit(folder.path(), 2);
    assert_eq!(failures(&reading), Vec::<String>::new());
    let trained = samples(&folder, "train-");
    assert!(trained.iter().any(|sample| sample.turns > 1), "{trained:?}");
    for is_injected in [false, true] {
        let shown =
            |sample: &Sample| sample.token_list.iter().any(|one| one.is_injected == is_injected);
        assert!(trained.iter().any(shown), "{is_injected}: {trained:?}");
    }
    let samples = samples(&folder, "step-");
    assert!(samples.iter().any(|sample| sample.turns > 1), "{samples:?}");
    for sample in &samples {
        // The environment has a word between two turns, unless the agent forgot what came before.
        let own = sample.parts.iter().filter(|part| !part.is_injected).count();
        let counted = (sample.metrics["turns"] - f64::from(sample.turns)).abs() < 1e-9;
        assert!(own >= 1 && counted, "{sample:?}");
        assert!(sample.reward.is_some() && sample.error.is_none(), "{sample:?}");
    }
}

#[test]
fn an_episode_that_fails_or_hangs_is_an_error_of_its_own_and_stalls_no_step() {
    let folder = tempfile::tempdir().unwrap();
    let environment = FakeEnvironment { fails: 0.05, hangs: 0.02, ..ENVIRONMENT };
    let rig = played(Rig::pipeline(2), environment).with(&["budget.steps=20"]);
    assert_eq!(rig.run(folder.path()).reason, StopReason::Steps);
    let reading = audit(folder.path(), 2);
    let failures = failures(&reading);
    let count = |what: &str| failures.iter().filter(|reason| reason.contains(what)).count();
    assert!(count("the environment: as told") > 0, "{failures:?}");
    assert!(count("no end of the episode within 20 s") > 0, "{failures:?}");
    assert_eq!(count("the environment: "), failures.len(), "nothing else failed: {failures:?}");
    let summary = reading.summary();
    let kinds: Vec<&str> =
        summary.failures.by_count().iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(summary.failures.count(), failures.len() as u64);
    assert!(kinds.contains(&"the environment: no end of the episode within N s"), "{kinds:?}");
    let is_restart = |what: &What| matches!(what, What::EnvironmentRestarted { .. });
    let events = || reading.history.events.iter().map(|event| &event.what);
    // The fake is asked once a group and once an evaluation.
    let asked = |what: &&What| matches!(what, What::Group(_) | What::Evaluation { .. });
    assert_eq!(events().filter(|what| is_restart(what)).count(), events().filter(asked).count());
    assert_eq!(summary.environment_restarts, events().filter(asked).count());
    for what in reading.history.events.iter().map(|event| &event.what) {
        if let What::Group(group) = what {
            assert_eq!(group.judged + group.failed, 4, "an error is not a wrong answer: {group:?}");
        }
    }
}

#[test]
fn an_environment_that_always_fails_ends_the_run_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let environment = FakeEnvironment { fails: 1.0, ..ENVIRONMENT };
    let rig = Rig { evaluation_prompts: 0, ..played(Rig::pipeline(2), environment) };
    let error = rig.session(folder.path(), None, scalerl_engine::never()).unwrap().unwrap_err();
    assert!(error.to_string().contains("as told"), "{error}");
}

#[test]
fn turns_and_room_are_bounded_and_what_ran_out_is_truncated() {
    for limit in ["episode.max_turns=2", "episode.max_tokens=24"] {
        let folder = tempfile::tempdir().unwrap();
        let environment = FakeEnvironment { forgets: 0.0, ..ENVIRONMENT };
        played(Rig::pipeline(1), environment).with(&[limit]).run(folder.path());
        let reading = audit(folder.path(), 1);
        let truncated: u32 = reading
            .history
            .events
            .iter()
            .map(|event| match &event.what {
                What::Group(group) => group.truncated,
                _ => 0,
            })
            .sum();
        assert!(truncated > 0, "{limit}: nothing was cut");
        for sample in samples(&folder, "step-") {
            assert!(sample.turns <= 4 && sample.tokens <= 200, "{sample:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Killed anywhere, with episodes in flight: nothing lost, nothing trained twice, and at lag 0 the
    /// same is trained on as without a kill.
    #[test]
    fn a_kill_in_the_middle_of_episodes_loses_and_repeats_nothing(
        kills in prop::collection::vec(1_u64..600, 1..4),
        timing in 1_u64..1000,
    ) {
        let rig = played(Rig::pipeline(0), ENVIRONMENT).timed(timing);
        let (straight, broken) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        rig.run(straight.path());
        rig.run_with_kills(broken.path(), &kills);
        let (straight, broken) = (audit(straight.path(), 0), audit(broken.path(), 0));
        prop_assert_eq!(digest(&straight), digest(&broken));
        let behind = played(Rig::pipeline(3), ENVIRONMENT).timed(timing);
        let folder = tempfile::tempdir().unwrap();
        behind.run_with_kills(folder.path(), &kills);
        audit(folder.path(), 3);
    }
}
