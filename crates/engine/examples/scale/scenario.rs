//! One simulated run, from a recipe to a row of the table.

use std::{
    error::Error,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use scalerl_engine::{Deadlines, Devices, Phrases, RunParts, Settings, fake, never, run};
use scalerl_journal::{Environment, Event, Reading, RunFolder, What};
use scalerl_recipe::{Override, Recipe, Resolved};
use scalerl_rollout::EvaluationSet;

use crate::{
    fleet::{Fleet, Make},
    problems::{INTERRUPTION, Lengths, STRIDE},
    ranks::{Mark, Ranks},
    speeds::{EIGHT_B, Links, Rates},
};

/// Steps before anything is counted: pipelines fill, phases come into step.
pub(crate) const WARM_UP: usize = 24;

/// The paper's recipe with lengths in strides; nothing is saved or measured on the way.
const BASE: [&str; 8] = [
    "sampling.max_thinking_tokens=768",
    "sampling.max_answer_tokens=128",
    "objective.length_control={type=\"interruption\",earliest=625,latest=750}",
    "objective.curriculum=\"none\"",
    "pipeline.groups_per_step=48",
    "pipeline.group_size=16",
    "output.checkpoint_every_steps=100000",
    "stopping.when_unstable=\"warn\"",
];

/// How generation and training share the time.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scheme {
    /// At most so many steps behind.
    Pipeline(u32),
    /// So many batches are generated, then trained on.
    Phases(u32),
}

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) scheme: Scheme,
    pub(crate) trainers: usize,
    pub(crate) generators: usize,
    pub(crate) rates: Rates,
    pub(crate) links: Links,
    pub(crate) lengths: Lengths,
    /// Train on groups without spread too.
    pub(crate) is_unfiltered: bool,
    /// Steps between evaluations of 1,000 prompts, 16 completions each.
    pub(crate) evaluates_every: Option<usize>,
    pub(crate) steps: usize,
}

impl Scenario {
    pub(crate) fn new(scheme: Scheme, trainers: usize, generators: usize, steps: usize) -> Self {
        Self {
            scheme,
            trainers,
            generators,
            rates: Rates::measured(),
            links: Links::FAST,
            lengths: Lengths::USUAL,
            is_unfiltered: false,
            evaluates_every: None,
            steps,
        }
    }
}

/// What came out, warm-up left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) seconds_per_step: f64,
    /// Tokens written, and tokens trained on, a second.
    pub(crate) written: f64,
    pub(crate) trained: f64,
    pub(crate) generator_idle: f64,
    pub(crate) trainer_idle: f64,
    /// Sequences that a GPU decodes at once, while it works.
    pub(crate) sequences: f64,
    pub(crate) set_aside: u64,
    /// Of the oldest token of each group, and of its newest.
    pub(crate) mean_lag: f64,
    pub(crate) newest_lag: f64,
    pub(crate) largest_lag: u64,
    /// Tokens of a completion, and share of completions that were interrupted.
    pub(crate) mean_tokens: f64,
    pub(crate) interrupted: f64,
    /// Share of groups that carried loss.
    pub(crate) kept: f64,
}

impl Row {
    pub(crate) fn steps_per_hour(&self) -> f64 {
        3600.0 / self.seconds_per_step
    }
}

/// Runs the engine on a clock that jumps.
pub(crate) fn simulate(scenario: &Scenario) -> Result<Row, Box<dyn Error>> {
    let recipe = recipe(scenario)?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("run");
    let run_folder = RunFolder::create(&path, &recipe.to_toml(), &Environment::default())?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let marks = Arc::new(Mutex::new(Vec::new()));
    runtime.block_on(async {
        let make = make(scenario);
        let fleet = Arc::new(Fleet::start(make));
        let trainer = Ranks {
            count: scenario.trainers,
            make,
            fleet: fleet.clone(),
            trainer: fake::FakeTrainer::new(),
            busy_s: 0.0,
            marks: marks.clone(),
        };
        let parts = RunParts {
            settings: settings(scenario, Recipe::clone(&recipe)),
            generator: fleet,
            trainer,
            prompts: fake::FakePrompts::new(1024),
            grader: Arc::new(fake::FakeGrader::new(3, Duration::from_millis(200))),
            environment: None,
            stop: never(),
            fleet: None,
            observer: None,
        };
        run(run_folder, parts).await
    })?;
    let marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
    row(scenario, &marks, &path)
}

fn recipe(scenario: &Scenario) -> Result<Resolved, Box<dyn Error>> {
    let off_policy = match scenario.scheme {
        Scheme::Pipeline(k) => format!("{{type=\"pipeline\",steps_behind={k}}}"),
        Scheme::Phases(k) => format!("{{type=\"ppo-off-policy\",steps_per_phase={k}}}"),
    };
    let filter = if scenario.is_unfiltered { "none" } else { "zero-variance-shrink" };
    let own = [
        format!("objective.off_policy={off_policy}"),
        format!("objective.filter=\"{filter}\""),
        format!("budget.steps={}", scenario.steps),
        format!("evaluation.every_steps={}", scenario.evaluates_every.unwrap_or(100_000)),
    ];
    let set = BASE.iter().copied().chain(own.iter().map(String::as_str));
    let overrides = set.map(Override::parse).collect::<Result<Vec<_>, _>>()?;
    Ok(Recipe::load(&[], &overrides)?)
}

