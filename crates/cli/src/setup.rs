//! `scalerl setup`: libtorch found or fetched, with NVIDIA's libraries where a driver is present.
//!
//! The work is done by `scripts/setup/libtorch.py`, which `make setup` runs, too; its text is part
//! of the program. Python and pip know where wheels are, check their hashes and have the settings of
//! the machine (proxies, mirrors), so nothing of that is written a second time.
//!
//! Not here: starting the program with what was found (`launcher.rs`).

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::failure::BadInput;

const SCRIPT: &str = include_str!("../../../scripts/setup/libtorch.py");

/// Names a folder that holds `torch/`, before every other place.
pub(crate) const FOLDER: &str = "LIBTORCH_DIR";

/// Options of `setup`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// With NVIDIA's libraries, whether or not this machine has a driver.
    #[arg(long, conflicts_with = "cpu")]
    cuda: bool,
    /// Without NVIDIA's libraries, even if this machine has a driver.
    #[arg(long)]
    cpu: bool,
    /// Only say where libtorch is; fetch nothing.
    #[arg(long)]
    find: bool,
}

fn script(options: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).args(options).stdin(Stdio::null());
    command
}

fn no_python(error: std::io::Error) -> anyhow::Error {
    if error.kind() != ErrorKind::NotFound {
        return anyhow::Error::new(error).context("cannot start python3");
    }
    let hint = format!("install Python 3 with pip, or name a folder with torch/ in {FOLDER}");
    BadInput::new("python3, which finds and fetches libtorch, is missing").hint(hint).into()
}

/// The folder that holds `torch/`; `None` when there is none on this machine.
pub(crate) fn find() -> Result<Option<PathBuf>> {
    // The one place that needs no search: a started scalerl names it for those that it starts.
    let named = std::env::var_os(FOLDER).map(PathBuf::from);
    if let Some(folder) = named.filter(|folder| folder.join("torch/lib/libtorch_cpu.so").is_file())
    {
        return Ok(Some(folder));
    }
    let output = script(&["--find"]).stderr(Stdio::inherit()).output().map_err(no_python)?;
    match output.status.code() {
        Some(0) => {
            let path =
                String::from_utf8(output.stdout).context("libtorch lies in no UTF-8 path")?;
            Ok(Some(PathBuf::from(path.trim_end_matches('\n'))))
        }
        Some(2) => Ok(None),
        _ => Err(BadInput::new("libtorch cannot be looked for; the reason is above").into()),
    }
}

/// Finds or fetches.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    if args.find {
        let Some(folder) = find()? else {
            return Err(BadInput::new("libtorch is missing").hint("scalerl setup").into());
        };
        return Ok(writeln!(out, "{}", folder.display())?);
    }
    let options = [(args.cuda, "--cuda"), (args.cpu, "--cpu")];
    let options: Vec<&str> = options.iter().filter_map(|(is, name)| is.then_some(*name)).collect();
    let status = script(&options).status().map_err(no_python)?;
    if !status.success() {
        bail!("the set-up has failed; the reason is above");
    }
    writeln!(out, "libtorch is ready: scalerl doctor proves it")?;
    Ok(())
}
