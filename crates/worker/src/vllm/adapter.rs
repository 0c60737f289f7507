//! An adapter by itself into a server: megabytes in place of whole weights.
//!
//! ```text
//! no new calls -> pause (what is half written comes back) -> unload -> load -> name the version
//!   -> resume -> calls again: half-written completions go on as new calls
//! ```
//! In vLLM 0.32 a request keeps the adapter that it was given: under a new one of the same name it
//! would go on with the old, and its tokens would carry the new label. Loading in place moves
//! running requests too, but every later request then reads the folder again at each of its steps.
//! So no call outlives an exchange: all tokens of an answer are of the weights it was asked for, which
//! its label must say too. Keys and values are computed again: they are of one adapter.
//!
//! An adapter belongs to the base that the server was started with. One that has taken whole weights
//! since has another, which it would add to unseen: its label says so until it is started again.

use std::path::Path;
use std::time::{Duration, Instant};

use scalerl_model::adapter::PEFT_CONFIG;
use scalerl_rollout::GeneratorError;
use serde_json::{Value, json};

use super::client::{Call, CallError, Client};
use super::exchange::{CONTROL, CONTROL_BYTES, RELOAD, post};
use super::fleet::Published;
use super::wire::{WeightInfo, is_of_own_base};
use super::{Inner, VllmGenerator};

/// Requests name the adapter as their model. One name for all runs: what an earlier session left is
/// replaced, and whose the weights are stands in their label.
pub(super) const NAME: &str = "scalerl";

const LOAD: &str = "/v1/load_lora_adapter";
const UNLOAD: &str = "/v1/unload_lora_adapter";
const WEIGHT_INFO: &str = "/weight_info";
const PAUSE: &str = "/pause?mode=abort&clear_cache=false";

/// Between two looks at whether all calls have come back, at first and at last.
const LOOK: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// Ranks that `--max-lora-rank` can be.
const RANKS: [i64; 9] = [1, 8, 16, 32, 64, 128, 256, 320, 512];

/// What a published folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A model.
    Whole,
    /// PEFT's folder; the server has the base.
    Adapter,
}

impl Form {
    pub(super) fn of(folder: &Path) -> Option<Self> {
        if folder.join(PEFT_CONFIG).is_file() {
            return Some(Self::Adapter);
        }
        folder.join("config.json").is_file().then_some(Self::Whole)
    }
}

/// Why a server gets whole weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterRefusal {
    pub url: String,
    /// Mostly in the server's words.
    pub reason: String,
    /// What to start it with, where the reason does not say so.
    remedy: Option<String>,
}

impl std::fmt::Display for AdapterRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, reason, remedy } = self;
        write!(
            f,
            "vLLM server {url} takes no adapter by itself: {reason}; merged weights are sent"
        )?;
        remedy.iter().try_for_each(|remedy| write!(f, ". To send it alone: {remedy}"))
    }
}

/// What a server is started with to take adapters of this rank.
fn remedy(rank: i64) -> String {
    let most = RANKS.into_iter().find(|most| *most >= rank);
    match most {
        Some(most) => format!(
            "start every server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and \
             --enable-lora --max-lora-rank {most}"
        ),
        None => format!("vLLM takes ranks up to {}", RANKS[RANKS.len() - 1]),
    }
}

async fn unload(client: &Client) -> Result<(), CallError> {
    match post(client, UNLOAD, &json!({"lora_name": NAME}), CONTROL).await {
        // It has none. One without the route says so of loading too.
        Err(CallError::Refused { status: 404, .. }) => Ok(()),
        other => other,
    }
}

/// Fails for a server whose base has been replaced.
async fn has_own_base(client: &Client) -> Result<(), CallError> {
    let path = WEIGHT_INFO;
    let call: Call<'_, Value> = Call { path, body: None, deadline: CONTROL, limit: CONTROL_BYTES };
    let info: WeightInfo = serde_json::from_slice(&client.call(call).await?)
        .map_err(|error| CallError::Garbage { path: path.to_owned(), reason: error.to_string() })?;
    let label = info.weight_version;
    if is_of_own_base(&label) {
        return Ok(());
    }
    let reason = format!(
        "it has taken whole weights since it was started (`{label}`), and an adapter would come on \
         top of them; start it again"
    );
    Err(CallError::Unfit { reason })
}

async fn load(client: &Client, folder: &str) -> Result<(), CallError> {
    has_own_base(client).await?;
    unload(client).await?;
    post(client, LOAD, &json!({"lora_name": NAME, "lora_path": folder}), RELOAD).await
}

