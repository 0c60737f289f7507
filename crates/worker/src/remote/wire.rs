//! What goes through Redis, and what is believed of what comes.
//!
//! Everything is JSON with a limit on its size, looked at before it is parsed; an answer is then held
//! against its request. Who can write to the Redis server is not thereby trusted with the run: a
//! completion of the wrong length or version never reaches the engine.

use scalerl_rollout::{Completion, GeneratorError, PolicyVersion, SampleRequest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A prompt of a million tokens and its interruptions.
pub(super) const MOST_REQUEST: usize = 16 << 20;
/// 64 completions of 32,000 tokens at about 40 bytes each, and room.
pub(super) const MOST_ANSWER: usize = 256 << 20;
/// A few short fields.
pub(super) const MOST_BEAT: usize = 4 << 10;
/// A recipe and some addresses.
pub(super) const MOST_ANNOUNCEMENT: usize = 4 << 20;
/// Generators of one run.
pub(super) const MOST_MEMBERS: usize = 4096;
/// No tokenizer's longest token has more, on average over a completion.
const MOST_BYTES_PER_TOKEN: usize = 256;

/// One request on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ask {
    pub(super) id: String,
    /// No token may be older.
    pub(super) floor: PolicyVersion,
    pub(super) request: SampleRequest,
}

/// What a generator made of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Reply {
    pub(super) id: String,
    /// Who answers.
    pub(super) from: String,
    pub(super) outcome: Outcome,
}

/// What can be said about a request. Failures of the generator itself are not answers: the request
/// stays with Redis, for another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Outcome {
    Completions(Vec<Completion>),
    TooLong { asked: u64, limit: u64 },
    Refused { reason: String },
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// What it calls itself.
    pub name: String,
    /// `generator`.
    pub role: String,
    /// Where it runs.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Grows with every sign, so that an old one is not taken for a new one.
    pub count: u64,
    /// What it samples from; `None` while it must not serve.
    pub version: Option<PolicyVersion>,
    /// Tokens sampled since it started.
    pub tokens: u64,
    /// Tokens a second since the sign before.
    pub tokens_per_second: f64,
    /// Requests it works on.
    pub requests: u32,
}

/// Why something from the network is not used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum Unusable {
    #[error("{what} has {bytes} bytes, more than the {limit} allowed")]
    TooLarge { what: &'static str, bytes: usize, limit: usize },
    #[error("{what} cannot be read: {reason}")]
    Unreadable { what: &'static str, reason: String },
    #[error("completion {index}: {reason}")]
    Completion { index: usize, reason: String },
    #[error("{found} completions, {asked} asked for")]
    Count { found: usize, asked: u32 },
}

pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("plain data becomes JSON")
}

pub(super) fn decode<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
    limit: usize,
) -> Result<T, Unusable> {
    if bytes.len() > limit {
        return Err(Unusable::TooLarge { what, bytes: bytes.len(), limit });
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Unusable::Unreadable { what, reason: error.to_string() })
}

impl Outcome {
    /// `None` where the generator and not the request is at fault.
    pub(super) fn of(
        answer: Result<Vec<Completion>, GeneratorError>,
    ) -> Result<Self, GeneratorError> {
        match answer {
            Ok(completions) => Ok(Self::Completions(completions)),
            Err(GeneratorError::TooLong { asked, limit }) => Ok(Self::TooLong { asked, limit }),
            Err(GeneratorError::Refused { reason }) => Ok(Self::Refused { reason }),
            Err(error) => Err(error),
        }
    }
}

impl Ask {
    /// What this answer is worth; versions above `newest` do not exist.
    pub(super) fn judge(
        &self,
        outcome: Outcome,
        newest: PolicyVersion,
    ) -> Result<Result<Vec<Completion>, GeneratorError>, Unusable> {
        let completions = match outcome {
            Outcome::Completions(completions) => completions,
            Outcome::TooLong { asked, limit } => {
                return Ok(Err(GeneratorError::TooLong { asked, limit }));
            }
            Outcome::Refused { reason } => return Ok(Err(GeneratorError::Refused { reason })),
        };
        let asked = self.request.count;
        if completions.len() != asked as usize {
            return Err(Unusable::Count { found: completions.len(), asked });
        }
        for (index, completion) in completions.iter().enumerate() {
            let looked = self.look(completion, index, newest);
            looked.map_err(|reason| Unusable::Completion { index, reason })?;
        }
        Ok(Ok(completions))
    }

