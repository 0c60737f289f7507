//! A stand-in server on a port of this machine: answers as MLflow and Trackio do, and as badly as asked.
//!
//! It keeps what it was sent across restarts, as a database does, and leaves out what is there already,
//! by the keys that the real servers have.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// How the next requests are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// The connection is closed without an answer, before anything is done.
    Drops,
    /// Everything is done, and the answer is lost.
    LosesAnswers,
    Fails,
    Garbles,
}

/// One value of a run: name, step, time, value.
pub(super) type Kept = Vec<(String, u64, i64, f64)>;

#[derive(Debug, Default)]
pub(super) struct Database {
    /// MLflow's runs: tags and metrics.
    pub(super) runs: BTreeMap<String, (BTreeMap<String, String>, Kept)>,
    pub(super) status: BTreeMap<String, String>,
    pub(super) params: BTreeMap<String, Vec<String>>,
    pub(super) artifacts: BTreeMap<String, String>,
    /// Trackio's rows by run: log_id, step, metrics.
    pub(super) rows: BTreeMap<String, Vec<(String, u64, Value)>>,
}

pub(super) struct Server {
    pub(super) url: String,
    pub(super) database: Arc<Mutex<Database>>,
    moods: Arc<Mutex<Vec<Mood>>>,
    stop: Arc<AtomicBool>,
    address: std::net::SocketAddr,
}

impl Server {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (database, moods) = (Arc::default(), Arc::default());
        let server = Self {
            url: format!("http://{address}"),
            database,
            moods,
            stop: Arc::default(),
            address,
        };
        server.serve(listener);
        server
    }

    fn serve(&self, listener: TcpListener) {
        let (database, moods, stop) =
            (self.database.clone(), self.moods.clone(), self.stop.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let mood = moods.lock().unwrap_or_else(PoisonError::into_inner).pop();
                if let Ok(stream) = stream {
                    answer(stream, &database, mood.unwrap_or(Mood::Well));
                }
            }
        });
    }

    /// The next requests, one mood each; then it is well again.
    pub(super) fn will(&self, moods: &[Mood]) {
        *self.moods.lock().unwrap() = moods.iter().rev().copied().collect();
    }

    /// Nobody listens for a while.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        thread::sleep(Duration::from_millis(50));
    }

    pub(super) fn restart(&self) {
        self.stop.store(false, Ordering::SeqCst);
        self.serve(TcpListener::bind(self.address).unwrap());
    }
}

fn answer(mut stream: TcpStream, database: &Mutex<Database>, mood: Mood) {
    if mood == Mood::Drops {
        return;
    }
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let mut words = head.split_whitespace();
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or("").to_owned());
    let (status, text) = match mood {
        Mood::Fails => (500, "{\"error\": \"no room left\"}".to_owned()),
        Mood::Garbles => (200, "<html>Hello</html>".to_owned()),
        _ => {
            let database = &mut database.lock().unwrap();
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            let (status, answer) = database.ask(method, &path, &body);
            // As MLflow answers an upload: with nothing.
            let text = if answer.is_null() { String::new() } else { answer.to_string() };
            (status, text)
        }
    };
    if mood == Mood::LosesAnswers {
        return;
    }
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(text.as_bytes())));
}

impl Database {
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let act = path.rsplit("/mlflow/").next().unwrap_or("").split('?').next().unwrap_or("");
        let id = body["run_id"].as_str().unwrap_or("").to_owned();
        let info = |id: &str| json!({ "info": { "run_id": id, "artifact_uri": format!("mlflow-artifacts:/1/{id}/artifacts") } });
        if method == "PUT" {
            self.artifacts.insert(path.to_owned(), body.to_string());
            return (200, Value::Null);
        }
        match act {
            "experiments/get-by-name" => (200, json!({ "experiment": { "experiment_id": "1" } })),
            "runs/search" => {
                let filter = body["filter"].as_str().unwrap();
                let wanted = filter.split('\'').nth(1).unwrap();
                let is_it = |tags: &BTreeMap<String, String>| tags["scalerl.id"] == wanted;
                let found = self.runs.iter().find(|(_, (tags, _))| is_it(tags));
                (200, found.map_or(json!({}), |(id, _)| json!({ "runs": [info(id)] })))
            }
            "runs/create" => {
                let id = format!("{:032x}", self.runs.len() + 1);
                let tags = body["tags"].as_array().unwrap().iter();
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let mut tags: BTreeMap<_, _> =
                    tags.map(|tag| (text(&tag["key"]), text(&tag["value"]))).collect();
                tags.insert("name".into(), text(&body["run_name"]));
                self.runs.insert(id.clone(), (tags, Vec::new()));
                (200, json!({ "run": info(&id) }))
            }
            "runs/get" => {
                let id = path.split("run_id=").nth(1).unwrap();
                if self.runs.contains_key(id) {
                    (200, json!({ "run": info(id) }))
                } else {
                    (404, json!({}))
                }
            }
            "runs/update" => {
                self.status.insert(id, body["status"].as_str().unwrap().to_owned());
                (200, json!({}))
            }
            "runs/set-tag" => {
                let Some((tags, _)) = self.runs.get_mut(&id) else { return (404, json!({})) };
                let text = |key: &str| body[key].as_str().unwrap().to_owned();
                tags.insert(text("key"), text("value"));
                (200, json!({}))
            }
            "runs/log-batch" => self.log_batch(&id, body),
            _ => self.trackio(path, body),
        }
    }

    fn log_batch(&mut self, id: &str, body: &Value) -> (u16, Value) {
        let Some((_, kept)) = self.runs.get_mut(id) else { return (404, json!({})) };
        let metrics = body["metrics"].as_array().cloned().unwrap_or_default();
        let params = body["params"].as_array().cloned().unwrap_or_default();
        if metrics.len() > 1000 || params.len() > 100 {
            return (400, json!({ "error_code": "INVALID_PARAMETER_VALUE" }));
        }
        for param in params {
            let text =
                format!("{}={}", param["key"].as_str().unwrap(), param["value"].as_str().unwrap());
            self.params.entry(id.to_owned()).or_default().push(text);
        }
        for metric in metrics {
            let one = (
                metric["key"].as_str().unwrap().to_owned(),
                metric["step"].as_u64().unwrap(),
                metric["timestamp"].as_i64().unwrap(),
                metric["value"].as_f64().unwrap(),
            );
            if !kept.contains(&one) {
                kept.push(one);
            }
        }
        (200, json!({}))
    }

    fn trackio(&mut self, path: &str, body: &Value) -> (u16, Value) {
        match path {
            "/api/bulk_log" => {
                for log in body["logs"].as_array().unwrap() {
                    let text = |key: &str| log[key].as_str().unwrap().to_owned();
                    let rows = self.rows.entry(text("run")).or_default();
                    if !rows.iter().any(|(id, _, _)| *id == text("log_id")) {
                        rows.push((
                            text("log_id"),
                            log["step"].as_u64().unwrap(),
                            log["metrics"].clone(),
                        ));
                    }
                }
                (200, json!({ "data": null }))
            }
            "/api/rename_run" => {
                let text = |key: &str| body[key].as_str().unwrap().to_owned();
                let Some(rows) = self.rows.remove(&text("old_name")) else {
                    return (500, json!({}));
                };
                self.rows.insert(text("new_name"), rows);
                (200, json!({ "data": true }))
            }
            _ => (404, json!({})),
        }
    }
}
