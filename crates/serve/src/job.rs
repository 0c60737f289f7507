//! A call under way: from requests to an answer, at once or as events, in the shape of its route.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::Response;
use scalerl_rollout::{Completion, FinishReason, SampleRequest, TokenScore};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::choice::{Choice, Drawn, Piece};
use crate::error::{ApiError, json_response};
use crate::flight::{End, Flight, News, Wants};
use crate::server::App;
use crate::stream::{self, Envelope, Events, Frames};
use crate::text::TextRules;
use crate::tools::{Family, Message};

/// One choice, all of it.
pub(crate) struct Finished {
    /// All its text and tokens.
    pub(crate) piece: Piece,
    pub(crate) message: Message,
    /// Of prompt and answer, where they were asked for.
    pub(crate) scores: Option<Vec<TokenScore>>,
}

/// Tokens of a call, for `usage`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) prompt: usize,
    pub(crate) completion: usize,
}

impl Usage {
    pub(crate) fn json(self) -> Value {
        let Self { prompt, completion } = self;
        serde_json::json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        })
    }
}

/// What differs between routes.
pub(crate) trait Shape: Send + Sync + 'static {
    /// The answer in one piece.
    fn whole(&self, app: &App, finished: &[Finished], usage: Usage) -> Result<Value, ApiError>;

    /// Keeps what was said, where the route has conversations.
    fn remember(&self, _caller: &Caller, _finished: &[Finished]) {}
}

/// The same for answers that come as events.
pub(crate) trait Streamed: Shape {
    /// Events before the first token.
    fn opening(&self, _choices: usize, _frames: &mut Frames) {}

    /// Adds an event with new tokens of a choice; `scores` where the whole choice comes at once with
    /// them.
    fn chunk(
        &mut self,
        app: &App,
        piece: (usize, &Piece),
        scores: Option<&[TokenScore]>,
        frames: &mut Frames,
    ) -> Result<(), ApiError>;

    /// What its events say besides their choices.
    fn envelope(&self) -> &Envelope;

    /// Whether the client wants to hear of the usage at the end.
    fn has_usage(&self) -> bool;

    /// The last event, where the client wants one.
    fn closing(&self, usage: Usage) -> Option<Value> {
        self.has_usage().then(|| {
            let mut event = self.envelope().event(&[]);
            event["usage"] = usage.json();
            event
        })
    }
}

/// A call under way.
pub(crate) struct Job<S> {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    /// Held to the end of the answer.
    pub(crate) _place: OwnedSemaphorePermit,
    pub(crate) requests: Vec<SampleRequest>,
    pub(crate) rules: TextRules,
    pub(crate) family: Option<Family>,
    /// How many of the most likely tokens are wanted, where any or the prompt's scores are.
    pub(crate) top: Option<usize>,
    pub(crate) shape: S,
}

impl<S: Shape> Job<S> {
    fn choices(&self) -> usize {
        self.requests.iter().map(|request| request.count as usize).sum()
    }

    fn usage(&self, completion: usize) -> Usage {
        let prompts = self.requests.iter().map(|request| request.prompt_token_ids.len());
        Usage { prompt: prompts.sum(), completion }
    }

    /// Whether nothing is to be written: a given text is scored.
    fn is_silent(&self) -> bool {
        self.requests.iter().all(|request| request.max_answer_tokens == 0)
    }

    fn launch(&self, wants: Wants) -> Flight {
        let metrics = &self.app.metrics;
        Flight::launch(&self.caller.policy, self.requests.clone(), wants, metrics)
    }

