//! Which finished runs a forecast may learn from, as of the moment it is made.
//!
//! Only runs of which it is known that they started from the same weights and are measured on the
//! same evaluation ([`Provenance`]), and that had ended by then. The latest count, as many as
//! `curve` uses.
//!
//! Not here: what they teach (`curve::history`), how libraries are kept (`journal`).

use std::{fs, path::Path};

use rayon::prelude::*;
use scalerl_curve::{HistoryEntry, Provenance, latest};
use scalerl_journal::{Library, Reading};

use crate::StudyError;
use crate::record::{RunRecord, is_run};

/// A finished run that later ones may learn from.
#[derive(Debug)]
pub(crate) struct Finished<'r> {
    record: &'r RunRecord,
    ended_at: f64,
    entry: HistoryEntry,
}

/// The finished runs among `records`, each summarised once.
pub(crate) fn finished(records: &[RunRecord]) -> Vec<Finished<'_>> {
    let summary = |record| {
        let record: &RunRecord = record;
        let (ended_at, entry) = (record.ended_at()?, record.history_entry()?);
        Some(Finished { record, ended_at, entry })
    };
    records.par_iter().filter_map(summary).collect()
}

/// What `record` could learn from at the Unix time `asked_at`, the latest last.
pub(crate) fn known_at(
    finished: &[Finished<'_>],
    record: &RunRecord,
    asked_at: Option<f64>,
) -> Vec<HistoryEntry> {
    let Some(asked_at) = asked_at else { return Vec::new() };
    let known = finished
        .iter()
        .filter(|one| one.ended_at <= asked_at && one.record.meta != record.meta)
        .filter(|one| one.entry.provenance.is_known_same(&record.meta.provenance))
        .map(|one| one.entry.clone());
    latest(known.collect())
}

/// What a run in a folder of runs can learn from, the latest last: the finished runs there, and those
/// of a library.
pub fn gather(
    runs: &Path,
    library: Option<&Path>,
    own: &Provenance,
) -> Result<Vec<HistoryEntry>, StudyError> {
    let mut entries = in_folder(runs, own);
    if let Some(library) = library {
        let kept = Library::new(library).entries()?;
        entries.extend(kept.into_iter().filter(|entry| entry.provenance.is_known_same(own)));
    }
    Ok(latest(entries))
}

/// The finished runs in a folder of run folders that a run of `own` provenance can learn from, the
/// latest last. A folder that cannot be read, or is still written to, teaches nothing.
pub fn in_folder(runs: &Path, own: &Provenance) -> Vec<HistoryEntry> {
    let Ok(entries) = fs::read_dir(runs) else { return Vec::new() };
    let folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    let entry = |folder: &std::path::PathBuf| {
        // The small file first: the journal of a long run takes a while to read.
        let provenance = Reading::environment_of(folder).ok()?.provenance;
        if !is_run(folder) || !provenance.is_known_same(own) {
            return None;
        }
        RunRecord::load(folder).ok()?.history_entry()
    };
    latest(folders.par_iter().filter_map(entry).collect())
}
