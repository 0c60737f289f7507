//! TensorBoard: an event file in `track/tensorboard/`, scalars as `simple_value`, text for completions
//! and recipe.
//!
//! TFRecord frames around `Event` messages (tensorflow/core/util/event.proto). Where rows are taken
//! back, the file is written anew under a later name and the old one removed; a `SessionLog` START at
//! step 0 makes a TensorBoard that is looking on forget what it has read.

use std::fs;
use std::path::{Path, PathBuf};

use scalerl_ingest::frame;
use scalerl_journal::Sample;
use serde_json::{Value, json};

use crate::config::plain;
use crate::error::TrackError;
use crate::own_file::OwnFile;
use crate::protobuf::{bytes, double, float, int};
use crate::rows::Row;
use crate::samples::{COLUMNS, cells};
use crate::tracker::{Ending, Opening, Tracker};

/// `TensorProto.dtype` of strings.
const DT_STRING: i64 = 7;

/// `SessionLog.status`.
const START: i64 = 1;

pub(crate) fn folder(run: &Path) -> PathBuf {
    run.join("track").join("tensorboard")
}

#[derive(Debug)]
pub(crate) struct TensorBoard {
    file: OwnFile,
    name: String,
}

impl TensorBoard {
    pub(crate) fn open(opening: &Opening) -> Result<Self, TrackError> {
        let (run, generation) = (opening.run, opening.generation);
        let folder = folder(&run.folder);
        let started = run.started_at.max(0.0) as u64;
        let name = opening.state["file"].as_str().map_or_else(
            // TensorBoard reads the files of a folder in the order of their names.
            || format!("events.out.tfevents.{started:010}.scalerl.{generation:04}"),
            str::to_owned,
        );
        let size = opening.state["bytes"].as_u64().unwrap_or(0);
        let mut file = OwnFile::open(&folder.join(&name), size)?;
        if size == 0 {
            remove_others(&folder, &name)?;
            file.append(&beginning(opening))?;
        }
        Ok(Self { file, name })
    }
}

impl Tracker for TensorBoard {
    fn send(&mut self, rows: &[Row]) -> Result<Value, TrackError> {
        let mut data = Vec::new();
        for row in rows {
            data.extend(frame(&scalars(row)));
            if !row.samples.is_empty() {
                let text = table(row.step, &row.samples);
                data.extend(frame(&text_event(row.at, row.step, "samples", &text)));
            }
        }
        Ok(json!({ "file": self.name, "bytes": self.file.append(&data)? }))
    }

    fn finish(&mut self, _ending: &Ending, _at: f64) -> Result<(), TrackError> {
        Ok(())
    }
}

/// Files of generations before.
fn remove_others(folder: &Path, own: &str) -> Result<(), TrackError> {
    let entries = fs::read_dir(folder).map_err(TrackError::io("read the folder", folder))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("events.out.tfevents.") && name != own {
            let path = entry.path();
            fs::remove_file(&path).map_err(TrackError::io("remove", &path))?;
        }
    }
    Ok(())
}

fn beginning(opening: &Opening) -> Vec<u8> {
    let run = opening.run;
    let mut version = event(run.started_at, 0);
    bytes(&mut version, 3, "brain.Event:2");
    let mut data = frame(&version);
    let mut log = Vec::new();
    int(&mut log, 1, START);
    let mut start = event(run.started_at, 0);
    bytes(&mut start, 7, log);
    data.extend(frame(&start));
    let recipe = format!("```toml\n{}\n```", run.recipe);
    data.extend(frame(&text_event(run.started_at, 0, "recipe", &recipe)));
    data
}

fn event(wall_time: f64, step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    double(&mut event, 1, wall_time);
    int(&mut event, 2, step as i64);
    event
}

fn scalars(row: &Row) -> Vec<u8> {
    let mut summary = Vec::new();
    for (name, number) in &row.metrics {
        let mut value = Vec::new();
        bytes(&mut value, 1, name.as_bytes());
        float(&mut value, 2, *number as f32);
        bytes(&mut summary, 1, value);
    }
    let mut event = event(row.at, row.step);
    bytes(&mut event, 5, summary);
    event
}

/// A text of the text plugin: a string tensor of one element.
fn text_event(wall_time: f64, step: u64, tag: &str, text: &str) -> Vec<u8> {
    let (mut dimension, mut shape, mut tensor) = (Vec::new(), Vec::new(), Vec::new());
    int(&mut dimension, 1, 1);
    bytes(&mut shape, 2, dimension);
    int(&mut tensor, 1, DT_STRING);
    bytes(&mut tensor, 2, shape);
    bytes(&mut tensor, 8, text);
    let (mut plugin, mut metadata, mut value) = (Vec::new(), Vec::new(), Vec::new());
    bytes(&mut plugin, 1, "text");
    bytes(&mut metadata, 1, plugin);
    bytes(&mut value, 1, tag);
    bytes(&mut value, 8, tensor);
    bytes(&mut value, 9, metadata);
    let mut summary = Vec::new();
    bytes(&mut summary, 1, value);
    let mut event = event(wall_time, step);
    bytes(&mut event, 5, summary);
    event
}

/// Completions as a Markdown table.
fn table(step: u64, samples: &[Sample]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(COLUMNS.iter().map(ToString::to_string).collect());
    text += &line(vec!["---".to_owned(); COLUMNS.len()]);
    for sample in samples {
        let cell = |value: &Value| escaped(&plain(value));
        text += &line(cells(step, sample).iter().map(cell).collect());
    }
    text
}

/// Text that cannot end its cell or become markup.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('|', "&#124;");
    text.replace("\r\n", "\n").replace('\n', "<br>")
}
