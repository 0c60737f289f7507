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
    /// 0 for injected tokens, which the policy did not choose.
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

/// Rounding may lift the log-prob of a certain token this far above 0.
pub const LOGPROB_SLACK: f32 = 1e-4;

/// No token that was really drawn has a smaller log-prob.
///
/// A draw meets a token of probability below e^−64 with chance V·e^−64 at most: 4e-23 for a
/// vocabulary of 2^18, so a run of 1e13 tokens meets one with chance 4e-10. What is smaller is a
/// placeholder (−9999, −1e30) or a mistake. It also keeps every ratio below e^64, whose square is
/// far from the end of float64: statistics of a step stay finite.
pub const LEAST_LOGPROB: f32 = -64.0;

/// What is wrong with a completion, whoever wrote it.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum BrokenCompletion {
    #[error(
        "{tokens} tokens, {logprobs} log-probs, {versions} versions and {flags} injected flags; \
         the four must be equal"
    )]
    Lengths { tokens: usize, logprobs: usize, versions: usize, flags: usize },
    #[error("it has no tokens, not even one that ends it")]
    Empty,
    #[error(
        "token {token} has a log-prob of {logprob:?}; those of sampled tokens lie between \
         {LEAST_LOGPROB} and 0, those of injected ones are 0"
    )]
    Logprob { token: usize, logprob: f32 },
    #[error("token {token} is of {version}, the one before it of a newer version")]
    Versions { token: usize, version: PolicyVersion },
    #[error("{thinking} of its {tokens} tokens are thinking")]
    Thinking { thinking: u32, tokens: usize },
    #[error("token {token} has id {id}, outside the vocabulary of {vocabulary}")]
    Vocabulary { token: usize, id: u32, vocabulary: u32 },
    #[error("{sampled} sampled tokens, at most {most} were asked for")]
    TooLong { sampled: usize, most: u64 },
    #[error("its injected tokens are not the interruption that was asked for")]
    Injected,
    #[error("its text is not what the run's tokenizer makes of its tokens")]
    Text,
}

impl Completion {
    /// Checks what every completion must be, whatever was asked for: arrays of one length, log-probs
    /// that can be, versions that never go back.
    pub fn check(&self) -> Result<(), BrokenCompletion> {
        let tokens = self.token_ids.len();
        let (logprobs, versions) = (self.logprobs.len(), self.versions.len());
        let flags = self.is_injected.len();
        if [logprobs, versions, flags].iter().any(|&length| length != tokens) {
            return Err(BrokenCompletion::Lengths { tokens, logprobs, versions, flags });
        }
        if tokens == 0 {
            return Err(BrokenCompletion::Empty);
        }
        let sampled = (0..tokens).filter(|token| !self.is_injected[*token]);
        // What is not a number lies in no range.
        let is_bad =
            |token: &usize| !(LEAST_LOGPROB..=LOGPROB_SLACK).contains(&self.logprobs[*token]);
        if let Some(token) = { sampled }.find(is_bad) {
            return Err(BrokenCompletion::Logprob { token, logprob: self.logprobs[token] });
        }
        if let Some(earlier) = self.versions.windows(2).position(|pair| pair[0] > pair[1]) {
            let token = earlier + 1;
            return Err(BrokenCompletion::Versions { token, version: self.versions[token] });
        }
        if self.thinking_tokens as usize > tokens {
            return Err(BrokenCompletion::Thinking { thinking: self.thinking_tokens, tokens });
        }
        Ok(())
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
    fn what_cannot_be_is_refused_by_its_place() {
        type Change = fn(&mut Completion);
        let cases: [(Change, &str); 9] = [
            (|one| one.logprobs.truncate(2), "3 tokens, 2 log-probs"),
            (|one| one.versions.push(PolicyVersion(5)), "4 versions"),
            (|one| one.logprobs[2] = -1e30, "token 2 has a log-prob of -1e30"),
            (|one| one.logprobs[0] = -64.1, "between -64 and 0"),
            (|one| one.logprobs[0] = f32::NAN, "token 0 has a log-prob of NaN"),
            (|one| one.logprobs[0] = f32::NEG_INFINITY, "token 0 has a log-prob of -inf"),
            (|one| one.logprobs[0] = 0.5, "token 0 has a log-prob of 0.5"),
            (|one| one.versions[1] = PolicyVersion(3), "token 1 is of v3"),
            (|one| one.thinking_tokens = 4, "4 of its 3 tokens are thinking"),
        ];
        assert_eq!(completion().check(), Ok(()));
        for (change, expected) in cases {
            let mut broken = completion();
            change(&mut broken);
            let said = broken.check().unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn the_least_log_prob_is_out_of_reach_of_any_run() {
        // Of the largest vocabulary in use, in the longest run anybody will pay for.
        let (vocabulary, tokens) = (f64::from(1 << 18), 1e13);
        let chance = vocabulary * f64::from(LEAST_LOGPROB).exp() * tokens;
        assert!(chance < 1e-9, "{chance}");
        let square_of_ratio = (-2.0 * f64::from(LEAST_LOGPROB)).exp();
        assert!((square_of_ratio * tokens).is_finite());
    }

    #[test]
    fn a_completion_survives_being_written_down() {
        let text = serde_json::to_string(&completion()).unwrap();
        assert_eq!(serde_json::from_str::<Completion>(&text).unwrap(), completion());
    }
}
