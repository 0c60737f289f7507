//! The command `scalerl`: parse, connect, print. What each command does is in the module of its
//! name.
//!
//! A library so that more than one program can carry the command: the binary, and the Python package.

#[cfg(feature = "train")]
mod alarms;
#[cfg(feature = "train")]
mod arithmetic;
#[cfg(feature = "train")]
mod bench;
#[cfg(feature = "train")]
mod bench_serve;
#[cfg(feature = "train")]
mod decode;
#[cfg(feature = "train")]
mod doctor;
#[cfg(feature = "track")]
mod export;
mod failure;
pub mod forecast;
#[cfg(feature = "train")]
mod generate;
#[cfg(feature = "train")]
mod generator;
#[cfg(feature = "grade")]
mod grade;
#[cfg(all(test, feature = "train"))]
mod guides;
mod history;
#[cfg(feature = "train")]
mod init;
#[cfg(any(feature = "train", feature = "watch"))]
mod interrupt;
mod launcher;
#[cfg(feature = "train")]
mod merge;
mod plan;
mod predictions;
mod progress;
mod recipe;
mod replay;
mod report;
#[cfg(feature = "train")]
mod sampling;
#[cfg(feature = "train")]
mod serve;
mod setup;
#[cfg(feature = "train")]
mod sft;
mod shell;
mod status;
mod study;
#[cfg(feature = "train")]
mod train;
#[cfg(feature = "watch")]
mod watch;

use std::ffi::OsString;
use std::io::Write as _;

use clap::{Parser, Subcommand};

pub use failure::BadInput;

#[cfg(not(feature = "train"))]
const START: &str = "\
Start here:
  scalerl fit LOG                   a forecast from the log of any trainer
  scalerl recipe list               recipes that are part of the program";

#[cfg(feature = "train")]
const START: &str = "\
Start here:
  scalerl train quickstart          a whole run with forecast and report: minutes on two CPU cores, no files
  scalerl init DATA --model MODEL   a recipe for data of your own; then scalerl train FILE --dry-run
  scalerl fit LOG                   a forecast from the log of any trainer
  scalerl recipe list               recipes that are part of the program";

/// RL post-training for language models whose outcome can be forecast.
#[derive(Debug, Parser)]
#[command(name = "scalerl", version, max_term_width = 100, before_help = START)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a recipe for data of your own: columns, verifier, lengths and budgets, with reasons.
    #[cfg(feature = "train")]
    Init(init::Args),
    /// Fit the compute-performance curve of one or more runs and forecast from it.
    Fit(forecast::fit::Args),
    /// Compare runs: a higher ceiling, a better efficiency, or no difference to be seen.
    Compare(forecast::compare::Args),
    /// Fit early parts of finished runs and see how good the forecasts were.
    Backtest(forecast::backtest::Args),
    /// Keep finished runs, so that forecasts of later ones can learn from them.
    History(history::Args),
    /// Train a policy by RL as a recipe says, and forecast while it goes on.
    #[cfg(feature = "train")]
    Train(train::Args),
    /// One more generator for a run of several processes.
    #[cfg(feature = "train")]
    Generator(generator::Args),
    /// Say where a run stands, and the processes it is made of.
    Status(status::Args),
    /// Open a live page of runs, or a full-screen view in the terminal.
    #[cfg(feature = "watch")]
    Watch(watch::Args),
    /// Write a page about a run folder: curve, forecasts, compute, stability, completions.
    Report(report::Args),
    /// Send a run to an experiment tracker: TensorBoard, W&B, MLflow, Trackio, JSON lines.
    #[cfg(feature = "track")]
    Export(export::Args),
    /// Fine-tune a model on examples with answers.
    #[cfg(feature = "train")]
    Sft(sft::Args),
    /// Make one model folder of an adapter and its base.
    #[cfg(feature = "train")]
    Merge(merge::Args),
    /// Continue prompts with a model.
    #[cfg(feature = "train")]
    Generate(generate::Args),
    /// Serve a model over HTTP, as OpenAI's clients speak it.
    #[cfg(feature = "train")]
    Serve(serve::Args),
    /// Find or download libtorch, with NVIDIA's libraries where a driver is present.
    Setup(setup::Args),
    /// Say what this machine has and what is missing for what; compute a product and an attention.
    #[cfg(feature = "train")]
    Doctor(doctor::Args),
    /// Compare predicted with gold answers, row by row.
    #[cfg(feature = "grade")]
    Grade(grade::Args),
    /// Run a base recipe and its variants, forecast each from its first half, compare them.
    Study(study::Args),
    /// Say what it takes to tell two recipes apart: seeds, prompts, generations, compute.
    Plan(plan::Args),
    /// Hold the forecasts made at half of each run's compute against what came.
    Predictions(predictions::Args),
    /// Race recorded and simulated studies again: what is saved, and what is lost.
    Replay(replay::Args),
    /// Look at recorded runs with the stability watch, and hold its alarms against how they ended.
    #[cfg(feature = "train")]
    Alarms(alarms::Args),
    /// List, show, check and compare recipes.
    Recipe(recipe::Args),
    /// Print a script that completes commands and options: scalerl completions bash.
    Completions(shell::Completions),
    /// Print the manual, or write the pages of all commands: scalerl man | man -l -.
    Man(shell::Man),
    /// Measure speed.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Time each fitting method on the given runs.
    Fit(forecast::bench::Args),
    #[cfg(feature = "train")]
    #[command(flatten)]
    Model(bench::What),
}

