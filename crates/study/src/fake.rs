//! Run folders without a model: a law, noise and a simulated clock.
//!
//! For tests of everything that starts or reads runs. The pass rate follows a sigmoid that a few
//! choices of the recipe move, with binomial noise drawn from seed and step, so that a run that
//! was stopped and resumed has the same points as one that was not. The numbers are of no model,
//! and `environment.json` says so.

use std::path::Path;

use scalerl_curve::{Compute, Sigmoid, Verdict};
use scalerl_journal::{
    Environment, EvaluationPoint, EventLog, ForecastReport, JournalError, Ledger, RoleSeconds,
    RunFolder, SetReport, StopReason, What,
};
use scalerl_recipe::{Axis, HeadPrecision, OffPolicy, Recipe, Resolved, Source};
use scalerl_rollout::PolicyVersion;

const TOKENS_PER_STEP: u64 = 1000;
const SECONDS_PER_STEP: f64 = 36.0;
const PROMPTS: u32 = 250;
const BEST_LR: f64 = 5e-7;
/// Unix time at which simulated runs start, plus their seed in hours.
const START: f64 = 1.75e9;

/// What the driver of a run wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The next evaluation.
    GoOn,
    /// An end in order, to be resumed later.
    Stop,
    /// An error, as if something had broken.
    Break,
}

/// The curve that a recipe is given.
pub fn law(recipe: &Recipe) -> Sigmoid {
    let rate = (recipe.optimizer.lr / BEST_LR).ln().abs();
    let is_rounded = recipe.objective.head_precision == HeadPrecision::Bf16;
    let alternates = matches!(recipe.objective.off_policy, OffPolicy::PpoOffPolicy { .. });
    // Seeds differ, as real runs do.
    let luck = 0.004 * normal(recipe.seed.wrapping_mul(0x5851_f42d));
    Sigmoid {
        floor: 0.35,
        ceiling: 0.65 + luck - if is_rounded { 0.09 } else { 0.0 } - 0.03 * rate,
        steepness: 1.8,
        midpoint: Compute(if alternates { 34.0 } else { 17.0 }),
    }
}

/// Makes a run, or goes on with one, asking `next` before each evaluation.
pub fn run(
    folder: &Path,
    recipe: Option<&Resolved>,
    mut next: impl FnMut() -> Next,
) -> Result<StopReason, JournalError> {
    let opened = match recipe {
        Some(recipe) => {
            let environment = Environment {
                scalerl: env!("CARGO_PKG_VERSION").into(),
                commit: Some("simulated".into()),
                devices: vec!["simulated".into()],
                started_at: START + 3600.0 * recipe.seed as f64,
                ..Environment::default()
            };
            RunFolder::create(folder, &recipe.to_toml(), &environment)?
        }
        None => RunFolder::claim(folder)?,
    };
    let recipe = own_recipe(&opened)?;
    let (mut log, events) = EventLog::open(&opened.events())?;
    let mut done = events.iter().rev().find_map(|event| match &event.what {
        What::Evaluation { version, .. } => Some(version.0),
        _ => None,
    });
    let at = |step: u64| START + 3600.0 * recipe.seed as f64 + SECONDS_PER_STEP * step as f64;
    let first = match done {
        None => What::Started { run: opened.name(), seed: recipe.seed, devices: 1.0 },
        Some(step) => What::Resumed {
            version: PolicyVersion(step),
            kept: log.count(),
            lost: Ledger::default(),
            buffered_groups: 0,
        },
    };
    log.append(at(done.unwrap_or(0)), first)?;
    let every = u64::from(recipe.evaluation.every_steps.unwrap_or(1));
    loop {
        let step = done.map_or(0, |step| step + every);
        let (version, ledger) = (PolicyVersion(done.unwrap_or(0)), ledger(done.unwrap_or(0)));
        if let Some(reason) = budget_met(&recipe, step) {
            log.append(at(version.0), What::Stopped { version, reason, ledger })?;
            return Ok(reason);
        }
        match next() {
            Next::GoOn => evaluate(&opened, &mut log, &recipe, step, at(step))?,
            Next::Stop => {
                let reason = StopReason::Asked;
                log.append(at(version.0), What::Stopped { version, reason, ledger })?;
                return Ok(reason);
            }
            Next::Break => {
                let error = "the simulated device broke".to_owned();
                let what = What::Failed { version, error: error.clone(), ledger };
                log.append(at(version.0), what)?;
                return Err(JournalError::BadFile { path: folder.to_owned(), problem: error });
            }
        }
        done = Some(step);
    }
}

