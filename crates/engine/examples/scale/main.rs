//! The pipeline at the size of a cluster: the real engine, simulated GPUs, a clock that jumps.
//!
//! ```text
//! cargo run -p scalerl-engine --example scale -- docs/bench
//! cargo run -p scalerl-engine --example scale -- OUT 40      # 40 steps instead of 88
//! ```
//!
//! An 8B model with the paper's batch (48 × 16) and budgets (12k thinking tokens, interruptions from
//! 10k to 12k) on 8 to 96 generators and up to 64 trainers. Writes `simulation.csv`, `simulation.png`
//! and `simulation-idle.png` into the folder and prints the tables of docs/bench/simulation.md.
//!
//! One file each: speeds and where they come from (`speeds.rs`), lengths and difficulty
//! (`problems.rs`), generators (`fleet.rs`), trainers (`ranks.rs`), one run (`scenario.rs`), figures
//! (`figure.rs`). Everything between generator and trainer is the engine itself: slots, deadlines,
//! batches, hand-over, journal.

mod figure;
mod fleet;
mod problems;
mod ranks;
mod scenario;
mod speeds;

use std::{error::Error, fmt::Write as _, fs, path::Path};

use problems::Lengths;
use scenario::{Row, Scenario, Scheme, WARM_UP, simulate};
use speeds::{EIGHT_B, Links, Rates};

const GENERATORS: [usize; 8] = [8, 16, 24, 32, 48, 64, 80, 96];
const TRAINERS: usize = 16;
/// How far the formula of a decode step may be from what was measured: two batches it is fitted to, the
/// third it has not seen.
const TOLERANCE: f64 = 0.1;

/// One line of the table.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) trainers: usize,
    pub(crate) generators: usize,
    pub(crate) row: Row,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("give the folder to write to")?;
    let steps = arguments.next().map_or(Ok(WARM_UP + 64), |steps| steps.parse())?;
    let folder = Path::new(&folder);
    print_speeds();
    for (name, formula, measured) in speeds::checks() {
        if (formula / measured - 1.0).abs() > TOLERANCE {
            return Err(format!("{name}: {formula:.3} ms is too far from {measured:.3} ms").into());
        }
    }
    let sweep = sweep(steps)?;
    let splits = splits(steps)?;
    let what_if = what_if(steps)?;
    let mut csv = String::from(CSV_HEAD);
    for (table, lines) in [("generators", &sweep), ("split", &splits), ("what-if", &what_if)] {
        lines.iter().try_for_each(|line| write_csv(&mut csv, table, line))?;
    }
    fs::write(folder.join("simulation.csv"), csv)?;
    figure::draw(&sweep, folder)?;
    Ok(())
}

