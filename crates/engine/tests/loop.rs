//! The engine as a whole, with fakes on a paused clock: lag, exactly once, resume, errors, ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod rig;

use std::time::Duration;

use proptest::prelude::*;
use rig::{Rig, audit, digest};
use scalerl_curve::HistoryEntry;
use scalerl_engine::{Deadlines, EngineError, fake, never};
use scalerl_journal::{BadSign, Fate, Reading, Status, StopReason, What};
use scalerl_rollout::{GeneratorError, TrainerError};
use tokio::sync::mpsc;

/// Kills come after at most so many polls of the engine; a whole run takes more.
const MOST_POLLS: u64 = 80;

#[test]
fn kills_come_before_the_end() {
    for rig in [Rig::pipeline(0), Rig::pipeline(1), Rig::pipeline(4), Rig::phases(3)] {
        let polls = rig.polls();
        assert!((MOST_POLLS + 10..MOST_POLLS * 4).contains(&polls), "{polls} polls");
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn lags(reading: &Reading) -> Vec<u64> {
    let lag = |what: &What| match what {
        What::Step { lag, .. } => Some(*lag),
        _ => None,
    };
    reading.history.events.iter().filter_map(|event| lag(&event.what)).collect()
}

fn count(reading: &Reading, is: impl Fn(&What) -> bool) -> usize {
    reading.history.events.iter().filter(|event| is(&event.what)).count()
}

#[test]
fn a_run_without_lag_trains_evaluates_forecasts_and_saves() {
    let folder = folder();
    let end = Rig::pipeline(0).with(&["budget.steps=28"]).run(folder.path());
    assert_eq!((end.reason, end.version.0), (StopReason::Steps, 28));
    let reading = audit(folder.path(), 0);
    assert_eq!(lags(&reading), [0; 28]);
    let points = reading.points();
    assert_eq!(points.iter().map(|p| p.step).collect::<Vec<_>>(), [0, 4, 8, 12, 16, 20, 24, 28]);
    assert!(points[7].pass_rate > points[0].pass_rate + 0.2, "{points:?}");
    assert!(reading.forecasts().count() >= 3);
    let versions: Vec<u64> = reading.checkpoints.iter().map(|one| one.version.0).collect();
    assert!(versions.ends_with(&[24, 27, 28]), "{versions:?}");
    assert_eq!(reading.status(), Status::Stopped { reason: StopReason::Steps });
    let samples = scalerl_journal::read_samples(&folder.path().join("samples/step-000028.jsonl"));
    assert_eq!(samples.unwrap().len(), 6 + 2);
    let interrupted = |what: &What| matches!(what, What::Group(group) if group.interrupted > 0);
    assert!(count(&reading, interrupted) > 0, "interruptions happen");
    let other = std::fs::read_to_string(folder.path().join("points.other.jsonl")).unwrap();
    assert_eq!(other.lines().count(), 8);
}

#[test]
fn a_pipeline_uses_its_lag_and_keeps_both_roles_busier_than_phases_do() {
    let busy = |rig: Rig| {
        let folder = folder();
        let rig = rig.with(&["budget.steps=40", "evaluation.every_steps=1000"]);
        rig.run(folder.path());
        let reading = audit(folder.path(), 4);
        let ledger = reading.history.ledger();
        (ledger.trainer_idle_share(), lags(&reading).into_iter().max().unwrap())
    };
    let (pipeline_idle, lag) = busy(Rig::pipeline(4));
    assert!((2..=4).contains(&lag), "a slow trainer makes rollouts wait: {lag}");
    let (phases_idle, lag) = busy(Rig::phases(5));
    assert_eq!(lag, 4, "the last step of a phase is four behind");
    assert!(pipeline_idle < phases_idle, "{pipeline_idle} {phases_idle}");
}

#[test]
fn delays_change_nothing_but_times_without_lag() {
    let text = |timing_seed, slowness_ms| {
        let folder = folder();
        let rig = Rig { slowness_ms, ..Rig::pipeline(0).timed(timing_seed) };
        rig.run(folder.path());
        audit(folder.path(), 0).history.timeless_text().unwrap()
    };
    let first = text(1, 40);
    assert!(first.lines().count() > 50);
    assert_eq!(text(2, 300), first);
    assert_eq!(text(3, 0), first);
}

#[test]
fn evaluation_does_not_change_what_training_sees() {
    let steps = |rig: Rig| {
        let folder = folder();
        rig.run(folder.path());
        let reading = audit(folder.path(), 0);
        let step = |what: &What| match what {
            What::Step { batch, report, .. } => Some((batch.clone(), report.clone())),
            _ => None,
        };
        let steps: Vec<_> =
            reading.history.events.iter().filter_map(|event| step(&event.what)).collect();
        (steps, digest(&reading))
    };
    let often = steps(Rig::pipeline(0).with(&["evaluation.every_steps=1"]));
    let mut never = Rig::pipeline(0);
    never.evaluation_prompts = 0;
    assert_eq!(steps(never), often);
}

#[test]
fn a_pipeline_misses_no_evaluation_however_often_they_come() {
    for (timing, trainer_pace) in [(1, 0), (2, 1), (3, 8), (4, 40)] {
        let folder = folder();
        let rig = Rig::pipeline(3).timed(timing).with(&["evaluation.every_steps=1"]);
        Rig { trainer_pace, ..rig }.run(folder.path());
        let reading = audit(folder.path(), 3);
        let points = reading.points();
        let versions: Vec<u64> = points.iter().map(|point| point.step).collect();
        assert_eq!(versions, (0..=14).collect::<Vec<_>>());
        assert_eq!(points[0].tokens, 0, "measuring the start has cost no training");
        let ledger_of = |version: u64| {
            reading.history.events.iter().find_map(|event| match &event.what {
                What::Step { report, ledger, .. } if report.version.0 == version => Some(*ledger),
                _ => None,
            })
        };
        for point in &points[1..] {
            let ledger = ledger_of(point.step).unwrap();
            assert_eq!((point.tokens, point.flops), (ledger.tokens_generated, ledger.flops));
        }
    }
}

#[test]
fn stopping_and_resuming_gives_the_same_journal() {
    let straight = folder();
    Rig::pipeline(0).run(straight.path());
    let straight = audit(straight.path(), 0);
    let stopped = folder();
    for steps in [3, 4, 9] {
        let (ask, asked) = mpsc::channel(1);
        ask.try_send(()).unwrap();
        let end = Rig::pipeline(0).session(stopped.path(), None, asked).unwrap().unwrap();
        assert_eq!(end.reason, StopReason::Asked);
        let killed = Rig::pipeline(0).session(stopped.path(), Some(20 + steps), never());
        assert!(killed.is_none(), "the kill came too late");
    }
    Rig::pipeline(0).run(stopped.path());
    let stopped = audit(stopped.path(), 0);
    assert_eq!(stopped.history.timeless_text().unwrap(), straight.history.timeless_text().unwrap());
    assert_eq!(digest(&stopped), digest(&straight));
}

#[test]
fn a_request_to_stop_finishes_the_step_saves_and_resumes_without_loss() {
    for seed in 0..8 {
        let folder = folder();
        let rig = Rig::pipeline(2).timed(seed);
        let (ask, asked) = mpsc::channel(1);
        let killed = rig.session(folder.path(), Some(20 + 10 * seed), never());
        assert!(killed.is_none());
        ask.try_send(()).unwrap();
        let end = rig.session(folder.path(), None, asked).unwrap().unwrap();
        assert_eq!(end.reason, StopReason::Asked);
        let reading = audit(folder.path(), 2);
        assert_eq!(reading.checkpoints.last().unwrap().version, end.version);
        assert_eq!(rig.run(folder.path()).reason, StopReason::Steps);
        audit(folder.path(), 2);
    }
}

#[test]
fn half_written_groups_are_sampled_again_and_that_is_recorded() {
    let folder = folder();
    let rig = Rig { trainer_pace: 1, evaluation_prompts: 0, ..Rig::pipeline(3) };
    assert!(rig.session(folder.path(), Some(80), never()).is_none());
    rig.run(folder.path());
    let reading = audit(folder.path(), 3);
    let again = count(&reading, |what| matches!(what, What::SampledAgain { .. }));
    let buffered = reading.history.events.iter().find_map(|event| match event.what {
        What::Resumed { buffered_groups, .. } => Some(buffered_groups),
        _ => None,
    });
    assert!(again > 0, "groups were in flight");
    assert!(buffered.is_some());
    assert!(!reading.history.undone.is_empty());
    assert!(reading.history.lost.wall_s > 0.0, "undone work is booked as lost");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn lag_never_exceeds_its_bound_and_no_group_is_lost(
        k in 1_u64..6,
        timing in any::<u64>(),
        slowness_ms in prop::sample::select(vec![0_u64, 5, 60, 900]),
        trainer_pace in prop::sample::select(vec![0_u32, 2, 8, 60]),
        fails in prop::sample::select(vec![0.0, 0.1]),
        filter in prop::sample::select(vec![
            "objective.filter=\"zero-variance-shrink\"",
            "objective.filter={type=\"zero-variance-refill\",limit=2}",
            "objective.filter=\"none\"",
        ]),
    ) {
        let folder = folder();
        let rig = Rig::pipeline(k).timed(timing % 1_000_000).with(&[filter]);
        let rig = Rig { slowness_ms, trainer_pace, ..rig };
        let rig = Rig { grader_fails: fails, grader_hangs: fails / 4.0, ..rig };
        let end = rig.run(folder.path());
        prop_assert_eq!(end.reason, StopReason::Steps);
        audit(folder.path(), k);
    }

    #[test]
    fn killed_anywhere_a_pipeline_goes_on_without_loss(
        k in 1_u64..5,
        timing in 0_u64..1_000_000,
        trainer_pace in prop::sample::select(vec![1_u32, 8, 40]),
        evaluation_prompts in prop::sample::select(vec![0_u64, 4]),
        kills in prop::collection::vec(1_u64..MOST_POLLS, 1..5),
    ) {
        let folder = folder();
        let rig = Rig { trainer_pace, evaluation_prompts, ..Rig::pipeline(k).timed(timing) };
        rig.run_with_kills(folder.path(), &kills);
        audit(folder.path(), k);
    }

    #[test]
    fn killed_anywhere_phases_go_on_without_loss(
        k in 2_u64..5,
        timing in 0_u64..1_000_000,
        kills in prop::collection::vec(1_u64..MOST_POLLS, 1..5),
    ) {
        let folder = folder();
        let rig = Rig::phases(k).timed(timing);
        rig.run_with_kills(folder.path(), &kills);
        audit(folder.path(), k - 1);
    }

    #[test]
    fn killed_anywhere_a_run_without_lag_has_the_same_events(
        timing in 0_u64..1_000_000,
        kills in prop::collection::vec(1_u64..MOST_POLLS, 1..6),
        filter in prop::sample::select(vec![
            "objective.filter=\"zero-variance-shrink\"",
            "objective.filter={type=\"zero-variance-refill\",limit=3}",
        ]),
    ) {
        let (straight, killed) = (folder(), folder());
        let rig = Rig { grader_fails: 0.05, ..Rig::pipeline(0).with(&[filter]) };
        let rig = Rig { prompts: fake::FakePrompts::without_solved(rig::PROMPTS, 0.9), ..rig };
        rig.run(straight.path());
        rig.clone().timed(timing).run_with_kills(killed.path(), &kills);
        let straight = Reading::load(straight.path()).unwrap();
        let killed = Reading::load(killed.path()).unwrap();
        prop_assert_eq!(
            killed.history.timeless_text().unwrap(),
            straight.history.timeless_text().unwrap()
        );
        prop_assert_eq!(digest(&killed), digest(&straight));
        prop_assert_eq!(killed.points().len(), straight.points().len());
    }
}

/// Runs into an error, checks that it is the right one and that a mended run goes on from the
/// saved state.
fn fails_and_goes_on(broken: Rig, is_right: impl Fn(&EngineError) -> bool) {
    let folder = folder();
    let error = broken.session(folder.path(), None, never()).unwrap().unwrap_err();
    assert!(is_right(&error), "{error}");
    let reading = Reading::load(folder.path()).unwrap();
    assert!(
        matches!(reading.status(), Status::Failed { error: text } if text == error.to_string())
    );
    assert!(!reading.checkpoints.is_empty(), "the state was saved");
    let mended = Rig { generator_fault: None, trainer_fails_at: None, grader_fails: 0.0, ..broken };
    assert_eq!(mended.run(folder.path()).reason, StopReason::Steps);
    audit(folder.path(), 2);
}

#[test]
fn a_dead_generator_ends_the_run_with_its_error_and_a_saved_state() {
    let fault = Some(fake::Fault::Gone(25));
    fails_and_goes_on(Rig { generator_fault: fault, ..Rig::pipeline(2) }, |error| {
        use EngineError::{Evaluating, Sampling};
        let (Sampling { source, .. } | Evaluating { source, .. }) = error else { return false };
        matches!(source, GeneratorError::Gone { .. })
    });
}

#[test]
fn a_panic_in_a_task_ends_the_run_with_it_and_a_saved_state() {
    let fault = Some(fake::Fault::Panics(25));
    fails_and_goes_on(Rig { generator_fault: fault, ..Rig::pipeline(2) }, |error| {
        matches!(error, EngineError::Panicked { .. })
    });
}

#[test]
fn a_failed_step_ends_the_run_and_its_groups_are_trained_on_later() {
    fails_and_goes_on(Rig { trainer_fails_at: Some(5), ..Rig::pipeline(2) }, |error| {
        matches!(error, EngineError::Training(TrainerError::NotFinite { .. }))
    });
}

#[test]
fn weights_that_cannot_be_taken_end_the_run() {
    let fault = Some(fake::Fault::Adopting(4));
    fails_and_goes_on(Rig { generator_fault: fault, ..Rig::pipeline(2) }, |error| {
        matches!(error, EngineError::Adopting { .. })
    });
}

#[test]
fn a_verifier_that_always_fails_ends_the_run() {
    fails_and_goes_on(Rig { grader_fails: 1.0, ..Rig::pipeline(2) }, |error| {
        matches!(error, EngineError::VerifierBroken { .. })
    });
}

#[test]
fn a_held_out_set_without_a_verdict_is_no_point_and_ends_the_run_after_some() {
    let rig = Rig { grader_broken_for: Some("held-out"), ..Rig::pipeline(2) };
    let folder = folder();
    let error = rig.session(folder.path(), None, never()).unwrap().unwrap_err();
    let EngineError::EvaluationBroken { evaluations: 3, set, reason } = &error else {
        panic!("{error}")
    };
    assert_eq!((set.as_str(), reason.as_str()), ("held-out", "as told"));
    let reading = Reading::load(folder.path()).unwrap();
    assert_eq!((reading.points(), reading.summary().pass_rate), (Vec::new(), None));
    let points = std::fs::read_to_string(folder.path().join("points.jsonl")).unwrap_or_default();
    assert_eq!(points, "");
    let unmeasured = |what: &What| matches!(what, What::NotMeasured { set, failed: 12, .. } if set == "held-out");
    assert_eq!(count(&reading, unmeasured), 3);
    let other = |what: &What| matches!(what, What::Evaluation { sets, .. } if sets.len() == 1 && sets[0].name == "other");
    assert_eq!(count(&reading, other), 3, "the other set is measured");
    let warned =
        |what: &What| matches!(what, What::Warning { sign: BadSign::EvaluationErrors, .. });
    assert_eq!(count(&reading, warned), 1, "it lasts, and is told once");
    assert_eq!(reading.forecasts().count(), 0);
    assert!(!reading.checkpoints.is_empty(), "the state was saved");
    // Mended, it goes on, and has the points from there on.
    let mended = Rig { grader_broken_for: None, ..rig };
    assert_eq!(mended.run(folder.path()).reason, StopReason::Steps);
    assert_eq!(audit(folder.path(), 2).points().last().map(|point| point.step), Some(14));
}

#[test]
fn another_set_without_a_verdict_ends_no_run() {
    let folder = folder();
    Rig { grader_broken_for: Some("other"), ..Rig::pipeline(2) }.run(folder.path());
    let reading = audit(folder.path(), 2);
    // Before the first step, after 4, 8, 12, and at the end.
    assert_eq!(reading.points().len(), 5);
    assert_eq!(count(&reading, |what| matches!(what, What::NotMeasured { .. })), 5);
    assert!(!folder.path().join("points.other.jsonl").exists());
}

#[test]
fn a_generator_that_fails_once_is_asked_again() {
    let folder = folder();
    let fault = Some(fake::Fault::GoneOnce(20));
    Rig { generator_fault: fault, ..Rig::pipeline(2) }.run(folder.path());
    let reading = audit(folder.path(), 2);
    assert_eq!(count(&reading, |what| matches!(what, What::GeneratorRetried { .. })), 1);
}

#[test]
fn a_generator_that_never_answers_is_late_and_asked_again() {
    let folder = folder();
    let fault = Some(fake::Fault::Hangs(20));
    let deadlines = Deadlines { generate: Duration::from_secs(30), ..Deadlines::default() };
    Rig { generator_fault: fault, deadlines, ..Rig::pipeline(2) }.run(folder.path());
    let reading = audit(folder.path(), 2);
    let late = |what: &What| matches!(what, What::GeneratorRetried { reason, .. } if reason.contains("within 30 s"));
    assert_eq!(count(&reading, late), 1);
}

#[test]
fn a_judge_with_limits_of_its_own_is_waited_for() {
    let folder = folder();
    // A tenth of what a verdict can take.
    Rig::pipeline(2).with(&["task.verifier_timeout_s=0.004"]).run(folder.path());
    let reading = audit(folder.path(), 2);
    assert_eq!(count(&reading, |what| matches!(what, What::VerifierFailed { .. })), 0);
}

#[test]
fn a_verdict_that_fails_or_never_comes_is_an_event_and_no_wrong_answer() {
    let folder = folder();
    Rig { grader_fails: 0.1, grader_hangs: 0.1, ..Rig::pipeline(2) }.run(folder.path());
    let reading = audit(folder.path(), 2);
    let with = |part: &'static str| {
        count(
            &reading,
            move |what| matches!(what, What::VerifierFailed { reason, .. } if reason.contains(part)),
        )
    };
    assert!(with("as told") > 0);
    assert!(with("no verdict within 30 s") > 0);
    let failed = with("");
    let reported: u32 = reading
        .history
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::Group(group) => {
                assert_eq!(group.judged + group.failed, 4);
                Some(group.failed)
            }
            _ => None,
        })
        .sum();
    assert_eq!(failed, reported as usize);
}

