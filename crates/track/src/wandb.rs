//! W&B, offline: the folder and the `.wandb` file that `wandb sync` uploads.
//!
//! ```text
//! track/wandb/offline-run-YYYYMMDD_HHMMSS-ID/run-ID.wandb      records
//!                                          /files/media/table/ completions
//! ```
//!
//! W&B's own step only grows, and an evaluation may be done after later steps: rows are numbered, and
//! `step`, the optimizer step, is the axis that every metric is defined over. The `exit` record stands
//! behind what the cursor counts, so a run that goes on cuts it off.
//!
//! Not here: the log format of the records (`wandb/log.rs`), W&B online.

pub(crate) mod log;

use std::fs;
use std::path::{Path, PathBuf};

use scalerl_journal::StopReason;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

use crate::error::TrackError;
use crate::own_file::OwnFile;
use crate::protobuf::{bytes, int};
use crate::rows::Row;
use crate::samples;
use crate::tracker::{Ending, Opening, Run, Tracker};

fn parent(run: &Path) -> PathBuf {
    run.join("track").join("wandb")
}

/// The folder of a run, for `wandb sync`; a pattern where it is not written yet.
pub(crate) fn folder_or_glob(run: &Path) -> PathBuf {
    let entries = fs::read_dir(parent(run)).map(|entries| entries.flatten().collect::<Vec<_>>());
    let found = entries.unwrap_or_default().into_iter().map(|entry| entry.path()).find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("offline-run-"))
    });
    found.unwrap_or_else(|| parent(run).join("offline-run-*"))
}

fn folder(run: &Run) -> PathBuf {
    let moment = OffsetDateTime::from_unix_timestamp(run.started_at as i64)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = moment.to_calendar_date();
    let (hour, minute, second) = moment.to_hms();
    let month = u8::from(month);
    let time = format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}");
    parent(&run.folder).join(format!("offline-run-{time}-{}", run.id))
}

#[derive(Debug)]
pub(crate) struct Wandb {
    folder: PathBuf,
    file: OwnFile,
    started_at: f64,
    /// Records written.
    records: i64,
    /// Rows written.
    rows: i64,
    /// Newest value of every metric.
    summary: Map<String, Value>,
}

impl Wandb {
    pub(crate) fn open(opening: &Opening, project: &str) -> Result<Self, TrackError> {
        let (run, state) = (opening.run, opening.state);
        let folder = folder(run);
        let path = folder.join(format!("run-{}.wandb", run.id));
        let file = OwnFile::open(&path, state["bytes"].as_u64().unwrap_or(0))?;
        let mut wandb = Self {
            folder,
            file,
            started_at: run.started_at,
            records: state["records"].as_i64().unwrap_or(0),
            rows: state["rows"].as_i64().unwrap_or(0),
            summary: state["summary"].as_object().cloned().unwrap_or_default(),
        };
        if wandb.file.bytes() == 0 {
            wandb.begin(run, project)?;
        }
        Ok(wandb)
    }

    fn begin(&mut self, run: &Run, project: &str) -> Result<(), TrackError> {
        let (mut version, mut header) = (Vec::new(), Vec::new());
        bytes(&mut version, 1, "0.31.0");
        bytes(&mut version, 2, "0.31.0");
        bytes(&mut header, 1, version);
        let mut config = Vec::new();
        for (key, value) in run.config.as_object().into_iter().flatten() {
            bytes(&mut config, 1, item(1, key, value));
        }
        let mut record = Vec::new();
        bytes(&mut record, 1, &run.id);
        bytes(&mut record, 3, project);
        bytes(&mut record, 4, config);
        bytes(&mut record, 8, &run.name);
        let mut start = Vec::new();
        int(&mut start, 1, run.started_at as i64);
        bytes(&mut record, 17, start);
        let mut records = log::HEADER.to_vec();
        self.add(&mut records, 21, &header);
        self.add(&mut records, 17, &record);
        // Every metric over the optimizer step.
        let mut options = Vec::new();
        int(&mut options, 3, 1);
        let mut step = Vec::new();
        bytes(&mut step, 1, "step");
        bytes(&mut step, 6, &options);
        self.add(&mut records, 12, &step);
        let mut all = Vec::new();
        bytes(&mut all, 2, "*");
        bytes(&mut all, 4, "step");
        bytes(&mut all, 6, &options);
        self.add(&mut records, 12, &all);
        self.file.append(&records).map(|_| ())
    }

