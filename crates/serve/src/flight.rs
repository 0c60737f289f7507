//! Requests under way: several prompts at once, their tokens as they come, then their completions.
//!
//! Each request is a task; all tell one channel. Dropping the flight drops the tasks and with them
//! the policy's futures, which gives the requests up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use scalerl_rollout::{Completion, GeneratorError, Live, LiveToken, Policy, SampleRequest};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;

use crate::error::ApiError;
use crate::metrics::Metrics;

/// News of one of the requests, by its place among them.
pub(crate) enum Event {
    Token(usize, LiveToken),
    Done(usize, Result<Vec<Completion>, GeneratorError>),
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
    /// Ends when every task has told its end. Bounded by the tokens that were asked for.
    events: UnboundedReceiver<Event>,
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
        let (sender, events) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (place, request) in requests.into_iter().enumerate() {
            metrics.prompt_tokens.add(request.prompt_token_ids.len());
            let (policy, sender) = (policy.clone(), sender.clone());
            let (counted, has_begun) = (metrics.clone(), AtomicBool::new(false));
            tasks.spawn(async move {
                let told = sender.clone();
                let live: Live = Arc::new(move |token| {
                    if !has_begun.swap(true, Ordering::Relaxed) {
                        counted.first_token.observe(begun.elapsed());
                    }
                    if wants == Wants::Tokens {
                        // Nobody listens any more: the task is about to be dropped.
                        drop(told.send(Event::Token(place, token)));
                    }
                });
                let answer = policy.generate(request, Some(live)).await;
                drop(sender.send(Event::Done(place, answer)));
            });
        }
        Self { events, left: tasks.len(), _tasks: tasks, metrics: metrics.clone() }
    }

    /// Everything that has come since the last call, at least one event; empty at the end.
    pub(crate) async fn next(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.events.recv_many(&mut events, 4096).await;
        if events.is_empty() && std::mem::take(&mut self.left) > 0 {
            let reason = "it ended without an answer".to_owned();
            return vec![Event::Done(0, Err(GeneratorError::Gone { reason }))];
        }
        for event in &events {
            self.left -= usize::from(matches!(event, Event::Done(..)));
            if let Event::Done(_, Ok(completions)) = event {
                let tokens: usize = completions.iter().map(Completion::len).sum();
                self.metrics.generated_tokens.add(tokens);
            }
        }
        events
    }

    /// All completions, in the order of the requests.
    pub(crate) async fn finish(mut self, count: usize) -> Result<Vec<Vec<Completion>>, ApiError> {
        let mut answers: Vec<Vec<Completion>> = vec![Vec::new(); count];
        loop {
            let events = self.next().await;
            if events.is_empty() {
                return Ok(answers);
            }
            for event in events {
                if let Event::Done(place, answer) = event {
                    answers[place] = answer?;
                }
            }
        }
    }
}
