//! Finished runs for `--history`: from libraries, run folders, studies and logs.
//!
//! ```text
//! history.jsonl            ──library──> entries as they were kept
//! run folder, study folder ──record───> finished runs, with model and evaluation where known
//! any other log            ──ingest───> every run in it, taken at the user's word
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rayon::prelude::*;
use scalerl_curve::{HistoryEntry, Mismatch, Provenance, Series, ValueRange};
use scalerl_ingest::{IngestError, Request, Run};
use scalerl_journal::{Library, Reading, is_library};
use scalerl_study::record::{self, RunRecord};

use super::options::CurveOptions;
use super::output::say;
use crate::failure::BadInput;
use crate::progress::Progress;
use crate::study::bad_input;

/// A library is small; a larger file is a log.
const LARGEST_LIBRARY: u64 = 64 << 20;

/// Takes what is said beside a result, one line a time.
pub type Tell<'t> = &'t (dyn Fn(&str) + Sync);

/// The finished runs that the options name, the latest last.
pub(crate) fn load(options: &CurveOptions) -> Result<Vec<HistoryEntry>> {
    if options.no_history {
        return Ok(Vec::new());
    }
    let range = options.reading.range.unwrap_or_default();
    let entries = finished_runs(&options.history, &options.reading.request(), range, &say)?;
    let stated = options.provenance.provenance();
    Ok(comparable(entries, &known_provenance(stated, &options.files), &say))
}

/// The finished runs that all of `paths` stand for.
pub fn finished_runs(
    paths: &[PathBuf],
    request: &Request,
    range: ValueRange,
    tell: Tell<'_>,
) -> Result<Vec<HistoryEntry>, BadInput> {
    let mut entries = Vec::new();
    for path in paths {
        let found = entries_of(path, request, range, tell)?;
        if found.is_empty() {
            let message = format!("--history {}: no finished run in it", path.display());
            let hint = "give runs that have ended with 8 evaluations or more, or a history file";
            return Err(BadInput::new(message).hint(hint));
        }
        entries.extend(found);
    }
    Ok(entries)
}

/// What the user says of the runs that are forecast; else what their folders say, where they agree.
pub fn known_provenance(stated: Provenance, files: &[PathBuf]) -> Provenance {
    let recorded = files.iter().filter_map(|file| Reading::environment_of(file).ok());
    let mut recorded: Vec<Provenance> =
        recorded.map(|environment| environment.provenance).collect();
    recorded.dedup();
    let recorded = match &recorded[..] {
        [one] => one.clone(),
        _ => Provenance::default(),
    };
    Provenance {
        model: stated.model.or(recorded.model),
        evaluation: stated.evaluation.or(recorded.evaluation),
    }
}

/// Leaves out runs that say they are of another model or evaluation, and says so.
pub fn comparable(
    mut entries: Vec<HistoryEntry>,
    own: &Provenance,
    tell: Tell<'_>,
) -> Vec<HistoryEntry> {
    entries.retain(|entry| {
        let mismatch = own.mismatch(&entry.provenance);
        if let Some(mismatch) = mismatch {
            let what = match mismatch {
                Mismatch::Model => "model",
                _ => "evaluation",
            };
            tell(&format!("no history: {} (another {what})", entry.name));
        }
        mismatch.is_none()
    });
    let kinds = |of: fn(&Provenance) -> &Option<String>| {
        let known = entries.iter().filter_map(|entry| of(&entry.provenance).as_deref());
        known.collect::<BTreeSet<&str>>().len()
    };
    for (option, count) in
        [("--model", kinds(|p| &p.model)), ("--evaluation", kinds(|p| &p.evaluation))]
    {
        if count > 1 {
            let what = option.trim_start_matches('-');
            tell(&format!(
                "the history has runs of {count} {what}s: say which it is with {option}"
            ));
        }
    }
    entries
}

/// Every finished run that a path stands for; says which are left out.
pub(crate) fn entries_of(
    path: &Path,
    request: &Request,
    range: ValueRange,
    tell: Tell<'_>,
) -> Result<Vec<HistoryEntry>, BadInput> {
    if is_library_file(path) {
        let entries = Library::new(path).entries();
        return entries.map_err(|error| BadInput::new(&error).hint(error.hint()));
    }
    if path.is_dir() {
        let records = record::find(path).map_err(|error| bad_input(&error))?;
        if !records.is_empty() {
            return Ok(of_records(&records, tell));
        }
    }
    let bad = |error: IngestError| BadInput::new(&error).hint(error.hint());
    let runs = scalerl_ingest::read(&[path.to_owned()], request).map_err(bad)?;
    of_runs(&runs, range, tell)
}

fn is_library_file(path: &Path) -> bool {
    scalerl_files::read_to_string(path, LARGEST_LIBRARY).is_ok_and(|text| is_library(&text))
}

fn of_records(records: &[RunRecord], tell: Tell<'_>) -> Vec<HistoryEntry> {
    let summarise = |record: &RunRecord| {
        let entry = record.history_entry();
        if entry.is_none() {
            let status = &record.meta.status;
            let points = record.points.len();
            tell(&format!("no history: {} ({points} evaluations, {status})", record.name()));
        }
        entry
    };
    in_parallel(records, summarise).into_iter().flatten().collect()
}

fn of_runs(runs: &[Run], range: ValueRange, tell: Tell<'_>) -> Result<Vec<HistoryEntry>, BadInput> {
    let summarise = |run: &Run| {
        let bad = |text: String, hint: &str| BadInput::new(text).hint(hint);
        let series = Series::try_with_range(run.points.clone(), range)
            .map_err(|error| bad(format!("{}: {error}", run.name), error.hint()))?;
        match HistoryEntry::summarise(&run.name, &series) {
            Ok(entry) => Ok(Some(entry)),
            Err(error) => {
                tell(&format!("no history: {} ({error})", run.name));
                Ok(None)
            }
        }
    };
    let found: Result<Vec<Option<HistoryEntry>>, BadInput> =
        in_parallel(runs, summarise).into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

/// Summaries are fits: many of them take a while.
fn in_parallel<T: Sync, U: Send>(items: &[T], work: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let progress = Progress::new("summarising", items.len());
    let done = items
        .par_iter()
        .map(|item| {
            let outcome = work(item);
            progress.tick();
            outcome
        })
        .collect();
    progress.finish();
    done
}
