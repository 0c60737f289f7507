//! The finished runs that a new run's forecasts learn from, found without being asked: run folders
//! beside it, and the user's library. Only runs of which it is known that they started from the same
//! weights and are measured on the same evaluation.

use std::path::Path;

use anyhow::Result;
use scalerl_curve::{HistoryEntry, Provenance};

use crate::history::usual_file;
use crate::study::bad_input;

/// Runs named in a line.
const NAMED: usize = 3;

/// What a run in this folder can learn from, the latest last.
pub(super) fn gather(run: &Path, own: &Provenance) -> Result<Vec<HistoryEntry>> {
    let run = std::path::absolute(run)?;
    let Some(beside) = run.parent() else { return Ok(Vec::new()) };
    // Without a data folder there is no library.
    let library = usual_file().ok();
    let found = scalerl_study::history::gather(beside, library.as_deref(), own);
    Ok(found.map_err(|error| bad_input(&error))?)
}

/// Which runs these are.
pub(super) fn sentence(history: &[HistoryEntry]) -> String {
    let names: Vec<&str> =
        history.iter().rev().take(NAMED).map(|entry| entry.name.as_str()).collect();
    let more = history.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "forecasts learn from finished runs of the same weights and evaluation: {}{more} \
         (--no-history leaves them out)",
        names.join(", ")
    )
}
