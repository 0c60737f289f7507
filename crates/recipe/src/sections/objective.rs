//! `[objective]`: what makes one algorithm another. Read by `crates/objective`, `crates/engine`
//! and trainers; formulas in docs/objectives.md.
//!
//! An objective is a value over choices that do not depend on each other, not a class per
//! algorithm. The few combinations that cannot work are refused in `check.rs`. Defaults are
//! ScaleRL (arXiv 2510.13786), section 3.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

section! {
    /// What makes one algorithm another: choices that do not depend on each other.
    pub struct Objective {
        /// What an advantage (reward minus its group's mean) is divided by.
        advantage: AdvantageScope = AdvantageScope::default();
        /// Whether the ratio of trainer to generator is taken per token or per completion.
        ratio: RatioGrain = RatioGrain::default();
        /// How the ratio enters the loss.
        surrogate: Surrogate = Surrogate::default();
        /// How token losses become one number.
        aggregation: Aggregation = Aggregation::default();
        /// What happens to groups whose rewards are all equal.
        filter: Filter = Filter::default();
        /// What keeps completions from growing without end.
        length_control: LengthControl = LengthControl::default();
        /// How old a rollout may be when it is trained on.
        off_policy: OffPolicy = OffPolicy::default();
        /// Number format of the head's product, on both sides of the ratio.
        head_precision: HeadPrecision = HeadPrecision::default();
        /// Which prompts come again in later epochs.
        curriculum: Curriculum = Curriculum::default();
        /// Penalty for moving away from the model the run started from.
        kl: Kl = Kl::default();
        /// Coefficient of the entropy bonus; 0 is off.
        entropy_bonus: f64 = 0.0, Rule::AtLeast(0.0);
        /// Completions that ran out of their budget.
        truncated: Truncated = Truncated::default();
    }
}

choice! {
    /// What an advantage (reward minus its group's mean) is divided by.
    pub enum AdvantageScope {
        /// Standard deviation over the whole batch. Source: ScaleRL, section 3.
        "batch" Batch,
        /// Standard deviation of the prompt's own group. Source: GRPO (arXiv 2402.03300).
        "group" Group,
        /// Nothing. Source: Dr. GRPO (arXiv 2503.20783).
        "none" None,
    }
}

choice! {
    /// Whether the ratio of trainer to generator is taken per token or per completion.
    pub enum RatioGrain {
        /// Each token has its own.
        "token" Token,
        /// One per completion: the geometric mean of its tokens'. Source: GSPO (arXiv 2507.18071).
        "sequence" Sequence,
    }
}

choice! {
    /// How the ratio enters the loss.
    pub enum Surrogate {
        /// log-prob × the ratio, capped and held constant: every token keeps a gradient. Source:
        /// MiniMax-M1 (arXiv 2506.13585), as in ScaleRL, section 3.
        "cispo" Cispo {
            /// Largest ratio; an absolute cap, not 1 + ε. ScaleRL finds 4, 5 and 8 equal.
            cap: f64 = 5.0, Rule::Above(0.0);
        },
        /// min(ratio × advantage, clipped ratio × advantage): PPO's. Equal bounds are GRPO's,
        /// a wider upper one DAPO's.
        "clip" Clip {
            /// The ratio counts as at least 1 − low.
            low: f64 = 0.2, Rule::Between(0.0, 1.0);
            /// The ratio counts as at most 1 + high.
            high: f64 = 0.2, Rule::AtLeast(0.0);
        },
        /// log-prob × advantage: plain policy gradient, no correction for off-policy tokens.
        "none" None,
    }
}

choice! {
    /// How token losses become one number.
    pub enum Aggregation {
        /// Mean over a prompt's tokens, then over prompts. Source: ScaleRL, section 3.
        "prompt" Prompt,
        /// Mean over a completion's tokens, then over completions. Source: GRPO.
        "sample" Sample,
        /// Mean over all tokens of the batch.
        "token" Token,
        /// Sum over a completion's tokens / a constant, then mean over completions. Source: Dr. GRPO.
        "constant" Constant {
            /// The constant; usually the longest completion.
            tokens: u32 = 14336, Rule::AtLeast(1.0);
        },
    }
}

