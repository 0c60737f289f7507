//! Bad signs: what the stability watch looks at, in words, with what to do about each.
//!
//! Not here: when a sign is shown (`engine::stability`).

use serde::{Deserialize, Serialize};

/// What the stability watch looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is described below")]
pub enum BadSign {
    Truncation,
    EffectiveSampleShare,
    EntropyCollapse,
    GradientNorm,
    RatioExtreme,
    /// Of earlier releases, which did not know that solved prompts leave the training set.
    RewardCollapse,
    HeldOutFall,
    RepeatedPrompts,
    DeadGroups,
    SolvedGroups,
    AnswerForm,
    VerifierErrors,
    EvaluationErrors,
    VerifierBound,
}

impl BadSign {
    /// Every sign that this release looks for.
    pub const ALL: [Self; 13] = [
        Self::HeldOutFall,
        Self::RepeatedPrompts,
        Self::Truncation,
        Self::EntropyCollapse,
        Self::GradientNorm,
        Self::EffectiveSampleShare,
        Self::RatioExtreme,
        Self::AnswerForm,
        Self::DeadGroups,
        Self::SolvedGroups,
        Self::VerifierErrors,
        Self::EvaluationErrors,
        Self::VerifierBound,
    ];

    /// What is seen.
    pub fn description(self) -> &'static str {
        match self {
            Self::Truncation => "many completions run out of their budget",
            Self::EffectiveSampleShare => "few tokens carry most of the weight",
            Self::EntropyCollapse => "the policy has hardly any choice left",
            Self::GradientNorm => "the gradient is far longer than it was",
            Self::RatioExtreme => "trainer and generator disagree about the tokens",
            Self::RewardCollapse => "the pass rate has fallen far below its best",
            Self::HeldOutFall => "the held-out pass rate has fallen below its best, beyond noise",
            Self::RepeatedPrompts => "prompts drawn again are answered worse than the last time",
            Self::DeadGroups => "nearly all prompts are answered wrongly every time",
            Self::SolvedGroups => "nearly all prompts are answered rightly every time",
            Self::AnswerForm => "right answers are written otherwise than they were at the start",
            Self::VerifierErrors => "the verifier fails on many completions",
            Self::EvaluationErrors => {
                "many completions or episodes of the evaluation have no verdict"
            }
            Self::VerifierBound => {
                "completions wait longer for their verdicts than they took to write"
            }
        }
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Truncation => {
                "let the format end a completion (format.answer), interrupt thinking \
                 (objective.length_control), or raise sampling.max_answer_tokens"
            }
            Self::EffectiveSampleShare => {
                "lower objective.off_policy's lag, or optimizer.lr; FP32 logits on both sides"
            }
            Self::EntropyCollapse => {
                "lower optimizer.lr or go back to the best checkpoint; look at samples for one answer \
                 that fits all"
            }
            Self::GradientNorm => {
                "lower optimizer.lr or optimizer.max_gradient_norm, or go back to the best checkpoint"
            }
            Self::RatioExtreme => {
                "lower objective.off_policy's lag; see that both sides compute logits in FP32"
            }
            Self::RewardCollapse => "look at the held-out pass rate, which this sign did not",
            Self::HeldOutFall => {
                "go back to the best checkpoint at a lower rate: scalerl train --resume RUN --from \
                 best --set optimizer.lr=HALF"
            }
            Self::RepeatedPrompts => {
                "wait for the next evaluation; if it fell too, go back to the best checkpoint at a \
                 lower optimizer.lr"
            }
            Self::DeadGroups => {
                "easier prompts first, a warm-up, or more completions a prompt (pipeline.group_size)"
            }
            Self::SolvedGroups => "harder prompts, or end here: these have nothing left to teach",
            Self::AnswerForm => {
                "read the samples: the verifier may be paying for a form that nobody wants \
                 (verifier.evaluated, format.answer)"
            }
            Self::VerifierErrors => {
                "read the reasons in the report; raise task.verifier_timeout_s if they are about time"
            }
            Self::EvaluationErrors => {
                "the pass rate is that of the rest: see to what they say in samples/ of the run folder"
            }
            Self::VerifierBound => {
                "more processors for verifiers, a faster verifier, or a shorter time limit a test"
            }
        }
    }

    /// Whether it says that training harms the policy, so that `stopping.when_unstable` applies. The
    /// others waste compute, or are about the verifier.
    pub fn is_instability(self) -> bool {
        match self {
            Self::Truncation
            | Self::EffectiveSampleShare
            | Self::EntropyCollapse
            | Self::GradientNorm
            | Self::RatioExtreme
            | Self::RewardCollapse
            | Self::HeldOutFall
            | Self::RepeatedPrompts => true,
            Self::DeadGroups
            | Self::SolvedGroups
            | Self::AnswerForm
            | Self::VerifierErrors
            | Self::EvaluationErrors
            | Self::VerifierBound => false,
        }
    }
}