#[test]
fn refilled_batches_are_full_and_dropped_groups_are_recorded() {
    let folder = folder();
    let refill = "objective.filter={type=\"zero-variance-refill\",limit=10}";
    Rig::pipeline(2).with(&[refill]).run(folder.path());
    let reading = audit(folder.path(), 2);
    for event in &reading.history.events {
        if let What::Step { batch, .. } = &event.what {
            assert_eq!((batch.groups.len(), batch.zero_variance.len()), (3, 0));
        }
    }
    let dropped = |what: &What| matches!(what, What::Group(one) if one.fate == Fate::ZeroVariance);
    assert!(count(&reading, dropped) > 0);
}

#[test]
fn a_run_ends_when_every_prompt_is_solved() {
    let folder = folder();
    let prompts = fake::FakePrompts::without_solved(12, 0.5);
    let rig = Rig { prompts, ..Rig::pipeline(1).with(&["budget.steps=100000"]) };
    let end = rig.run(folder.path());
    assert_eq!(end.reason, StopReason::NoPrompts);
    let reading = Reading::load(folder.path()).unwrap();
    let solved = count(&reading, |what| matches!(what, What::Group(_)));
    assert!(solved >= 12);
}

#[test]
fn reasons_to_stop_are_kept() {
    let ends = |set: &[&str]| {
        let folder = folder();
        let rig = Rig::pipeline(1).with(&["budget.steps=400"]).with(set);
        rig.run(folder.path()).reason
    };
    assert_eq!(ends(&["stopping.target=0.5"]), StopReason::Target);
    assert_eq!(ends(&["budget.tokens=900"]), StopReason::Tokens);
    assert_eq!(ends(&["budget.device_hours=0.004"]), StopReason::DeviceHours);
    assert_eq!(ends(&["budget.wall_hours=0.002"]), StopReason::WallHours);
    let unstable = ["stopping.patience_steps=3", "stopping.when_unstable=\"stop\""];
    let unstable = [&unstable[..], &["stopping.effective_sample_share=0.99"]].concat();
    assert_eq!(ends(&unstable), StopReason::Unstable);
    let gain = ["stopping.forecast_gain=0.2", "evaluation.every_steps=6"];
    assert_eq!(ends(&gain), StopReason::ForecastGain);
}

