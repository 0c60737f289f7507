//! Run folders with journals of any length, written by the journal's own writer.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses its own part of this one"
)]

use std::path::{Path, PathBuf};

use scalerl_curve::Verdict;
use scalerl_journal::{
    BadSign, BatchReport, Environment, EvaluationPoint, EventLog, Fate, ForecastReport,
    GroupReport, Ledger, RoleSeconds, RunFolder, Sample, SetReport, StopReason, What,
};
use scalerl_recipe::Axis;
use scalerl_rollout::{
    Draw, FinishReason, GroupId, PolicyVersion, PromptId, RatioStats, Reward, StepReport,
};

pub fn ledger(step: u64) -> Ledger {
    let seconds = step as f64;
    Ledger {
        device_seconds: RoleSeconds {
            generate: 3.0 * seconds,
            train: 2.0 * seconds,
            evaluate: 0.5 * seconds,
            idle: 0.1 * seconds,
        },
        wall_s: 4.0 * seconds,
        tokens_generated: 1000 * step,
        tokens_trained: 1500 * step,
        ..Ledger::default()
    }
}

pub fn group(number: u64) -> What {
    What::Group(GroupReport {
        group: GroupId(number),
        prompt: PromptId(format!("prompt-{number}")),
        draw: Draw { dataset: 0, epoch: 0, position: number },
        admitted: PolicyVersion(number / 8),
        versions: Some((PolicyVersion(number / 8), PolicyVersion(number / 8))),
        passed: 3,
        judged: 8,
        failed: 0,
        mean_reward: Some(0.4),
        truncated: 0,
        interrupted: 0,
        other_form: None,
        previous_pass_rate: None,
        tokens: 900,
        generate_s: 0.5,
        judge_s: 0.1,
        fate: Fate::Batch,
    })
}

pub fn step(version: u64) -> What {
    What::Step {
        lag: version % 5,
        batch: BatchReport {
            groups: (0..8).map(GroupId).collect(),
            trained_groups: 7,
            mean_reward: 0.01 * version as f64,
            pass_rate: 0.3,
            mean_tokens: 100.0,
            ..BatchReport::default()
        },
        report: StepReport {
            version: PolicyVersion(version),
            loss: 0.1,
            gradient_norm: 1.0,
            entropy: 0.7,
            reference_kl: None,
            ratio: RatioStats {
                tokens: 10,
                mean: 1.0,
                min: 0.5,
                max: 2.0,
                clip_fraction: 0.0,
                effective_sample_share: 0.9,
                kl_k1: 0.0,
                kl_k3: 0.0,
                mean_abs_log: 0.0,
            },
            learning_rate: 1e-6,
            tokens: 1500,
            trained_tokens: 1000,
            model_flops: 1e12,
            seconds: 2.0,
            peak_memory_bytes: None,
        },
        ledger: ledger(version),
    }
}

fn set(version: u64) -> SetReport {
    let compute = version as f64 / 40.0;
    SetReport {
        name: "held-out".into(),
        pass_rate: 0.2 + 0.5 * compute / (1.0 + compute),
        prompts: 50,
        samples: 400,
        failed: 0,
        mean_reward: None,
        pass_at: Vec::new(),
        truncated_share: 0.0,
        mean_tokens: 100.0,
    }
}

pub fn evaluation(version: u64) -> What {
    What::Evaluation {
        version: PolicyVersion(version),
        primary: "held-out".into(),
        sets: vec![set(version)],
        spent: ledger(version),
        ledger: ledger(version),
    }
}

pub fn forecast(version: u64) -> What {
    What::Forecast(ForecastReport {
        version: PolicyVersion(version),
        axis: Axis::Steps,
        compute: version as f64,
        value: 0.5,
        gain: (0.1, 0.0, 0.2),
        at_twice: (0.6, 0.5, 0.7),
        ceiling: (0.7, 0.6, Some(0.8)),
        verdict: Verdict::Bounded,
        history: None,
    })
}

/// A run that somebody writes.
pub struct Writer {
    pub folder: RunFolder,
    pub log: EventLog,
    at: f64,
}

impl Writer {
    pub fn create(path: &Path) -> Self {
        let environment = Environment::default();
        let recipe = "[budget]\nsteps = 100\naxis = \"steps\"\n";
        let folder = RunFolder::create(path, recipe, &environment).unwrap();
        let (log, _) = EventLog::open(&folder.events()).unwrap();
        let mut writer = Self { folder, log, at: 1.7e9 };
        writer.add(What::Started { run: "r".into(), seed: 1, devices: 2.0 });
        writer
    }

    pub fn add(&mut self, what: What) {
        self.at += 1.0;
        if let What::Evaluation { version, sets, spent, .. } = &what {
            let point = EvaluationPoint::new("r", *version, spent, &sets[0]);
            self.folder.add_point(None, &point).unwrap();
        }
        self.log.append(self.at, what).unwrap();
    }

    /// Steps with their groups, an evaluation and a forecast every tenth.
    pub fn steps(&mut self, versions: std::ops::RangeInclusive<u64>) {
        for version in versions {
            (0..8).for_each(|number| self.add(group(8 * version + number)));
            self.add(step(version));
            if version % 10 == 0 {
                self.add(evaluation(version));
                self.add(forecast(version));
            }
        }
    }

    pub fn trouble(&mut self, version: u64) {
        self.add(What::Warning {
            version: PolicyVersion(version),
            sign: BadSign::EntropyCollapse,
            value: 0.01,
            threshold: 0.1,
            steps: 5,
        });
        let reason = "<img src=x onerror=alert(1)>".to_owned();
        self.add(What::VerifierFailed { group: GroupId(1), completion: 0, reason });
    }

    pub fn resume(&mut self, kept: usize, version: u64) {
        let lost = ledger(1);
        self.add(What::Resumed { version: PolicyVersion(version), kept, lost, buffered_groups: 0 });
    }

    pub fn stop(&mut self, version: u64) {
        let reason = StopReason::Steps;
        self.add(What::Stopped {
            version: PolicyVersion(version),
            reason,
            ledger: ledger(version),
        });
    }

    pub fn sample(&self, version: u64, completion: &str) {
        let sample = Sample {
            set: "held-out".into(),
            prompt: PromptId("p".into()),
            prompt_text: "what is <b>1+1</b>?".into(),
            answer: "2".into(),
            completion: completion.to_owned(),
            reward: Some(Reward { value: 1.0, is_correct: true }),
            tokens: 3,
            is_interrupted: false,
            finish: FinishReason::Stop,
            parts: Vec::new(),
            turns: 1,
            metrics: std::collections::BTreeMap::new(),
            error: None,
            token_list: Vec::new(),
        };
        self.folder.write_samples(PolicyVersion(version), &[sample]).unwrap();
    }
}

/// A finished run.
pub fn finished(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let mut writer = Writer::create(&path);
    writer.steps(1..=60);
    writer.trouble(60);
    writer.stop(60);
    path
}
