//! A whole run with fakes: how it is set up, killed, resumed and audited.
#![allow(dead_code, reason = "each test binary uses its own part of the rig")]

#[path = "../audit/mod.rs"]
mod audit;

use std::{future::Future as _, path::Path, pin::pin, sync::Arc, task::Poll, time::Duration};

use scalerl_curve::HistoryEntry;
use scalerl_engine::{
    Deadlines, Devices, EngineError, Phrases, RunEnd, RunParts, Settings, Simulated, fake, never,
    run,
};
use scalerl_journal::{Environment as Machine, Event, GroupReport, Reading, RunFolder, What};
use scalerl_recipe::{Override, Recipe};
use scalerl_rollout::{Environment, EvaluationSet};
use tokio::sync::mpsc;

/// One way to run.
#[derive(Clone)]
pub(crate) struct Rig {
    /// Laid over a small recipe with lag 0.
    pub(crate) set: Vec<String>,
    /// Decides how long everything takes.
    pub(crate) timing_seed: u64,
    /// Longest decode step and verdict, in milliseconds.
    pub(crate) slowness_ms: u64,
    /// How much longer the trainer's acts take than a decode step.
    pub(crate) trainer_pace: u32,
    pub(crate) prompts: fake::FakePrompts,
    pub(crate) grader_fails: f64,
    pub(crate) grader_hangs: f64,
    /// A data set on which the grader always fails.
    pub(crate) grader_broken_for: Option<&'static str>,
    /// Makes every rollout an episode.
    pub(crate) environment: Option<fake::FakeEnvironment>,
    pub(crate) generator_fault: Option<fake::Fault>,
    pub(crate) trainer_fails_at: Option<u64>,
    pub(crate) trainer_refuses: fake::Refuses,
    pub(crate) evaluation_prompts: u64,
    pub(crate) deadlines: Deadlines,
    /// Finished runs that forecasts learn from.
    pub(crate) history: Vec<HistoryEntry>,
}

pub(crate) const PROMPTS: u64 = 50;

impl Rig {
    pub(crate) fn new(set: &[&str]) -> Self {
        Self {
            set: set.iter().map(ToString::to_string).collect(),
            timing_seed: 1,
            slowness_ms: 40,
            trainer_pace: 20,
            prompts: fake::FakePrompts::new(PROMPTS),
            grader_fails: 0.0,
            grader_hangs: 0.0,
            grader_broken_for: None,
            environment: None,
            generator_fault: None,
            trainer_fails_at: None,
            trainer_refuses: fake::Refuses::Nothing,
            evaluation_prompts: 6,
            deadlines: Deadlines::default(),
            history: Vec::new(),
        }
    }

    pub(crate) fn pipeline(steps_behind: u64) -> Self {
        Self::new(&[&format!("objective.off_policy.steps_behind={steps_behind}")])
    }

    pub(crate) fn phases(steps_per_phase: u64) -> Self {
        Self::new(&[
            "objective.off_policy={type=\"ppo-off-policy\"}",
            &format!("objective.off_policy.steps_per_phase={steps_per_phase}"),
        ])
    }

    pub(crate) fn with(mut self, set: &[&str]) -> Self {
        self.set.extend(set.iter().map(ToString::to_string));
        self
    }

    pub(crate) fn timed(mut self, timing_seed: u64) -> Self {
        self.timing_seed = timing_seed;
        self
    }

    pub(crate) fn recipe(&self) -> Recipe {
        let base = [
            "seed=11",
            "pipeline.groups_per_step=3",
            "pipeline.group_size=4",
            "objective.off_policy.steps_behind=0",
            "objective.length_control.earliest=4",
            "objective.length_control.latest=9",
            "sampling.max_thinking_tokens=10",
            "sampling.max_answer_tokens=3",
            "evaluation.every_steps=4",
            "evaluation.generations=2",
            "evaluation.pass_at=[1,2]",
            "output.checkpoint_every_steps=3",
            "budget.steps=14",
            "budget.axis=\"steps\"",
            "stopping.patience_steps=1000",
        ];
        let set = base.iter().copied().chain(self.set.iter().map(String::as_str));
        // A scheme with other keys must not inherit those of the pipeline.
        let is_phased = self.set.iter().any(|one| one.contains("ppo-off-policy"));
        let overrides: Vec<Override> = set
            .filter(|one| !(is_phased && one.contains("off_policy.steps_behind")))
            .map(|one| Override::parse(one).unwrap())
            .collect();
        let resolved = Recipe::load(&[], &overrides).unwrap_or_else(|error| panic!("{error}"));
        Recipe::clone(&resolved)
    }

    fn settings(&self) -> Settings {
        let held_out = fake::fake_prompts("held-out", self.evaluation_prompts);
        let evaluation_sets = if held_out.is_empty() {
            vec![]
        } else {
            vec![
                EvaluationSet { name: "held-out".into(), prompts: held_out },
                EvaluationSet { name: "other".into(), prompts: fake::fake_prompts("other", 2) },
            ]
        };
        Settings {
            recipe: self.recipe(),
            phrases: Phrases {
                interruption: vec![90, 91],
                end_of_thinking: vec![91],
                end_of_answer: None,
            },
            intake: fake::fake_intake(),
            evaluation_sets,
            devices: Devices::Shared { count: 2.0 },
            generator_flops_per_token: 2.0,
            verdicts_at_once: 5,
            deadlines: self.deadlines,
            now: 1_000_000.0,
            history: self.history.clone().into(),
        }
    }