#[test]
fn a_folder_cut_at_any_byte_can_be_read_and_one_cut_before_its_checkpoint_is_not_resumed() {
    let folder = folder();
    Rig::pipeline(2).run(folder.path());
    let path = folder.path().join("events.jsonl");
    let whole = std::fs::read(&path).unwrap();
    let all = Reading::load(folder.path()).unwrap().history.events;
    for cut in (0..whole.len()).step_by(61) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let reading = Reading::load(folder.path()).unwrap();
        assert_eq!(reading.history.events, all[..reading.history.events.len()]);
        reading.summary();
    }
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = Rig::pipeline(2).session(folder.path(), None, never()).unwrap().unwrap_err();
    assert!(matches!(error, EngineError::BadState { .. }), "{error}");
}

#[test]
fn fitting_commands_read_the_folder_of_a_killed_and_resumed_run() {
    let folder = folder();
    let path = folder.path().join("mine");
    Rig::pipeline(2).run_with_kills(&path, &[60, 40]);
    let points = audit(&path, 2).points();
    let axis = |name: &str| {
        let request =
            scalerl_ingest::Request { x: Some(name.into()), ..scalerl_ingest::Request::default() };
        let runs = scalerl_ingest::read(std::slice::from_ref(&path), &request).unwrap();
        assert_eq!((runs.len(), runs[0].name.as_str()), (1, "mine"));
        runs[0].points.iter().map(|point| (point.compute.0, point.value)).collect::<Vec<_>>()
    };
    let ours = |compute: fn(&scalerl_journal::EvaluationPoint) -> f64| {
        points.iter().map(|point| (compute(point), point.pass_rate)).collect::<Vec<_>>()
    };
    assert_eq!(axis("steps"), ours(|point| point.step as f64));
    assert_eq!(axis("gpu_hours"), ours(|point| point.gpu_hours));
    assert_eq!(axis("tokens"), ours(|point| point.tokens as f64));
    assert_eq!(axis("flops"), ours(|point| point.flops));
}

