//! The generator on this process's device, on a thread of its own.
//!
//! ```text
//! generate --Request--> thread: [commands, given-up requests, one decode step]* --tokens--> text
//! score  --sequences--> thread: a piece of them before each step -> log-probs
//! adopt  --WeightHandle--> thread: weight store -> copy between two steps -> answer
//! ```
//! The thread (`thread.rs`) owns the model and its cache. Commands wait in a channel; each carries
//! the channel of its answer. Dropping a future closes that channel, which the thread sees before
//! its next step. With nothing to write it sleeps on the commands, and dropping the generator,
//! their other end, ends it.
//!
//! A thread that ends, by an error of the device, by weights that are not numbers or by a panic,
//! leaves the reason behind, lets go of every answer it owes, and takes no more commands: every
//! future resolves with that reason.
//!
//! Not here: batching and paging (`scalerl_generate`).

pub(crate) mod adapter;
mod score;
mod thread;

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use scalerl_generate::{CacheAfterExchange, GeneratorOptions, PoolUsage};
use scalerl_model::folder::Model;
use scalerl_model::tokenizer::Tokenizer;
use scalerl_rollout::{
    Completion, Generator, GeneratorError, Live, Pending, Policy, PolicyVersion, SampleRequest,
    TokenScore, WeightHandle,
};
use tokio::sync::oneshot;

use crate::weight_store::WeightStore;
use adapter::RequestAdapter;
pub use adapter::intake;
use thread::Command;

/// What a local generator is made of.
pub struct LocalGeneratorSetup {
    /// Its own copy of the weights, in the kind it computes in; version 0 until the first `adopt`.
    pub model: Model,
    /// Sizes.
    pub options: GeneratorOptions,
    /// Turns tokens into text and finds stop texts.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's end tokens.
    pub stop_tokens: Vec<u32>,
    /// What happens to half-written completions when weights change.
    pub cache_after_exchange: CacheAfterExchange,
    /// Where weights come from.
    pub weight_store: Arc<WeightStore>,
    /// CPU threads of this role; `None` leaves torch's choice.
    pub threads: Option<usize>,
    /// Whether everything that a device sets up for a size of step is there before the first
    /// request: tens of seconds on CUDA, which a server's clients would wait for one by one.
    pub is_warmed_up: bool,
}

/// What a local generator has done so far, and its load.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GeneratorStats {
    /// The policy of the next token.
    pub version: PolicyVersion,
    /// Tokens sampled.
    pub tokens: u64,
    /// Tokens run through the network, prompts included.
    pub computed_tokens: u64,
    /// Decode steps.
    pub steps: u64,
    /// Seconds spent in steps and in taking weights.
    pub busy_seconds: f64,
    /// Of these, seconds spent in taking weights.
    pub exchange_seconds: f64,
    /// Sequences being written.
    pub running: usize,
    /// Sequences that wait for room.
    pub waiting: usize,
    /// How full the cache is.
    pub pool: PoolUsage,
}

/// What the thread and its owner both see.
#[derive(Debug, Default)]
struct Shared {
    /// Written by the thread after each step; a lock, because the numbers belong together.
    stats: Mutex<GeneratorStats>,
    /// Set before the thread lets go of anything.
    why_gone: OnceLock<String>,
}

impl Shared {
    fn stats(&self) -> MutexGuard<'_, GeneratorStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self) -> GeneratorError {
        let reason = self.why_gone.get().cloned();
        GeneratorError::Gone { reason: reason.unwrap_or_else(|| "its thread has ended".to_owned()) }
    }
}

/// Generates with a model of this process.
#[derive(Debug)]
pub struct LocalGenerator {
    /// `None` only while it is being dropped.
    commands: Option<Sender<Command>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    adapter: RequestAdapter,
}

impl LocalGenerator {
    /// Starts the thread and waits until the model is ready there.
    pub fn start(setup: LocalGeneratorSetup) -> Result<Self, GeneratorError> {
        let adapter = RequestAdapter::new(setup.tokenizer.clone(), &setup.stop_tokens);
        let shared = Arc::new(Shared::default());
        let (commands, inbox) = mpsc::channel();
        let (is_ready, ready) = mpsc::sync_channel(1);
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("generator".to_owned())
            .spawn(move || thread::run(setup, &inbox, &is_ready, &theirs))
            .map_err(|error| GeneratorError::Gone { reason: error.to_string() })?;
        // Ends with a word from the thread, or with the thread.
        if ready.recv().is_err() {
            return Err(shared.gone());
        }
        Ok(Self { commands: Some(commands), thread: Some(thread), shared, adapter })
    }

    /// What it has done so far.
    pub fn stats(&self) -> GeneratorStats {
        *self.shared.stats()
    }

    /// Why it does not work any more, if so.
    pub fn why_gone(&self) -> Option<&str> {
        self.shared.why_gone.get().map(String::as_str)
    }

    async fn completions(
        &self,
        request: SampleRequest,
        live: Option<Live>,
    ) -> Result<Vec<Completion>, GeneratorError> {
        let asked = self.adapter.request(&request)?;
        let (reply, answer) = oneshot::channel();
        self.send(Command::Generate { request: asked, live, reply })?;
        // Ends with the last completion, a refusal, or the thread.
        let written = answer.await.map_err(|_| self.shared.gone())??;
        // Text is made here and not on the thread, which has tokens to write.
        written.iter().map(|one| self.adapter.completion(one, &request)).collect()
    }

    fn send(&self, command: Command) -> Result<(), GeneratorError> {
        let commands = self.commands.as_ref().expect("there until dropped");
        commands.send(command).map_err(|_| self.shared.gone())
    }
}

impl Generator for LocalGenerator {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        self.completions(request, None).await
    }

    async fn adopt(&self, weights: &WeightHandle) -> Result<(), GeneratorError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Adopt { weights: weights.clone(), reply })?;
        // Ends after the step under way.
        answer.await.map_err(|_| self.shared.gone())?
    }
}

impl Policy for LocalGenerator {
    fn generate(
        &self,
        request: SampleRequest,
        live: Option<Live>,
    ) -> Pending<'_, Result<Vec<Completion>, GeneratorError>> {
        Box::pin(self.completions(request, live))
    }

    fn score(
        &self,
        sequences: Vec<Vec<u32>>,
        top: usize,
    ) -> Pending<'_, Result<Vec<Vec<TokenScore>>, GeneratorError>> {
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            self.send(Command::Score { sequences, top, reply })?;
            // Ends with the last sequence, a refusal, or the thread.
            answer.await.map_err(|_| self.shared.gone())?
        })
    }
}

impl Drop for LocalGenerator {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // Ends after the step under way; a panic in it has been told to whoever asked.
            let _ = thread.join();
        }
    }
}