    pub(crate) fn parts<S: scalerl_engine::TrainerHandle>(
        &self,
        handle_of: impl FnOnce(fake::FakeTrainer, fake::Delays) -> S,
        stop: mpsc::Receiver<()>,
    ) -> RunParts<fake::FakeGenerator, S, fake::FakePrompts, fake::FakeGrader> {
        let slowness = Duration::from_millis(self.slowness_ms);
        let mut trainer = fake::FakeTrainer::new();
        (trainer.fails_at, trainer.refuses) = (self.trainer_fails_at, self.trainer_refuses);
        let generator = fake::FakeGenerator::new(self.timing_seed, slowness);
        let generator = match self.generator_fault {
            Some(fault) => generator.with_fault(fault),
            None => generator,
        };
        let grader = fake::FakeGrader::new(self.timing_seed ^ 5, slowness)
            .with_failures(self.grader_fails, self.grader_hangs)
            .broken_for(self.grader_broken_for);
        RunParts {
            settings: self.settings(),
            generator: Arc::new(generator),
            trainer: handle_of(
                trainer,
                fake::Delays::new(self.timing_seed ^ 9, slowness * self.trainer_pace),
            ),
            prompts: self.prompts.clone(),
            grader: Arc::new(grader),
            environment: self.environment.map(|one| Arc::new(one) as Arc<dyn Environment>),
            stop,
            fleet: None,
            observer: None,
        }
    }

    pub(crate) fn folder(path: &Path) -> RunFolder {
        if path.join("recipe.toml").exists() {
            RunFolder::claim(path).unwrap()
        } else {
            RunFolder::create(path, "", &Machine::default()).unwrap()
        }
    }

    /// One session on a paused clock, until its end or until it has been polled `kill_after` times.
    pub(crate) fn session(
        &self,
        path: &Path,
        kill_after: Option<u64>,
        stop: mpsc::Receiver<()>,
    ) -> Option<Result<RunEnd, EngineError>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        // Dropping the runtime waits for blocking tasks, so nothing of a killed session lives on.
        runtime.block_on(async {
            let simulated =
                |trainer, mut delays: fake::Delays| Simulated::new(trainer, move || delays.draw());
            let parts = self.parts(simulated, stop);
            let mut engine = pin!(run(Self::folder(path), parts));
            let mut polls = 0;
            std::future::poll_fn(move |context| {
                polls += 1;
                if kill_after.is_some_and(|limit| polls > limit) {
                    return Poll::Ready(None);
                }
                engine.as_mut().poll(context).map(Some)
            })
            .await
        })
    }

    pub(crate) fn run(&self, path: &Path) -> RunEnd {
        let end = self.session(path, None, never()).unwrap();
        end.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Polls that a whole run takes.
    pub(crate) fn polls(&self) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let (mut low, mut high) = (1, 4096);
        while low < high {
            let middle = u64::midpoint(low, high);
            let path = folder.path().join(middle.to_string());
            match self.session(&path, Some(middle), never()) {
                Some(_) => high = middle,
                None => low = middle + 1,
            }
        }
        low
    }

    /// Kills after each of these numbers of polls, then runs to the end.
    pub(crate) fn run_with_kills(&self, path: &Path, kills: &[u64]) -> RunEnd {
        for (index, kill) in kills.iter().enumerate() {
            let rig = self.clone().timed(self.timing_seed + index as u64 + 1);
            if let Some(end) = rig.session(path, Some(*kill), never()) {
                return end.unwrap();
            }
        }
        self.run(path)
    }
}

/// What must be true of every folder whose run has ended.
pub(crate) fn audit(path: &Path, steps_behind: u64) -> Reading {
    let reading = Reading::load(path).unwrap();
    let places = audit::audit(&reading, steps_behind);
    audit::assert_none_skipped(&places, PROMPTS);
    for Event { what, .. } in &reading.history.events {
        if let What::Group(GroupReport { versions: Some((oldest, _)), admitted, .. }) = what {
            assert!(oldest >= admitted, "a token older than its group's admission");
        }
    }
    let ledger = reading.history.ledger();
    let (held, booked) = (2.0 * ledger.wall_s, ledger.device_seconds.total());
    assert!((held - booked).abs() <= 0.01 * held, "{booked} booked of {held} held");
    assert_eq!(
        std::fs::read_to_string(path.join("points.jsonl")).unwrap_or_default().lines().count(),
        reading.points().len()
    );
    reading
}

/// The digest of everything trained on, from the newest checkpoint.
pub(crate) fn digest(reading: &Reading) -> u64 {
    let checkpoint = reading.checkpoints.last().unwrap();
    let bytes = checkpoint.read("trainer/trainer.json").unwrap();
    let trainer: fake::FakeTrainer = serde_json::from_slice(&bytes).unwrap();
    trainer.digest
}
