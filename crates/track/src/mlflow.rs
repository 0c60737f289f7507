//! MLflow 3 over its REST API: one MLflow run, metrics in batches, parameters, completions as tables.
//!
//! **Nothing twice.** A batch whose answer was lost is sent again: MLflow's databases (SQLite,
//! PostgreSQL, MySQL) have key, step, time and value as the key of a metric, and leave out one that is
//! there. A run whose creation was not answered is found by its tag `scalerl.id`. Metrics cannot be
//! taken back, so rows that do not count any more make a fresh run (`NAME.2`); the one before gets
//! the tag `scalerl.superseded_by`.
//!
//! Completions go through the server's own artifact store (`mlflow-artifacts:`); where artifacts are
//! elsewhere (S3 …) the tag `scalerl.samples` says that they were not sent.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use crate::config::{flat, plain};
use crate::error::TrackError;
use crate::http::Http;
use crate::rows::Row;
use crate::samples;
use crate::tracker::{Ending, Opening, Run, Target, Tracker};

/// Limits of one batch.
const MOST_METRICS: usize = 1000;
const MOST_PARAMS: usize = 100;

/// Letters of a parameter's value.
const LONGEST_PARAM: usize = 6000;

/// Tables that the run lists for MLflow's own view; the tag has room for so many.
const MOST_TABLES: usize = 100;

const ARTIFACTS: &str = "mlflow-artifacts:";

pub(crate) struct Mlflow {
    http: Http,
    run_id: String,
    artifacts: String,
    tables: Vec<String>,
}

/// Who we are, from MLflow's own variables.
fn key() -> Option<(&'static str, String)> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(token) = variable("MLFLOW_TRACKING_TOKEN") {
        return Some(("Authorization", format!("Bearer {token}")));
    }
    let (user, password) =
        (variable("MLFLOW_TRACKING_USERNAME")?, variable("MLFLOW_TRACKING_PASSWORD")?);
    Some((
        "Authorization",
        format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))),
    ))
}

const API: &str = "/api/2.0/mlflow";

impl Mlflow {
    pub(crate) fn open(opening: &Opening, target: &Target) -> Result<Self, TrackError> {
        let (run, state) = (opening.run, opening.state);
        let mut mlflow = Self {
            http: Http::new(&target.url, key()),
            run_id: String::new(),
            artifacts: String::new(),
            tables: serde_json::from_value(state["tables"].clone()).unwrap_or_default(),
        };
        let known = state["run_id"].as_str().map(str::to_owned);
        let info = if let Some(run_id) = known {
            let found = mlflow.http.get(&format!("{API}/runs/get"), &[("run_id", &run_id)]);
            found.map_err(gone)?["run"]["info"].clone()
        } else {
            let experiment = mlflow.experiment(&target.project)?;
            mlflow.own_run(&experiment, opening)?
        };
        mlflow.run_id = mlflow.text(&info["run_id"])?;
        info["artifact_uri"].as_str().unwrap_or_default().clone_into(&mut mlflow.artifacts);
        if state.is_null() {
            mlflow.describe(run, opening)?;
        }
        // A run that goes on is open again.
        let update = json!({ "run_id": mlflow.run_id, "status": "RUNNING" });
        mlflow.ask("runs/update", &update)?;
        Ok(mlflow)
    }

    fn ask(&self, act: &str, question: &Value) -> Result<Value, TrackError> {
        self.http.post(&format!("{API}/{act}"), question)
    }

    fn text(&self, value: &Value) -> Result<String, TrackError> {
        value.as_str().map(str::to_owned).ok_or_else(|| TrackError::Garbage {
            url: self.http.url(API),
            problem: "an id is missing".into(),
        })
    }

