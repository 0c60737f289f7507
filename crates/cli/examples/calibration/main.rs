//! How far the forecasts can be trusted: simulated curves with known truth, and real curves whose
//! end is known. Writes docs/results/calibration.md; run by scripts/results/calibration.sh.
//!
//! Arguments: output folder, seeds per simulated row, then real logs as `FILE[:GPUS[:Y]]`.

#![expect(clippy::print_stdout, reason = "a study prints as it goes")]

mod dense;
mod history;
mod law;
mod real;

use std::path::PathBuf;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().context("an output folder")?);
    let seeds: u64 = arguments.next().context("a number of seeds")?.parse()?;
    let mut page = String::from(
        "# Calibration: are the intervals honest, is the forecast better than its rivals?\n\n\
         Made by `scripts/results/calibration.sh`. Intervals are 90 %.\n",
    );
    law::write(&mut page, seeds);
    dense::write(&mut page, seeds);
    let sources: Vec<String> = arguments.collect();
    if !sources.is_empty() {
        let series = real::read_all(&sources)?;
        real::write(&mut page, &folder, &series)?;
        history::write(&mut page, &folder, &series)?;
    }
    let path = folder.join("calibration.md");
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(())
}

/// A share as a percentage.
fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// The mean of what is told of each item; zero of none.
fn mean<T>(items: &[T], of: impl Fn(&T) -> f64) -> f64 {
    items.iter().map(of).sum::<f64>() / items.len().max(1) as f64
}
