//! Generation by vLLM servers, over HTTP.
//!
//! ```text
//! generate --one task per completion--> writing.rs --lease--> fleet.rs --HTTP--> a server
//!    tokens, log-probs, versions --Continuation (budgets, interruption, stops)--> Completion
//! adopt --folder's path--> exchange.rs: pause, reload, version, resume, on all servers at once
//!                     `--> adapter.rs: the same of an adapter by itself
//! ```
//! Token ids go in and come out, with log-probs of the distribution they were drawn from and the
//! version of the weights that chose each of them. Whatever is ours to decide (budgets, the end of
//! thinking, interruptions, text) is decided by the code of the local generator.
//!
//! Servers may come and go: requests of one that dies, freezes or is cut off go to the others, and
//! it serves again once it holds the current weights. `agreement.rs` measures, before a run, how far
//! a server's log-probs are from ours.
//!
//! Not here: starting servers (docs/vllm.md), publishing weights (`weight_folder.rs`).

mod adapter;
mod agreement;
mod client;
mod exchange;
mod fleet;
mod wire;
mod writing;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scalerl_model::tokenizer::Tokenizer;
use scalerl_rollout::{Completion, Generator, GeneratorError, SampleRequest, WeightHandle};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use adapter::AdapterRefusal;
pub use agreement::{Agreement, AgreementError, measure_agreement, stirred};
pub use client::CallError;
pub use fleet::{Notice, ServerLoad, ServerState};

use crate::generator::adapter::{RequestAdapter, refusal};
use client::Client;
use fleet::Fleet;
use wire::Labels;

/// What a generator over servers is made of.
pub struct VllmSetup {
    /// Addresses such as `http://10.0.0.7:8000`.
    pub urls: Vec<String>,
    /// Sent with every call.
    pub token: Option<String>,
    /// Requests under way on one server; more wait here, where the next free server takes them.
    pub requests_at_once: usize,
    /// How long no server may serve before requests fail.
    pub patience: Duration,
    /// How long a server may not answer before it is taken for dead.
    pub silence: Duration,
    /// For one call that writes.
    pub deadline: Duration,
    /// Whether half-written completions keep their keys and values when weights change.
    pub keeps_cache: bool,
    /// Whether each completion is drawn from its own seed. vLLM draws such requests one by one.
    pub is_seeded: bool,
    /// Turns tokens into text and finds stop texts.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's end tokens.
    pub stop_tokens: Vec<u32>,
    /// The model's vocabulary.
    pub vocabulary: i64,
    /// Distinguishes this run's weights from everybody else's on the same servers.
    pub owner: String,
    /// Told when a server is lost or back.
    pub notices: Option<mpsc::UnboundedSender<Notice>>,
}

struct Inner {
    fleet: Fleet,
    labels: Labels,
    tokenizer: Arc<Tokenizer>,
    vocabulary: i64,
    keeps_cache: bool,
    is_seeded: bool,
    silence: Duration,
    deadline: Duration,
    /// Pulses and recoveries; they end with the generator.
    tasks: Mutex<JoinSet<()>>,
}

impl Inner {
    fn background(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Recoveries that have ended.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

/// Generates with servers.
pub struct VllmGenerator {
    inner: Arc<Inner>,
    adapter: RequestAdapter,
    /// Tokens of the longest sequence that every server takes.
    longest: u64,
    devices: u64,
}

impl std::fmt::Debug for VllmGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VllmGenerator").field("load", &self.load()).finish_non_exhaustive()
    }
}

impl VllmGenerator {
    /// Waits until every server answers, as long as patience lasts. They serve from the first
    /// `adopt` on.
    pub async fn start(setup: VllmSetup) -> Result<Self, GeneratorError> {
        let client = |url: &String| Client::new(url, setup.token.as_deref());
        let clients: Result<Vec<Client>, String> = setup.urls.iter().map(client).collect();
        let clients = clients.map_err(|reason| GeneratorError::Refused { reason })?;
        let (mut longest, mut devices) = (u64::MAX, 0);
        for client in &clients {
            longest = longest.min(first_answer(client, setup.patience).await?);
            // A server that cannot say has one at least.
            devices += exchange::devices(client).await.unwrap_or(1).max(1);
        }
        let at_once = setup.requests_at_once.max(1);
        let inner = Arc::new(Inner {
            fleet: Fleet::new(clients, at_once, setup.patience, setup.notices),
            labels: Labels::new(setup.owner),
            tokenizer: setup.tokenizer.clone(),
            vocabulary: setup.vocabulary,
            keeps_cache: setup.keeps_cache,
            is_seeded: setup.is_seeded,
            silence: setup.silence,
            deadline: setup.deadline,
            tasks: Mutex::default(),
        });
        for index in 0..inner.fleet.servers.len() {
            inner.background(inner.clone().watch(index));
        }
        let adapter = RequestAdapter::new(setup.tokenizer, &setup.stop_tokens);
        Ok(Self { inner, adapter, longest, devices })
    }

    /// Each server's state and load.
    pub fn load(&self) -> Vec<ServerLoad> {
        self.inner.fleet.load()
    }

    /// Devices that all servers hold together.
    pub fn devices(&self) -> u64 {
        self.devices
    }

    /// As `generate`, on one server only.
    async fn generate_on(
        &self,
        request: &SampleRequest,
        only: Option<usize>,
    ) -> Result<Vec<Completion>, GeneratorError> {
        let asked = self.adapter.request(request)?;
        asked.check(self.inner.vocabulary).map_err(|error| refusal(&error))?;
        let longest = asked.longest() as u64;
        if longest > self.longest {
            return Err(GeneratorError::TooLong { asked: longest, limit: self.longest });
        }
        let asked = Arc::new(asked);
        // Dropped, and every call with it, when the request is given up or one completion fails.
        let mut writing = JoinSet::new();
        for index in 0..asked.completions {
            let written = self.inner.clone().write(asked.clone(), index, only);
            writing.spawn(written);
        }
        let mut written = Vec::with_capacity(asked.completions);
        while let Some(ended) = writing.join_next().await {
            let ended =
                ended.map_err(|error| GeneratorError::Gone { reason: error.to_string() })?;
            written.push(ended?);
        }
        written.sort_by_key(|one| one.index);
        written.iter().map(|one| self.adapter.completion(one, request)).collect()
    }
}

/// The server's longest sequence, once it answers.
async fn first_answer(client: &Client, patience: Duration) -> Result<u64, GeneratorError> {
    let url = client.url();
    let mut last = String::new();
    let asking = async {
        loop {
            match exchange::longest(client).await {
                Ok(longest) => return Ok(longest),
                Err(error @ (CallError::Unreachable { .. } | CallError::Failed { .. })) => {
                    last = error.to_string();
                }
                Err(error) => {
                    return Err(GeneratorError::Refused { reason: format!("{url}{error}") });
                }
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let answer = tokio::time::timeout(patience, asking).await;
    answer.unwrap_or_else(|_| {
        let seconds = patience.as_secs();
        let reason = format!("{url} has not answered for {seconds} s: {last}");
        Err(GeneratorError::Gone { reason })
    })
}

impl Generator for VllmGenerator {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        self.generate_on(&request, None).await
    }

    async fn adopt(&self, weights: &WeightHandle) -> Result<(), GeneratorError> {
        self.inner.adopt(weights).await
    }
}

impl Drop for VllmGenerator {
    fn drop(&mut self) {
        self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}
