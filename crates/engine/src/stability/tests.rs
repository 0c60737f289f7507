//! Each sign, over simulated steps.

use super::*;
use scalerl_journal::{Fate, Ledger};
use scalerl_rollout::{Draw, GroupId, PolicyVersion, PromptId, RatioStats};

fn report() -> StepReport {
    let ratio = RatioStats {
        tokens: 10,
        mean: 1.0,
        min: 0.9,
        max: 1.1,
        clip_fraction: 0.0,
        effective_sample_share: 0.9,
        kl_k1: 0.0,
        kl_k3: 0.0,
        mean_abs_log: 0.0,
    };
    StepReport {
        version: PolicyVersion(1),
        loss: 0.0,
        gradient_norm: 1.0,
        entropy: 1.0,
        reference_kl: None,
        ratio,
        learning_rate: 1e-6,
        tokens: 10,
        trained_tokens: 8,
        model_flops: 60.0,
        seconds: 0.1,
        peak_memory_bytes: None,
    }
}

fn group() -> GroupReport {
    GroupReport {
        group: GroupId(0),
        prompt: PromptId("p".into()),
        draw: Draw::default(),
        admitted: PolicyVersion(0),
        versions: None,
        passed: 5,
        judged: 10,
        failed: 0,
        mean_reward: None,
        truncated: 0,
        interrupted: 0,
        other_form: Some(1),
        previous_pass_rate: Some(0.5),
        tokens: 10,
        generate_s: 3.0,
        judge_s: 1.0,
        fate: Fate::Batch,
    }
}

fn step(batch: BatchReport, report: StepReport) -> What {
    What::Step { lag: 0, batch, report, ledger: Ledger::default() }
}

/// Steps at which a sign was told, among 60 of four groups each: healthy until 20, then as `change`
/// makes them.
fn told(
    change: impl Fn(&mut GroupReport, &mut BatchReport, &mut StepReport),
) -> Vec<(u64, BadSign)> {
    let stopping = Stopping { patience_steps: 5, ..Stopping::default() };
    let (mut watch, mut found) = (Watch::default(), Vec::new());
    for number in 1..=60 {
        let (mut group, mut batch, mut report) = (group(), BatchReport::default(), report());
        if number > 20 {
            change(&mut group, &mut batch, &mut report);
        }
        for _ in 0..4 {
            assert!(watch.observe(&stopping, &What::Group(group.clone())).is_empty());
        }
        for warning in watch.observe(&stopping, &step(batch, report)) {
            found.push((number, warning.sign));
        }
    }
    found
}

#[test]
fn a_healthy_run_is_left_alone() {
    assert!(told(|_, _, _| {}).is_empty());
}

#[test]
fn each_sign_is_told_once_when_its_patience_has_run_out() {
    assert_eq!(told(|_, batch, _| batch.truncated_share = 0.12), [(25, BadSign::Truncation)]);
    assert_eq!(
        told(|_, _, report| report.ratio.effective_sample_share = 0.2),
        [(25, BadSign::EffectiveSampleShare)]
    );
    assert_eq!(told(|_, _, report| report.entropy = 0.05), [(25, BadSign::EntropyCollapse)]);
    assert_eq!(told(|_, _, report| report.gradient_norm = 400.0)[0], (25, BadSign::GradientNorm));
    assert_eq!(told(|_, _, report| report.ratio.mean_abs_log = 0.4), [(25, BadSign::RatioExtreme)]);
    assert_eq!(told(|group, _, _| group.failed = 1), [(25, BadSign::VerifierErrors)]);
    assert_eq!(told(|group, _, _| group.judge_s = 4.0), [(25, BadSign::VerifierBound)]);
    assert_eq!(told(|group, _, _| group.other_form = Some(5)), [(29, BadSign::AnswerForm)]);
    let dead = told(|group, _, _| (group.passed, group.previous_pass_rate) = (0, None));
    assert_eq!(dead, [(25, BadSign::DeadGroups)]);
    let solved = told(|group, _, _| (group.passed, group.previous_pass_rate) = (10, None));
    assert_eq!(solved, [(25, BadSign::SolvedGroups)]);
}

#[test]
fn one_extreme_ratio_is_no_sign() {
    let extreme = told(|_, _, report| (report.ratio.min, report.ratio.max) = (0.0, 500.0));
    assert!(extreme.is_empty(), "{extreme:?}");
}

