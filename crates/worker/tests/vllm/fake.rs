//! A server that speaks as vLLM 0.32 does, on a model of this process.
//!
//! The wire is the real one's, as recorded from it (`make test-vllm` holds the two together); the
//! tokens are those of a local generator with the tiny model, so that whatever the client makes of
//! them can be judged. Between `/pause` and `/resume` answers are held back. It can be told to
//! misbehave, once per order.
//!
//! With [`Options::lora`] it takes adapters: requests that name one are written by its base, the weights
//! it was started with or has taken since, with the adapter merged in. A pause that aborts gives back
//! what is half written, and nothing of a request that came after it. This half is from the real one's
//! source alone.

use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scalerl_model::adapter::Adapter;
use scalerl_model::folder::Model;
use scalerl_rollout::{
    Completion, FinishReason, Generator, PolicyVersion, SampleRequest, Sampling,
};
use scalerl_torch::tch::{Device, Kind, Tensor};
use scalerl_worker::{LocalGenerator, WeightStore};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::tiny;

/// What to do with the next request to write, in place of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misdeed {
    Status(u16),
    /// Closes the connection in the middle of the answer.
    Drop,
    /// Answers with this.
    Say(&'static str),
    /// Says nothing for this long, then writes.
    Sleep(Duration),
    /// Sends bytes without end.
    Flood,
    /// Writes until all requests are aborted, and gives back what is half written.
    UntilAborted,
}

/// How a server was started.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) token: Option<&'static str>,
    pub(crate) has_labels: bool,
    /// `--max-lora-rank` of `--enable-lora`.
    pub(crate) lora: Option<i64>,
    /// `VLLM_ALLOW_RUNTIME_LORA_UPDATING`.
    pub(crate) has_lora_routes: bool,
    /// Writes with the base whatever adapter is named, as no server should.
    pub(crate) ignores_adapters: bool,
    /// `--tensor-parallel-size`.
    pub(crate) devices: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            has_labels: true,
            lora: None,
            has_lora_routes: false,
            ignores_adapters: false,
            devices: 1,
        }
    }
}

impl Options {
    /// Started to take adapters of up to 8.
    pub(crate) fn lora() -> Self {
        Self { lora: Some(8), has_lora_routes: true, ..Self::default() }
    }
}

/// Whether requests are scheduled, and how often all were aborted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pause {
    is_paused: bool,
    aborted: usize,
}

struct State {
    generator: LocalGenerator,
    weight_store: Arc<WeightStore>,
    /// The weights that adapters are put on.
    base: Mutex<Vec<Tensor>>,
    /// The label of each version the local generator has had.
    labels: Mutex<Vec<String>>,
    pause: watch::Sender<Pause>,
    /// Name and folder of the adapter that was loaded last, while it is.
    adapter: Mutex<Option<(String, String)>>,
    misdeeds: Mutex<VecDeque<Misdeed>>,
    /// Paths in order.
    asked: Mutex<Vec<String>>,
    /// Bodies of requests to write.
    bodies: Mutex<Vec<Value>>,
    is_frozen: watch::Sender<bool>,
    options: Options,
    /// Adapters loaded so far.
    loads: AtomicUsize,
    /// What a client must never do.
    faults: Mutex<Vec<&'static str>>,
}

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
        let faults = self.state.faults.lock().unwrap();
        assert!(faults.is_empty() || std::thread::panicking(), "{faults:?}");
    }
}

impl Fake {
    pub(crate) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(crate) async fn start_with(options: Options) -> Self {
        Self::start_at("127.0.0.1:0", options).await
    }

