//! The binary `scalerl`: parse, connect, print. What each command does is in the module of its
//! name.

#[cfg(feature = "train")]
mod bench;
#[cfg(feature = "train")]
mod doctor;
mod failure;
#[cfg(feature = "train")]
mod sft;

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
    /// Fine-tune a model on examples with answers.
    #[cfg(feature = "train")]
    Sft(sft::Args),
    /// Time a training step, or the head's arithmetic, for a given shape.
    #[cfg(feature = "train")]
    Bench(bench::Args),
    /// Say what this machine has, and what is missing for what.
    #[cfg(feature = "train")]
    Doctor(doctor::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = std::io::stdout().lock();
    let outcome = match cli.command {
        #[cfg(feature = "train")]
        Command::Sft(args) => sft::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Bench(args) => bench::run(&args, &mut out),
        #[cfg(feature = "train")]
        Command::Doctor(args) => doctor::run(&args, &mut out),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
