//! `scalerl report`: one HTML page about a run folder, or its numbers. What it says is in
//! `scalerl-report`.

use std::error::Error as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use scalerl_recipe::Axis;
use scalerl_report::run::RunReport;

use crate::failure::BadInput;
use crate::forecast::output;

/// Options of `scalerl report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder of the run.
    run: PathBuf,
    /// Where the page goes. Default: report.html in the run's folder.
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
    /// Compute axis: device-hours, tokens, flops or steps. Default: the recipe's (budget.axis).
    #[arg(long, value_name = "AXIS", value_parser = axis)]
    x: Option<Axis>,
    /// The numbers as JSON, and no page unless --out asks for one.
    #[arg(long)]
    json: bool,
}

/// The recipe's names, and what others call device-hours.
fn axis(text: &str) -> Result<Axis, String> {
    let name = if matches!(text, "gpu-hours" | "gpu_hours") { "device-hours" } else { text };
    Axis::named(name).ok_or_else(|| format!("it must be one of {}", Axis::NAMES.join(", ")))
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    check_out(args)?;
    let report = load(&args.run, args.x)?;
    if args.json {
        output::json(out, &report.headline())?;
    } else {
        report.headline().write(out)?;
    }
    let default = (!args.json).then(|| args.run.join("report.html"));
    if let Some(path) = args.out.clone().or(default) {
        output::page(&path, report.page(&args.run))?;
    }
    Ok(())
}

/// The end of `scalerl train`: summary and page.
#[cfg(feature = "train")]
pub(crate) fn close(run: &Path, out: &mut dyn Write) -> Result<()> {
    let report = load(run, None)?;
    report.headline().write(out)?;
    output::page(&run.join("report.html"), report.page(run))
}

/// What is no run folder, or cannot be read, is bad input.
fn load(run: &Path, axis: Option<Axis>) -> Result<RunReport, BadInput> {
    if !run.is_dir() {
        let message = format!("{}: no such folder", run.display());
        return Err(BadInput::new(message).hint("give the folder of a run"));
    }
    RunReport::load(run, axis).map_err(|error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        BadInput::new(format!("{error}{cause}")).hint(error.hint())
    })
}

/// Refuses a place that cannot be written, or that would overwrite the run itself.
fn check_out(args: &Args) -> Result<(), BadInput> {
    let Some(path) = &args.out else { return Ok(()) };
    let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
    if !matches!(ending.as_deref(), Some("html" | "htm")) {
        let message = format!("--out {}: a report is an HTML page", path.display());
        return Err(BadInput::new(message).hint("end the name in .html"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            let message = format!("{}: no such folder", folder.display());
            Err(BadInput::new(message).hint("make it first, or choose another place"))
        }
        None => Ok(()),
    }
}
