//! A run folder that is written as an engine writes it, with kills and resumes.

use std::path::{Path, PathBuf};

use scalerl_journal::{
    BadSign, BatchReport, Environment, EventLog, Fate, ForecastReport, GroupReport, HistoryUse,
    Ledger, PassAt, RoleSeconds, RunFolder, Sample, SetReport, StopReason, What,
};
use scalerl_rollout::{
    Draw, FinishReason, GroupId, PolicyVersion, PromptId, RatioStats, Reward, StepReport,
};

pub(super) struct Journal {
    pub(super) path: PathBuf,
    folder: RunFolder,
    log: EventLog,
    clock: f64,
    /// Makes the values of a session differ from those that it repeats.
    session: u32,
}

impl Journal {
    /// A new run.
    pub(super) fn create(parent: &Path) -> Self {
        let path = parent.join("run-1");
        let recipe = "seed = 3\n[optimizer]\nlr = 0.001\n[task]\nnames = [\"a\", \"b\"]\n";
        let environment = Environment { started_at: 1_763_000_000.0, ..Environment::default() };
        let folder = RunFolder::create(&path, recipe, &environment).unwrap();
        let (log, _) = EventLog::open(&folder.events()).unwrap();
        let mut journal = Self { path, folder, log, clock: 1_763_000_000.0, session: 0 };
        journal.write(What::Started { run: "run-1".into(), seed: 3, devices: 1.0 });
        journal
    }

    pub(super) fn write(&mut self, what: What) -> usize {
        self.clock += 1.5;
        self.log.append(self.clock, what).unwrap();
        self.log.count()
    }

    /// Lines so far: what a checkpoint keeps.
    pub(super) fn lines(&self) -> usize {
        self.log.count()
    }

    /// Steps `from..=to`, each with its groups; every fifth is evaluated and forecast.
    pub(super) fn train(&mut self, from: u64, to: u64) {
        for step in from..=to {
            self.write(What::Group(group(step)));
            let value = step as f64 + f64::from(self.session) / 8.0;
            let (batch, report) = (batch(value), report(step, value));
            self.write(What::Step { lag: step % 3, batch, report, ledger: ledger(step) });
            if step.is_multiple_of(5) {
                self.evaluate(step, value);
            }
        }
    }

    fn evaluate(&mut self, step: u64, value: f64) {
        let version = PolicyVersion(step);
        self.folder.write_samples(version, &[sample(step)]).unwrap();
        let set = |name: &str, pass_rate: f64| SetReport {
            name: name.into(),
            pass_rate,
            prompts: 10,
            samples: 80,
            failed: 1,
            mean_reward: Some(pass_rate * 2.0 - 1.0),
            pass_at: vec![PassAt { k: 8, value: 0.9 }],
            truncated_share: 0.01,
            mean_tokens: 100.0 + value,
        };
        let sets = vec![set("gsm8k test", value / 100.0), set("math", value / 200.0)];
        let (spent, primary) = (ledger(step), "gsm8k test".into());
        self.write(What::Evaluation { version, primary, sets, spent, ledger: ledger(step) });
        let forecast = serde_json::json!({
            "version": step, "axis": "device-hours", "compute": value, "value": value / 100.0,
            "gain": [0.1, 0.05, 0.2], "at_twice": [0.6, 0.5, 0.7], "ceiling": [0.8, 0.7, 0.95],
            "verdict": "bounded", "history": { "runs": 2, "weight": 0.25, "heaviest": [] },
        });
        let forecast: ForecastReport = serde_json::from_value(forecast).unwrap();
        assert!(matches!(forecast.history, Some(HistoryUse { runs: 2, .. })));
        self.write(What::Forecast(forecast));
    }

    /// The rare events.
    pub(super) fn trouble(&mut self, step: u64) {
        let (version, ledger) = (PolicyVersion(step), ledger(step));
        let (group, prompt, draw) = (GroupId(1), PromptId("a/1".into()), Draw::default());
        let (reason, file) = ("too long".to_owned(), None);
        self.write(What::SetAside { version, group, prompt, draw, reason: reason.clone(), file });
        self.write(What::VerifierFailed { group, completion: 0, reason });
        self.write(What::EmptyBatch { version, batch: BatchReport::default(), ledger });
        let (sign, value, threshold, steps) = (BadSign::EntropyCollapse, 0.01, 0.1, 5);
        self.write(What::Warning { version, sign, value, threshold, steps });
    }

