//! The thread that owns the model: commands between two steps, then a step.
//!
//! On CUDA it works on a stream of its own, served before the trainer's: decode steps are short,
//! and training fills what they leave. Weights are copied on that stream and the lease on them is
//! held until the copy is done; the trainer publishes only what its own stream has finished.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Instant;

use scalerl_generate::{
    CacheAfterExchange, Completion, GenerateError, Generator, Request, RequestId, Token,
};
use scalerl_rollout::{GeneratorError, Live, LiveToken, PolicyVersion, TokenScore, WeightHandle};
use scalerl_torch::device;
use scalerl_torch::shim::{self, OwnStream, Priority};
use tokio::sync::oneshot;

use super::adapter::refusal;
use super::score::Scoring;
use super::{LocalGeneratorSetup, Shared};
use crate::weight_store::WeightStore;

pub(super) type Reply<T> = oneshot::Sender<Result<T, GeneratorError>>;

/// What the thread can be asked.
pub(super) enum Command {
    Generate { request: Request, live: Option<Live>, reply: Reply<Vec<Completion>> },
    Score { sequences: Vec<Vec<u32>>, top: usize, reply: Reply<Vec<Vec<TokenScore>>> },
    Adopt { weights: WeightHandle, reply: Reply<()> },
}

/// A request under way.
struct Pending {
    reply: Reply<Vec<Completion>>,
    live: Option<Live>,
    wanted: usize,
    finished: Vec<Completion>,
}

type Owed = BTreeMap<RequestId, Pending>;

/// The thread's life. `ready` gets a word once the model is there.
pub(super) fn run(
    setup: LocalGeneratorSetup,
    inbox: &Receiver<Command>,
    ready: &SyncSender<()>,
    shared: &Shared,
) {
    // Out here, so that answers are let go of only when the reason is there.
    let mut owed = Owed::new();
    let life = || -> Result<(), GenerateError> {
        if let Some(threads) = setup.threads {
            device::use_threads(threads);
        }
        let device = setup.model.device();
        // The weights came by another stream, that of whoever loaded them.
        shim::synchronize(device)?;
        let _stream = OwnStream::enter(device, Priority::Urgent)?;
        let is_warmed_up = setup.is_warmed_up;
        let mut server = Server::new(setup, &mut owed, shared)?;
        if is_warmed_up {
            server.generator.warm_up()?;
        }
        // Whoever waits for it may have given up.
        let _ = ready.send(());
        let outcome = server.serve(inbox);
        // Memory of the cache and the graphs is free only when nothing works in it.
        let waited = shim::synchronize_stream(device);
        outcome?;
        Ok(waited?)
    };
    let reason = match catch_unwind(AssertUnwindSafe(life)) {
        Ok(Ok(())) => "it was closed".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => format!("a panic: {}", said(panic.as_ref())),
    };
    // Nobody else sets it.
    let _ = shared.why_gone.set(reason);
    drop(owed);
    // The inbox goes with the thread's closure, and what is still in it with the inbox.
}

fn said(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

struct Server<'a> {
    generator: Generator,
    weight_store: Arc<WeightStore>,
    cache: CacheAfterExchange,
    owed: &'a mut Owed,
    /// Texts to score, in the order they came; the first is under way.
    scorings: VecDeque<Scoring>,
    shared: &'a Shared,
}

impl<'a> Server<'a> {
    fn new(
        setup: LocalGeneratorSetup,
        owed: &'a mut Owed,
        shared: &'a Shared,
    ) -> Result<Self, GenerateError> {
        let generator = Generator::new(setup.model, setup.options)?;
        let generator = generator.with_tokenizer(setup.tokenizer);
        let server = Self {
            generator,
            weight_store: setup.weight_store,
            cache: setup.cache_after_exchange,
            owed,
            scorings: VecDeque::new(),
            shared,
        };
        server.show_load();
        Ok(server)
    }

