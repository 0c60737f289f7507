//! What a generator hands back: tokens, each with its log-prob and the policy that chose it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::version::PolicyVersion;

/// Why a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model ended it: end token or stop text.
    Stop,
    /// A budget ran out first, after an interruption or without one.
    Length,
}

/// One sampled completion. Made by a generator; graded by `task`, trained on by way of `objective`.
///
/// `token_ids`, `logprobs`, `versions` and `is_injected` share one length. Weights may change in
/// mid-completion, so each token carries the version that chose it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// Tokens in order, the end token included where the model chose it.
    pub token_ids: Vec<u32>,
    /// Log-prob of each token under the distribution it was drawn from, temperature included.
    /// 0 for injected tokens, whose probability is nobody's business.
    pub logprobs: Vec<f32>,
    /// Policy that chose (or, for injected tokens, that read) each token.
    pub versions: Vec<PolicyVersion>,
    /// True for tokens that were forced, not sampled. They carry no loss.
    pub is_injected: Vec<bool>,
    /// The decoded text, injected tokens included: what the verifier reads.
    pub text: String,
    /// Tokens up to and including the end of thinking; the whole length when it never ended, 0
    /// when the format has no thinking.
    pub thinking_tokens: u32,
    /// Why it ended.
    pub finish: FinishReason,
}

/// A completion whose arrays do not fit together: a generator's mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "a completion has {tokens} tokens, {logprobs} log-probs, {versions} versions and {flags} \
     injected flags; the four must be equal"
)]
#[expect(missing_docs, reason = "the message names the fields")]
pub struct BrokenCompletion {
    pub tokens: usize,
    pub logprobs: usize,
    pub versions: usize,
    pub flags: usize,
}

impl Completion {
    /// Checks that the arrays share a length; for what comes over a wire.
    pub fn check(&self) -> Result<(), BrokenCompletion> {
        let tokens = self.token_ids.len();
        let (logprobs, versions) = (self.logprobs.len(), self.versions.len());
        let flags = self.is_injected.len();
        if [logprobs, versions, flags].iter().all(|&length| length == tokens) {
            Ok(())
        } else {
            Err(BrokenCompletion { tokens, logprobs, versions, flags })
        }
    }

    /// Number of tokens, injected ones included.
    pub fn len(&self) -> usize {
        self.token_ids.len()
    }

    /// True when the model said nothing at all.
    pub fn is_empty(&self) -> bool {
        self.token_ids.is_empty()
    }

    /// Tokens the policy chose: those that may carry loss.
    pub fn sampled_tokens(&self) -> usize {
        self.is_injected.iter().filter(|is_injected| !**is_injected).count()
    }

    /// True when thinking was cut by an interruption.
    pub fn is_interrupted(&self) -> bool {
        self.is_injected.contains(&true)
    }

    /// True when a budget ran out before the model ended.
    pub fn is_truncated(&self) -> bool {
        self.finish == FinishReason::Length
    }

    /// The oldest policy that chose a token; `None` for an empty completion.
    pub fn oldest_version(&self) -> Option<PolicyVersion> {
        self.versions.iter().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion() -> Completion {
        Completion {
            token_ids: vec![5, 6, 7],
            logprobs: vec![-0.5, 0.0, -0.25],
            versions: vec![PolicyVersion(4), PolicyVersion(5), PolicyVersion(5)],
            is_injected: vec![false, true, false],
            text: "abc".into(),
            thinking_tokens: 2,
            finish: FinishReason::Stop,
        }
    }

    #[test]
    fn counting_tells_sampled_from_injected_tokens() {
        let completion = completion();
        assert_eq!(completion.sampled_tokens(), 2);
        assert!(completion.is_interrupted());
        assert!(!completion.is_truncated());
        assert_eq!(completion.oldest_version(), Some(PolicyVersion(4)));
        assert_eq!(PolicyVersion(12).steps_since(PolicyVersion(4)), 8);
    }

    #[test]
    fn arrays_of_different_lengths_are_refused() {
        let mut broken = completion();
        broken.logprobs.pop();
        let error = broken.check().unwrap_err();
        assert_eq!((error.tokens, error.logprobs), (3, 2));
        assert_eq!(completion().check(), Ok(()));
    }

    #[test]
    fn a_completion_survives_being_written_down() {
        let text = serde_json::to_string(&completion()).unwrap();
        assert_eq!(serde_json::from_str::<Completion>(&text).unwrap(), completion());
    }
}
