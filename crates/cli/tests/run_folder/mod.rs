//! Run folders of any shape, written with the journal's own means: what an engine would leave.

use std::collections::BTreeMap;

use std::path::Path;

use scalerl_curve::{Compute, Sigmoid, Verdict};
use scalerl_journal::{
    BadSign, BatchReport, Environment, EvaluationPoint, EventLog, Fate, ForecastReport,
    GroupReport, Ledger, PassAt, RoleSeconds, RunFolder, Sample, SamplePart, SetReport, StopReason,
    What,
};
use scalerl_recipe::{Axis, Override, Recipe};
use scalerl_rollout::{
    Draw, FinishReason, GroupId, PolicyVersion, PromptId, RatioStats, Reward, StepReport,
};

/// Stands in every free text of a folder.
pub(crate) const HOSTILE: &str =
    "</pre></script><script>alert(1)</script><img src=x onerror=alert(2)> ]]> \"'&";

/// What an interruption puts in: the default recipe's.
pub(crate) const PHRASE: &str =
    "Okay, time is up. Let me stop thinking and formulate a final answer now. </think>";

/// How the journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Stopped,
    Failed,
    Open,
}

/// The shape of a run.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) steps: u64,
    pub(crate) evaluate_every: u64,
    pub(crate) groups: u64,
    /// Killed after this step and resumed from the step before.
    pub(crate) resume_at: Option<u64>,
    pub(crate) end: End,
    pub(crate) other_sets: u64,
    pub(crate) evaluates_at_start: bool,
    pub(crate) samples: usize,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            steps: 12,
            evaluate_every: 3,
            groups: 4,
            resume_at: None,
            end: End::Stopped,
            other_sets: 1,
            evaluates_at_start: true,
            samples: 3,
        }
    }
}

struct Writer<'a> {
    folder: RunFolder,
    log: EventLog,
    spec: &'a Spec,
    clock: f64,
}

/// Writes the folder.
pub(crate) fn make(path: &Path, spec: &Spec) {
    let overrides = ["evaluation.pass_at=[1,4]", "model.path=\"tiny\""];
    let overrides = overrides.map(|text| Override::parse(text).unwrap());
    let recipe = Recipe::load(&[], &overrides).unwrap().to_toml();
    let environment = Environment {
        scalerl: "0.1.0".into(),
        commit: Some("abc1234".into()),
        machine: HOSTILE.into(),
        devices: vec!["device 0".into(), "device 1".into()],
        ..Environment::default()
    };
    let folder = RunFolder::create(path, &recipe, &environment).unwrap();
    let (log, _) = EventLog::open(&folder.events()).unwrap();
    let mut writer = Writer { folder, log, spec, clock: 0.0 };
    writer.write(What::Started { run: "run".into(), seed: 0, devices: 2.0 });
    if spec.evaluates_at_start {
        writer.evaluation(0);
    }
    let mut kept = writer.log.count();
    let mut step = 1;
    let mut resume_at = spec.resume_at;
    while step <= spec.steps {
        writer.step(step);
        if step.is_multiple_of(spec.evaluate_every) {
            writer.evaluation(step);
        }
        if resume_at == Some(step) {
            resume_at = None;
            let (version, lost) = (PolicyVersion(step - 1), ledger(0.5));
            writer.write(What::Resumed { version, kept, lost, buffered_groups: 3 });
            continue;
        }
        kept = writer.log.count();
        step += 1;
    }
    let (version, ledger) = (PolicyVersion(spec.steps), ledger(spec.steps as f64));
    match spec.end {
        End::Stopped => writer.write(What::Stopped { version, reason: StopReason::Steps, ledger }),
        End::Failed => writer.write(What::Failed { version, error: HOSTILE.into(), ledger }),
        End::Open => {}
    }
}

/// Twenty seconds a step on two devices.
fn ledger(steps: f64) -> Ledger {
    let part = |seconds: f64| seconds * steps;
    Ledger {
        device_seconds: RoleSeconds {
            generate: part(13.0),
            train: part(17.5),
            evaluate: part(3.25),
            idle: part(6.25),
        },
        generator_busy_s: part(14.0),
        trainer_busy_s: part(17.5),
        wall_s: part(20.0),
        tokens_generated: part(4000.0) as u64,
        tokens_trained: part(5000.0) as u64,
        tokens_evaluated: part(500.0) as u64,
        flops: part(1e13),
    }
}

