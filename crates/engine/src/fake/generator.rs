//! Samples from the simulated policy, token by token, on tokio's clock.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use scalerl_rollout::{
    Completion, FinishReason, Generator, GeneratorError, Intake, PolicyVersion, SampleRequest,
    WeightHandle,
};
use tokio::{task::yield_now, time::sleep};

use super::{Delays, FakePolicy, unit};
use crate::settings::mix;

/// What goes wrong, and at which request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This request, counted from 1, and no other, finds the generator gone.
    GoneOnce(u64),
    /// From this request on the generator is gone.
    Gone(u64),
    /// This request is never answered.
    Hangs(u64),
    /// Taking the weights of this version fails.
    Adopting(u64),
    /// This request panics.
    Panics(u64),
    /// The answer to this request has a log-prob that nobody can have drawn.
    AbsurdLogprob(u64),
    /// The answer to this request has a token that the vocabulary does not have.
    ForeignToken(u64),
    /// The answer to this request has a text that its tokens do not say.
    OtherText(u64),
    /// The answer to this request has one completion too few.
    TooFew(u64),
    /// Every answer from this request on is broken.
    Broken(u64),
}

/// Tokens are numbers below this; the last one of a completion says whether it is right.
const LETTERS: u64 = 97;
const RIGHT: u32 = 97;
const WRONG: u32 = 98;

/// So many tokens that [`fake_intake`] reads as right or wrong.
pub fn tokens_saying(is_right: bool, count: usize) -> Vec<u32> {
    let mut tokens = vec![7; count.saturating_sub(1)];
    tokens.push(if is_right { RIGHT } else { WRONG });
    tokens
}

/// Judges what the fake generator writes.
pub fn fake_intake() -> Intake {
    let text_of = |completion: &Completion| match completion.token_ids.last() {
        Some(&RIGHT) => Some("right".to_owned()),
        Some(&WRONG) => Some("wrong".to_owned()),
        _ => None,
    };
    Intake::new(WRONG + 1, Arc::new(text_of))
}

#[derive(Debug)]
struct Held {
    version: PolicyVersion,
    policy: FakePolicy,
    requests: u64,
}

/// A generator without a model.
#[derive(Debug)]
pub struct FakeGenerator {
    held: Mutex<Held>,
    longest_token: Duration,
    timing_seed: u64,
    fault: Option<Fault>,
}

impl FakeGenerator {
    /// Each decode step takes up to `longest_token`, drawn from `timing_seed`.
    pub fn new(timing_seed: u64, longest_token: Duration) -> Self {
        let held = Held { version: PolicyVersion(0), policy: FakePolicy::default(), requests: 0 };
        Self { held: Mutex::new(held), longest_token, timing_seed, fault: None }
    }

    /// The same with something that goes wrong.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn stumble(&self, request: u64) -> Result<(), GeneratorError> {
        let gone = || GeneratorError::Gone { reason: "as told".into() };
        match self.fault {
            Some(Fault::GoneOnce(at)) if request == at => Err(gone()),
            Some(Fault::Gone(from)) if request >= from => Err(gone()),
            Some(Fault::Hangs(at)) if request == at => std::future::pending().await,
            Some(Fault::Panics(at)) if request == at => panic!("as told"),
            _ => Ok(()),
        }
    }

    /// Spoils the answer to a request, where the fault says so.
    fn spoil(&self, request: u64, completions: &mut Vec<Completion>) {
        let Some(fault) = self.fault else { return };
        let Some(last) = completions.last_mut() else { return };
        match fault {
            Fault::AbsurdLogprob(at) if request == at => last.logprobs[0] = -1e30,
            Fault::ForeignToken(at) if request == at => last.token_ids[0] = 4_000_000,
            Fault::OtherText(at) if request == at => last.text.push_str(", believe me"),
            Fault::TooFew(at) if request == at => drop(completions.pop()),
            Fault::Broken(from) if request >= from => last.logprobs[0] = f32::NAN,
            _ => {}
        }
    }

    async fn decode_step(&self, delays: &mut Delays) {
        let delay = delays.draw();
        if delay.is_zero() {
            yield_now().await;
        } else {
            sleep(delay).await;
        }
    }
}

