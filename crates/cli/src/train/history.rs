//! The finished runs that a new run's forecasts learn from, found without being asked: run folders
//! beside it, and the user's library. Only runs of which it is known that they started from the same
//! weights and are measured on the same evaluation.

use std::path::Path;

use anyhow::Result;
use scalerl_curve::{HistoryEntry, Provenance, latest};
use scalerl_journal::Library;

use crate::failure::BadInput;
use crate::history::usual_file;

/// Runs named in a line.
const NAMED: usize = 3;

/// What a run in this folder can learn from, the latest last.
pub(super) fn gather(run: &Path, own: &Provenance) -> Result<Vec<HistoryEntry>> {
    let run = std::path::absolute(run)?;
    let mut entries = run
        .parent()
        .map(|beside| scalerl_study::history::in_folder(beside, own))
        .unwrap_or_default();
    // Without a data folder there is no library.
    if let Ok(file) = usual_file() {
        let kept = Library::new(file).entries();
        let kept = kept.map_err(|error| BadInput::new(&error).hint(error.hint()))?;
        entries.extend(kept.into_iter().filter(|entry| entry.provenance.is_known_same(own)));
    }
    Ok(latest(entries))
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