    pub(crate) async fn start_at(place: &str, options: Options) -> Self {
        let weight_store = WeightStore::new();
        let state = Arc::new(State {
            generator: LocalGenerator::start(tiny::setup(&weight_store)).unwrap(),
            weight_store,
            base: Mutex::new(tiny::model(1).parameters),
            labels: Mutex::new(vec!["default".to_owned()]),
            pause: watch::Sender::default(),
            adapter: Mutex::default(),
            misdeeds: Mutex::default(),
            asked: Mutex::default(),
            bodies: Mutex::default(),
            is_frozen: watch::Sender::new(false),
            options,
            loads: AtomicUsize::new(0),
            faults: Mutex::default(),
        });
        let listener = TcpListener::bind(place).await.unwrap();
        let address = listener.local_addr().unwrap();
        let theirs = state.clone();
        let task = tokio::spawn(async move {
            // Connections end with the server, as those of a killed one do.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(theirs.clone(), stream));
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn misbehave(&self, misdeeds: &[Misdeed]) {
        self.state.misdeeds.lock().unwrap().extend(misdeeds);
    }

    /// Stops answering anything, or goes on.
    pub(crate) fn freeze(&self, is_frozen: bool) {
        self.state.is_frozen.send_replace(is_frozen);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.asked.lock().unwrap().clone()
    }

    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.state.bodies.lock().unwrap().clone()
    }

    /// As `/abort_requests` does.
    pub(crate) fn abort_all(&self) {
        self.state.pause.send_modify(|pause| pause.aborted += 1);
    }

    /// The adapter that requests can name, with its folder.
    pub(crate) fn adapter(&self) -> Option<(String, String)> {
        self.state.adapter.lock().unwrap().clone()
    }

    /// Sequences being written.
    pub(crate) fn running(&self) -> usize {
        let stats = self.state.generator.stats();
        stats.running + stats.waiting
    }
}

impl State {
    fn fault(&self, what: &'static str) {
        self.faults.lock().unwrap().push(what);
    }
}

struct Call {
    path: String,
    authorization: Option<String>,
    body: Vec<u8>,
}

async fn read_call(stream: &mut TcpStream) -> Option<Call> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let header = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let length = header("content-length").map_or(0, |value| value.parse().unwrap());
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let path = text.split(' ').nth(1)?.to_owned();
    let body = bytes[head..head + length].to_vec();
    Some(Call { path, authorization: header("authorization"), body })
}

async fn answer(stream: &mut TcpStream, status: u16, body: &str) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n"
    );
    // The client may be gone.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}

async fn serve(state: Arc<State>, mut stream: TcpStream) {
    let Some(call) = read_call(&mut stream).await else { return };
    let mut is_frozen = state.is_frozen.subscribe();
    if is_frozen.wait_for(|is_frozen| !is_frozen).await.is_err() {
        return;
    }
    let path = call.path.split('?').next().unwrap_or_default();
    state.asked.lock().unwrap().push(call.path.clone());
    let expected = state.options.token.map(|token| format!("Bearer {token}"));
    if expected.is_some() && call.authorization != expected {
        return answer(&mut stream, 401, r#"{"error":"Unauthorized"}"#).await;
    }
    let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
    let (status, said) = match path {
        "/inference/v1/generate" => return write(&state, stream, &body).await,
        "/health" => (200, Value::Null),
        "/v1/models" => {
            (200, json!({"object": "list", "data": [{"id": "tiny", "max_model_len": 128}]}))
        }
        "/get_world_size" => (200, json!({"world_size": state.options.devices})),
        "/pause" => {
            let aborts = call.path.contains("mode=abort");
            state.pause.send_modify(|pause| {
                pause.is_paused = true;
                pause.aborted += usize::from(aborts);
            });
            (200, json!({"status": "paused"}))
        }
        "/resume" => {
            state.pause.send_modify(|pause| pause.is_paused = false);
            (200, json!({"status": "resumed"}))
        }
        "/weight_info" => {
            let label = state.labels.lock().unwrap().last().unwrap().clone();
            (200, json!({"weight_version": label}))
        }
        "/update_weight_version" => {
            let label = body["new_version"].as_str().unwrap().to_owned();
            *state.labels.lock().unwrap().last_mut().unwrap() = label;
            (200, json!({"success": true, "new_version": body["new_version"]}))
        }
        "/collective_rpc" => reload(&state, &body).await,
        "/v1/load_lora_adapter" if state.options.has_lora_routes => load(&state, &body).await,
        "/v1/unload_lora_adapter" if state.options.has_lora_routes => unload(&state, &body),
        _ => (404, json!({"detail": "Not Found"})),
    };
    answer(&mut stream, status, &said.to_string()).await;
}

async fn reload(state: &State, body: &Value) -> (u16, Value) {
    assert_eq!(body["method"], "reload_weights");
    let path = body["kwargs"]["weights_path"].as_str().unwrap();
    let Ok(model) = Model::load(Path::new(path), Kind::Float, Device::Cpu) else {
        return (500, json!({"error": {"message": format!("cannot load {path}")}}));
    };
    *state.base.lock().unwrap() = copies(&model.parameters);
    put(state, model, "unnamed").await;
    (200, json!({"results": [null]}))
}

fn copies(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::shallow_clone).collect()
}

