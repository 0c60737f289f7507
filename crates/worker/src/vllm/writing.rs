//! One completion, written in as many calls as its budgets need.
//!
//! A call may write up to the next decision: the interruption, the end of the thinking budget, the
//! end of the answer's. What comes back goes token by token through the rules of our own generator
//! (`scalerl_generate::Continuation`): they cut what is too much, append the phrase, and say
//! how much the next call may write. Mostly one call is enough; an interrupted completion takes two.
//!
//! A call that is given back half written, because an adapter is exchanged, goes on as another call.
//! One that fails is made again, on whatever server serves then; what earlier calls wrote stays.

use std::sync::Arc;
use std::time::Duration;

use scalerl_generate::{Completion, Continuation, Request, Token};
use scalerl_rollout::{GeneratorError, PolicyVersion};

use super::Inner;
use super::adapter::{self, Form};
use super::client::{Call, CallError};
use super::exchange::is_healthy;
use super::fleet::{Lease, Wish};
use super::wire::{self, Expected, GENERATE, GenerateBody, SamplingParams, Written};

/// Calls that may fail in a row. A lost server is none of them: its requests go elsewhere.
const ATTEMPTS: u32 = 3;

/// Servers that may be lost under one call. One that lives only until it is asked to write is
/// brought back again and again.
const LOSSES: u32 = 10;

/// After the first failure; doubles each time.
const PAUSE: Duration = Duration::from_millis(200);

/// For a server to say that it lives, after it failed at something.
const LOOK: Duration = Duration::from_secs(10);

/// How a call ended without tokens.
enum Trouble {
    /// The server is gone; another may serve, or the same when it is back.
    Lost { reason: String },
    /// It may go better the next time.
    Failed { reason: String },
    /// It was given back without a token, for weights to be exchanged.
    CalledBack,
    /// It will not.
    Refused { reason: String },
}

impl Inner {
    /// Writes completion `index` of a request.
    pub(super) async fn write(
        self: Arc<Self>,
        request: Arc<Request>,
        index: usize,
        only: Option<usize>,
    ) -> Result<Completion, GeneratorError> {
        let mut one = Continuation::new(request.clone(), index, self.tokenizer.clone());
        let mut wish = Wish { only, ..Wish::default() };
        while one.room() > 0 {
            let tokens = self.ask(&request, &one, index, &mut wish).await?;
            for token in tokens {
                wish.at_least = PolicyVersion(token.version).max(wish.at_least);
                let accepted = one.accept(token);
                let ended = accepted
                    .map_err(|error| GeneratorError::Refused { reason: error.to_string() })?;
                if ended {
                    break;
                }
            }
        }
        Ok(one.into_completion())
    }

    /// The next tokens of a completion, from whichever server.
    async fn ask(
        self: &Arc<Self>,
        request: &Request,
        one: &Continuation,
        index: usize,
        wish: &mut Wish,
    ) -> Result<Vec<Token>, GeneratorError> {
        let (mut attempts, mut losses) = (0, 0);
        loop {
            let lease = self.fleet.take(*wish).await?;
            wish.preferred = Some(lease.index);
            let url = self.fleet.servers[lease.index].client.url();
            let trouble = match self.call(request, one, index, &lease).await {
                Ok(tokens) => {
                    self.fleet.hear(lease.index, tokens.len());
                    return Ok(tokens);
                }
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Lost { reason } => {
                    self.lose_leased(&lease, &reason);
                    losses += 1;
                    if losses == LOSSES {
                        return Err(GeneratorError::Gone { reason: format!("{url}: {reason}") });
                    }
                }
                Trouble::Refused { reason } => {
                    return Err(GeneratorError::Refused { reason: format!("{url}{reason}") });
                }
                Trouble::CalledBack => {}
                Trouble::Failed { reason } => {
                    attempts += 1;
                    if attempts == ATTEMPTS {
                        return Err(GeneratorError::Gone { reason: format!("{url}{reason}") });
                    }
                    drop(lease);
                    tokio::time::sleep(PAUSE * 2_u32.pow(attempts - 1)).await;
                }
            }
        }
    }