    /// Until the other end of `inbox` is dropped.
    fn serve(&mut self, inbox: &Receiver<Command>) -> Result<(), GenerateError> {
        loop {
            if self.generator.is_idle() && self.scorings.is_empty() {
                // Sleeps until there is something to do.
                let Ok(command) = inbox.recv() else { return Ok(()) };
                self.take(command)?;
            }
            loop {
                match inbox.try_recv() {
                    Ok(command) => self.take(command)?,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            }
            self.forget_given_up();
            self.score()?;
            self.step()?;
        }
    }

    fn take(&mut self, command: Command) -> Result<(), GenerateError> {
        match command {
            // Given up before it was looked at.
            Command::Generate { reply, .. } if reply.is_closed() => {}
            Command::Generate { request, live, reply } => {
                let wanted = request.completions;
                match self.generator.submit(request) {
                    Ok(id) => {
                        let finished = Vec::with_capacity(wanted);
                        self.owed.insert(id, Pending { reply, live, wanted, finished });
                    }
                    Err(error) => drop(reply.send(Err(refusal(&error)))),
                }
            }
            Command::Score { sequences, top, reply } => {
                self.scorings.extend(Scoring::begin(&sequences, top, reply, &self.generator));
            }
            Command::Adopt { weights, reply } => {
                let start = Instant::now();
                let outcome = self.adopt(&weights)?;
                let seconds = start.elapsed().as_secs_f64();
                {
                    let mut stats = self.shared.stats();
                    stats.busy_seconds += seconds;
                    stats.exchange_seconds += seconds;
                }
                self.show_load();
                drop(reply.send(outcome));
            }
        }
        Ok(())
    }

    /// The inner error leaves everything as it was; the outer one may have left half a copy.
    fn adopt(
        &mut self,
        handle: &WeightHandle,
    ) -> Result<Result<(), GeneratorError>, GenerateError> {
        let version = handle.version;
        let refused = |reason: String| Ok(Err(GeneratorError::Weights { version, reason }));
        let weights = match self.weight_store.take(handle) {
            Ok(weights) => weights,
            Err(error) => return refused(error.to_string()),
        };
        match self.generator.exchange(&weights.parameters, version.0, self.cache) {
            Ok(()) => {}
            Err(
                error @ (GenerateError::WrongWeights { .. } | GenerateError::WrongShape { .. }),
            ) => return refused(error.to_string()),
            Err(error) => return Err(error),
        }
        // The trainer writes to this memory again once nobody holds it.
        shim::synchronize_stream(self.generator.model().device())?;
        weights.taken_over();
        Ok(Ok(()))
    }

    fn forget_given_up(&mut self) {
        let is_given_up =
            |(id, pending): (&RequestId, &Pending)| pending.reply.is_closed().then_some(*id);
        let given_up: Vec<RequestId> = self.owed.iter().filter_map(is_given_up).collect();
        for id in &given_up {
            self.owed.remove(id);
            drop(self.generator.cancel(*id));
        }
        if !given_up.is_empty() {
            self.show_load();
        }
        self.scorings.retain(|scoring| !scoring.is_given_up());
    }

    /// One piece of the first text that waits.
    fn score(&mut self) -> Result<(), GenerateError> {
        let Some(scoring) = self.scorings.front_mut() else { return Ok(()) };
        let start = Instant::now();
        let is_done = scoring.advance(&self.generator)?;
        self.shared.stats().busy_seconds += start.elapsed().as_secs_f64();
        if let Some(done) = self.scorings.pop_front_if(|_| is_done) {
            done.finish();
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), GenerateError> {
        if self.generator.is_idle() {
            return Ok(());
        }
        let start = Instant::now();
        let report = self.generator.step()?;
        {
            let mut stats = self.shared.stats();
            stats.busy_seconds += start.elapsed().as_secs_f64();
            stats.steps += 1;
            stats.computed_tokens += report.computed as u64;
            let sampled = report.tokens.iter().filter(|(_, _, token)| !token.is_injected);
            stats.tokens += sampled.count() as u64;
        }
        for (request, index, token) in &report.tokens {
            self.tell(*request, *index, token);
        }
        // Before answers go out: whoever has one finds its room free.
        self.show_load();
        for completion in report.finished {
            self.finish(completion);
        }
        Ok(())
    }

    /// Tells a token to whoever wants to hear of it early.
    fn tell(&self, request: RequestId, index: usize, token: &Token) {
        let Some(live) = self.owed.get(&request).and_then(|pending| pending.live.as_ref()) else {
            return;
        };
        live(LiveToken {
            completion: index as u32,
            token_id: token.id as u32,
            logprob: token.logprob.unwrap_or(0.0),
            version: PolicyVersion(token.version),
            is_injected: token.is_injected,
        });
    }

    fn finish(&mut self, completion: Completion) {
        let id = completion.request;
        let pending = self.owed.get_mut(&id).expect("sequences leave with their request");
        pending.finished.push(completion);
        if pending.finished.len() < pending.wanted {
            return;
        }
        let Pending { reply, mut finished, .. } = self.owed.remove(&id).expect("looked at above");
        finished.sort_by_key(|completion| completion.index);
        // Given up in the last moment: nobody wants it.
        let _ = reply.send(Ok(finished));
    }

    fn show_load(&self) {
        let (running, waiting) = self.generator.load();
        let mut stats = self.shared.stats();
        stats.version = PolicyVersion(self.generator.version());
        (stats.running, stats.waiting) = (running, waiting);
        stats.pool = self.generator.usage();
    }
}