/// Writes with these weights from here on.
async fn put(state: &State, model: Model, label: &str) {
    let version = {
        let mut labels = state.labels.lock().unwrap();
        labels.push(label.to_owned());
        PolicyVersion(labels.len() as u64 - 1)
    };
    let handle = state.weight_store.publish(version, &model.parameters).unwrap();
    state.generator.adopt(&handle).await.unwrap();
}

fn fault(status: u16, message: &str) -> (u16, Value) {
    (status, json!({"error": {"message": message, "param": null, "code": status}}))
}

async fn load(state: &State, body: &Value) -> (u16, Value) {
    let text = |key: &str| body[key].as_str().unwrap().to_owned();
    let (name, path) = (text("lora_name"), text("lora_path"));
    if body.get("load_inplace").is_some() {
        state.fault("loaded in place: every later request reads the folder at each of its steps");
    }
    let Some(most) = state.options.lora else {
        return fault(500, "LoRA is not enabled. Use --enable-lora to enable LoRA.");
    };
    if state.adapter.lock().unwrap().as_ref().is_some_and(|(held, _)| *held == name) {
        let said = format!("The lora adapter '{name}' has already been loaded.");
        return fault(400, &said);
    }
    let Ok(config) = fs::read_to_string(Path::new(&path).join("adapter_config.json")) else {
        let said = format!("Loading lora {name} failed: No adapter found for <path>");
        return fault(404, &said);
    };
    let config: Value = serde_json::from_str(&config).unwrap();
    let rank = config["r"].as_i64().unwrap();
    if rank > most {
        let said = format!("LoRA rank {rank} is greater than max_lora_rank {most}.");
        return fault(500, &said);
    }
    let parameters = copies(&state.base.lock().unwrap());
    let base = Model::over(tiny::model(1).config, parameters, None).unwrap();
    let model = if state.options.ignores_adapters {
        base
    } else {
        // vLLM does not look at which base an adapter was made for.
        let adapter = Adapter::load(Path::new(&path), &tiny::model(1)).unwrap();
        base.adapted(adapter).unwrap().merged().unwrap()
    };
    // The base keeps its name.
    let label = state.labels.lock().unwrap().last().unwrap().clone();
    put(state, model, &label).await;
    state.loads.fetch_add(1, Ordering::Relaxed);
    *state.adapter.lock().unwrap() = Some((name, path));
    (200, json!("Success"))
}

fn unload(state: &State, body: &Value) -> (u16, Value) {
    let name = body["lora_name"].as_str().unwrap();
    let found = state.adapter.lock().unwrap().take_if(|(held, _)| held == name);
    match found {
        Some(_) => (200, json!("Success")),
        None => fault(404, &format!("The lora adapter '{name}' cannot be found.")),
    }
}

async fn write(state: &State, mut stream: TcpStream, body: &Value) {
    state.bodies.lock().unwrap().push(body.clone());
    let misdeed = state.misdeeds.lock().unwrap().pop_front();
    match misdeed {
        Some(Misdeed::Status(status)) => {
            return answer(&mut stream, status, r#"{"error":{"message":"as ordered"}}"#).await;
        }
        Some(Misdeed::Say(said)) => return answer(&mut stream, 200, said).await,
        Some(Misdeed::Drop) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"cho").await;
            return;
        }
        Some(Misdeed::Flood) => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\n\r\n").await;
            while stream.write_all(&[b' '; 4096]).await.is_ok() {}
            return;
        }
        Some(Misdeed::Sleep(time)) => tokio::time::sleep(time).await,
        Some(Misdeed::UntilAborted) | None => {}
    }
    let is_long = misdeed == Some(Misdeed::UntilAborted);
    let params = &body["sampling_params"];
    let request = SampleRequest {
        prompt_token_ids: ids(&body["token_ids"]),
        sampling: Sampling {
            temperature: params["temperature"].as_f64().unwrap() as f32,
            top_p: params["top_p"].as_f64().unwrap() as f32,
            top_k: params["top_k"].as_u64().unwrap() as u32,
        },
        max_answer_tokens: params["max_tokens"].as_u64().unwrap() as u32,
        stop: params.get("stop").map_or_else(Vec::new, texts),
        seed: params["seed"].as_u64().unwrap(),
        ..tiny::request(1)
    };
    if let Err((status, said)) = named(state, body) {
        return answer(&mut stream, status, &said.to_string()).await;
    }
    assert_eq!((&params["logprobs"], &params["ignore_eos"]), (&json!(0), &json!(true)));
    assert_eq!(ids(&params["stop_token_ids"]), [tiny::END]);
    let mut rest = [0; 1];
    let ended = tokio::select! {
        ended = scheduled(state, request, is_long) => ended,
        // Nothing more is sent: the client has hung up.
        _ = stream.read(&mut rest) => return,
    };
    let said = wire(&ended, state);
    answer(&mut stream, 200, &said.to_string()).await;
}