/// Runs the command that `arguments` ask for and gives its exit code; the first of them is the
/// program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    #[cfg(feature = "train")]
    launcher::forget_library_path();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    #[cfg(not(feature = "train"))]
    if let Some(code) = start_whole_program(&arguments) {
        return code;
    }
    scalerl_report::command::remember(&arguments);
    #[cfg(feature = "train")]
    let cli = Cli::parse_from(arguments);
    #[cfg(not(feature = "train"))]
    let cli = match launcher::parse(&arguments) {
        Ok(cli) => cli,
        Err(error) => return failure::report(&error.into()),
    };
    let mut out = std::io::stdout().lock();
    let outcome = match cli.command {
        #[cfg(feature = "train")]
        Command::Init(args) => init::run(&args, &mut out),
        Command::Fit(args) => forecast::fit::run(&args, &mut out),
        Command::Compare(args) => forecast::compare::run(&args, &mut out),
        Command::Backtest(args) => forecast::backtest::run(&args, &mut out),
        Command::History(args) => history::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Generator(args) => generator::run(&args, &mut out),
        Command::Status(args) => status::run(&args, &mut out),
        #[cfg(feature = "watch")]
        Command::Watch(args) => watch::run(&args, &mut out),
        Command::Report(args) => report::run(&args, &mut out),
        #[cfg(feature = "track")]
        Command::Export(args) => export::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Train(args) => train::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Sft(args) => sft::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Merge(args) => merge::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Generate(args) => generate::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Serve(args) => serve::run(&args, &mut out),
        Command::Setup(args) => setup::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Doctor(args) => doctor::run(&args, &mut out),
        #[cfg(feature = "grade")]
        Command::Grade(args) => grade::run(&args, &mut out),
        Command::Study(args) => study::run(&args, &mut out),
        Command::Plan(args) => plan::run(&args, &mut out),
        Command::Predictions(args) => predictions::run(&args, &mut out),
        Command::Replay(args) => replay::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Alarms(args) => alarms::run(&args, &mut out),
        Command::Recipe(args) => recipe::run(&args, &mut out),
        Command::Completions(args) => shell::completions(&args, &mut out),
        Command::Man(args) => shell::man(&args, &mut out),
        Command::Bench(Bench::Fit(args)) => forecast::bench::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Bench(Bench::Model(what)) => bench::run(&what, &mut out),
    };
    // Within Python nothing else flushes standard output at the end.
    let outcome = outcome.and_then(|()| Ok(out.flush()?));
    match outcome {
        Ok(()) => 0,
        Err(error) => failure::report(&error),
    }
}

/// Part of an archive that holds the whole program, too, this one becomes it where that is better.
/// `None` when this one shall go on by itself.
#[cfg(not(feature = "train"))]
fn start_whole_program(arguments: &[OsString]) -> Option<u8> {
    let whole = launcher::whole_program()?;
    let handover = launcher::Handover::of(arguments);
    if handover == launcher::Handover::No {
        return None;
    }
    let error = launcher::hand_over(&whole, arguments).err()?;
    (handover == launcher::Handover::Needed).then(|| failure::report(&error))
}