fn schemes() -> [(&'static str, Scheme); 4] {
    [
        ("pipeline-1", Scheme::Pipeline(1)),
        ("pipeline-4", Scheme::Pipeline(4)),
        ("pipeline-8", Scheme::Pipeline(8)),
        ("phases of 8", Scheme::Phases(8)),
    ]
}

/// Sixteen trainers, more and more generators.
fn sweep(steps: usize) -> Result<Vec<Line>, Box<dyn Error>> {
    print_head("Generators beside 16 trainers");
    let mut lines = Vec::new();
    for (name, scheme) in schemes() {
        for generators in GENERATORS {
            lines.push(line(name, &Scenario::new(scheme, TRAINERS, generators, steps))?);
        }
    }
    Ok(lines)
}

/// Eighty GPUs, shared out in other ways.
fn splits(steps: usize) -> Result<Vec<Line>, Box<dyn Error>> {
    print_head("Eighty GPUs");
    let scheme = Scheme::Pipeline(8);
    let split = |trainers: usize| {
        line("pipeline-8", &Scenario::new(scheme, trainers, 80 - trainers, steps))
    };
    [16, 24, 32, 40, 48, 56, 64].into_iter().map(split).collect()
}

/// The paper's split with one assumption changed at a time.
fn what_if(steps: usize) -> Result<Vec<Line>, Box<dyn Error>> {
    print_head("64 + 16, pipeline-8, one thing changed");
    let base = Scenario::new(Scheme::Pipeline(8), TRAINERS, 64, steps);
    let slow = |factor: f64| base.rates.with_decode_factor(factor);
    let cases = [
        ("as above", base),
        ("decoding takes twice as long", Scenario { rates: slow(2.0), ..base }),
        ("decoding takes four times as long", Scenario { rates: slow(4.0), ..base }),
        (
            "thinking of 8k tokens in the median",
            Scenario { lengths: Lengths { median_thinking: 8000.0, ..base.lengths }, ..base },
        ),
        (
            "all completions of one length",
            Scenario { lengths: Lengths { spread: 0.0, ..base.lengths }, ..base },
        ),
        ("no filter", Scenario { is_unfiltered: true, ..base }),
        (
            "training a quarter faster (activations kept)",
            Scenario { rates: base.rates.with_training_factor(0.75), ..base },
        ),
        (
            "weights to generators at 10 Gbit/s",
            Scenario { links: Links { weights: 1.25e9, ..base.links }, ..base },
        ),
        (
            "trainer ranks at 25 Gbit/s",
            Scenario { links: Links { ranks: 3.125e9, ..base.links }, ..base },
        ),
        (
            "evaluation every 100 steps, 1,000 × 16",
            Scenario { evaluates_every: Some(100), steps: WARM_UP + 200, ..base },
        ),
    ];
    cases.into_iter().map(|(name, scenario)| line(name, &scenario)).collect()
}

fn line(name: &str, scenario: &Scenario) -> Result<Line, Box<dyn Error>> {
    let row = simulate(scenario)?;
    let (trainers, generators) = (scenario.trainers, scenario.generators);
    let line = Line { name: name.into(), trainers, generators, row };
    print_line(&line);
    Ok(line)
}

#[expect(clippy::print_stdout, reason = "this is what the example is for")]
fn print_speeds() {
    println!("Decode steps of the 0.5B model, ms:\n\n| | formula | measured |\n|--|--|--|");
    for (name, formula, measured) in speeds::checks() {
        println!("| {name} | {formula:.3} | {measured:.3} |");
    }
    let (rates, model) = (Rates::measured(), EIGHT_B);
    println!("\n{rates:#?}");
    println!(
        "\n8B: {:.3e} parameters, {:.0} bytes of keys and values a token, room for {:.0} tokens",
        model.parameters(),
        model.kv_bytes(),
        model.kv_tokens()
    );
    for (sequences, context) in [(1.0, 4e3), (32.0, 4e3), (112.0, 4e3), (112.0, 6e3)] {
        let step = rates.decode_step(&model, sequences, sequences * context);
        let rate = sequences / step;
        println!("8B decode, {sequences} × {context}: {:.2} ms, {rate:.0} tokens/s", 1e3 * step);
    }
    let rank = rates.training(&model, &[7000.0; 48]);
    println!("8B training, 48 × 7,000 tokens on a GPU: {rank:.1} s");
}

#[expect(clippy::print_stdout, reason = "this is what the example is for")]
fn print_head(title: &str) {
    println!("\n{title}:\n");
    println!(
        "| | trainers | generators | steps/hour | s/step | written, tokens/s | trained, tokens/s | \
         idle: generators | idle: trainers | sequences a GPU | lag: oldest token, newest, largest |"
    );
    println!("|--|--|--|--|--|--|--|--|--|--|--|");
}

#[expect(clippy::print_stdout, reason = "this is what the example is for")]
fn print_line(line: &Line) {
    let Line { name, trainers, generators, row } = line;
    println!(
        "| {name} | {trainers} | {generators} | {:.0} | {:.1} | {:.0}k | {:.0}k | {:.0} % | {:.0} % | {:.0} | {:.1}, {:.1}, {} |",
        row.steps_per_hour(),
        row.seconds_per_step,
        row.written / 1e3,
        row.trained / 1e3,
        100.0 * row.generator_idle,
        100.0 * row.trainer_idle,
        row.sequences,
        row.mean_lag,
        row.newest_lag,
        row.largest_lag
    );
}

const CSV_HEAD: &str = "table,case,trainers,generators,steps_per_hour,seconds_per_step,written_tokens_per_s,\
     trained_tokens_per_s,generator_idle,trainer_idle,sequences_per_gpu,set_aside,mean_lag,mean_lag_of_newest_token,largest_lag,\
     mean_completion_tokens,interrupted_share,kept_share\n";

fn write_csv(csv: &mut String, table: &str, line: &Line) -> std::fmt::Result {
    let row = &line.row;
    writeln!(
        csv,
        "{table},\"{}\",{},{},{:.2},{:.3},{:.0},{:.0},{:.4},{:.4},{:.2},{},{:.3},{:.3},{},{:.1},{:.4},{:.4}",
        line.name,
        line.trainers,
        line.generators,
        row.steps_per_hour(),
        row.seconds_per_step,
        row.written,
        row.trained,
        row.generator_idle,
        row.trainer_idle,
        row.sequences,
        row.set_aside,
        row.mean_lag,
        row.newest_lag,
        row.largest_lag,
        row.mean_tokens,
        row.interrupted,
        row.kept
    )
}