impl Generator for FakeGenerator {
    async fn generate(&self, request: SampleRequest) -> Result<Vec<Completion>, GeneratorError> {
        let number = {
            let mut held = self.held();
            held.requests += 1;
            held.requests
        };
        self.stumble(number).await?;
        let timing = mix(self.timing_seed, "request", number);
        let mut delays = Delays::new(timing, self.longest_token);
        let mut drafts: Vec<Draft> =
            (0..request.count).map(|index| Draft::new(&request, u64::from(index))).collect();
        while drafts.iter().any(|draft| !draft.is_done()) {
            self.decode_step(&mut delays).await;
            // Weights may have changed since the last token.
            let (version, policy) = {
                let held = self.held();
                (held.version, held.policy)
            };
            for draft in drafts.iter_mut().filter(|draft| !draft.is_done()) {
                draft.push(version, policy);
            }
        }
        let mut completions = drafts.into_iter().map(|draft| draft.completion).collect();
        self.spoil(number, &mut completions);
        Ok(completions)
    }

    async fn adopt(&self, weights: &WeightHandle) -> Result<(), GeneratorError> {
        let version = weights.version;
        let bad = |reason: String| GeneratorError::Weights { version, reason };
        if self.fault == Some(Fault::Adopting(version.0)) {
            return Err(bad("as told".into()));
        }
        let mut delays = Delays::new(mix(self.timing_seed, "adopt", version.0), self.longest_token);
        self.decode_step(&mut delays).await;
        let experience = weights
            .location
            .parse()
            .map_err(|_| bad(format!("`{}` is no policy", weights.location)))?;
        let mut held = self.held();
        held.version = version;
        held.policy = FakePolicy { experience };
        Ok(())
    }
}

/// A completion that is being written.
struct Draft {
    seed: u64,
    /// Sampled tokens it wants to have.
    length: u64,
    /// After so many sampled tokens these are forced.
    interruption: Option<(u64, Vec<u32>)>,
    /// Tokens after which thinking has ended.
    thinking_tokens: u32,
    completion: Completion,
}

impl Draft {
    fn new(request: &SampleRequest, index: u64) -> Self {
        let seed = request.seed.wrapping_add(index);
        let budget = u64::from(request.max_thinking_tokens) + u64::from(request.max_answer_tokens);
        let wanted = 2 + mix(seed, "length", 0) % 12;
        let interruption = request
            .interruptions
            .get(index as usize)
            .map(|one| (u64::from(one.at_token), one.token_ids.clone()))
            .filter(|(at, _)| *at < wanted);
        let finish = if wanted > budget { FinishReason::Length } else { FinishReason::Stop };
        let completion = Completion {
            token_ids: Vec::new(),
            logprobs: Vec::new(),
            versions: Vec::new(),
            is_injected: Vec::new(),
            text: String::new(),
            thinking_tokens: 0,
            finish,
        };
        let length = wanted.min(budget).max(1);
        let thinking_tokens = request.max_thinking_tokens;
        Self { seed, length, interruption, thinking_tokens, completion }
    }

    fn is_done(&self) -> bool {
        !self.completion.text.is_empty()
    }

    fn push(&mut self, version: PolicyVersion, policy: FakePolicy) {
        let position = self.completion.len() as u64;
        let is_last = self.completion.sampled_tokens() as u64 + 1 >= self.length;
        let is_right = unit(mix(self.seed, "answer", 0)) < policy.pass_rate();
        let is_right = is_right && self.completion.finish == FinishReason::Stop;
        let mut add = |token: u32, logprob: f32, is_injected: bool| {
            self.completion.token_ids.push(token);
            self.completion.logprobs.push(logprob);
            self.completion.versions.push(version);
            self.completion.is_injected.push(is_injected);
        };
        if let Some((_, phrase)) = self.interruption.take_if(|(at, _)| *at <= position) {
            self.thinking_tokens = (position + phrase.len() as u64) as u32;
            for token in phrase {
                add(token, 0.0, true);
            }
        }
        let bits = mix(self.seed, "token", position);
        let token = match (is_last, is_right) {
            (true, true) => RIGHT,
            (true, false) => WRONG,
            (false, _) => (bits % LETTERS) as u32,
        };
        add(token, -(unit(bits) as f32), false);
        if is_last {
            self.completion.text = if is_right { "right" } else { "wrong" }.into();
            let length = self.completion.len() as u32;
            self.completion.thinking_tokens = length.min(self.thinking_tokens);
        }
    }
}