impl Inner {
    /// Puts an adapter into one server that is closed to new calls.
    pub(super) async fn exchange_adapter(
        &self,
        index: usize,
        weights: &Published,
    ) -> Result<(), CallError> {
        let client = &self.fleet.servers[index].client;
        let loaded = self.replace_adapter(index, weights).await;
        // A server that cannot be resumed is of no use, whatever it has loaded.
        let resumed = post(client, "/resume", &json!({}), CONTROL).await;
        loaded.and(resumed)
    }

    async fn replace_adapter(&self, index: usize, weights: &Published) -> Result<(), CallError> {
        self.call_back(index).await?;
        let client = &self.fleet.servers[index].client;
        load(client, &weights.folder).await?;
        let label = json!({"new_version": self.labels.of(weights)});
        post(client, "/update_weight_version", &label, CONTROL).await
    }

    /// Has the server give back all calls with what they have written. One that was on its way when
    /// the server paused is given back by the next pause.
    async fn call_back(&self, index: usize) -> Result<(), CallError> {
        let client = &self.fleet.servers[index].client;
        let (mut look, longest) = LOOK;
        let begun = Instant::now();
        loop {
            post(client, PAUSE, &json!({}), CONTROL).await?;
            if self.fleet.running(index) == 0 {
                return Ok(());
            }
            if begun.elapsed() > CONTROL {
                let seconds = CONTROL.as_secs();
                let reason = format!("requests have not come back for {seconds} s");
                return Err(CallError::Unreachable { path: PAUSE.to_owned(), reason });
            }
            tokio::time::sleep(look).await;
            look = (look * 2).min(longest);
        }
    }
}

impl VllmGenerator {
    /// Whether every server takes PEFT's folder, of this rank, by itself; the first that does not, with its reason.
    /// None of them has it afterwards.
    pub async fn refuses_adapter(
        &self,
        folder: &str,
        rank: i64,
    ) -> Result<Option<AdapterRefusal>, GeneratorError> {
        let mut refusal = None;
        for server in &self.inner.fleet.servers {
            let client = &server.client;
            let url = client.url().to_owned();
            match load(client, folder).await {
                Ok(()) => {}
                Err(error @ (CallError::Unreachable { .. } | CallError::Garbage { .. })) => {
                    return Err(GeneratorError::Gone { reason: format!("{url}{error}") });
                }
                Err(CallError::Unfit { reason }) => {
                    refusal = Some(AdapterRefusal { url, reason, remedy: None });
                    break;
                }
                Err(
                    CallError::Failed { path, text, .. } | CallError::Refused { path, text, .. },
                ) => {
                    let (reason, remedy) = (said(&path, &text), Some(remedy(rank)));
                    refusal = Some(AdapterRefusal { url, reason, remedy });
                    break;
                }
            }
        }
        self.unload_adapters().await;
        Ok(refusal)
    }

    /// Leaves every server without an adapter of ours, as far as they answer: for whole weights.
    pub async fn unload_adapters(&self) {
        for server in &self.inner.fleet.servers {
            // What cannot be unloaded is replaced with the first exchange, or never asked for.
            let _ = unload(&server.client).await;
        }
    }
}

/// The message of an error in OpenAI's or FastAPI's form, or the text as it is.
fn said(path: &str, text: &str) -> String {
    let read: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let message = read["error"]["message"].as_str().or(read["detail"].as_str()).unwrap_or(text);
    if message == "Not Found" {
        return format!("it has no route {path}");
    }
    message.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_names_the_smallest_rank_that_vllm_has() {
        for (rank, asked) in [(1, "1"), (4, "8"), (32, "32"), (33, "64"), (512, "512")] {
            let said = remedy(rank);
            assert!(said.ends_with(&format!("--max-lora-rank {asked}")), "{rank}: {said}");
        }
        assert_eq!(remedy(513), "vLLM takes ranks up to 512");
    }

    #[test]
    fn a_server_is_quoted_without_its_wrapping() {
        let wrapped = r#"{"error":{"message":"LoRA rank 16 is greater than max_lora_rank 8."}}"#;
        assert_eq!(said(LOAD, wrapped), "LoRA rank 16 is greater than max_lora_rank 8.");
        assert_eq!(
            said(LOAD, r#"{"detail":"Not Found"}"#),
            "it has no route /v1/load_lora_adapter"
        );
        assert_eq!(said(LOAD, "Internal"), "Internal");
    }
}
