//! What goes through Redis, and what is believed of what comes.
//!
//! Everything is JSON, signed (`session.rs`) and with a limit on its size. An answer is then held
//! against its request as far as that is this generator's own promise: which versions its tokens may
//! have. What completions must be, whoever wrote them, is checked where all of them come in
//! (`scalerl_rollout::Intake`).

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
    #[error("{what} is not signed with this session's token")]
    Unsigned { what: &'static str },
    #[error("{what} cannot be read: {reason}")]
    Unreadable { what: &'static str, reason: String },
    #[error("completion {index}: a token of {found}, {floor} or newer asked for")]
    TooOld { index: usize, found: PolicyVersion, floor: PolicyVersion },
    #[error("completion {index}: a token of {found}, which nobody has published")]
    Unpublished { index: usize, found: PolicyVersion },
}

pub(super) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("plain data becomes JSON")
}

pub(super) fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, Unusable> {
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
    /// Whether these completions have versions that they may have; those above `newest` do not exist.
    pub(super) fn check_versions(
        &self,
        completions: &[Completion],
        newest: PolicyVersion,
    ) -> Result<(), Unusable> {
        for (index, one) in completions.iter().enumerate() {
            let floor = self.floor;
            if let Some(found) = one.versions.iter().copied().find(|found| *found < floor) {
                return Err(Unusable::TooOld { index, found, floor });
            }
            if let Some(found) = one.versions.iter().copied().find(|found| *found > newest) {
                return Err(Unusable::Unpublished { index, found });
            }
        }
        Ok(())
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
            stop_token_ids: vec![],
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

    #[test]
    fn an_answer_has_versions_that_were_asked_for_and_exist() {
        let checked = |change: fn(&mut Completion)| {
            let mut one = completion();
            change(&mut one);
            let said = ask().check_versions(&[completion(), one], PolicyVersion(5));
            said.map_err(|error| error.to_string())
        };
        checked(|_| {}).unwrap();
        let old = checked(|one| one.versions[2] = PolicyVersion(3)).unwrap_err();
        assert!(old.contains("completion 1: a token of v3, v4 or newer"), "{old}");
        let new = checked(|one| one.versions[0] = PolicyVersion(6)).unwrap_err();
        assert!(new.contains("v6, which nobody has published"), "{new}");
    }

    #[test]
    fn a_request_without_an_end_of_the_answer_is_read() {
        let mut value = serde_json::to_value(ask()).unwrap();
        value["request"].as_object_mut().unwrap().remove("end_of_answer").unwrap();
        let read: Ask = decode("a request", value.to_string().as_bytes()).unwrap();
        assert_eq!(read.request, SampleRequest { end_of_answer: None, ..ask().request });
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode::<Reply>("an answer", &bytes);
            let _ = decode::<Beat>("a sign", &bytes);
            let _ = decode::<Ask>("a request", &bytes);
        }
    }
}
