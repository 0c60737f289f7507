//! `track/metrics.jsonl`: one object for each row, `step` and `time` first, then the metrics.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::error::TrackError;
use crate::own_file::OwnFile;
use crate::rows::Row;
use crate::tracker::{Ending, Opening, Tracker};

pub(crate) fn path(run: &Path) -> PathBuf {
    run.join("track").join("metrics.jsonl")
}

#[derive(Debug)]
pub(crate) struct Jsonl(OwnFile);

impl Jsonl {
    pub(crate) fn open(opening: &Opening) -> Result<Self, TrackError> {
        let bytes = opening.state["bytes"].as_u64().unwrap_or(0);
        OwnFile::open(&path(&opening.run.folder), bytes).map(Self)
    }
}

impl Tracker for Jsonl {
    fn send(&mut self, rows: &[Row]) -> Result<Value, TrackError> {
        let mut text = Vec::new();
        for row in rows {
            let mut line = Map::new();
            line.insert("step".into(), json!(row.step));
            line.insert("time".into(), json!(row.at));
            for (name, value) in &row.metrics {
                line.insert(name.to_string(), json!(value));
            }
            text.extend(Value::Object(line).to_string().bytes());
            text.push(b'\n');
        }
        Ok(json!({ "bytes": self.0.append(&text)? }))
    }

    fn finish(&mut self, _ending: &Ending, _at: f64) -> Result<(), TrackError> {
        Ok(())
    }
}