fn own_recipe(folder: &RunFolder) -> Result<Resolved, JournalError> {
    let bad = |problem: String| JournalError::BadFile { path: folder.recipe(), problem };
    let text = std::fs::read_to_string(folder.recipe()).map_err(|error| bad(error.to_string()))?;
    let source = Source::Text { name: "recipe.toml".into(), text };
    Recipe::load(&[source], &[]).map_err(|error| bad(error.to_string()))
}

fn evaluate(
    folder: &RunFolder,
    log: &mut EventLog,
    recipe: &Recipe,
    step: u64,
    at: f64,
) -> Result<(), JournalError> {
    let samples = u64::from(PROMPTS * recipe.evaluation.generations);
    let law = law(recipe);
    let value = law.value_at(Compute(step as f64));
    let noise = (value * (1.0 - value) / samples as f64).sqrt();
    let pass_rate = (value + noise * normal(recipe.seed << 32 | step)).clamp(0.0, 1.0);
    let set = SetReport {
        name: "held-out".into(),
        pass_rate,
        prompts: PROMPTS,
        samples,
        failed: 0,
        mean_reward: None,
        pass_at: Vec::new(),
        truncated_share: 0.0,
        mean_tokens: 20.0,
    };
    let (version, spent) = (PolicyVersion(step), ledger(step));
    folder.add_point(None, &EvaluationPoint::new(&folder.name(), version, &spent, &set))?;
    let (primary, sets) = (set.name.clone(), vec![set]);
    log.append(at, What::Evaluation { version, primary, sets, spent, ledger: spent })?;
    let twice = law.value_at(Compute(2.0 * step as f64));
    log.append(
        at,
        What::Forecast(ForecastReport {
            version,
            axis: Axis::Steps,
            compute: step as f64,
            value,
            gain: (twice - value, 0.0, 0.1),
            at_twice: (twice, twice - 0.02, twice + 0.02),
            ceiling: (law.ceiling, law.ceiling - 0.02, None),
            verdict: Verdict::NotBounded,
            history: None,
        }),
    )?;
    Ok(())
}

fn ledger(step: u64) -> Ledger {
    let seconds = SECONDS_PER_STEP * step as f64;
    let device_seconds =
        RoleSeconds { generate: seconds * 0.6, train: seconds * 0.4, ..RoleSeconds::default() };
    Ledger {
        device_seconds,
        wall_s: seconds,
        tokens_generated: TOKENS_PER_STEP * step,
        ..Ledger::default()
    }
}

fn budget_met(recipe: &Recipe, step: u64) -> Option<StopReason> {
    let budget = &recipe.budget;
    let spent = ledger(step);
    let is_over = |limit: Option<f64>, spent: f64| limit.is_some_and(|limit| spent > limit);
    if is_over(budget.steps.map(|steps| steps as f64), step as f64) {
        Some(StopReason::Steps)
    } else if is_over(budget.tokens.map(|tokens| tokens as f64), spent.tokens_generated as f64) {
        Some(StopReason::Tokens)
    } else if is_over(budget.device_hours, spent.device_hours()) {
        Some(StopReason::DeviceHours)
    } else {
        None
    }
}

/// About normal: twelve uniform numbers from a counter (splitmix64), summed.
fn normal(seed: u64) -> f64 {
    let uniform = |index: u64| {
        let mut bits = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) as f64 / u64::MAX as f64
    };
    (1..=12).map(uniform).sum::<f64>() - 6.0
}