    /// Adds a record whose content is field `number` to what will be appended.
    fn add(&mut self, records: &mut Vec<u8>, number: u32, content: &[u8]) {
        self.records += 1;
        let mut record = Vec::new();
        int(&mut record, 1, self.records);
        bytes(&mut record, number, content);
        let at = self.file.bytes() + records.len() as u64;
        log::add(records, at, &record);
    }

    fn row(&mut self, records: &mut Vec<u8>, row: &Row) -> Result<(), TrackError> {
        let mut items: Vec<(String, Value)> =
            row.metrics.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        items.push(("step".into(), json!(row.step)));
        if !row.samples.is_empty() {
            let table = self.table(records, row)?;
            items.push(("samples".into(), table));
        }
        for (name, value) in &items {
            self.summary.insert(name.clone(), value.clone());
        }
        items.push(("_step".into(), json!(self.rows)));
        items.push(("_timestamp".into(), json!(row.at)));
        items.push(("_runtime".into(), json!((row.at - self.started_at).max(0.0))));
        let (mut history, mut step) = (Vec::new(), Vec::new());
        for (name, value) in &items {
            bytes(&mut history, 1, item(2, name, value));
        }
        int(&mut step, 1, self.rows);
        bytes(&mut history, 2, step);
        self.rows += 1;
        self.add(records, 2, &history);
        Ok(())
    }

    /// Writes the completions to a file of their own, and says so in a record.
    fn table(&mut self, records: &mut Vec<u8>, row: &Row) -> Result<Value, TrackError> {
        let mut table = samples::table(row.step, &row.samples);
        table["ncols"] = json!(samples::COLUMNS.len());
        table["nrows"] = json!(row.samples.len());
        let text = table.to_string();
        let digest = Sha256::digest(text.as_bytes());
        let sum = digest.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        let name = format!("media/table/samples_{}_{}.table.json", self.rows, &sum[..20]);
        let path = self.folder.join("files").join(&name);
        let parent = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(parent).map_err(TrackError::io("create the folder", parent))?;
        fs::write(&path, &text).map_err(TrackError::io("write", &path))?;
        let (mut file, mut files) = (Vec::new(), Vec::new());
        bytes(&mut file, 1, &name);
        int(&mut file, 3, 2); // a media file
        bytes(&mut files, 1, file);
        self.add(records, 6, &files);
        Ok(json!({
            "_type": "table-file", "path": name, "sha256": sum, "size": text.len(),
            "ncols": samples::COLUMNS.len(), "nrows": row.samples.len(),
        }))
    }
}

/// `key` and `value_json` of history, summary and config; history's keys are nested.
fn item(key_field: u32, key: &str, value: &Value) -> Vec<u8> {
    let mut item = Vec::new();
    bytes(&mut item, key_field, key);
    bytes(&mut item, 16, value.to_string());
    item
}

impl Tracker for Wandb {
    fn send(&mut self, rows: &[Row]) -> Result<Value, TrackError> {
        let mut records = Vec::new();
        for row in rows {
            self.row(&mut records, row)?;
        }
        let mut summary = Vec::new();
        for (name, value) in self.summary.clone() {
            bytes(&mut summary, 1, item(1, &name, &value));
        }
        self.add(&mut records, 3, &summary);
        let size = self.file.append(&records)?;
        let (records, rows, summary) = (self.records, self.rows, &self.summary);
        Ok(json!({ "bytes": size, "records": records, "rows": rows, "summary": summary }))
    }

    fn finish(&mut self, ending: &Ending, _at: f64) -> Result<(), TrackError> {
        // Without an exit the run stays open, and `wandb sync` says that it is not complete.
        let code = match ending {
            Ending::Open => return Ok(()),
            Ending::Stopped(StopReason::Asked) => 255,
            Ending::Stopped(_) => 0,
            Ending::Failed => 1,
        };
        let (mut records, mut exit) = (Vec::new(), Vec::new());
        int(&mut exit, 1, code);
        self.add(&mut records, 18, &exit);
        self.file.append(&records).map(|_| ())
    }
}
