//! What every pair of generator and trainer must do, as checks that panic with the duty broken.
//!
//! A [`Subject`] makes fresh pairs; [`check_all`] puts them through everything. Fakes, the local
//! pair and remote ones are judged by the same lines, so that the engine may rely on them. Behind
//! the feature `conformance`, for tests.
//!
//! Not here: deadlines. A subject's test wraps [`check_all`] in a timeout, because a duty broken by
//! waiting for ever never returns.

mod exchange;
mod sampling;
mod training;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use crate::{Completion, Generator, GeneratorError, PolicyVersion, SampleRequest, Trainer};

/// Something to be judged.
pub trait Subject {
    /// Its generator.
    type Generator: Generator;
    /// Its trainer.
    type Trainer: Trainer;

    /// A fresh pair at version 0 that agrees on where weights are.
    fn pair(&self) -> (Self::Generator, Self::Trainer);

    /// A request of a few completions that take many decode steps, with room left in all budgets
    /// and without interruptions or stop texts.
    fn request(&self) -> SampleRequest;

    /// Most tokens that one completion can have with its prompt; `None` without a limit.
    fn limit(&self) -> Option<u64>;

    /// Resolves when a generator that is busy may have had time for a few decode steps, and no more.
    /// How long that takes depends on the machine: a check that needs the middle of a completion
    /// asks again with the next `attempt`, so that a subject in real time waits longer each time.
    fn a_few_steps(&self, attempt: u32) -> impl Future<Output = ()>;

    /// Whether a generator holds nothing for anybody, as far as it can tell.
    fn is_empty(&self, generator: &Self::Generator) -> bool;

    /// A generator that is dead, or dies of its next request.
    fn dead(&self) -> impl Future<Output = Self::Generator>;
}

/// Every check, one after the other, each with a fresh pair.
pub async fn check_all<S: Subject>(subject: &S) {
    sampling::completions_come_in_the_order_of_their_seeds(subject).await;
    sampling::company_does_not_matter(subject).await;
    sampling::budgets_are_kept(subject).await;
    sampling::injected_tokens_are_marked(subject).await;
    sampling::a_request_given_up_leaves_nothing(subject).await;
    sampling::a_request_that_never_fits_is_refused(subject).await;
    sampling::a_dead_generator_says_so(subject).await;
    exchange::versions_change_with_adopt_and_only_then(subject).await;
    exchange::weights_may_change_in_mid_completion(subject).await;
    exchange::the_handle_before_the_last_is_valid(subject).await;
    training::a_step_makes_the_next_version(subject).await;
    training::what_was_saved_goes_on_as_if_nothing_had_happened(subject).await;
}

/// Asks, and checks what every answer must be.
async fn ask<G: Generator>(generator: &G, request: &SampleRequest) -> Vec<Completion> {
    let completions = match generator.generate(request.clone()).await {
        Ok(completions) => completions,
        Err(error) => panic!("a plain request failed: {error}"),
    };
    check_answer(&completions, request);
    completions
}

fn check_answer(completions: &[Completion], request: &SampleRequest) {
    assert_eq!(completions.len(), request.count as usize, "as many completions as asked for");
    for one in completions {
        if let Err(error) = one.check() {
            panic!("{error}");
        }
        let is_logprob = |(logprob, is_injected): (&f32, &bool)| {
            *logprob <= 0.0 && (!is_injected || logprob.abs() < f32::EPSILON)
        };
        assert!(
            one.logprobs.iter().zip(&one.is_injected).all(is_logprob),
            "log-probs are not above 0, those of injected tokens are 0: {:?}",
            one.logprobs
        );
    }
}

/// Whether every token was chosen by one policy.
fn is_all_of(completions: &[Completion], version: PolicyVersion) -> bool {
    completions.iter().flat_map(|one| &one.versions).all(|found| *found == version)
}

type Answer = Result<Vec<Completion>, GeneratorError>;

/// Requests that have reached the generator. Dropping it gives up those not answered yet.
struct UnderWay<'a> {
    futures: Vec<Pin<Box<dyn Future<Output = Answer> + 'a>>>,
    answers: Vec<Option<Answer>>,
}

impl<'a> UnderWay<'a> {
    async fn begin<G: Generator>(
        generator: &'a G,
        requests: impl IntoIterator<Item = SampleRequest>,
    ) -> Self {
        let futures: Vec<_> = requests
            .into_iter()
            .map(|one| Box::pin(generator.generate(one)) as Pin<Box<dyn Future<Output = _> + 'a>>)
            .collect();
        let mut this = Self { answers: futures.iter().map(|_| None).collect(), futures };
        poll_fn(|context| Poll::Ready(this.poll(context))).await;
        this
    }

    /// Asks those without an answer how far they are; whether all have one.
    fn poll(&mut self, context: &mut Context<'_>) -> bool {
        for (one, answer) in self.futures.iter_mut().zip(&mut self.answers) {
            if answer.is_none()
                && let Poll::Ready(found) = one.as_mut().poll(context)
            {
                *answer = Some(found);
            }
        }
        self.answers.iter().all(Option::is_some)
    }

    /// Goes on until something else is done.
    async fn until(&mut self, other: impl Future<Output = ()>) {
        let mut other = pin!(other);
        poll_fn(|context| {
            self.poll(context);
            other.as_mut().poll(context)
        })
        .await;
    }

    /// Gives up all but the first.
    fn keep_first(&mut self) {
        self.futures.truncate(1);
        self.answers.truncate(1);
    }

    /// Waits for all.
    async fn finish(mut self) -> Vec<Answer> {
        poll_fn(|context| if self.poll(context) { Poll::Ready(()) } else { Poll::Pending }).await;
        self.answers.into_iter().flatten().collect()
    }
}

/// Like a request, for another group.
fn another(request: &SampleRequest, number: u64) -> SampleRequest {
    let seed = request.seed.wrapping_add(1_000 * number);
    SampleRequest { seed, ..request.clone() }
}
