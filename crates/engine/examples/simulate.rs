//! Makes a run folder in a second, with a simulated policy on a simulated clock.
//!
//! ```text
//! cargo run -p scalerl-engine --example simulate -- FOLDER [KEY=VALUE …]
//! cargo run -p scalerl-engine --example simulate -- out/simulated objective.off_policy.steps_behind=4
//! ```
//!
//! For trying out whatever reads run folders, and for seeing what a scheme does to lag and idle
//! shares before a device is rented. The numbers are those of the fakes, not of any model.

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use scalerl_engine::{
    Deadlines, Devices, Phrases, RunParts, Settings, Simulated, fake, never, run,
};
use scalerl_journal::{Environment, Reading, RunFolder};
use scalerl_recipe::{Override, Recipe};
use scalerl_rollout::EvaluationSet;

/// A small run; what is given on the command line goes over it.
const BASE: [&str; 10] = [
    "pipeline.groups_per_step=8",
    "pipeline.group_size=8",
    "objective.length_control.earliest=6",
    "objective.length_control.latest=10",
    "sampling.max_thinking_tokens=12",
    "sampling.max_answer_tokens=3",
    "evaluation.every_steps=5",
    "evaluation.generations=8",
    "output.checkpoint_every_steps=20",
    "budget.steps=100",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("give the folder to write")?;
    let given: Vec<String> = arguments.collect();
    let set = BASE.iter().copied().chain(given.iter().map(String::as_str));
    let overrides = set.map(Override::parse).collect::<Result<Vec<_>, _>>()?;
    let recipe = Recipe::load(&[], &overrides)?;

    let environment = Environment {
        scalerl: env!("CARGO_PKG_VERSION").into(),
        devices: vec!["simulated".into()],
        ..Environment::default()
    };
    let path = Path::new(&folder);
    let run_folder = RunFolder::create(path, &recipe.to_toml(), &environment)?;
    let mut training_time = fake::Delays::new(1, Duration::from_secs(8));
    let held_out = fake::fake_prompts("held-out", 50);
    let parts = RunParts {
        settings: Settings {
            recipe: Recipe::clone(&recipe),
            phrases: Phrases {
                interruption: vec![90, 91],
                end_of_thinking: vec![91],
                end_of_answer: None,
            },
            intake: fake::fake_intake(),
            evaluation_sets: vec![EvaluationSet { name: "held-out".into(), prompts: held_out }],
            devices: Devices::Apart { generator: 1.0, trainer: 1.0 },
            generator_flops_per_token: 2.0,
            verdicts_at_once: 16,
            deadlines: Deadlines::default(),
            now: 0.0,
            history: Arc::default(),
        },
        generator: Arc::new(fake::FakeGenerator::new(2, Duration::from_millis(900))),
        trainer: Simulated::new(fake::FakeTrainer::new(), move || training_time.draw()),
        prompts: fake::FakePrompts::new(4096),
        grader: Arc::new(fake::FakeGrader::new(3, Duration::from_millis(200))),
        environment: None,
        stop: never(),
        fleet: None,
        observer: None,
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(run(run_folder, parts))?;
    print_summary(path)
}

#[expect(clippy::print_stdout, reason = "this is what the example is for")]
fn print_summary(path: &Path) -> Result<(), Box<dyn Error>> {
    let summary = Reading::load(path)?.summary();
    let ledger = &summary.ledger;
    println!(
        "{} steps in {:.3} device-hours, pass rate {:.3}, largest lag {}",
        summary.version.0,
        ledger.device_hours(),
        summary.pass_rate.unwrap_or(f64::NAN),
        summary.largest_lag
    );
    println!(
        "idle: generator {:.0} %, trainer {:.0} %",
        100.0 * ledger.generator_idle_share(),
        100.0 * ledger.trainer_idle_share()
    );
    Ok(())
}