    pub(super) fn stop(&mut self, step: u64, reason: StopReason) {
        self.write(What::Stopped { version: PolicyVersion(step), reason, ledger: ledger(step) });
    }

    /// The process is gone, and another goes on from a checkpoint that keeps so many lines.
    pub(super) fn resume(mut self, step: u64, kept: usize) -> Self {
        let Self { path, folder, .. } = self;
        drop(folder);
        let folder = RunFolder::claim(&path).unwrap();
        let (log, _) = EventLog::open(&folder.events()).unwrap();
        self = Self { path, folder, log, clock: self.clock + 60.0, session: self.session + 1 };
        let (version, lost) = (PolicyVersion(step), Ledger::default());
        self.write(What::Resumed { version, kept, lost, buffered_groups: 0 });
        self
    }
}

fn group(step: u64) -> GroupReport {
    GroupReport {
        group: GroupId(step),
        prompt: PromptId(format!(
            "{}/{step}",
            if step.is_multiple_of(2) { "even ü" } else { "odd" }
        )),
        draw: Draw::default(),
        admitted: PolicyVersion(step - 1),
        versions: None,
        passed: 3,
        judged: 8,
        failed: 0,
        mean_reward: Some(0.5),
        truncated: 0,
        interrupted: 0,
        other_form: None,
        previous_pass_rate: None,
        tokens: 800,
        generate_s: 1.0,
        judge_s: 0.1,
        fate: Fate::Batch,
    }
}

fn batch(value: f64) -> BatchReport {
    BatchReport {
        groups: vec![GroupId(1), GroupId(2)],
        zero_variance: vec![GroupId(2)],
        trained_groups: 1,
        completions: 16,
        trained_completions: 8,
        trained_tokens: 700,
        truncated_share: 0.02,
        interrupted_share: 0.01,
        mean_reward: value / 50.0,
        pass_rate: value / 100.0,
        mean_tokens: 99.5,
        advantage_deviation: 0.9,
    }
}

fn report(step: u64, value: f64) -> StepReport {
    StepReport {
        version: PolicyVersion(step),
        loss: 1.0 / value,
        gradient_norm: 0.3,
        entropy: 0.7,
        reference_kl: Some(0.01),
        ratio: RatioStats {
            tokens: 700,
            mean: 1.0,
            min: 0.5,
            max: 2.0,
            clip_fraction: 0.01,
            effective_sample_share: 0.97,
            kl_k1: -0.001,
            kl_k3: 0.001,
            mean_abs_log: 0.01,
        },
        learning_rate: 1e-6,
        tokens: 5000,
        trained_tokens: 700,
        model_flops: 1e13,
        seconds: 2.5,
        peak_memory_bytes: Some(3 << 30),
    }
}

fn ledger(step: u64) -> Ledger {
    let seconds = step as f64 * 10.0;
    Ledger {
        device_seconds: RoleSeconds {
            generate: seconds,
            train: seconds / 2.0,
            evaluate: 1.0,
            idle: 0.5,
        },
        generator_busy_s: seconds / 2.0,
        trainer_busy_s: seconds / 4.0,
        wall_s: seconds,
        tokens_generated: step * 800,
        tokens_trained: step * 5000,
        tokens_evaluated: 0,
        flops: step as f64 * 1e13,
    }
}

fn sample(step: u64) -> Sample {
    Sample {
        token_list: Vec::new(),
        set: "gsm8k test".into(),
        prompt: PromptId(format!("gsm8k/{step}")),
        prompt_text: "How many <b>|\nare there?".into(),
        answer: "7".into(),
        completion: format!("There are {step}."),
        reward: Some(Reward { value: 1.0, is_correct: true }),
        tokens: 5,
        is_interrupted: false,
        finish: FinishReason::Stop,
        parts: Vec::new(),
        turns: 1,
        metrics: std::collections::BTreeMap::default(),
        error: None,
    }
}