choice! {
    /// What happens to groups whose rewards are all equal: they have no gradient.
    pub enum Filter {
        /// They leave; the batch gets smaller. Source: ScaleRL, section 3.
        "zero-variance-shrink" ZeroVarianceShrink,
        /// They leave and others are sampled until the batch is full. Source: DAPO
        /// (arXiv 2503.14476).
        "zero-variance-refill" ZeroVarianceRefill {
            /// Batches' worth of groups that may be sampled for one batch before it goes as it is.
            limit: u32 = 10, Rule::AtLeast(1.0);
        },
        /// They stay, and count in every denominator.
        "none" None,
    }
}

choice! {
    /// What keeps completions from growing without end.
    pub enum LengthControl {
        /// At a random point the generator is made to stop thinking and answer. Source: ScaleRL,
        /// section 3.
        "interruption" Interruption {
            /// Earliest point, in thinking tokens.
            earliest: u32 = 10000, Rule::AtLeast(1.0);
            /// Latest point, in thinking tokens.
            latest: u32 = 12000, Rule::AtLeast(1.0);
        },
        /// Correct but long answers lose reward: clip((max − length) / cache − 1, −1, 0). Source:
        /// DAPO.
        "penalty" Penalty {
            /// Length that loses a whole reward.
            max_tokens: u32 = 14336, Rule::AtLeast(1.0);
            /// Tokens before that over which the loss grows. Our own choice: the answer budget.
            cache_tokens: u32 = 2048, Rule::AtLeast(1.0);
        },
        /// Nothing but the budgets.
        "none" None,
    }
}

choice! {
    /// How old a rollout may be when it is trained on.
    pub enum OffPolicy {
        /// Generators stream and take new weights after every step; the trainer waits when it is
        /// too far ahead. Source: PipelineRL, with ScaleRL's k = 8.
        "pipeline" Pipeline {
            /// Steps a rollout may lag behind. 0 runs the two in lockstep.
            steps_behind: u32 = 8, Rule::Between(0.0, 1024.0);
        },
        /// One policy generates k batches, then k steps train on them; phases alternate.
        "ppo-off-policy" PpoOffPolicy {
            /// Batches per phase (k).
            steps_per_phase: u32 = 8, Rule::Between(1.0, 1024.0);
        },
    }
}

choice! {
    /// Number format of the head's product, on both sides of the ratio.
    pub enum HeadPrecision {
        /// FP32 logits by the fastest way the device has that is as accurate as `exact`. Source:
        /// MiniMax-M1, as in ScaleRL, section 3.
        "fp32" Fp32,
        /// FP32 product, never TF32.
        "exact" Exact,
        /// Products of bf16 parts with FP32 sums and FP32 logits.
        "split" Split,
        /// Logits rounded to bf16: the ablation.
        "bf16" Bf16,
    }
}

choice! {
    /// Which prompts come again in later epochs.
    pub enum Curriculum {
        /// A prompt whose pass rate has reached the threshold is never sampled again. Source:
        /// ScaleRL, section 3.
        "no-positive-resampling" NoPositiveResampling {
            /// The pass rate, over the prompt's recorded history.
            threshold: f64 = 0.9, Rule::AboveUpTo(0.0, 1.0);
        },
        /// All of them.
        "none" None,
    }
}

choice! {
    /// Penalty for moving away from the model the run started from, weighted as the loss is.
    pub enum Kl {
        /// No penalty and no reference model. Source: ScaleRL, section 2.
        "none" None,
        /// log ratio: unbiased as a measure; as a loss it has no useful gradient and is refused.
        "k1" K1 {
            /// Strength.
            coefficient: f64 = 0.001, Rule::Above(0.0);
        },
        /// (log ratio)² / 2: its gradient is that of the true KL.
        "k2" K2 {
            /// Strength.
            coefficient: f64 = 0.001, Rule::Above(0.0);
        },
        /// exp(−log ratio) + log ratio − 1: never negative. Source: GRPO.
        "k3" K3 {
            /// Strength.
            coefficient: f64 = 0.001, Rule::Above(0.0);
        },
    }
}

choice! {
    /// Completions that ran out of their budget.
    pub enum Truncated {
        /// Their rewards count for their group's mean, their tokens carry no loss. Source: DAPO's
        /// overlong filtering; ScaleRL leaves them out of the effective batch.
        "masked" Masked,
        /// Trained on like any other.
        "kept" Kept,
    }
}