    /// Completions of every request, and scores where they are wanted.
    async fn complete(&self) -> Result<Vec<Finished>, ApiError> {
        let answers = if self.is_silent() {
            let nothing = |request: &SampleRequest| vec![empty(); request.count as usize];
            self.requests.iter().map(nothing).collect()
        } else {
            self.launch(Wants::Ends).finish(self.requests.len()).await?
        };
        let mut scores = self.scores(&answers).await?.into_iter();
        let mut finished = Vec::with_capacity(self.choices());
        for completion in answers.iter().flatten() {
            let choice = Choice::default();
            let chat = &*self.app.chat;
            let (piece, message) = choice.finish(chat, &self.rules, self.family, completion)?;
            finished.push(Finished { piece, message, scores: scores.next() });
        }
        Ok(finished)
    }

    /// One list per choice, or none at all.
    async fn scores(&self, answers: &[Vec<Completion>]) -> Result<Vec<Vec<TokenScore>>, ApiError> {
        let Some(top) = self.top else { return Ok(Vec::new()) };
        let whole = self.requests.iter().zip(answers).flat_map(|(request, completions)| {
            let prompt = &request.prompt_token_ids;
            completions.iter().map(move |one| [&prompt[..], &one.token_ids].concat())
        });
        Ok(self.caller.policy.score(whole.collect(), top).await?)
    }

    /// The answer in one piece.
    pub(crate) async fn answer(self) -> Result<Response, ApiError> {
        let begun = Instant::now();
        let deadline = self.app.options.limits.deadline;
        let finished = self.caller.within(deadline, self.complete()).await?;
        self.app.metrics.latency.observe(begun.elapsed());
        let tokens = finished.iter().map(|one| one.piece.tokens.len()).sum();
        let body = self.shape.whole(&self.app, &finished, self.usage(tokens))?;
        self.shape.remember(&self.caller, &finished);
        Ok(json_response(&body))
    }
}

impl<S: Streamed> Job<S> {
    /// The answer as events.
    pub(crate) async fn stream(self) -> Result<Response, ApiError> {
        let begun = Instant::now();
        let deadline = self.app.options.limits.deadline;
        // Scores are known at the end only, so then the whole choice comes at once.
        if self.top.is_some() || self.is_silent() {
            let finished = self.caller.within(deadline, self.complete()).await?;
            return Ok(stream::respond(deadline, |events| {
                self.write_whole(finished, begun, events)
            }));
        }
        let mut flight = self.launch(Wants::Tokens);
        let first = async { refused(flight.next(begun).await) };
        // What is refused at once is refused with a status of its own.
        let first = self.caller.within(deadline, first).await?;
        Ok(stream::respond(deadline, |events| self.write(flight, first, begun, events)))
    }

    async fn write_whole(mut self, finished: Vec<Finished>, begun: Instant, events: Events) {
        let mut frames = Frames::default();
        self.shape.opening(self.choices(), &mut frames);
        let mut tokens = 0;
        for (choice, one) in finished.iter().enumerate() {
            tokens += one.piece.tokens.len();
            let part = (choice, &one.piece);
            let chunk = self.shape.chunk(&self.app, part, one.scores.as_deref(), &mut frames);
            if let Err(error) = chunk {
                frames.push(&error.body());
                return events.send_last(frames).await;
            }
        }
        self.end(&finished, tokens, begun, (events, frames)).await;
    }

    async fn write(mut self, flight: Flight, first: News, begun: Instant, events: Events) {
        let deadline = self.app.options.limits.deadline;
        let mut writing = Writing::new(self.choices());
        let caller = self.caller.clone();
        let work = self.write_all(&mut writing, flight, first, &events);
        match caller.within(deadline, work).await {
            Ok(last) => self.end(&writing.finished, writing.tokens, begun, (events, last)).await,
            Err(error) => {
                let mut frames = Frames::default();
                frames.push(&error.body());
                events.send_last(frames).await;
            }
        }
    }

