//! The binary `scalerl`.

use std::process::ExitCode;

fn main() -> ExitCode {
    scalerl_cli::run(std::env::args_os()).into()
}
