//! The small files that outlive run folders: `points.csv` and `runs.jsonl`.
//!
//! A run folder is large and lies on one machine. `points.csv` has every evaluation of a study
//! (`scalerl fit points.csv --by run` reads it), `runs.jsonl` one line about each run. Together
//! they are all that tables, figures and the ledger of predictions are made of.

use std::{fs, io::Write as _, path::Path};

use scalerl_journal::EvaluationPoint;

use crate::{
    StudyError,
    record::{RunMeta, RunRecord},
};

const POINTS: &str = "points.csv";
const RUNS: &str = "runs.jsonl";
const COLUMNS: [&str; 8] =
    ["run", "step", "gpu_hours", "tokens", "flops", "pass_rate", "samples", "at"];

/// Does the folder have both files?
pub fn is_export(folder: &Path) -> bool {
    folder.join(POINTS).is_file() && folder.join(RUNS).is_file()
}

/// Writes both files.
pub fn write(folder: &Path, records: &[RunRecord]) -> Result<(), StudyError> {
    let path = folder.join(POINTS);
    let bad = |error: csv::Error| StudyError::BadFile {
        path: folder.join(POINTS),
        problem: error.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(bad)?;
    for point in records.iter().flat_map(|record| &record.points) {
        let EvaluationPoint { run, step, gpu_hours, tokens, flops, pass_rate, samples, at } = point;
        let row = (run, step, gpu_hours, tokens, flops, pass_rate, samples, at);
        writer.serialize(row).map_err(bad)?;
    }
    let text = writer.into_inner().map_err(|error| bad(error.into_error().into()))?;
    replace(&path, &text)?;
    let mut lines = Vec::new();
    for record in records {
        let path = folder.join(RUNS);
        serde_json::to_writer(&mut lines, &record.meta)
            .map_err(|error| StudyError::BadFile { path, problem: error.to_string() })?;
        lines.push(b'\n');
    }
    replace(&folder.join(RUNS), &lines)
}

/// Reads them back.
pub fn read(folder: &Path) -> Result<Vec<RunRecord>, StudyError> {
    let path = folder.join(RUNS);
    let text = scalerl_files::read_to_string(&path, scalerl_files::TABLE)
        .map_err(StudyError::io("read", &path))?;
    let mut records = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let meta: RunMeta = serde_json::from_str(line).map_err(|error| StudyError::BadFile {
            path: path.clone(),
            problem: format!("line {}: {error}", index + 1),
        })?;
        records.push(RunRecord { meta, points: Vec::new() });
    }
    let path = folder.join(POINTS);
    let bad = |problem: String| StudyError::BadFile { path: folder.join(POINTS), problem };
    let bytes =
        scalerl_files::read(&path, scalerl_files::TABLE).map_err(StudyError::io("read", &path))?;
    for point in csv::Reader::from_reader(&bytes[..]).deserialize() {
        let point: EvaluationPoint = point.map_err(|error| bad(error.to_string()))?;
        match records.iter_mut().find(|record| record.meta.run == point.run) {
            Some(record) => record.points.push(point),
            None => return Err(bad(format!("run {} has no line in {RUNS}", point.run))),
        }
    }
    Ok(records)
}

/// Writes a file so that a reader sees the old one or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), StudyError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".writing-{name}"));
    let mut file = fs::File::create(&aside).map_err(StudyError::io("create", &aside))?;
    file.write_all(bytes).map_err(StudyError::io("write", &aside))?;
    fs::rename(&aside, path).map_err(StudyError::io("rename a file to", path))
}
