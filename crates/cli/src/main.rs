//! The binary `scalerl`: parse, connect, print. What each command does is in the module of its
//! name.

mod failure;
mod forecast;
mod progress;
mod recipe;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// RL post-training for language models whose outcome can be forecast.
#[derive(Debug, Parser)]
#[command(name = "scalerl", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Fit the compute-performance curve of one or more runs and forecast from it.
    Fit(forecast::fit::Args),
    /// Compare runs: a higher ceiling, a better efficiency, or no difference to be seen.
    Compare(forecast::compare::Args),
    /// Fit early parts of finished runs and see how good the forecasts were.
    Backtest(forecast::backtest::Args),
    /// List, show, check and compare recipes.
    Recipe(recipe::Args),
    /// Measure speed.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Time each fitting method on the given runs.
    Fit(forecast::bench::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = std::io::stdout().lock();
    let outcome = match cli.command {
        Command::Fit(args) => forecast::fit::run(&args, &mut out),
        Command::Compare(args) => forecast::compare::run(&args, &mut out),
        Command::Backtest(args) => forecast::backtest::run(&args, &mut out),
        Command::Recipe(args) => recipe::run(&args, &mut out),
        Command::Bench(Bench::Fit(args)) => forecast::bench::run(&args, &mut out),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