fn make(scenario: &Scenario) -> Make {
    let batches = match scenario.scheme {
        Scheme::Pipeline(steps_behind) => steps_behind + 1,
        Scheme::Phases(steps) => steps,
    };
    Make {
        generators: scenario.generators,
        share: (batches as usize * 48).div_ceil(scenario.generators),
        model: EIGHT_B,
        rates: scenario.rates,
        links: scenario.links,
        lengths: scenario.lengths,
    }
}

fn settings(scenario: &Scenario, recipe: Recipe) -> Settings {
    // Without evaluations one prompt is held out, for the evaluations at both ends of every run.
    let held_out = scenario.evaluates_every.map_or(1, |_| 1000);
    let prompts = fake::fake_prompts("held-out", held_out);
    Settings {
        recipe,
        phrases: Phrases {
            interruption: vec![INTERRUPTION],
            end_of_thinking: vec![91],
            end_of_answer: None,
        },
        intake: fake::fake_intake(),
        evaluation_sets: vec![EvaluationSet { name: "held-out".into(), prompts }],
        devices: Devices::Apart {
            generator: scenario.generators as f64,
            trainer: scenario.trainers as f64,
        },
        generator_flops_per_token: 2.0 * EIGHT_B.parameters(),
        verdicts_at_once: 256,
        deadlines: Deadlines { generate: Duration::from_hours(10), ..Deadlines::default() },
        now: 0.0,
        history: std::sync::Arc::default(),
    }
}

fn row(scenario: &Scenario, marks: &[Mark], path: &Path) -> Result<Row, Box<dyn Error>> {
    let (Some(first), Some(last)) = (marks.get(WARM_UP - 1), marks.last()) else {
        return Err(format!("{} steps are too few: {WARM_UP} are warm-up", marks.len()).into());
    };
    let seconds = last.at.duration_since(first.at).as_secs_f64();
    let steps = marks.len() - WARM_UP;
    let gpu_s = seconds * scenario.generators as f64;
    let busy = last.totals.busy_s - first.totals.busy_s;
    let reading = Reading::load(path)?;
    let seen = Seen::of(&reading.history.events);
    let trained: f64 = marks[WARM_UP..].iter().map(|mark| mark.tokens).sum();
    Ok(Row {
        seconds_per_step: seconds / steps as f64,
        written: (last.totals.tokens - first.totals.tokens) / seconds,
        trained: trained / seconds,
        generator_idle: (1.0 - busy / gpu_s).max(0.0),
        trainer_idle: (1.0 - (last.busy_s - first.busy_s) / seconds).max(0.0),
        sequences: (last.totals.sequence_s - first.totals.sequence_s) / busy,
        set_aside: last.totals.set_aside - first.totals.set_aside,
        mean_lag: mean(seen.lags.iter().map(|(oldest, _)| *oldest)),
        newest_lag: mean(seen.lags.iter().map(|(_, newest)| *newest)),
        largest_lag: seen.lags.iter().map(|(oldest, _)| *oldest).max().unwrap_or(0),
        mean_tokens: seen.tokens as f64 * f64::from(STRIDE) / seen.completions as f64,
        interrupted: seen.interrupted as f64 / seen.completions as f64,
        kept: seen.kept as f64 / seen.batched.max(1) as f64,
    })
}

fn mean(lags: impl ExactSizeIterator<Item = u64>) -> f64 {
    let count = lags.len().max(1) as f64;
    lags.sum::<u64>() as f64 / count
}

/// What the journal says about the steps that count.
#[derive(Default)]
struct Seen {
    /// Of every group trained on: version of the step's start minus its oldest and newest token's.
    lags: Vec<(u64, u64)>,
    tokens: u64,
    completions: u64,
    interrupted: u64,
    kept: u64,
    batched: u64,
}

impl Seen {
    fn of(events: &[Event]) -> Self {
        let mut seen = Self::default();
        let mut versions = std::collections::BTreeMap::new();
        for event in events {
            match &event.what {
                What::Group(group) => {
                    versions.insert(group.group, group.versions);
                    seen.tokens += group.tokens;
                    seen.completions += u64::from(group.judged);
                    seen.interrupted += u64::from(group.interrupted);
                }
                What::Step { batch, report, .. } if report.version.0 > WARM_UP as u64 => {
                    let from = report.version.0 - 1;
                    let written = batch.groups.iter().filter_map(|group| *versions.get(group)?);
                    seen.lags.extend(written.map(|(old, new)| (from - old.0, from - new.0)));
                    seen.kept += u64::from(batch.trained_groups);
                    seen.batched += batch.groups.len() as u64;
                }
                _ => {}
            }
        }
        seen
    }
}
