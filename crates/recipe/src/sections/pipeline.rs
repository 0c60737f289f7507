//! `[pipeline]`: how much work a step is and how generation and training share it. Read by
//! `crates/engine`. How far the two may be apart is `objective.off_policy`.

use crate::{
    declare::{choice, declare, section},
    setting::Rule,
};

section! {
    /// How much work a step is, and what happens to half-written work when weights change.
    pub struct Pipeline {
        /// Prompt groups in one optimizer step, before filtering. Source: ScaleRL, section 2 (48 ×
        /// 16 = 768 completions).
        groups_per_step: u32 = 48, Rule::AtLeast(1.0);
        /// Completions sampled per prompt. A group of one has no spread. Source: ScaleRL, section 2.
        group_size: u32 = 16, Rule::AtLeast(2.0);
        /// The KV cache of half-written completions when new weights arrive.
        kv_after_update: KvAfterUpdate = KvAfterUpdate::default();
        /// Tokens that go through the trainer at once. Changes memory and speed, never the result.
        micro_batch_tokens: u32 = 32768, Rule::AtLeast(1.0);
    }
}

choice! {
    /// The KV cache of half-written completions when new weights arrive.
    pub enum KvAfterUpdate {
        /// Kept: the completion goes on at once. Source: PipelineRL, as in ScaleRL, section 3.
        "stale" Stale,
        /// Computed anew with the new weights.
        "recompute" Recompute,
    }
}