    /// A server that has been lost and brought back since is not lost again for an old reason.
    fn lose_leased(self: &Arc<Self>, lease: &Lease<'_>, reason: &str) {
        if !lease.is_void() {
            self.lose(lease.index, reason);
        }
    }

    /// One call on the leased server.
    async fn call(
        &self,
        request: &Request,
        one: &Continuation,
        index: usize,
        lease: &Lease<'_>,
    ) -> Result<Vec<Token>, Trouble> {
        let room = one.room();
        let own = request.seed.wrapping_add(index as u64);
        let seed = self.is_seeded.then(|| seed_of(own, one.written()));
        // Only an answer that has begun: while it thinks, the same text ends nothing.
        let stop_texts: Vec<&str> =
            request.stop_strings.iter().map(String::as_str).chain(one.end_of_answer()).collect();
        let stops = (&request.stop_tokens[..], &stop_texts[..]);
        let salt = self.labels.salt(&lease.weights);
        let body = GenerateBody {
            token_ids: one.context(),
            model: (lease.weights.form == Form::Adapter).then_some(adapter::NAME),
            sampling_params: SamplingParams::new(request.sampling, seed, room, stops),
            cache_salt: &salt,
        };
        let client = &self.fleet.servers[lease.index].client;
        let call = Call {
            path: GENERATE,
            body: Some(&body),
            deadline: self.deadline,
            limit: wire::answer_limit(room),
        };
        let answer = tokio::select! {
            answer = client.call(call) => answer,
            () = lease.lost() => {
                return Err(Trouble::Lost { reason: "lost while it was writing".to_owned() });
            }
        };
        let expected = Expected {
            max_tokens: room,
            vocabulary: self.vocabulary,
            oldest: lease.weights.version,
        };
        let written = answer.and_then(|body| wire::read(&body, expected, &self.labels));
        match written {
            Ok(Written::Tokens(tokens)) => of_lease(tokens, lease),
            Ok(Written::Aborted) if self.fleet.has_moved_on(lease) => Err(Trouble::CalledBack),
            Ok(Written::Aborted) => {
                Err(Trouble::Failed { reason: format!("{GENERATE}: it gave the request up") })
            }
            Ok(Written::ForeignWeights { label }) => Err(Trouble::Lost {
                reason: format!("it answered with weights {label:?}, which are not of this run"),
            }),
            // Its base is there under another name: it was started again.
            Err(CallError::Refused { status: 404, text, .. })
                if lease.weights.form == Form::Adapter =>
            {
                Err(Trouble::Lost { reason: format!("it has no adapter of this run: {text}") })
            }
            Err(error @ CallError::Refused { .. }) => {
                Err(Trouble::Refused { reason: error.to_string() })
            }
            Err(error @ CallError::Unreachable { .. }) => {
                Err(Trouble::Lost { reason: error.to_string() })
            }
            Err(error) => match is_healthy(client, LOOK).await {
                Ok(()) => Err(Trouble::Failed { reason: error.to_string() }),
                Err(_) => Err(Trouble::Lost { reason: error.to_string() }),
            },
        }
    }
}

/// An adapter's name stands for one version at a time, and no call outlives an exchange: a label of
/// another version would be a lie.
fn of_lease(tokens: Vec<Token>, lease: &Lease<'_>) -> Result<Vec<Token>, Trouble> {
    let other = tokens.iter().find(|token| token.version != lease.weights.version.0);
    match other.filter(|_| lease.weights.form == Form::Adapter) {
        None => Ok(tokens),
        Some(token) => Err(Trouble::Failed {
            reason: format!(
                "{GENERATE}: tokens of version {} from the adapter of {}",
                token.version, lease.weights.version
            ),
        }),
    }
}

/// The seed of a call: the completion's own for the first, and another for each that goes on, which
/// would draw the same numbers again otherwise.
fn seed_of(seed: u64, written: usize) -> u64 {
    if written == 0 {
        return seed;
    }
    // SplitMix64.
    let mut z = seed.wrapping_add((written as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