/// What a run of this rig teaches when it is over.
fn taught(points: &[scalerl_journal::EvaluationPoint], name: &str) -> HistoryEntry {
    let series =
        scalerl_journal::EvaluationPoint::series(points, scalerl_recipe::Axis::Steps).unwrap();
    HistoryEntry::summarise(name, &series).unwrap()
}

#[test]
fn forecasts_learn_from_finished_runs_and_say_how_much() {
    let rig = |seed: &str| {
        let mut rig = Rig::pipeline(1).with(&[
            seed,
            "budget.steps=60",
            "evaluation.every_steps=3",
            "evaluation.generations=16",
        ]);
        rig.evaluation_prompts = 24;
        rig
    };
    let forecasts = |rig: &Rig| {
        let folder = folder();
        let path = folder.path().join("run");
        rig.run(&path);
        let reading = audit(&path, 1);
        let made: Vec<_> = reading.forecasts().cloned().collect();
        (reading.points(), made)
    };
    let (points, alone) = forecasts(&rig("seed=1"));
    assert!(alone.iter().all(|report| report.history.is_none()));
    let mut second = rig("seed=2");
    let (_, without) = forecasts(&second);
    second.history = vec![taught(&points, "first")];
    let (_, with) = forecasts(&second);
    let middle = with.len() / 2;
    let history = with[middle].history.as_ref().unwrap();
    assert_eq!((history.runs, history.heaviest[0].name.as_str()), (1, "first"));
    assert!(history.weight > 0.5, "{history:?}");
    let width = |report: &scalerl_journal::ForecastReport| report.at_twice.2 - report.at_twice.1;
    assert!(width(&with[middle]) < width(&without[middle]));
    // A history of another ceiling loses its say once the run has passed it.
    let low: Vec<_> = points
        .iter()
        .map(|point| scalerl_journal::EvaluationPoint {
            pass_rate: 0.1 + 0.2 * point.pass_rate,
            ..point.clone()
        })
        .collect();
    second.history = vec![taught(&low, "wrong")];
    let (_, wrong) = forecasts(&second);
    let (last, own) = (wrong.last().unwrap(), without.last().unwrap());
    assert!(last.history.as_ref().unwrap().weight < 0.05, "{last:?}");
    assert!((last.at_twice.0 - own.at_twice.0).abs() < 0.02, "{last:?} {own:?}");
}