    fn look(&self, one: &Completion, index: usize, newest: PolicyVersion) -> Result<(), String> {
        one.check().map_err(|error| error.to_string())?;
        let request = &self.request;
        let injected = request.interruptions.get(index).map_or(0, |one| one.token_ids.len());
        let most = request.max_thinking_tokens as usize + request.max_answer_tokens as usize;
        if one.sampled_tokens() > most || one.len() > most + injected {
            return Err(format!("{} tokens, at most {} asked for", one.len(), most + injected));
        }
        if one.thinking_tokens as usize > one.len() {
            return Err(format!("{} of {} tokens are thinking", one.thinking_tokens, one.len()));
        }
        if one.text.len() > MOST_BYTES_PER_TOKEN * (one.len() + 1) {
            return Err(format!("{} bytes of text for {} tokens", one.text.len(), one.len()));
        }
        if let Some(bad) = one.logprobs.iter().find(|value| !value.is_finite() || **value > 0.0) {
            return Err(format!("a log-prob of {bad}"));
        }
        if !one.versions.is_sorted() {
            return Err("versions go back".to_owned());
        }
        match (one.versions.first(), one.versions.last()) {
            (Some(oldest), _) if *oldest < self.floor => {
                Err(format!("a token of {oldest}, {} or newer asked for", self.floor))
            }
            (_, Some(last)) if *last > newest => {
                Err(format!("a token of {last}, which nobody has published"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use scalerl_rollout::{AnswerEnd, FinishReason, GroupId, Interruption, Sampling};

    fn ask() -> Ask {
        let request = SampleRequest {
            group: GroupId(3),
            prompt_token_ids: vec![1, 2],
            count: 1,
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0 },
            max_thinking_tokens: 2,
            max_answer_tokens: 2,
            end_of_thinking: vec![9],
            interruptions: vec![Interruption { at_token: 2, token_ids: vec![9] }],
            stop: vec![],
            end_of_answer: Some(AnswerEnd::at("}")),
            seed: 1,
        };
        Ask { id: "1-3".into(), floor: PolicyVersion(4), request }
    }

    fn completion() -> Completion {
        Completion {
            token_ids: vec![5, 6, 9, 7],
            logprobs: vec![-0.5, -1.0, 0.0, -0.1],
            versions: [4, 4, 5, 5].map(PolicyVersion).to_vec(),
            is_injected: vec![false, false, true, false],
            text: "abcd".into(),
            thinking_tokens: 3,
            finish: FinishReason::Stop,
        }
    }

    fn judged(change: impl FnOnce(&mut Completion)) -> Result<(), Unusable> {
        let mut one = completion();
        change(&mut one);
        let judged = ask().judge(Outcome::Completions(vec![one]), PolicyVersion(5));
        judged.map(|answer| drop(answer.unwrap()))
    }

    type Change = fn(&mut Completion);

    /// One more than was asked for.
    fn add_sampled_token(one: &mut Completion) {
        one.is_injected[2] = false;
        one.token_ids.push(7);
        one.logprobs.push(-0.1);
        one.versions.push(PolicyVersion(5));
        one.is_injected.push(false);
    }

    #[test]
    fn an_answer_is_held_against_its_request() {
        judged(|_| {}).unwrap();
        let cases: [(Change, &str); 8] = [
            (|one| one.versions[0] = PolicyVersion(3), "a token of v3, v4 or newer"),
            (|one| one.versions[3] = PolicyVersion(6), "nobody has published"),
            (|one| one.versions.swap(1, 2), "versions go back"),
            (|one| one.logprobs[1] = f32::NAN, "a log-prob of NaN"),
            (|one| (one.is_injected[2], one.thinking_tokens) = (false, 9), "9 of 4 tokens"),
            (add_sampled_token, "5 tokens, at most 5"),
            (|one| one.text = "x".repeat(10_000), "bytes of text"),
            (|one| one.token_ids.truncate(3), "must be equal"),
        ];
        for (change, expected) in cases {
            let said = judged(change).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        let none = ask().judge(Outcome::Completions(vec![]), PolicyVersion(5));
        assert_eq!(none.unwrap_err(), Unusable::Count { found: 0, asked: 1 });
    }

    #[test]
    fn a_request_without_an_end_of_the_answer_is_read() {
        let mut value = serde_json::to_value(ask()).unwrap();
        value["request"].as_object_mut().unwrap().remove("end_of_answer").unwrap();
        let read: Ask = decode("a request", value.to_string().as_bytes(), MOST_REQUEST).unwrap();
        assert_eq!(read.request, SampleRequest { end_of_answer: None, ..ask().request });
    }

    #[test]
    fn what_is_too_large_is_not_parsed() {
        let bytes = encode(&ask());
        assert_eq!(decode::<Ask>("a request", &bytes, bytes.len()).unwrap(), ask());
        let error = decode::<Ask>("a request", &bytes, bytes.len() - 1).unwrap_err();
        assert!(matches!(error, Unusable::TooLarge { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_an_answer_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Reply>("an answer", &bytes, MOST_ANSWER);
            let _ = decode::<Beat>("a sign", &bytes, MOST_BEAT);
        }

        #[test]
        fn a_broken_answer_never_gets_through(cut in 0_usize..400, flip in 0_usize..400, with in any::<u8>()) {
            let reply = Reply {
                id: "1-3".into(),
                from: "gen-0".into(),
                outcome: Outcome::Completions(vec![completion()]),
            };
            let mut bytes = encode(&reply);
            let place = flip % bytes.len();
            bytes[place] = with;
            bytes.truncate(bytes.len() - cut % 3);
            if let Ok(Reply { outcome, .. }) = decode::<Reply>("an answer", &bytes, MOST_ANSWER)
                && let Ok(Ok(answer)) = ask().judge(outcome, PolicyVersion(5))
            {
                for one in answer {
                    prop_assert!(one.check().is_ok() && one.oldest_version() >= Some(PolicyVersion(4)));
                }
            }
        }
    }
}