/// Refuses a model that is not there, and a request that forgets the adapter.
fn named(state: &State, body: &Value) -> Result<(), (u16, Value)> {
    let held = state.adapter.lock().unwrap().as_ref().map(|(name, _)| name.clone());
    let asked = body.get("model").map(|name| name.as_str().unwrap().to_owned());
    if let Some(name) = asked.as_ref().filter(|_| asked != held) {
        let said = format!("The model `{name}` does not exist. Valid aliases: tiny.");
        return Err(fault(404, &said));
    }
    if asked != held {
        state.fault("a request to the base while there is an adapter");
    }
    Ok(())
}

/// As far as it came.
struct Ended {
    completion: Option<Completion>,
    is_aborted: bool,
}

/// The request as vLLM runs it: queued while paused, held back or given back half written then.
async fn scheduled(state: &State, request: SampleRequest, is_long: bool) -> Ended {
    let loads = state.loads.load(Ordering::Relaxed);
    let mut pause = state.pause.subscribe();
    let arrived = pause.borrow_and_update().aborted;
    let queued = pause.wait_for(|pause| !pause.is_paused || pause.aborted > arrived).await;
    let was_aborted = queued.unwrap().aborted > arrived;
    if was_aborted {
        return Ended { completion: None, is_aborted: true };
    }
    let mut completion = state.generator.generate(request).await.unwrap().remove(0);
    // Where it stood when it was aborted: this one is written faster than that can be seen.
    let is_aborted = |pause: &Pause| pause.aborted > arrived;
    let is_over = |pause: &Pause| !is_long && !pause.is_paused;
    let held = pause.wait_for(|pause| is_over(pause) || is_aborted(pause)).await;
    if state.loads.load(Ordering::Relaxed) != loads {
        // vLLM goes on with the adapter it had, under the label of the new one.
        state.fault("a request has outlived its adapter");
    }
    let is_aborted = is_aborted(&held.unwrap());
    if is_aborted {
        let half = completion.len().div_ceil(2);
        completion.token_ids.truncate(half);
        completion.logprobs.truncate(half);
        completion.versions.truncate(half);
    }
    Ended { completion: Some(completion), is_aborted }
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// As vLLM 0.32 writes it, every field included.
fn wire(ended: &Ended, state: &State) -> Value {
    let Some(written) = &ended.completion else {
        let content = json!({"content": []});
        return json!({"choices": [{
            "index": 0, "finish_reason": "abort", "token_ids": [], "weight_versions": null,
            "logprobs": content,
        }]});
    };
    let content: Vec<Value> = written
        .token_ids
        .iter()
        .zip(&written.logprobs)
        .map(|(id, logprob)| {
            let top = json!([{"token_id": id, "logprob": logprob, "rank": 1}]);
            json!({"token_id": id, "logprob": logprob, "rank": 1, "top_logprobs": top})
        })
        .collect();
    let labels = state.labels.lock().unwrap();
    let mut spans: Vec<Value> = Vec::new();
    for (place, version) in written.versions.iter().enumerate() {
        let label = &labels[version.0 as usize];
        match spans.last_mut().filter(|span| span["version"] == label.as_str()) {
            Some(span) => span["end"] = json!(place + 1),
            None => spans.push(json!({"version": label, "start": place, "end": place + 1})),
        }
    }
    let is_stop = written.finish == FinishReason::Stop && !ended.is_aborted;
    let reason = if is_stop { "stop" } else { "length" };
    let reason = if ended.is_aborted { "abort" } else { reason };
    json!({
        "request_id": "generate-tokens-1", "model": "tiny", "created": 1_790_000_000,
        "usage": {"prompt_tokens": 3, "total_tokens": 9, "completion_tokens": 6},
        "prompt_logprobs": null, "prompt_token_id_logprobs": null, "prompt_token_ids": null,
        "mm_placeholders": null, "metrics": null, "kv_transfer_params": null,
        "ec_transfer_params": null, "output_mode": "tokens",
        "choices": [{
            "index": 0, "finish_reason": reason,
            "stop_reason": is_stop.then_some(tiny::END), "token_ids": written.token_ids,
            "routed_experts": null, "sampling_mask": null,
            "weight_versions": state.options.has_labels.then_some(spans),
            "logprobs": {"content": content},
        }],
    })
}
