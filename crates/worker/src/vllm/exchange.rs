//! Weights into servers, servers back into service, and the pulse that finds out who is gone.
//!
//! ```text
//! pause (requests are kept) -> take the name off -> reload from the folder -> name the version -> resume
//! ```
//! Between pause and resume no token is chosen, so the label of every token is exact. With
//! `clear_cache=false` half-written completions keep their keys and values (`stale`, the paper's
//! way); with `true` the server computes them again.
//!
//! Not here: adapters by themselves (`adapter.rs`).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use scalerl_rollout::{GeneratorError, WeightHandle};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Inner;
use super::adapter::Form;
use super::client::{Call, CallError, Client};
use super::fleet::{Published, ServerState};
use super::wire::Models;

/// For calls that only change or tell a state. A pause waits for the step under way.
pub(super) const CONTROL: Duration = Duration::from_mins(1);
/// For reading the weights of a large model from shared storage.
pub(super) const RELOAD: Duration = Duration::from_mins(8);
/// Bytes of an answer to a control call.
pub(super) const CONTROL_BYTES: usize = 1 << 20;
/// Between two looks at a server.
const PULSE: Duration = Duration::from_secs(2);
/// Between two tries to bring a server back, at first and at last.
const RECOVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

pub(super) async fn post(
    client: &Client,
    path: &str,
    body: &Value,
    deadline: Duration,
) -> Result<(), CallError> {
    let call = Call { path, body: Some(body), deadline, limit: CONTROL_BYTES };
    client.call(call).await.map(drop)
}

/// Whether a server answers at all.
pub(super) async fn is_healthy(client: &Client, deadline: Duration) -> Result<(), CallError> {
    let call: Call<'_, Value> =
        Call { path: "/health", body: None, deadline, limit: CONTROL_BYTES };
    client.call(call).await.map(drop)
}

/// Most tokens of a prompt with its completion.
pub(super) async fn longest(client: &Client) -> Result<u64, CallError> {
    let path = "/v1/models";
    let call: Call<'_, Value> = Call { path, body: None, deadline: CONTROL, limit: CONTROL_BYTES };
    let body = client.call(call).await?;
    let garbage = |reason: String| CallError::Garbage { path: path.to_owned(), reason };
    let models: Models =
        serde_json::from_slice(&body).map_err(|error| garbage(error.to_string()))?;
    let longest = models.data.first().and_then(|model| model.max_model_len);
    longest.ok_or_else(|| garbage("no max_model_len".to_owned()))
}

/// Devices of one server.
pub(super) async fn devices(client: &Client) -> Result<u64, CallError> {
    let path = "/get_world_size";
    let call: Call<'_, Value> = Call { path, body: None, deadline: CONTROL, limit: CONTROL_BYTES };
    let body = client.call(call).await?;
    let read = serde_json::from_slice::<Value>(&body).ok();
    read.and_then(|value| value["world_size"].as_u64()).ok_or_else(|| CallError::Garbage {
        path: path.to_owned(),
        reason: "no world_size".to_owned(),
    })
}

impl Inner {
    /// Puts whole weights into one server; it goes on with its requests under them.
    async fn exchange_whole(&self, index: usize, weights: &Published) -> Result<(), CallError> {
        let client = &self.fleet.servers[index].client;
        let clear = if self.keeps_cache { "false" } else { "true" };
        post(client, &format!("/pause?mode=keep&clear_cache={clear}"), &json!({}), CONTROL).await?;
        let loaded = self.reload(client, weights).await;
        // A server that cannot be resumed is of no use, whatever it has loaded.
        let resumed = post(client, "/resume", &json!({}), CONTROL).await;
        loaded.and(resumed)
    }

    async fn reload(&self, client: &Client, weights: &Published) -> Result<(), CallError> {
        let reload = json!({
            "method": "reload_weights",
            "kwargs": {"weights_path": weights.folder},
            "timeout": RELOAD.as_secs(),
        });
        // A server that is left in between must not pass for one of the old weights.
        let between = json!({"new_version": self.labels.between(weights)});
        post(client, "/update_weight_version", &between, CONTROL).await?;
        post(client, "/collective_rpc", &reload, RELOAD).await?;
        let label = json!({"new_version": self.labels.of(weights)});
        post(client, "/update_weight_version", &label, CONTROL).await
    }

