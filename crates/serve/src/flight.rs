//! Requests under way: several prompts at once, their tokens as they come, then their completions.
//!
//! Each request is a task. Tokens and ends have a channel each: while a stream pauses between two
//! events it listens for ends alone, so that the thread that draws wakes nobody with its tokens.
//! Dropping the flight drops the tasks and with them the policy's futures, which gives the requests
//! up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use scalerl_rollout::{Completion, GeneratorError, Live, LiveToken, Policy, SampleRequest};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::error::ApiError;
use crate::metrics::Metrics;

/// Most tokens that are taken out at once.
const MANY: usize = 4096;

/// The answer to one of the requests, by its place among them.
pub(crate) struct End {
    pub(crate) place: usize,
    pub(crate) answer: Result<Vec<Completion>, GeneratorError>,
}

/// What has come since one asked last.
#[derive(Default)]
pub(crate) struct News {
    /// With the place of the request.
    pub(crate) tokens: Vec<(usize, LiveToken)>,
    pub(crate) ends: Vec<End>,
}

impl News {
    /// Whether there is none: everything has been told.
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.ends.is_empty()
    }
}

/// What is wanted of requests before they are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Every token: each costs the thread that draws a moment.
    Tokens,
    /// Nothing.
    Ends,
}

/// Requests under way.
pub(crate) struct Flight {
    /// Bounded by the tokens that were asked for.
    tokens: UnboundedReceiver<(usize, LiveToken)>,
    /// Ends when every task has told its end.
    ends: UnboundedReceiver<End>,
    _tasks: JoinSet<()>,
    /// Requests whose end has not been told.
    left: usize,
    metrics: Arc<Metrics>,
}

impl Flight {
    pub(crate) fn launch(
        policy: &Arc<dyn Policy>,
        requests: Vec<SampleRequest>,
        wants: Wants,
        metrics: &Arc<Metrics>,
    ) -> Self {
        let begun = Instant::now();
        let (token_sender, tokens) = mpsc::unbounded_channel();
        let (end_sender, ends) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (place, request) in requests.into_iter().enumerate() {
            metrics.prompt_tokens.add(request.prompt_token_ids.len());
            let (policy, told, ended) = (policy.clone(), token_sender.clone(), end_sender.clone());
            let (counted, has_begun) = (metrics.clone(), AtomicBool::new(false));
            let live: Live = Arc::new(move |token| {
                if !has_begun.swap(true, Ordering::Relaxed) {
                    counted.first_token.observe(begun.elapsed());
                }
                if wants == Wants::Tokens {
                    // Nobody listens any more: the task is about to be dropped.
                    let _ = told.send((place, token));
                }
            });
            tasks.spawn(async move {
                let answer = policy.generate(request, Some(live)).await;
                drop(ended.send(End { place, answer }));
            });
        }
        Self { tokens, ends, left: tasks.len(), _tasks: tasks, metrics: metrics.clone() }
    }

    /// Everything that has come since the last call, at least one token or end; nothing once all is
    /// told. Before `pause` is over an end is told at once, tokens wait.
    pub(crate) async fn next(&mut self, pause: Instant) -> News {
        let mut news = News::default();
        if self.is_over() {
            return news;
        }
        match self.first(pause, &mut news.tokens).await {
            // Every task has ended, and not all of them with an answer.
            Some(None) => news.ends.push(self.lost()),
            Some(Some(end)) => news.ends.push(self.counted(end)),
            None => {}
        }
        while let Ok(end) = self.ends.try_recv() {
            let end = self.counted(end);
            news.ends.push(end);
        }
        news
    }

    /// An end, or `None` where tokens have come.
    async fn first(
        &mut self,
        pause: Instant,
        tokens: &mut Vec<(usize, LiveToken)>,
    ) -> Option<Option<End>> {
        if pause > Instant::now() {
            tokio::select! {
                biased;
                end = self.ends.recv() => return Some(end),
                () = tokio::time::sleep_until(pause) => {}
            }
        }
        tokio::select! {
            biased;
            end = self.ends.recv() => Some(end),
            // Without senders only ends can come.
            1.. = self.tokens.recv_many(tokens, MANY) => None,
        }
    }

    /// Whether every end has been told.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    fn counted(&mut self, end: End) -> End {
        self.left -= 1;
        if let Ok(completions) = &end.answer {
            let tokens: usize = completions.iter().map(Completion::len).sum();
            self.metrics.generated_tokens.add(tokens);
        }
        end
    }

    fn lost(&mut self) -> End {
        self.left = 0;
        let reason = "it ended without an answer".to_owned();
        End { place: 0, answer: Err(GeneratorError::Gone { reason }) }
    }

    /// All completions, in the order of the requests.
    pub(crate) async fn finish(mut self, count: usize) -> Result<Vec<Vec<Completion>>, ApiError> {
        let mut answers: Vec<Vec<Completion>> = vec![Vec::new(); count];
        loop {
            let news = self.next(Instant::now()).await;
            if news.is_empty() {
                return Ok(answers);
            }
            for End { place, answer } in news.ends {
                answers[place] = answer?;
            }
        }
    }
}