#[test]
fn prompts_that_are_answered_worse_again_are_told_and_a_lower_pass_rate_alone_is_not() {
    let worse = told(|group, _, _| group.passed = 2);
    assert!(matches!(worse[..], [(20..40, BadSign::RepeatedPrompts)]), "{worse:?}");
    // Solved prompts have left; those that come now were always hard.
    let harder = told(|group, batch, _| {
        (group.passed, group.previous_pass_rate) = (2, Some(0.2));
        batch.pass_rate = 0.1;
    });
    assert!(harder.is_empty(), "{harder:?}");
}

fn set(pass_rate: f64) -> SetReport {
    SetReport {
        name: "held-out".into(),
        pass_rate,
        prompts: 128,
        samples: 512,
        failed: 0,
        mean_reward: None,
        pass_at: Vec::new(),
        truncated_share: 0.0,
        mean_tokens: 10.0,
    }
}

fn evaluation(at: usize, sets: Vec<SetReport>) -> What {
    let (version, primary) = (PolicyVersion(at as u64), "held-out".to_owned());
    let ledger = Ledger::default();
    What::Evaluation { version, primary, sets, spent: ledger, ledger }
}

#[test]
fn evaluations_without_a_verdict_are_errors_and_no_fall() {
    let (mut watch, stopping, mut found) = (Watch::default(), Stopping::default(), Vec::new());
    let mut see = |at: usize, what: What| {
        found.extend(watch.observe(&stopping, &what).into_iter().map(|told| (at, told)));
    };
    for at in 0..12 {
        // From the eighth on the environment is broken, but for a moment.
        if at < 8 || at == 10 {
            see(at, evaluation(at, vec![set(0.5)]));
            continue;
        }
        let (version, set) = (PolicyVersion(at as u64), "held-out".to_owned());
        let reason = "the environment is gone".to_owned();
        see(at, What::NotMeasured { version, set, failed: 512, reason });
        see(at, evaluation(at, Vec::new()));
    }
    let told: Vec<_> = found.iter().map(|(at, told)| (*at, told.sign)).collect();
    assert_eq!(told, [(8, BadSign::EvaluationErrors), (11, BadSign::EvaluationErrors)]);
    assert!((found[0].1.value - 1.0).abs() < 1e-9 && found[0].1.steps == 1, "{found:?}");
}

#[test]
fn an_evaluation_with_one_completion_in_twenty_without_a_verdict_is_told() {
    let told = |failed| {
        let sets = vec![set(0.5), SetReport { name: "other".into(), failed, ..set(0.5) }];
        let told = Watch::default().observe(&Stopping::default(), &evaluation(0, sets));
        told.iter().map(|told| told.sign).collect::<Vec<_>>()
    };
    assert_eq!(told(512 / 20), []);
    // Beside 512 that have one.
    assert_eq!(told(512_u64.div_ceil(19)), [BadSign::EvaluationErrors]);
}

#[test]
fn a_fall_on_held_out_prompts_is_told_at_once_and_only_once() {
    let (mut watch, stopping, mut found) = (Watch::default(), Stopping::default(), Vec::new());
    for (at, rate) in [0.48, 0.50, 0.52, 0.51, 0.52, 0.45, 0.40, 0.39, 0.39].iter().enumerate() {
        let sets = vec![SetReport { name: "other".into(), ..set(0.9) }, set(*rate)];
        let told = watch.observe(&stopping, &evaluation(at, sets));
        found.extend(told.into_iter().map(|told| (at, told)));
    }
    let [(6, told)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(told.sign, BadSign::HeldOutFall);
    assert!((told.threshold - 0.515).abs() < 1e-9 && (told.value - 0.425).abs() < 1e-9, "{told:?}");
}

#[test]
fn one_bad_step_is_no_sign() {
    let stopping = Stopping { patience_steps: 2, ..Stopping::default() };
    let (mut watch, mut told) = (Watch::default(), 0);
    for number in 0..40 {
        let truncated_share = if number % 2 == 0 { 0.5 } else { 0.0 };
        let batch = BatchReport { truncated_share, ..BatchReport::default() };
        told += watch.observe(&stopping, &step(batch, report())).len();
    }
    assert_eq!(told, 0);
}

#[test]
fn the_watch_of_an_older_checkpoint_is_read() {
    let old = r#"{"steps":3,"first_entropy":1.0,"usual_gradient":2.0,"pass_rate":0.5,
        "best_pass_rate":0.6,"lasted":{"reward-collapse":2}}"#;
    let watch: Watch = serde_json::from_str(old).unwrap();
    assert_eq!((watch.steps, watch.lasted[&BadSign::RewardCollapse]), (3, 2));
}