impl Writer<'_> {
    fn write(&mut self, what: What) {
        self.clock += 1.0;
        self.log.append(self.clock, what).unwrap();
    }

    fn step(&mut self, step: u64) {
        let ids: Vec<GroupId> =
            (0..self.spec.groups).map(|index| GroupId(step * 100 + index)).collect();
        let oldest = PolicyVersion(step.saturating_sub(3));
        for (index, group) in ids.iter().enumerate() {
            self.write(What::Group(GroupReport {
                group: *group,
                prompt: PromptId(HOSTILE.into()),
                draw: Draw { dataset: 0, epoch: 0, position: group.0 },
                admitted: oldest,
                versions: Some((oldest, PolicyVersion(step - 1))),
                passed: index as u32 % 3,
                judged: 4,
                failed: 0,
                mean_reward: Some(0.5),
                truncated: 1,
                interrupted: 1,
                other_form: None,
                previous_pass_rate: None,
                tokens: 400,
                generate_s: 1.0,
                judge_s: 0.1,
                fate: Fate::Batch,
            }));
        }
        if step.is_multiple_of(5) {
            let (group, reason) = (ids[0], format!("took too long {HOSTILE}"));
            self.write(What::VerifierFailed { group, completion: 1, reason });
        }
        let batch = BatchReport {
            zero_variance: ids[..1].to_vec(),
            trained_groups: self.spec.groups as u32 - 1,
            groups: ids,
            completions: 16,
            trained_completions: 12,
            trained_tokens: 1200,
            truncated_share: 0.05,
            interrupted_share: 0.25,
            mean_reward: -0.5,
            pass_rate: 0.25,
            mean_tokens: 100.0,
            advantage_deviation: 1.0,
        };
        let lag = (step - 1) - oldest.0;
        let what =
            What::Step { lag, batch, report: step_report(step), ledger: ledger(step as f64) };
        self.write(what);
        if step == 7 {
            let (version, sign) = (PolicyVersion(step), BadSign::Truncation);
            self.write(What::Warning { version, sign, value: 0.12, threshold: 0.1, steps: 20 });
        }
    }

    fn evaluation(&mut self, step: u64) {
        let law = Sigmoid { floor: 0.2, ceiling: 0.7, steepness: 1.6, midpoint: Compute(14.0) };
        let value = if step == 0 { law.floor } else { law.value_at(Compute(step as f64)) };
        // What a hundred completions can show: a multiple of a hundredth.
        let set = |name: String, shift: f64| SetReport {
            name,
            pass_rate: ((value + shift) * 100.0).round() / 100.0,
            prompts: 25,
            samples: 100,
            failed: 0,
            mean_reward: Some(2.0 * value - 1.0),
            pass_at: vec![PassAt { k: 1, value }, PassAt { k: 4, value: value.powf(0.5) }],
            truncated_share: 0.01,
            mean_tokens: 90.0,
        };
        let (version, spent) = (PolicyVersion(step), ledger(step as f64));
        let mut sets = vec![set("held-out".into(), 0.0)];
        sets.extend((0..self.spec.other_sets).map(|index| set(format!("other-{index}"), 0.1)));
        for one in &sets {
            let point = EvaluationPoint::new("run", version, &spent, one);
            let other = (one.name != "held-out").then_some(one.name.as_str());
            self.folder.add_point(other, &point).unwrap();
        }
        let samples: Vec<Sample> = (0..self.spec.samples).map(sample).collect();
        self.folder.write_samples(version, &samples).unwrap();
        let primary = "held-out".to_owned();
        let ledger = spent;
        self.write(What::Evaluation { version, primary, sets, spent, ledger });
        if step >= 3 {
            self.write(What::Forecast(ForecastReport {
                version,
                axis: Axis::DeviceHours,
                compute: spent.training_hours(),
                value,
                gain: (0.05, 0.0, 0.1),
                at_twice: (value + 0.05, value, value + 0.1),
                ceiling: (0.7, 0.6, None),
                verdict: Verdict::NotBounded,
                history: None,
            }));
        }
    }
}

fn sample(index: usize) -> Sample {
    let is_interrupted = index.is_multiple_of(2);
    let put_in = if is_interrupted { PHRASE } else { "</think>" };
    Sample {
        set: "held-out".into(),
        prompt: PromptId(format!("held-out/{index} {HOSTILE}")),
        prompt_text: format!("What is 2 + {index}? {HOSTILE}"),
        answer: format!("{} {HOSTILE}", 2 + index),
        completion: format!("Let me see.\n{HOSTILE} {put_in}It is 2."),
        reward: (index != 1).then_some(Reward {
            value: if index == 0 { 1.0 } else { -1.0 },
            is_correct: index == 0,
        }),
        tokens: 30,
        is_interrupted,
        finish: FinishReason::Stop,
        // One is an episode, with hostile text on both sides.
        parts: if index == 2 { parts() } else { Vec::new() },
        token_list: Vec::new(),
        turns: if index == 2 { 2 } else { 1 },
        metrics: if index == 2 { [("calls".to_owned(), 1.0)].into() } else { BTreeMap::new() },
        error: (index == 1).then(|| format!("the environment: gone {HOSTILE}")),
    }
}

fn parts() -> Vec<SamplePart> {
    let part =
        |is_injected, text: &str| SamplePart { is_injected, text: format!("{text} {HOSTILE}") };
    vec![part(false, "call: 2 + 2"), part(true, "result: 4"), part(false, "It is 4.")]
}

fn step_report(step: u64) -> StepReport {
    StepReport {
        version: PolicyVersion(step),
        loss: 0.1,
        gradient_norm: 0.3,
        entropy: 0.8,
        reference_kl: None,
        ratio: RatioStats {
            tokens: 1200,
            mean: 1.0,
            min: 0.5,
            max: 1.9,
            clip_fraction: 0.01,
            effective_sample_share: 0.97,
            kl_k1: 0.001,
            kl_k3: 0.001,
            mean_abs_log: 0.01,
        },
        learning_rate: 1e-6,
        tokens: 5000,
        trained_tokens: 1200,
        model_flops: 1e13,
        seconds: 17.5,
        peak_memory_bytes: Some(3 << 30),
    }
}
