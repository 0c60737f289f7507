//! Trackio over its HTTP API: rows with a `log_id` each, so that one sent again is left out.
//!
//! Trackio stamps rows with the time they arrive; `unix_time` is when they happened. Rows cannot be taken
//! back, so rows that do not count any more make a fresh run (`NAME.2`), and the one before is renamed
//! to `NAME (superseded)`.

use serde_json::{Map, Value, json};

use crate::error::TrackError;
use crate::http::Http;
use crate::mlflow::name_of;
use crate::rows::Row;
use crate::samples::{COLUMNS, cells};
use crate::tracker::{Ending, Opening, Target, Tracker};

pub(crate) struct Trackio {
    http: Http,
    project: String,
    name: String,
    /// Begins every `log_id`.
    id: String,
    /// The recipe, until it was sent.
    config: Option<Value>,
    /// The run that this one replaces, until it was renamed.
    superseded: Option<String>,
}

impl Trackio {
    #[expect(clippy::unnecessary_wraps, reason = "as every tracker is opened")]
    pub(crate) fn open(opening: &Opening, target: &Target) -> Result<Self, TrackError> {
        let (run, generation) = (opening.run, opening.generation);
        let token = std::env::var("TRACKIO_WRITE_TOKEN").ok();
        let is_new = opening.state.is_null();
        let superseded = opening.superseded["run"].as_str().filter(|_| is_new).map(str::to_owned);
        Ok(Self {
            http: Http::new(&target.url, token.map(|token| ("X-Trackio-Write-Token", token))),
            project: target.project.clone(),
            name: name_of(run, generation),
            id: format!("{}-{generation}", run.id),
            config: is_new.then(|| run.config.clone()),
            superseded,
        })
    }

    fn log(&self, row: &Row) -> Value {
        let mut metrics: Map<String, Value> =
            row.metrics.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        metrics.insert("unix_time".into(), json!(row.at));
        if !row.samples.is_empty() {
            let line = |sample| -> Map<String, Value> {
                let names = COLUMNS.iter().map(ToString::to_string);
                names.zip(cells(row.step, sample)).collect()
            };
            let lines: Vec<_> = row.samples.iter().map(line).collect();
            metrics.insert("samples".into(), json!({ "_type": "trackio.table", "_value": lines }));
        }
        json!({
            "project": self.project, "run": self.name, "metrics": metrics, "step": row.step,
            "log_id": format!("{}-{}", self.id, row.line),
        })
    }

    /// Every answer is `{"data": …}`, or says what is wrong.
    fn ask(&self, act: &str, question: &Value) -> Result<Value, TrackError> {
        let answer = self.http.post(&format!("/api/{act}"), question)?;
        if answer.get("data").is_some() {
            return Ok(answer);
        }
        let problem = answer.to_string().chars().take(200).collect();
        Err(TrackError::Garbage { url: self.http.url("/api"), problem })
    }
}

impl Tracker for Trackio {
    fn send(&mut self, rows: &[Row]) -> Result<Value, TrackError> {
        let mut logs: Vec<Value> = rows.iter().map(|row| self.log(row)).collect();
        if let (Some(config), Some(first)) = (&self.config, logs.first_mut()) {
            first["config"] = config.clone();
        }
        self.ask("bulk_log", &json!({ "logs": logs, "hf_token": null }))?;
        self.config = None;
        if let Some(before) = self.superseded.take() {
            let new = format!("{before} (superseded)");
            let rename = json!({ "project": self.project, "old_name": before, "new_name": new });
            match self.ask("rename_run", &rename) {
                // Renamed by a sending whose answer was lost, or removed by somebody.
                Ok(_) | Err(TrackError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(json!({ "run": self.name }))
    }

    /// Trackio knows no end of a run.
    fn finish(&mut self, _ending: &Ending, _at: f64) -> Result<(), TrackError> {
        Ok(())
    }
}