    /// Gives a server the current weights until they are the current ones still, and lets it serve.
    async fn bring(&self, index: usize) -> Result<(), CallError> {
        let _one_at_a_time = self.fleet.servers[index].exchange.lock().await;
        while let Some(weights) = self.fleet.current() {
            if self.fleet.serves(index, &weights) {
                break;
            }
            // Until it serves the new one: no call is asked of one adapter and written by another.
            let _closed = (weights.form == Form::Adapter).then(|| self.fleet.close(index));
            match weights.form {
                Form::Whole => self.exchange_whole(index, &weights).await?,
                Form::Adapter => self.exchange_adapter(index, &weights).await?,
            }
            if self.fleet.serve(index, &weights) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a server out of service and sees to its recovery.
    pub(super) fn lose(self: &Arc<Self>, index: usize, reason: &str) {
        if !self.fleet.lose(index, reason) {
            return;
        }
        let this = self.clone();
        self.background(async move { this.recover(index).await });
    }

    /// Until it serves again.
    async fn recover(&self, index: usize) {
        let (mut pause, longest) = RECOVERY;
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
            let client = &self.fleet.servers[index].client;
            let brought = match is_healthy(client, longest).await {
                Ok(()) => self.bring(index).await,
                Err(error) => Err(error),
            };
            match brought {
                Ok(()) => return,
                Err(error) => self.fleet.still_away(index, &error.to_string()),
            }
        }
    }

    /// Looks at a server now and then; one that is silent for too long is lost, and the requests
    /// that wait for it with it. Never ends by itself.
    pub(super) async fn watch(self: Arc<Self>, index: usize) {
        let mut heard = Instant::now();
        loop {
            tokio::time::sleep(PULSE.min(self.silence / 4)).await;
            let client = &self.fleet.servers[index].client;
            match is_healthy(client, self.silence).await {
                Ok(()) => {
                    heard = Instant::now();
                    self.fleet.hear(index, 0);
                }
                Err(error) if heard.elapsed() >= self.silence => {
                    if matches!(self.fleet.state(index), ServerState::Serving(_)) {
                        let seconds = self.silence.as_secs();
                        self.lose(index, &format!("silent for {seconds} s ({error})"));
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// All servers that are there take the weights at once; one that is not takes them when it is
    /// back. Fails where none can serve them.
    pub(super) async fn adopt(
        self: &Arc<Self>,
        weights: &WeightHandle,
    ) -> Result<(), GeneratorError> {
        let (version, folder) = (weights.version, weights.location.clone());
        let Some(form) = Form::of(Path::new(&folder)) else {
            let reason = format!("{folder} is not a folder with a model or an adapter");
            return Err(GeneratorError::Weights { version, reason });
        };
        let before = self.fleet.set_current(&Published { version, folder, form });
        // Dropped, and every exchange with it, when the caller gives up.
        let mut exchanges = JoinSet::new();
        for index in 0..self.fleet.servers.len() {
            let lost = self.fleet.lost(index);
            if matches!(self.fleet.state(index), ServerState::Away { .. }) {
                continue;
            }
            let this = self.clone();
            exchanges.spawn(async move {
                tokio::select! {
                    brought = this.bring(index) => (index, brought),
                    // Silent in mid-exchange. Its recovery brings it; the others need not wait.
                    () = lost => (index, Ok(())),
                }
            });
        }
        let mut refusal = None;
        while let Some(ended) = exchanges.join_next().await {
            let Ok((index, Err(error))) = ended else { continue };
            let url = self.fleet.servers[index].client.url();
            if !matches!(error, CallError::Unreachable { .. }) {
                refusal = Some(format!("{url}{error}"));
            }
            self.lose(index, &error.to_string());
        }
        if let Some(reason) = refusal
            && !self.fleet.load().iter().any(|one| matches!(one.state, ServerState::Serving(_)))
        {
            // They answer, and say no: waiting would not change that. They come back with what they
            // had before.
            if let Some(before) = before {
                let _ = self.fleet.set_current(&before);
            }
            return Err(GeneratorError::Weights { version, reason });
        }
        self.fleet.serving(version).await
    }
}