    /// The experiment of this name, made where there is none.
    fn experiment(&self, name: &str) -> Result<String, TrackError> {
        let path = format!("{API}/experiments/get-by-name");
        let find = || self.http.get(&path, &[("experiment_name", name)]);
        match find() {
            Ok(found) => return self.text(&found["experiment"]["experiment_id"]),
            Err(TrackError::Refused { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        match self.ask("experiments/create", &json!({ "name": name })) {
            Ok(made) => self.text(&made["experiment_id"]),
            // Somebody else was quicker.
            Err(TrackError::Refused { status: 400, .. }) => {
                self.text(&find()?["experiment"]["experiment_id"])
            }
            Err(error) => Err(error),
        }
    }

    /// The run of this generation: found by its tag, or made.
    fn own_run(&self, experiment: &str, opening: &Opening) -> Result<Value, TrackError> {
        let (run, generation) = (opening.run, opening.generation);
        let id = format!("{}-{generation}", run.id);
        let filter = format!("tags.`scalerl.id` = '{id}'");
        let search = json!({ "experiment_ids": [experiment], "filter": filter, "max_results": 1 });
        let found = self.ask("runs/search", &search)?;
        if let Some(info) = found["runs"].get(0).map(|found| &found["info"]) {
            return Ok(info.clone());
        }
        let name = name_of(run, generation);
        let tags = json!([
            { "key": "scalerl.id", "value": id },
            { "key": "scalerl.generation", "value": generation.to_string() },
        ]);
        let question = json!({
            "experiment_id": experiment, "run_name": name, "tags": tags,
            "start_time": milliseconds(run.started_at),
        });
        Ok(self.ask("runs/create", &question)?["run"]["info"].clone())
    }

    /// The recipe as parameters, and what this run stands for.
    fn describe(&self, run: &Run, opening: &Opening) -> Result<(), TrackError> {
        let cut = |text: String| text.chars().take(LONGEST_PARAM).collect::<String>();
        let params: Vec<Value> = flat(&run.config)
            .iter()
            .map(|(key, value)| json!({ "key": key, "value": cut(plain(value)) }))
            .collect();
        for params in params.chunks(MOST_PARAMS) {
            let batch = json!({ "run_id": self.run_id, "params": params });
            match self.ask("runs/log-batch", &batch) {
                // A parameter cannot be changed: those of the first sending stay.
                Err(TrackError::Refused { status: 400, .. }) => {}
                answer => drop(answer?),
            }
        }
        if let Some(before) = opening.superseded["run_id"].as_str() {
            let tag = json!({
                "run_id": before, "key": "scalerl.superseded_by", "value": self.run_id,
            });
            match self.ask("runs/set-tag", &tag) {
                Err(TrackError::Refused { status: 404, .. }) => {}
                answer => drop(answer?),
            }
            let end = json!({ "run_id": before, "status": "KILLED" });
            match self.ask("runs/update", &end) {
                Err(TrackError::Refused { status: 404, .. }) => {}
                answer => drop(answer?),
            }
        }
        if !self.artifacts.starts_with(ARTIFACTS) {
            let value = format!("not sent: {} is not reached through the server", self.artifacts);
            let tag = json!({ "run_id": self.run_id, "key": "scalerl.samples", "value": value });
            self.ask("runs/set-tag", &tag)?;
        }
        Ok(())
    }

    fn table(&mut self, row: &Row) -> Result<(), TrackError> {
        let Some(store) = self.artifacts.strip_prefix(ARTIFACTS) else { return Ok(()) };
        let name = format!("samples/step-{:06}.json", row.step);
        let store = store.trim_matches('/');
        let path = format!("/api/2.0/mlflow-artifacts/artifacts/{store}/{name}");
        let table = samples::table(row.step, &row.samples).to_string();
        self.http.put(&path, table.as_bytes())?;
        if !self.tables.contains(&name) {
            self.tables.push(name);
        }
        let many = self.tables.len().saturating_sub(MOST_TABLES);
        self.tables.drain(..many);
        let listed: Vec<Value> =
            self.tables.iter().map(|path| json!({ "path": path, "type": "table" })).collect();
        let value = Value::Array(listed).to_string();
        let tag = json!({ "run_id": self.run_id, "key": "mlflow.loggedArtifacts", "value": value });
        self.ask("runs/set-tag", &tag).map(|_| ())
    }
}

/// Fresh runs are numbered.
pub(crate) fn name_of(run: &Run, generation: u32) -> String {
    match generation {
        0 => run.name.clone(),
        generation => format!("{}.{}", run.name, generation + 1),
    }
}

/// A run that is not there was removed, or its server begins anew.
fn gone(error: TrackError) -> TrackError {
    match error {
        TrackError::Refused { status: 404, answer, .. } => TrackError::Lost { what: answer },
        error => error,
    }
}

fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

impl Tracker for Mlflow {
    fn send(&mut self, rows: &[Row]) -> Result<Value, TrackError> {
        let metric = |row: &Row, name: &str, value: f64| {
            let (at, step) = (milliseconds(row.at), row.step);
            json!({ "key": name, "value": value, "timestamp": at, "step": step })
        };
        let metrics: Vec<Value> = rows
            .iter()
            .flat_map(|row| row.metrics.iter().map(|(name, value)| metric(row, name, *value)))
            .collect();
        for metrics in metrics.chunks(MOST_METRICS) {
            let batch = json!({ "run_id": self.run_id, "metrics": metrics });
            self.ask("runs/log-batch", &batch).map_err(gone)?;
        }
        for row in rows.iter().filter(|row| !row.samples.is_empty()) {
            self.table(row)?;
        }
        Ok(json!({ "run_id": self.run_id, "tables": self.tables }))
    }

    fn finish(&mut self, ending: &Ending, at: f64) -> Result<(), TrackError> {
        let status = match ending {
            Ending::Open => return Ok(()),
            Ending::Stopped(scalerl_journal::StopReason::Asked) => "KILLED",
            Ending::Stopped(_) => "FINISHED",
            Ending::Failed => "FAILED",
        };
        let mut update = json!({ "run_id": self.run_id, "status": status });
        update["end_time"] = json!(milliseconds(at));
        self.ask("runs/update", &update).map(|_| ())
    }
}