    /// Writes all events but the last, which go out with those of the end.
    async fn write_all(
        &mut self,
        writing: &mut Writing,
        mut flight: Flight,
        first: News,
        events: &Events,
    ) -> Result<Frames, ApiError> {
        let window = self.app.options.limits.stream_window;
        let (mut news, mut frames) = (first, Frames::default());
        self.shape.opening(self.choices(), &mut frames);
        loop {
            for (choice, piece) in self.pieces(writing, news)? {
                self.shape.chunk(&self.app, (choice, &piece), None, &mut frames)?;
            }
            if flight.is_over() {
                return Ok(frames);
            }
            events.send(std::mem::take(&mut frames)).await;
            // Tokens of the next moments share an event.
            news = flight.next(Instant::now() + window).await;
        }
    }

    /// One piece for each choice that has news.
    fn pieces(&self, writing: &mut Writing, news: News) -> Result<Vec<(usize, Piece)>, ApiError> {
        let count = self.requests.first().map_or(1, |request| request.count as usize);
        let mut tokens: BTreeMap<usize, Vec<Drawn>> = BTreeMap::new();
        let mut pieces = Vec::new();
        for (prompt, token) in &news.tokens {
            let choice = prompt * count + token.completion as usize;
            tokens.entry(choice).or_default().push(Drawn::from(token));
        }
        for End { place, answer } in news.ends {
            for (index, completion) in answer?.iter().enumerate() {
                let choice = place * count + index;
                // The completion has them as well.
                tokens.remove(&choice);
                let piece = self.finish(writing, choice, completion)?;
                pieces.extend(piece.map(|piece| (choice, piece)));
            }
        }
        for (choice, tokens) in tokens {
            // Ended: what is told late was in the completion.
            let Some(Some(writer)) = writing.choices.get_mut(choice) else { continue };
            let piece = writer.push(&*self.app.chat, &self.rules, self.family, tokens)?;
            pieces.push((choice, piece));
        }
        Ok(pieces)
    }

    fn finish(
        &self,
        writing: &mut Writing,
        choice: usize,
        completion: &Completion,
    ) -> Result<Option<Piece>, ApiError> {
        let Some(writer) = writing.choices.get_mut(choice).and_then(Option::take) else {
            return Ok(None);
        };
        let (piece, message) =
            writer.finish(&*self.app.chat, &self.rules, self.family, completion)?;
        writing.tokens += completion.token_ids.len();
        // What is remembered has all tokens, the piece only the last.
        let tokens = Drawn::from_place(completion, 0);
        let whole = Piece { tokens, begin: 0, ..piece.clone() };
        writing.finished.push(Finished { piece: whole, message, scores: None });
        Ok(Some(piece))
    }

    async fn end(
        &self,
        finished: &[Finished],
        tokens: usize,
        begun: Instant,
        (events, mut frames): (Events, Frames),
    ) {
        self.app.metrics.latency.observe(begun.elapsed());
        // Before the client knows that it is done and asks again.
        self.shape.remember(&self.caller, finished);
        if let Some(event) = self.shape.closing(self.usage(tokens)) {
            frames.push(&event);
        }
        events.send_last(frames).await;
    }
}

/// Answers while they are streamed.
struct Writing {
    /// `None` once a choice has ended.
    choices: Vec<Option<Choice>>,
    finished: Vec<Finished>,
    tokens: usize,
}

impl Writing {
    fn new(choices: usize) -> Self {
        let choices = std::iter::repeat_with(|| Some(Choice::default())).take(choices);
        Self { choices: choices.collect(), finished: Vec::new(), tokens: 0 }
    }
}

/// An error among the news in place of them.
fn refused(mut news: News) -> Result<News, ApiError> {
    let mut ends = Vec::with_capacity(news.ends.len());
    for End { place, answer } in news.ends {
        ends.push(End { place, answer: Ok(answer?) });
    }
    news.ends = ends;
    Ok(news)
}

fn empty() -> Completion {
    Completion {
        token_ids: Vec::new(),
        logprobs: Vec::new(),
        versions: Vec::new(),
        is_injected: Vec::new(),
        text: String::new(),
        thinking_tokens: 0,
        finish: FinishReason::Length,
    }
}
